//! Every export of PyTorch in `tests/reference` imports, with the names and the layouts of its `state_dict`.

mod generator;

use phalanx_graph::onnx::{self, ImportOptions, Imported, OnnxError};
use phalanx_graph::{Graph, weights};
use phalanx_types::{DType, Tensor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Models that cannot be trained, by the unsupported operator.
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

/// The bytes of a weight; a large one repeats its beginning, which is enough to recognise it and fast to make.
fn quick_weight(name: &str, shape: &[usize]) -> Vec<u8> {
    const PERIOD: usize = 4099;
    let count = shape.iter().product::<usize>();
    let mut bytes = generator::to_bytes(generator::weight_of(name, shape, count.min(PERIOD)));
    while bytes.len() < 4 * count {
        let n = bytes.len().min(4 * count - bytes.len());
        bytes.extend_from_within(..n);
    }
    bytes
}

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
            (Ok(imported), None) => {
                weights::check(&imported.graph, &imported.weights).unwrap();
                // Modules that are called twice, and weights that are used by hand, have one name.
                assert_eq!(imported.graph.aliases, vec![], "{name}");
            }
            (Err(OnnxError::Unsupported { at, .. }), Some(op)) if at.op == op => {}
            (other, _) => wrong.push(format!("{name}: {:?}", other.err())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A model of the folder, with the weights of its recipe beside it.
fn with_weights(file: &str, recipe: &Value) -> Result<Imported, OnnxError> {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let model = temporary.path().join(format!("{file}.onnx"));
    std::fs::copy(folder("models").join(format!("{file}.onnx")), &model).expect("the model is there");
    let weights = temporary.path().join(format!("{file}.weights"));
    generator::write_weights(recipe, &weights, quick_weight);
    onnx::import(&model, &ImportOptions::default())
}

#[test]
fn every_model_has_the_names_and_weights_of_its_state_dict() {
    let mut wrong = Vec::new();
    for path in files(&folder("models"), ".json") {
        let recipe: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let file = path.file_stem().unwrap().to_str().unwrap();
        match with_weights(file, &recipe) {
            Ok(imported) => wrong.extend(differences(file, &recipe, &imported)),
            Err(e) => wrong.push(format!("{file}: {e}: {:?}", std::error::Error::source(&e))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Differences from the `state_dict`; batch norms that the exporter has folded into a convolution are gone.
fn differences(file: &str, recipe: &Value, imported: &Imported) -> Vec<String> {
    let mut wrong = Vec::new();
    weights::check(&imported.graph, &imported.weights).expect("weights of its own graph");
    let entries = generator::list(&recipe["initializers"]);
    let of = |key: &str| entries.iter().filter_map(|e| e[key].as_str()).collect::<BTreeSet<_>>();
    let (norms, convs) = (of("norm"), of("conv"));
    let mut known = BTreeSet::new();
    let all = imported.graph.with_aliases(imported.weights.clone());
    for entry in generator::list(&recipe["state_dict"]) {
        let name = generator::text(&entry["name"]);
        let owner = name.rsplit_once('.').map_or("", |(o, _)| o);
        known.insert(name.to_owned());
        known.insert(format!("{owner}.bias"));
        if entry["tied"].is_string() && !all.contains_key(name) {
            wrong.push(format!("{file}: the tied `{name}` is missing"));
        }
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
            && tensor.data()[..] != quick_weight(name, &shape)[..]
        {
            wrong.push(format!("{file}: `{name}` has other values"));
        }
    }
    let extra = all.keys().filter(|k| !known.contains(*k));
    wrong.extend(extra.map(|k| format!("{file}: `{k}` is not in the state_dict")));
    wrong
}

#[test]
fn tied_weights_have_all_their_names() {
    for exporter in ["torchscript", "dynamo", "dynamo-raw"] {
        let file = format!("gpt-tied.{exporter}");
        let recipe = std::fs::read(folder("models").join(format!("{file}.json"))).unwrap();
        let recipe: Value = serde_json::from_slice(&recipe).unwrap();
        let imported = with_weights(&file, &recipe).unwrap();
        let entries = generator::list(&recipe["state_dict"]).iter().filter(|e| e["buffer"] == false);
        let wanted: BTreeSet<&str> = entries.map(|e| generator::text(&e["name"])).collect();
        let graph = &imported.graph;
        let all = graph.with_aliases(imported.weights.clone());
        let learned: BTreeSet<&str> = all.keys().map(String::as_str).collect();
        assert!(wanted.is_subset(&learned), "{exporter}: {:?}", wanted.difference(&learned));
        assert_eq!(all["head.weight"], all["wte.weight"]);
        assert_eq!(graph.aliases.len(), 1);

        weights::check(graph, &all).unwrap();
        assert_eq!(graph.without_aliases(all.clone()), imported.weights);
        let mut other = all.clone();
        other.remove(&graph.value(graph.aliases[0].1).name);
        weights::check(graph, &other).unwrap();
        assert_eq!(graph.without_aliases(other), imported.weights);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        weights::save(&path, &all).unwrap();
        assert_eq!(weights::load(&path, graph).unwrap(), imported.weights);

        let mut untied = all;
        let zeros = vec![0; untied["head.weight"].data().len()];
        let shape = untied["head.weight"].shape().to_vec();
        untied.insert("head.weight".into(), Tensor::new(DType::F32, shape, zeros.into()).unwrap());
        let error = weights::check(graph, &untied).unwrap_err();
        assert!(error.to_string().contains("the same parameter"), "{error}");

        let whole = graph.stage(0..graph.nodes.len()).unwrap();
        let named =
            |g: &Graph| g.aliases.iter().map(|(n, v)| (n.clone(), g.value(*v).name.clone())).collect();
        let names: [Vec<(String, String)>; 2] = [named(graph), named(&whole)];
        assert_eq!(names[0], names[1]);
    }
}
