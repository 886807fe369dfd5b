//! Results do not depend on how a model runs: threads, recomputation, batches in flight, stages.

mod diagnose;
mod inference;
mod misuse;
mod stages;
mod zoo;

use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model, Pass};
use phalanx_graph::zoo::NAMES;
use phalanx_graph::{Builder, Init, Op, Unary, Weights};
use phalanx_types::Seed;
use std::collections::BTreeMap;
use zoo::{Case, PASS, noise};

/// All results of a step, as bits.
#[derive(Debug, PartialEq)]
struct Step {
    output: Vec<u32>,
    gradients: BTreeMap<String, Vec<u32>>,
    weights: Weights,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn gradients(model: &mut dyn Model) -> BTreeMap<String, Vec<u32>> {
    let mut all = Vec::new();
    model.update(&mut |_, _, gradient| all.push(bits(gradient)));
    model.parameters().iter().map(|p| p.name.clone()).zip(all).collect()
}

/// The gradient given for the output.
fn given(model: &dyn Model) -> Vec<f32> {
    noise(2, model.output(0, 0).len())
}

fn step(model: &mut dyn Model, case: &Case) -> Step {
    model.forward(0, case.batch, &[&case.x], PASS).unwrap();
    let given = given(model);
    model.backward(0, &[&given], &mut |_, _| ()).unwrap();
    Step { output: bits(model.output(0, 0)), gradients: gradients(model), weights: model.weights() }
}

/// Names what differs.
fn assert_equal(what: &str, got: &Step, wanted: &Step) {
    assert!(got.output == wanted.output, "{what}: outputs differ");
    let differ: Vec<&String> =
        wanted.gradients.iter().filter(|(n, g)| got.gradients[*n] != **g).map(|(n, _)| n).collect();
    assert!(differ.is_empty(), "{what}: gradients of {differ:?} differ");
    assert!(got.weights == wanted.weights, "{what}: running statistics differ");
}

#[test]
fn the_number_of_threads_does_not_show() {
    for name in NAMES {
        let case = Case::new(name, 4);
        let run = |threads| {
            let mut model = case.compile(&CpuEngine::new(threads), CompileOptions::default());
            step(&mut *model, &case)
        };
        let one = run(1);
        for threads in [2, 3] {
            assert_equal(&format!("{name} with {threads} threads"), &run(threads), &one);
        }
    }
}

#[test]
fn recomputing_does_not_show() {
    let engine = CpuEngine::new(2);
    for name in NAMES {
        let case = Case::new(name, 4);
        let run = |recompute| {
            let mut model = case.compile(&engine, CompileOptions { recompute, ..CompileOptions::default() });
            step(&mut *model, &case)
        };
        assert_equal(name, &run(true), &run(false));
    }
}

#[test]
fn recomputing_saves_memory() {
    let mut b = Builder::new("deep");
    let mut x = b.input("x", &[64]);
    for i in 0..60 {
        let y = b.linear(&format!("layer{i}"), x, 64);
        let y = b.unary(y, Unary::Tanh);
        let y = b.dropout(&format!("dropout{i}"), y, 0.1);
        x = b.add(x, y);
    }
    b.output(x);
    let graph = b.finish().unwrap();
    let weights = graph.initialise(Seed(1));
    let case = Case { graph, weights, batch: 256, x: noise(3, 256 * 64) };
    let engine = CpuEngine::new(2);
    let run = |recompute| {
        let mut model = case.compile(&engine, CompileOptions { recompute, ..CompileOptions::default() });
        let before = model.memory();
        (step(&mut *model, &case), model.memory() - before)
    };
    let ((again, less), (once, more)) = (run(true), run(false));
    assert_equal("a deep model", &again, &once);
    assert!(2 * less < more, "{less} bytes when recomputing, {more} otherwise");
}

#[test]
fn gradients_are_announced_in_order_when_they_are_final() {
    let engine = CpuEngine::new(2);
    for (name, recompute) in NAMES.into_iter().zip([false, true].into_iter().cycle()) {
        let case = Case::new(name, 4);
        let mut model = case.compile(&engine, CompileOptions { recompute, ..CompileOptions::default() });
        model.forward(0, case.batch, &[&case.x], PASS).unwrap();
        let (given, mut announced) = (given(&*model), Vec::new());
        model.backward(0, &[&given], &mut |i, gradient| announced.push((i, bits(gradient)))).unwrap();
        let mut wanted = Vec::new();
        model.update(&mut |i, _, gradient| wanted.push((i, bits(gradient))));
        let order = |list: &[(usize, Vec<u32>)]| list.iter().map(|(i, _)| *i).collect::<Vec<_>>();
        assert_eq!(order(&announced), order(&wanted), "{name}");
        assert!(announced == wanted, "{name}: a gradient changed after it was announced");
    }
}

/// A gradient is sent and averaged in place as soon as it is announced, while backward goes on.
#[test]
fn backward_goes_on_undisturbed_when_an_announced_gradient_is_changed() {
    let mut b = Builder::new("sum of weights");
    let x = b.input("x", &[4]);
    let w = b.parameter("w", &[3, 4], Init::Uniform(1.0));
    let (u, v) =
        (b.parameter("u", &[3, 2], Init::Uniform(1.0)), b.parameter("v", &[2, 4], Init::Uniform(1.0)));
    let twin = b.parameter("twin", &[3, 4], Init::Uniform(1.0));
    let low = b.op("low", Op::MatMul, &[u, v]);
    let sum = b.add(w, low);
    let sum = b.add(sum, twin);
    let y = b.op("y", Op::Linear, &[x, sum]);
    b.output(y);
    let graph = b.finish().unwrap();
    let weights = graph.initialise(Seed(1));
    let case = Case { graph, weights, batch: 5, x: noise(3, 20) };
    let mut model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    let wanted = step(&mut *model, &case);
    model.forward(0, case.batch, &[&case.x], PASS).unwrap();
    let given = given(&*model);
    model.backward(0, &[&given], &mut |_, gradient| gradient.iter_mut().for_each(|g| *g *= -2.0)).unwrap();
    model.update(&mut |_, _, gradient| gradient.iter_mut().for_each(|g| *g *= -0.5));
    let got = gradients(&mut *model);
    let differ: Vec<&String> =
        wanted.gradients.iter().filter(|(n, g)| got[*n] != **g).map(|(n, _)| n).collect();
    assert!(differ.is_empty(), "gradients of {differ:?} were made of a changed one");
}

#[test]
fn batches_in_flight_do_not_disturb_each_other() {
    let engine = CpuEngine::new(2);
    for name in NAMES {
        let mut cases = [Case::new(name, 4), Case::new(name, 2)];
        cases[1].x.reverse();
        let seeds = [Pass { seed: 1, ..PASS }, Pass { seed: 2, ..PASS }];
        let run = |order: &[(bool, usize)]| {
            let mut model = cases[0].compile(&engine, CompileOptions::default());
            let mut results = vec![None, None];
            for (back, slot) in order.iter().copied() {
                let case = &cases[slot];
                if !back {
                    model.forward(slot, case.batch, &[&case.x], seeds[slot]).unwrap();
                    continue;
                }
                let given = noise(4, model.output(slot, 0).len());
                model.backward(slot, &[&given], &mut |_, _| ()).unwrap();
                results[slot] = Some((bits(model.output(slot, 0)), gradients(&mut *model)));
            }
            (results, model.weights())
        };
        let one_by_one = run(&[(false, 0), (true, 0), (false, 1), (true, 1)]);
        let together = run(&[(false, 0), (false, 1), (true, 0), (true, 1)]);
        let crossed = run(&[(false, 0), (false, 1), (true, 1), (true, 0)]);
        assert!(together == one_by_one, "{name}: two batches in flight");
        assert!(crossed == one_by_one, "{name}: two batches in flight, the later one first");
    }
}

#[test]
fn evaluation_between_forward_and_backward_in_another_slot_does_not_show() {
    let engine = CpuEngine::new(2);
    let case = Case::new("digits-cnn", 4);
    let mut model = case.compile(&engine, CompileOptions::default());
    let wanted = step(&mut *model, &case);
    model.load(&case.weights).unwrap();
    model.forward(0, case.batch, &[&case.x], PASS).unwrap();
    model.forward(1, 1, &[&case.x[..64]], Pass { training: false, seed: 0 }).unwrap();
    let given = given(&*model);
    model.backward(0, &[&given], &mut |_, _| ()).unwrap();
    assert!(gradients(&mut *model) == wanted.gradients);
}

#[test]
fn parameters_survive_the_way_to_the_user_and_back() {
    let case = Case::new("mobilenet-v2", 2);
    let mut model = case.compile(&CpuEngine::new(1), CompileOptions::default());
    let mut flat = Vec::new();
    model.update(&mut |_, parameter, _| flat.push(parameter.to_vec()));
    for (i, flat) in flat.iter().enumerate() {
        let user = model.to_user(i, flat);
        assert_eq!(user, case.weights[&model.parameters()[i].name].to_floats());
        assert_eq!(model.to_engine(i, &user), *flat);
    }
    assert!(model.weights() == case.weights);
}

#[test]
fn engines_are_as_good_as_new_for_every_model() {
    let engine = CpuEngine::new(2);
    let case = Case::new("mlp", 3);
    let wanted = step(&mut *case.compile(&engine, CompileOptions::default()), &case);
    let mut model = engine.compile(&case.graph, &CompileOptions::default()).unwrap();
    for batch in [7, 1, 2, 5, 3] {
        model.load(&case.weights).unwrap();
        let x = if batch == 3 { case.x.clone() } else { noise(batch as u64, batch * 784) };
        let other = Case { graph: case.graph.clone(), weights: case.weights.clone(), batch, x };
        let got = step(&mut *model, &other);
        if batch == 3 {
            assert_equal("after batches of other sizes", &got, &wanted);
        }
    }
}
