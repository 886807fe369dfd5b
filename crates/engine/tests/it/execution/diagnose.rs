//! The first operator with a non-finite result is named.

use super::zoo::{Case, PASS, noise};
use super::{gradients, step};
use phalanx_engine::{CompileOptions, CpuEngine, DiagnoseReport, Pass, RunError};
use phalanx_graph::{Binary, Builder, Graph, Init, Op, Unary, ValueId};
use phalanx_types::{Seed, Tensor};

/// A batch of five through a norm, then `middle`, then a product; sample 3 has a first number of −9.
fn case(middle: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Case {
    let mut b = Builder::new("sick");
    let x = b.input("x", &[4]);
    let bias = b.parameter("shift", &[4], Init::Ones);
    let y = b.batch_norm("bn", x);
    let z = b.op("residual", Op::Binary(Binary::Sub), &[x, bias]);
    let z = middle(&mut b, z);
    let z = b.linear("fc", z, 4);
    let y = b.add(y, z);
    b.output(y);
    let graph: Graph = b.finish().unwrap();
    let weights = graph.initialise(Seed(1));
    let mut x: Vec<f32> = noise(1, 20).iter().map(|x| x.abs() + 2.0).collect();
    x[12] = -9.0;
    Case { graph, weights, batch: 5, x }
}

fn diagnose(case: &Case, given: f32) -> Option<DiagnoseReport> {
    let mut model = case.compile(&CpuEngine::new(2), CompileOptions::default());
    let before = model.weights();
    let found = model.diagnose(5, &[&case.x], PASS, &|y| vec![vec![given; y.len()]]).unwrap();
    assert!(model.weights() == before, "diagnosis changes running statistics");
    found
}

fn report(node: &str, op: &str, found: &'static str, backward: bool) -> Option<DiagnoseReport> {
    Some(DiagnoseReport { node: node.into(), op: op.into(), backward, found, sample: Some(3) })
}

#[test]
fn a_logarithm_of_a_negative_number_is_found() {
    let case = case(|b, x| b.op("log", Op::Unary(Unary::Log), &[x]));
    assert_eq!(diagnose(&case, 1.0), report("log", "Log", "NaN", false));
}

/// Merged operators are told apart.
#[test]
fn a_logarithm_amid_elementwise_operators_is_found() {
    let case = case(amid);
    assert_eq!(diagnose(&case, 1.0), report("log", "Log", "NaN", false));
}

fn amid(b: &mut Builder, x: ValueId) -> ValueId {
    let x = b.op("before", Op::Unary(Unary::LeakyRelu { slope: 0.5 }), &[x]);
    let x = b.op("log", Op::Unary(Unary::Log), &[x]);
    let x = b.op("after", Op::Unary(Unary::Sin), &[x]);
    b.op("last", Op::Unary(Unary::Tanh), &[x])
}

#[test]
fn a_number_that_is_too_large_is_found() {
    let case = case(|b, x| {
        let big = b.constant("big", Tensor::from_f32(vec![1], &[-30.0]).unwrap());
        let x = b.op("scaled", Op::Binary(Binary::Mul), &[x, big]);
        b.op("exp", Op::Unary(Unary::Exp), &[x])
    });
    assert_eq!(diagnose(&case, 1.0), report("exp", "Exp", "inf", false));
}

#[test]
fn a_slope_that_is_infinite_is_found_in_backward() {
    let case = case(|b, x| {
        let zeros = b.parameter("zeros", &[4], Init::Zeros);
        let roots = b.op("root", Op::Unary(Unary::Sqrt), &[zeros]);
        let x = b.op("sum", Op::Binary(Binary::Add), &[x, roots]);
        b.unary(x, Unary::Tanh)
    });
    let found = diagnose(&case, 1.0).unwrap();
    assert_eq!((found.node.as_str(), found.op.as_str(), found.backward), ("root", "Sqrt", true));
    assert!(found.found.ends_with("inf"), "{found:?}");
}

#[test]
fn a_gradient_that_is_given_wrong_is_found_in_backward() {
    let case = case(|_, x| x);
    let found = diagnose(&case, f32::NAN).unwrap();
    assert!(found.backward && found.found == "NaN");
}

#[test]
fn a_healthy_model_is_healthy_and_its_batch_in_flight_stays() {
    let engine = CpuEngine::new(2);
    for name in ["digits-cnn", "gpt-small"] {
        let case = Case::new(name, 4);
        let mut model = case.compile(&engine, CompileOptions::default());
        let wanted = step(&mut *model, &case);
        model.load(&case.weights).unwrap();
        model.forward(0, 4, &[&case.x], PASS).unwrap();
        let other = Pass { seed: 77, ..PASS };
        let found = model.diagnose(4, &[&case.x], other, &|y| vec![vec![0.1; y.len()]]).unwrap();
        assert_eq!(found, None);
        let given = super::given(&*model);
        model.backward(0, &[&given], &mut |_, _| ()).unwrap();
        assert!(gradients(&mut *model) == wanted.gradients, "{name}: diagnosis disturbs the batch in flight");
        assert!(model.weights() == wanted.weights, "{name}: diagnosis changes running statistics");
    }
}

#[test]
fn evaluation_is_diagnosed_too() {
    let case = case(amid);
    let mut model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    let pass = Pass { training: false, seed: 0 };
    let found = model.diagnose(5, &[&case.x], pass, &|_| Vec::new()).unwrap();
    assert_eq!(found, report("log", "Log", "NaN", false));
}

/// A model with two results.
#[test]
fn all_outputs_have_gradients_in_diagnosis() {
    let mut case = case(|_, x| x);
    case.graph.outputs.push(case.graph.nodes[1].outputs[0]);
    let mut model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    let found = model.diagnose(5, &[&case.x], PASS, &|y| vec![vec![0.1; y.len()]]);
    assert_eq!(found, Ok(None));
}

#[test]
fn what_cannot_be_run_is_refused_by_diagnosis_too() {
    let case = case(|_, x| x);
    let mut model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    let wrong = RunError::GradientSize { output: 0, got: 3, wanted: 20 };
    assert_eq!(model.diagnose(5, &[&case.x], PASS, &|_| vec![vec![0.1; 3]]), Err(wrong));
    let single = RunError::BatchTooSmall { node: "bn".into(), op: "BatchNorm" };
    assert_eq!(model.diagnose(1, &[&case.x[..4]], PASS, &|y| vec![vec![0.1; y.len()]]), Err(single));
}
