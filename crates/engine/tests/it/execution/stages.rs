//! A model cut into stages computes what the whole computes.

use super::zoo::{Case, PASS, noise};
use super::{Step, bits, gradients};
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model};
use phalanx_graph::Graph;
use std::collections::BTreeMap;

fn cut(graph: &Graph, places: &[usize]) -> Vec<Graph> {
    let ends = places.iter().copied().chain([graph.nodes.len()]);
    let starts = std::iter::once(0).chain(places.iter().copied());
    starts.zip(ends).map(|(start, end)| graph.stage(start..end).unwrap()).collect()
}

fn compile(engine: &CpuEngine, case: &Case, stages: &[Graph]) -> Vec<Box<dyn Model>> {
    let options = CompileOptions { input_gradients: true, ..CompileOptions::default() };
    let one = |stage: &Graph| {
        let mut model = engine.compile(stage, &options).unwrap();
        model.load(&case.weights).unwrap();
        model
    };
    stages.iter().map(one).collect()
}

fn outputs(model: &dyn Model, stage: &Graph) -> Vec<Vec<f32>> {
    (0..stage.outputs.len()).map(|i| model.output(0, i).to_vec()).collect()
}

fn slices(values: &[Vec<f32>]) -> Vec<&[f32]> {
    values.iter().map(|v| &v[..]).collect()
}

fn run_stages(engine: &CpuEngine, case: &Case, stages: &[Graph]) -> Step {
    let mut models = compile(engine, case, stages);
    let mut passed = vec![case.x.clone()];
    for (model, stage) in models.iter_mut().zip(stages) {
        model.forward(0, case.batch, &slices(&passed), PASS).unwrap();
        passed = outputs(&**model, stage);
    }
    let output = bits(&passed[0]);
    let mut back = vec![noise(2, passed[0].len())];
    let mut all = BTreeMap::new();
    let mut weights = case.weights.clone();
    for (model, stage) in models.iter_mut().zip(stages).rev() {
        model.backward(0, &slices(&back), &mut |_, _| ()).unwrap();
        all.extend(gradients(&mut **model));
        let own = model.weights();
        let held = stage.parameters().chain(stage.buffers());
        weights.extend(held.map(|(_, v)| (v.name.clone(), own[&v.name].clone())));
        let size = |i: usize| stage.shape(stage.inputs[i]).at(case.batch).iter().product();
        let gradient = |i: usize| model.input_gradient(0, i).map_or(vec![0.0; size(i)], <[f32]>::to_vec);
        back = (0..stage.inputs.len()).map(gradient).collect();
    }
    Step { output, gradients: all, weights }
}

/// Compares stages cut at these places with the whole; names what differs.
fn differences(engine: &CpuEngine, case: &Case, whole: &Step, places: &[usize]) -> Vec<String> {
    let stages = cut(&case.graph, places);
    let got = run_stages(engine, case, &stages);
    let before = &case.graph.nodes[places[0]].name;
    let mut wrong = Vec::new();
    if got.output != whole.output {
        wrong.push(format!("{} cut at {places:?} (before {before}): output", case.graph.name));
    }
    let differ: Vec<&String> =
        whole.gradients.iter().filter(|(n, g)| got.gradients[*n] != **g).map(|(n, _)| n).collect();
    if !differ.is_empty() {
        wrong.push(format!(
            "{} cut at {places:?} (before {before}): gradients of {differ:?}",
            case.graph.name
        ));
    }
    if got.weights != whole.weights {
        wrong.push(format!("{} cut at {places:?} (before {before}): running statistics", case.graph.name));
    }
    wrong
}

fn check(name: &str, every: usize) {
    let engine = CpuEngine::new(2);
    let case = Case::new(name, 3);
    let whole = run_stages(&engine, &case, std::slice::from_ref(&case.graph));
    let n = case.graph.nodes.len();
    let mut wrong = Vec::new();
    for at in (1..n).step_by(every) {
        wrong.extend(differences(&engine, &case, &whole, &[at]));
    }
    wrong.extend(differences(&engine, &case, &whole, &[n / 4, n / 2, 3 * n / 4]));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn stages_of_a_small_model_are_the_whole() {
    check("digits-cnn", 1);
}

#[test]
fn stages_of_a_deep_model_are_the_whole() {
    check("mobilenet-v2", 29);
}

#[test]
fn stages_of_a_language_model_are_the_whole() {
    check("gpt-small", 13);
}
