//! Whole models against PyTorch: loss, outputs, gradients, and the first losses of training.

#[path = "../../../graph/tests/generator/mod.rs"]
mod generator;

use crate::files::{Reference, batch_of, distance, folder, gradients};
use phalanx_engine::{
    CompileOptions, CpuEngine, Engine, Loss, Model, Optimizer, OptimizerSpec, Pass, Sgd, Target,
};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_graph::{Graph, Op, Weights, onnx};
use phalanx_types::{DType, Tensor};
use std::path::Path;

/// How far from PyTorch in 64 bits a model may be; the deepest multiply rounding errors most.
fn tolerance(reference: &Reference) -> f64 {
    let deep = reference.under("buffer_stats.").count() > 60;
    if deep { 1e-3 } else { 1e-4 }
}

struct Case {
    name: String,
    graph: Graph,
    weights: Weights,
    /// BatchNorms were folded into convolutions: only evaluation can be compared.
    folded: bool,
}

fn without_dropout(mut graph: Graph) -> Graph {
    for node in &mut graph.nodes {
        if let Op::Dropout { ratio } = &mut node.op {
            *ratio = 0.0;
        }
    }
    graph
}

fn loss_of(reference: &Reference) -> Loss {
    match reference.metadata["loss"].as_str() {
        "cross_entropy" => Loss::CrossEntropy { smoothing: 0.0 },
        _ => Loss::Mse,
    }
}

/// Runs a batch forward and backward; the loss.
fn step(
    engine: &CpuEngine,
    model: &mut dyn Model,
    loss: Loss,
    x: &[f32],
    target: &[f32],
    batch: usize,
) -> f64 {
    model.forward(0, batch, &[x], Pass { training: true, seed: 0 }).unwrap();
    let shape = model.output_shape(0, 0);
    let rows: Vec<usize> = shape[..shape.len() - 1].to_vec();
    let mut gradient = vec![0.0; shape.iter().product()];
    let target = Target { data: target, shape: &rows };
    let value = loss
        .evaluate(engine.threads(), model.output(0, 0), &shape, target, 1.0, Some(&mut gradient))
        .unwrap();
    model.backward(0, &[&gradient], &mut |_, _| ()).unwrap();
    value
}

/// Norm, sum, and product with a fixed random tensor, as in the reference. A gradient that cancels to zero (of a bias
/// before a norm) is compared relative to the model's usual gradients.
fn far_from_stats(name: &str, got: &[f32], wanted: &[f32], usual: f64) -> f64 {
    let probe = uniform(&format!("probe.{name}"), got.len());
    let norm = got.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let product: f64 = got.iter().zip(probe).map(|(a, b)| f64::from(*a) * f64::from(b)).sum();
    let scale = f64::from(wanted[0]).max(1e-2 * usual);
    let apart = [(norm, wanted[0]), (product, wanted[2])];
    apart.iter().map(|(a, b)| (a - f64::from(*b)).abs() / scale).fold(0.0, f64::max)
}

