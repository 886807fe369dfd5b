//! Invalid use is refused with a typed error; nothing panics, and the model is usable afterwards.

use super::zoo::{Case, PASS, noise};
use super::{gradients, step};
use phalanx_engine::{CompileOptions, CpuEngine, Model, Pass, RunError, WeightsError};
use phalanx_graph::{Builder, zoo::ZooOptions};
use phalanx_types::{Seed, Tensor};

fn digits() -> (Case, Box<dyn Model>) {
    let case = Case::new("digits-cnn", 4);
    let model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    (case, model)
}

#[test]
fn inputs_of_another_size_are_refused() {
    let (case, mut model) = digits();
    let wanted = step(&mut *model, &case);
    let short = model.forward(0, 4, &[&case.x[1..]], PASS);
    assert_eq!(short, Err(RunError::InputSize { input: "x".into(), got: 255, wanted: 256, batch: 4 }));
    let other = model.forward(0, 5, &[&case.x], PASS);
    assert_eq!(other, Err(RunError::InputSize { input: "x".into(), got: 256, wanted: 320, batch: 5 }));
    assert_eq!(model.forward(0, 4, &[], PASS), Err(RunError::Inputs { wanted: 1, got: 0 }));
    let two = model.forward(0, 4, &[&case.x, &case.x], PASS);
    assert_eq!(two, Err(RunError::Inputs { wanted: 1, got: 2 }));
    model.load(&case.weights).unwrap();
    assert!(step(&mut *model, &case) == wanted, "a refused batch shows");
}

#[test]
fn gradients_of_another_size_are_refused() {
    let (case, mut model) = digits();
    model.forward(0, 4, &[&case.x], PASS).unwrap();
    let short = model.backward(0, &[&[0.0; 39]], &mut |_, _| ());
    assert_eq!(short, Err(RunError::GradientSize { output: 0, got: 39, wanted: 40 }));
    let none = model.backward(0, &[], &mut |_, _| ());
    assert_eq!(none, Err(RunError::GradientSize { output: 0, got: 0, wanted: 40 }));
    model.backward(0, &[&[0.1; 40]], &mut |_, _| ()).unwrap();
}

#[test]
fn backward_needs_a_training_forward() {
    let (case, mut model) = digits();
    let refused = |slot| Err(RunError::NoForward { slot });
    let back = |model: &mut dyn Model, slot| model.backward(slot, &[&[0.1; 40]], &mut |_, _| ());
    assert_eq!(back(&mut *model, 0), refused(0));
    assert_eq!(back(&mut *model, 3), refused(3));
    model.forward(0, 4, &[&case.x], Pass { training: false, seed: 0 }).unwrap();
    assert_eq!(back(&mut *model, 0), refused(0));
    model.forward(0, 4, &[&case.x], PASS).unwrap();
    assert_eq!(back(&mut *model, 1), refused(1));
    assert_eq!(back(&mut *model, 0), Ok(()));
}

/// Backward reuses the memory of what forward kept.
#[test]
fn a_second_backward_is_refused_or_the_same() {
    let (case, mut model) = digits();
    let wanted = step(&mut *model, &case).gradients;
    let given = noise(2, 40);
    match model.backward(0, &[&given], &mut |_, _| ()) {
        Err(e) => assert_eq!(e, RunError::NoForward { slot: 0 }),
        Ok(()) => assert!(gradients(&mut *model) == wanted, "a second backward gives other gradients"),
    }
}

#[test]
fn a_model_for_forward_only_refuses_backward() {
    let case = Case::new("digits-cnn", 4);
    let options = CompileOptions { forward_only: true, ..CompileOptions::default() };
    let mut model = case.compile(&CpuEngine::new(1), options);
    model.forward(0, 4, &[&case.x], PASS).unwrap();
    assert_eq!(model.backward(0, &[&[0.1; 40]], &mut |_, _| ()), Err(RunError::ForwardOnly));
}

#[test]
fn an_index_outside_of_an_embedding_is_refused() {
    let mut case = Case::new("gpt-small", 2);
    let mut model = case.compile(&CpuEngine::new(2), CompileOptions::default());
    let good = case.x[20];
    for bad in [1000.0, -1001.0, f32::INFINITY, f32::NAN, 1e30] {
        case.x[20] = bad;
        let refused = model.forward(0, 2, &[&case.x], PASS);
        let named = matches!(&refused, Err(RunError::Index { op: "Gather", size: 1000, .. }));
        assert!(named, "token {bad} gives {refused:?}");
        let given = noise(1, 2 * 16 * 1000);
        let back = model.backward(0, &[&given], &mut |_, _| ());
        assert_eq!(back, Err(RunError::NoForward { slot: 0 }), "forward did not get through");
    }
    case.x[20] = good;
    model.forward(0, 2, &[&case.x], PASS).unwrap();
}

#[test]
fn a_batch_of_one_has_no_spread() {
    let mut b = Builder::new("norm");
    let x = b.input("x", &[3]);
    let y = b.batch_norm("bn", x);
    b.output(y);
    let graph = b.finish().unwrap();
    let weights = graph.initialise(Seed(1));
    let case = Case { graph, weights, batch: 1, x: noise(1, 3) };
    let mut model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    let refused = RunError::BatchTooSmall { node: "bn".into(), op: "BatchNorm" };
    assert_eq!(model.forward(0, 1, &[&case.x], PASS), Err(refused));
    assert_eq!(model.forward(0, 1, &[&case.x], Pass { training: false, ..PASS }), Ok(()));
    assert_eq!(model.forward(0, 2, &[&noise(1, 6)], PASS), Ok(()));
}

#[test]
fn an_empty_batch_does_not_panic() {
    for name in ["mlp", "digits-cnn", "gpt-small"] {
        let case = Case::new(name, 1);
        let mut model = case.compile(&CpuEngine::new(2), CompileOptions::default());
        let run = model.forward(0, 0, &[&[]], PASS);
        if run.is_ok() {
            assert!(model.output(0, 0).is_empty());
            model.backward(0, &[&[]], &mut |_, _| ()).unwrap();
        }
    }
}

#[test]
fn weights_of_another_model_are_refused_and_change_nothing() {
    let (case, mut model) = digits();
    let before = model.weights();
    let mut weights = case.weights.clone();
    let name = "dense_2.bias".to_owned();
    weights.remove(&name);
    assert_eq!(model.load(&weights), Err(WeightsError::Missing { name: name.clone() }));
    weights.insert(name.clone(), Tensor::from_f32(vec![2, 5], &[9.0; 10]).unwrap());
    let refused = WeightsError::Shape { name, got: vec![2, 5], wanted: vec![10] };
    assert_eq!(model.load(&weights), Err(refused));
    assert!(model.weights() == before);
    let other = phalanx_graph::zoo::build("mlp", &ZooOptions::default()).unwrap().initialise(Seed(1));
    assert!(matches!(model.load(&other), Err(WeightsError::Missing { .. })));
}
