//! Every operator against PyTorch: outputs, gradients of inputs and of parameters, running statistics.

use crate::files::{Array, Reference, batch_of, distance, folder, gradients};
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Pass};
use phalanx_graph::onnx;
use std::path::Path;

const TOLERANCE: f64 = 1e-4;

/// Cases that are refused, or whose reference file is incomplete.
const EXCEPT: &[(&str, &str)] = &[
    ("argmax", "refused: nothing learns through it"),
    ("max_values_and_indices", "refused: ArgMax"),
    ("gather_elements", "refused: GatherElements"),
    ("index_pairs_dynamo", "refused: GatherND with unknown positions"),
    ("reduce_prod", "refused: ReduceProd along an axis"),
    ("rnn_tanh", "refused: RNN"),
    ("gru_linear_before_reset_0", "refused: not PyTorch's GRU"),
    ("prelu_one_dynamo", "the exporter made a constant of its one parameter"),
    ("embedding_padding_index", "the file does not say which row is padding"),
];

/// `prefix.0`, `prefix.1`, …
fn list<'a>(reference: &'a Reference, prefix: &str) -> Vec<&'a Array> {
    (0..).map_while(|i| reference.get(&format!("{prefix}.{i}"))).collect()
}

fn check(engine: &CpuEngine, path: &Path) -> Result<(), String> {
    let reference = Reference::open(&path.with_extension("safetensors"));
    let imported = onnx::import(path, &onnx::ImportOptions::default()).map_err(|e| format!("import: {e}"))?;
    let training = reference.metadata["mode"] == "train";
    let options = CompileOptions { input_gradients: true, ..CompileOptions::default() };
    let mut model = engine.compile(&imported.graph, &options).map_err(|e| format!("compile: {e}"))?;
    model.load(&imported.weights).map_err(|e| format!("load: {e}"))?;
    let inputs = list(&reference, "input");
    let batch = batch_of(&imported.graph, &inputs);
    let slices: Vec<&[f32]> = inputs.iter().map(|a| &a.data[..]).collect();
    model.forward(0, batch, &slices, Pass { training, seed: 1 }).map_err(|e| format!("forward: {e}"))?;
    let close = |what: String, got: &[f32], wanted: &[f32]| match distance(got, wanted) {
        d if d <= TOLERANCE => Ok(()),
        d => Err(format!(
            "{what} is {d:.1e} away: {:?} instead of {:?}",
            &got[..got.len().min(6)],
            &wanted[..wanted.len().min(6)]
        )),
    };
    let outputs = list(&reference, "output");
    for (i, wanted) in outputs.iter().enumerate() {
        close(format!("output {i}"), model.output(0, i), &wanted.data)?;
    }
    if !training {
        return Ok(());
    }
    let given: Vec<Vec<f32>> = (0..outputs.len())
        .map(|i| {
            reference
                .get(&format!("dout.{i}"))
                .map_or_else(|| vec![0.0; model.output(0, i).len()], |d| d.data.clone())
        })
        .collect();
    let given: Vec<&[f32]> = given.iter().map(|g| &g[..]).collect();
    model.backward(0, &given, &mut |_, _| ()).map_err(|e| format!("backward: {e}"))?;
    for i in 0..inputs.len() {
        if let Some(wanted) = reference.get(&format!("dinput.{i}")) {
            let zeros = vec![0.0; wanted.data.len()];
            close(
                format!("gradient of input {i}"),
                model.input_gradient(0, i).unwrap_or(&zeros),
                &wanted.data,
            )?;
        }
    }
    let got = gradients(&mut *model);
    // A recurrent layer written by hand holds both biases in one tensor, which has no name in a state_dict.
    let hand = reference.metadata["source"] == "hand" && got.keys().any(|k| k.ends_with("weight_ih_l0"));
    for (name, wanted) in reference.under("dparam.").filter(|_| !hand) {
        let got =
            got.get(name).ok_or_else(|| format!("there is no parameter {name}, but {:?}", got.keys()))?;
        // An exporter may keep only part of a parameter; its gradient stands beside.
        let part = reference.under("dinit.").map(|(_, a)| a).find(|a| a.data.len() == got.len());
        let wanted = if got.len() < wanted.data.len() { part.unwrap_or(wanted) } else { wanted };
        close(format!("gradient of {name}"), got, &wanted.data)?;
    }
    let weights = model.weights();
    // Batch counters are updated by the training loop.
    let computed = |name: &str| !name.ends_with("num_batches_tracked");
    for (name, wanted) in reference.under("buffer.").filter(|(name, _)| computed(name)) {
        let got = weights.get(name).ok_or_else(|| format!("there is no buffer {name}"))?;
        close(format!("buffer {name}"), &got.to_floats(), &wanted.data)?;
    }
    Ok(())
}

#[test]
fn operators_agree_with_pytorch() {
    let engine = CpuEngine::new(2);
    let mut files: Vec<_> = std::fs::read_dir(folder("ops")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    let name = |p: &Path| p.file_stem().unwrap().to_string_lossy().into_owned();
    files.retain(|p| !EXCEPT.iter().any(|(except, _)| name(p).starts_with(except)));
    files.sort();
    assert!(files.len() > 100, "the reference files are missing");
    let mut wrong = Vec::new();
    for file in &files {
        let run = std::panic::AssertUnwindSafe(|| check(&engine, file));
        let result = std::panic::catch_unwind(run).unwrap_or_else(|_| Err("panicked".into()));
        if let Err(why) = result {
            wrong.push(format!("{}: {why}", name(file)));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}