fn check(engine: &CpuEngine, case: &Case, reference: &Reference) -> Vec<String> {
    let (tolerance, mut wrong) = (tolerance(reference), Vec::new());
    let floats = case.graph.value(case.graph.inputs[0]).dtype == DType::F32;
    let options = CompileOptions { input_gradients: floats, ..CompileOptions::default() };
    let compile = || {
        let mut model = engine.compile(&case.graph, &options).unwrap();
        model.load(&case.weights).unwrap();
        model
    };
    let mut model = compile();
    let input = reference.get("input.0").unwrap();
    let batch = batch_of(&case.graph, &[input]);
    let mut compare = |what: &str, far: f64, tolerance: f64| {
        if far.is_nan() || far > tolerance {
            wrong.push(format!("{}: {what} is {far:.1e} away", case.name));
        }
    };
    model.forward(0, batch, &[&input.data], Pass { training: false, seed: 0 }).unwrap();
    if let Some(wanted) = reference.get("eval_output") {
        compare("output in evaluation", distance(model.output(0, 0), &wanted.data), tolerance);
    }
    if case.folded {
        return wrong;
    }
    let target = reference.get("target").unwrap();
    let loss = step(engine, &mut *model, loss_of(reference), &input.data, &target.data, batch);
    let wanted = f64::from(reference.get("loss").unwrap().data[0]);
    compare("loss", (loss - wanted).abs() / wanted, tolerance);
    if let Some(wanted) = reference.get("output") {
        compare("output", distance(model.output(0, 0), &wanted.data), tolerance);
    }
    if let (Some(wanted), Some(got)) = (reference.get("dinput.0"), model.input_gradient(0, 0)) {
        compare("gradient of the input", distance(got, &wanted.data), 10.0 * tolerance);
    }
    let got = gradients(&mut *model);
    // Gradients are at most as far off as PyTorch's own in 32 bits.
    let own = reference.get("f32_error").map_or(0.0, |e| f64::from(e.data[3]));
    let mut norms: Vec<f64> = reference.under("dparam_stats.").map(|(_, s)| f64::from(s.data[0])).collect();
    norms.sort_by(f64::total_cmp);
    let usual = norms[norms.len() / 2];
    for (name, wanted) in reference.under("dparam_stats.") {
        match got.get(name) {
            Some(got) => compare(
                &format!("gradient of {name}"),
                far_from_stats(name, got, &wanted.data, usual),
                tolerance.max(3.0 * own),
            ),
            None => compare(&format!("gradient of {name}, which is missing,"), f64::INFINITY, 0.0),
        }
    }
    for (rule, spec) in optimizers(reference) {
        let losses = train(engine, compile(), reference, spec, (&case.graph, &input.shape, batch));
        let wanted = &reference.get(&format!("losses.{rule}")).unwrap().data;
        let f32_losses = reference.get(&format!("losses_f32.{rule}"));
        // How far PyTorch in 32 bits has been off so far: errors carry over to all later losses.
        let mut own = 0.0f64;
        for (i, (got, wanted)) in losses.iter().zip(wanted).enumerate() {
            let here = f32_losses
                .map_or(0.0, |l| (f64::from(l.data[i]) - f64::from(*wanted)).abs() / f64::from(*wanted));
            own = own.max(here);
            let far = (got - f64::from(*wanted)).abs() / f64::from(*wanted);
            compare(
                &format!("loss {i} with {rule} (PyTorch's own {own:.1e})"),
                far,
                tolerance.max(5.0 * own),
            );
        }
    }
    wrong
}

fn optimizers(reference: &Reference) -> Vec<(&'static str, OptimizerSpec)> {
    let rate = |name: &str| reference.metadata[name].parse::<f32>().unwrap();
    let sgd = Sgd { lr: rate("rate.sgd"), momentum: 0.9, ..Sgd::default() };
    let adam = phalanx_engine::Adam { lr: rate("rate.adam"), ..Default::default() };
    vec![("sgd", OptimizerSpec::Sgd(sgd)), ("adam", OptimizerSpec::Adam(adam))]
}

fn train(
    engine: &CpuEngine,
    mut model: Box<dyn Model>,
    reference: &Reference,
    spec: OptimizerSpec,
    (graph, shape, batch): (&Graph, &[usize], usize),
) -> Vec<f64> {
    let tokens = vocabulary(graph);
    let classes = graph.shape(graph.outputs[0]).dims().last().and_then(|d| d.fixed()).unwrap();
    let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
    let mut optimizer = Optimizer::new(spec, &sizes);
    let (name, target) = (&reference.metadata["model"], reference.get("target").unwrap());
    let lr = match spec {
        OptimizerSpec::Sgd(s) => s.lr,
        OptimizerSpec::Adam(a) => a.lr,
        _ => unreachable!(),
    };
    let one = |s: usize| {
        let n = shape.iter().product();
        let input = format!("{name}.step.{s}.input.0");
        let x = tokens.map_or_else(|| uniform(&input, n), |t| integers(&input, n, t));
        let y = integers(&format!("{name}.step.{s}.target"), target.data.len(), classes);
        let loss = step(engine, &mut *model, loss_of(reference), &x, &y, batch);
        optimizer.begin_step();
        model.update(&mut |i, p, g| optimizer.update(engine.threads(), i, lr, p, g));
        loss
    };
    (0..20).map(one).collect()
}

