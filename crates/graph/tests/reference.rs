//! Every export of PyTorch in `tests/reference` imports, with the names and the layouts of its `state_dict`.

mod generator;

use phalanx_graph::onnx::{self, ImportOptions, Imported, OnnxError};
use phalanx_graph::weights;
use phalanx_types::DType;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What cannot be trained here, by the operator that says so.
const REFUSED: [(&str, &str); 11] = [
    ("argmax", "ArgMax"),
    ("argmax_dynamo", "ArgMax"),
    ("gather_elements", "GatherElements"),
    ("gather_elements_dynamo", "GatherElements"),
    ("gru_linear_before_reset_0_onnx", "GRU"),
    ("index_pairs_dynamo", "GatherND"),
    ("max_values_and_indices", "ArgMax"),
    ("max_values_and_indices_dynamo", "ArgMax"),
    ("reduce_prod", "ReduceProd"),
    ("reduce_prod_dynamo", "ReduceProd"),
    ("rnn_tanh", "RNN"),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference").join(name)
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder)
        .expect("the reference files are there")
        .filter_map(|e| Some(e.ok()?.path()));
    let mut found: Vec<PathBuf> = all.filter(|p| p.to_str().is_some_and(|p| p.ends_with(ending))).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn every_operator_imports_or_is_refused_by_name() {
    let mut wrong = Vec::new();
    for path in files(&folder("ops"), ".onnx") {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let refused = REFUSED.iter().find(|(n, _)| *n == name).map(|(_, op)| *op);
        match (onnx::import(&path, &ImportOptions::default()), refused) {
            (Ok(imported), None) => weights::check(&imported.graph, &imported.weights).unwrap(),
            (Err(OnnxError::Unsupported { at, .. }), Some(op)) if at.op == op => {}
            (other, _) => wrong.push(format!("{name}: {:?}", other.err())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_model_has_the_names_and_weights_of_its_state_dict() {
    let mut wrong = Vec::new();
    for path in files(&folder("models"), ".json") {
        let recipe: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let file = path.file_stem().unwrap().to_str().unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let model = temporary.path().join(format!("{file}.onnx"));
        std::fs::copy(path.with_extension("onnx"), &model).unwrap();
        generator::write_weights(&recipe, &temporary.path().join(format!("{file}.weights")), quick_weight);
        match onnx::import(&model, &ImportOptions::default()) {
            Ok(imported) => wrong.extend(differences(file, &recipe, &imported)),
            Err(e) => wrong.push(format!("{file}: {e}: {:?}", std::error::Error::source(&e))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is not as in the `state_dict`; batch norms that the exporter has folded into a convolution are gone.
fn differences(file: &str, recipe: &Value, imported: &Imported) -> Vec<String> {
    let mut wrong = Vec::new();
    weights::check(&imported.graph, &imported.weights).expect("weights of its own graph");
    let entries = generator::list(&recipe["initializers"]);
    let of = |key: &str| entries.iter().filter_map(|e| e[key].as_str()).collect::<BTreeSet<_>>();
    let (norms, convs) = (of("norm"), of("conv"));
    let mut known = BTreeSet::new();
    for entry in generator::list(&recipe["state_dict"]) {
        let name = generator::text(&entry["name"]);
        let owner = name.rsplit_once('.').map_or("", |(o, _)| o);
        known.insert(name.to_owned());
        known.insert(format!("{owner}.bias"));
        if norms.contains(owner) || entry["tied"].is_string() {
            continue;
        }
        let shape = generator::sizes(&entry["shape"]);
        let tied = generator::list(&recipe["state_dict"]).iter().find(|e| e["tied"] == name);
        let other = tied.and_then(|e| imported.weights.get(generator::text(&e["name"])));
        let Some(tensor) = imported.weights.get(name).or(other) else {
            if entry["generated"] == false {
                continue;
            }
            wrong.push(format!("{file}: `{name}` is missing"));
            continue;
        };
        let got: Vec<usize> = tensor.shape().iter().map(|d| *d as usize).collect();
        if got != shape {
            wrong.push(format!("{file}: `{name}` has shape {got:?} instead of {shape:?}"));
        } else if entry["generated"] == true
            && !convs.contains(owner)
            && tensor.dtype() == DType::F32
            && tensor.data()[..] != generator::quick_weight(name, &shape)[..]
        {
            wrong.push(format!("{file}: `{name}` has other values"));
        }
    }
    let extra = imported.weights.keys().filter(|k| !known.contains(*k));
    wrong.extend(extra.map(|k| format!("{file}: `{k}` is not in the state_dict")));
    wrong
}