/// How many tokens there are, when the input is looked up in a table.
fn vocabulary(graph: &Graph) -> Option<usize> {
    let lookup =
        graph.nodes.iter().find(|n| matches!(n.op, Op::Gather { .. }) && n.inputs[1] == graph.inputs[0])?;
    graph.shape(lookup.inputs[0])[0].fixed()
}

/// Numbers in [-1, 1).
fn uniform(name: &str, count: usize) -> Vec<f32> {
    generator::units(name, count).map(|u| (2.0 * u - 1.0) as f32).collect()
}

/// Integers below `most`.
fn integers(name: &str, count: usize, most: usize) -> Vec<f32> {
    generator::units(name, count).map(|u| (u * most as f64).floor() as f32).collect()
}

fn weight_bytes(name: &str, shape: &[usize]) -> Vec<u8> {
    generator::to_bytes(generator::weight_of(name, shape, shape.iter().product()))
}

fn tensor(name: &str, shape: &[usize]) -> Tensor {
    let shape64 = shape.iter().map(|d| *d as u64).collect();
    Tensor::new(DType::F32, shape64, weight_bytes(name, shape).into()).unwrap()
}

fn zoo_case(name: &str, reference: &Reference) -> Case {
    let shape = &reference.get("input.0").unwrap().shape[1..];
    let tokens = name.starts_with("gpt");
    let options = ZooOptions { input: (!tokens).then(|| shape.to_vec()), ..ZooOptions::default() };
    let graph = without_dropout(zoo::build(name, &options).unwrap());
    let held = graph.parameters().chain(graph.buffers()).filter(|(_, v)| v.dtype == DType::F32);
    let weights = held.map(|(_, v)| (v.name.clone(), tensor(&v.name, &v.shape.at(1)))).collect();
    Case { name: format!("zoo {name}"), graph, weights, folded: false }
}

fn onnx_case(path: &Path, exporter: &str) -> Case {
    let recipe: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(path.file_name().unwrap());
    std::fs::copy(path, &file).unwrap();
    generator::write_weights(&recipe, &file.with_extension("weights"), weight_bytes);
    let imported = onnx::import(&file, &onnx::ImportOptions::default()).unwrap();
    let folded = exporter.contains("folded")
        || exporter.contains("eval")
        || exporter == "dynamo" && recipe.to_string().contains("\"fold\"");
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    Case { name, graph: without_dropout(imported.graph), weights: imported.weights, folded }
}

fn references() -> Vec<(String, Reference)> {
    let files = std::fs::read_dir(folder("models")).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
    files.sort();
    assert!(files.len() > 10, "the reference files are missing");
    files
        .iter()
        .map(|p| (p.file_stem().unwrap().to_string_lossy().into_owned(), Reference::open(p)))
        .collect()
}

#[test]
fn the_zoo_agrees_with_pytorch() {
    let engine = CpuEngine::new(2);
    let mut wrong = Vec::new();
    for (name, reference) in references() {
        if zoo::NAMES.contains(&name.as_str()) {
            wrong.extend(check(&engine, &zoo_case(&name, &reference), &reference));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn exported_models_agree_with_pytorch() {
    let engine = CpuEngine::new(2);
    let mut wrong = Vec::new();
    for (name, reference) in references() {
        let files = std::fs::read_dir(folder("models")).unwrap().map(|e| e.unwrap().path());
        let prefix = format!("{name}.");
        for path in files.filter(|p| p.extension().is_some_and(|e| e == "onnx")) {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let Some(exporter) = stem.strip_prefix(&prefix) else { continue };
            if exporter.contains("dropout") {
                continue;
            }
            let run =
                std::panic::AssertUnwindSafe(|| check(&engine, &onnx_case(&path, exporter), &reference));
            wrong.extend(std::panic::catch_unwind(run).unwrap_or_else(|_| vec![format!("{stem}: panicked")]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
