//! Using a trained model.

use super::{CNN, digits, run_file, sandbox, train};
use phalanx_graph::weights;
use phalanx_testkit::Process;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[test]
fn a_trained_model_is_evaluated_exported_and_asked() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "epochs = 2");
    let summary = train(&sandbox, &["--run-dir", "run"]);
    let accuracy = |args: &[&str]| sandbox.json(&[&["eval", "--output", "json"], args].concat());
    let own = accuracy(&["run"]);
    assert_eq!((&own["samples"], &own["accuracy"]), (&719.into(), &summary["val_acc"]), "{own}");
    assert!((own["loss"].as_f64().unwrap() - summary["val_loss"].as_f64().unwrap()).abs() < 1e-6, "{own}");
    let data = digits();
    let data = data.to_str().unwrap();
    let test = [data, "--x", "x_test", "--y", "y_test"];
    let weights_alone = [&["run/model.safetensors", "--config", "run.toml"], &test[..]].concat();
    for model in [&["run/checkpoints/step-000034"][..], &weights_alone] {
        assert_eq!(accuracy(model)["accuracy"], summary["val_acc"], "{model:?}");
    }
    let on_training_data = accuracy(&["run", data, "--x", "x_train", "--y", "y_train"]);
    assert_eq!(on_training_data["samples"], 1078, "{on_training_data}");

    let exported = sandbox.json(&[
        "export",
        "run",
        "--onnx",
        "a.onnx",
        "--safetensors",
        "a.safetensors",
        "--output",
        "json",
    ]);
    assert_eq!(exported["params_hash"], summary["params_hash"], "{exported}");
    let through_onnx = accuracy(&[&["a.onnx", "--config", "run.toml"], &test[..]].concat());
    assert_eq!(through_onnx["accuracy"], summary["val_acc"], "{through_onnx}");

    let file = sandbox.path().join("out.safetensors");
    for name in ["out.safetensors", "out.csv", "out.npz"] {
        let predicted = sandbox.json(&["predict", "run", "-o", name, "--output", "json"]);
        assert_eq!(
            (&predicted["samples"], &predicted["shape"]),
            (&719.into(), &serde_json::json!([719, 10]))
        );
    }
    let predicted = weights::from_bytes(std::fs::read(file).unwrap().into()).unwrap();
    assert_eq!(predicted["outputs"].shape(), [719, 10]);
    let csv = std::fs::read_to_string(sandbox.path().join("out.csv")).unwrap();
    assert!(csv.starts_with("argmax,output_0,") && csv.lines().count() == 720);
    // What was written can be read again.
    let said = sandbox.fails(2, &["eval", "run", "out.npz", "--x", "outputs", "--y", "argmax"]);
    assert!(said.contains("have shape [10], but the model takes [1, 8, 8]"), "{said}");
}

#[test]
fn a_run_that_went_on_is_not_what_it_was() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 2");
    train(&sandbox, &["--run-dir", "run"]);
    let model = sandbox.path().join("run/model.safetensors");
    let before = std::fs::read(&model).unwrap();
    let said = sandbox.fails(2, &["run", "resume", "run", "--steps", "1"]);
    assert!(said.contains("is at step 2 already, 1 steps were asked for"), "{said}");
    let summary = sandbox.json(&["run", "resume", "run", "--steps", "4", "--output", "json"]);
    // As if the run had been killed while it continued.
    std::fs::write(&model, before).unwrap();
    let exported = sandbox.json(&["export", "run", "--safetensors", "a.safetensors", "--output", "json"]);
    assert_eq!(exported["params_hash"], summary["params_hash"], "{exported}");
}

/// A table of two kinds of points; points of the first kind are small.
fn table(sandbox: &phalanx_testkit::Sandbox, name: &str, kinds: &[(&str, f32)]) {
    let line = |i: usize| {
        let (kind, size) = kinds[i % kinds.len()];
        format!("{},{},{kind}\n", size + (i % 5) as f32 * 0.01, -size)
    };
    let text: String = (0..40).map(line).collect();
    std::fs::write(sandbox.path().join(name), format!("a,b,kind\n{text}")).unwrap();
}

#[test]
fn classes_go_by_their_names_and_samples_need_no_labels() {
    let sandbox = sandbox();
    table(&sandbox, "train.csv", &[("apple", -1.0), ("pear", 1.0), ("fig", 3.0)]);
    table(&sandbox, "valid.csv", &[("pear", 1.0), ("fig", 3.0)]);
    table(&sandbox, "other.csv", &[("pear", 1.0), ("plum", 3.0)]);
    let text = r#"
[model]
zoo = "mlp"
input = [2]
classes = 3
[data]
train = { file = "train.csv", y = "kind" }
valid = { file = "valid.csv", y = "kind" }
[train]
loss = "cross_entropy"
epochs = 40
batch = 8
lr = 0.01
"#;
    std::fs::write(sandbox.path().join("run.toml"), text).unwrap();
    let summary = train(&sandbox, &["--run-dir", "run"]);
    assert_eq!(summary["val_acc"], 1.0, "{summary}");
    let valid = sandbox.json(&["eval", "run", "valid.csv", "--output", "json"]);
    assert_eq!(valid["accuracy"], 1.0, "{valid}");
    let said = sandbox.fails(2, &["eval", "run", "other.csv"]);
    assert!(said.contains("a class \"plum\""), "{said}");
    let said = sandbox.fails(2, &["train", "run.toml", "--set", "data.valid.file=other.csv", "-o", "b"]);
    assert!(said.contains("a class \"plum\""), "{said}");

    std::fs::write(sandbox.path().join("bare.csv"), "a,b\n1,-1\n3,-3\n").unwrap();
    for (file, samples) in [("bare.csv", 2), ("other.csv", 40)] {
        let predicted = sandbox.json(&["predict", "run", file, "-o", "out.csv", "--output", "json"]);
        assert_eq!(predicted["samples"], samples, "{predicted}");
    }
}

#[test]
fn models_are_inspected() {
    let sandbox = sandbox();
    let list = sandbox.json(&["model", "list", "--output", "json"]);
    assert!(list.as_array().unwrap().iter().any(|m| m["name"] == "digits-cnn"), "{list}");
    let cnn = sandbox.json(&["model", "inspect", "zoo:digits-cnn", "--output", "json"]);
    let layers = cnn["layers"].as_array().unwrap();
    assert!(layers.iter().any(|l| l["name"] == "dense_1" && l["operator"] == "Linear"), "{cnn}");
    let sum: u64 = layers.iter().map(|l| l["parameters"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), cnn["parameters"].as_u64());
    assert_eq!(cnn["optimizer_bytes"]["adam"].as_u64(), Some(8 * sum));
    assert!(
        cnn["flops"].as_u64() > Some(0) && cnn["training_bytes"].as_u64() > cnn["parameter_bytes"].as_u64()
    );
    let table = sandbox.stdout(&["model", "inspect", "zoo:mlp", "--input", "64", "--classes", "3"]);
    assert!(table.contains("fc3") && table.contains("[N×3]"), "{table}");
}

#[test]
fn a_benchmark_of_training_gives_the_documented_numbers() {
    let sandbox = sandbox();
    let keys = ["model", "threads", "batch", "step_ms", "p95_ms", "samples_per_s", "peak_rss_mb", "gflops"];
    let bench =
        ["bench", "train", "--model", "digits-cnn", "--steps", "2", "--threads", "1", "--output", "json"];
    let measured = sandbox.json(&bench);
    assert_eq!(measured.as_object().unwrap().len(), keys.len(), "{measured}");
    for key in &keys[1..] {
        assert!(measured[*key].as_f64() > Some(0.0), "{key} in {measured}");
    }

    // A script asks for one measurement after the other.
    let mut child = sandbox.command(&[&bench[..], &["--serve"]].concat());
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..2 {
        writeln!(stdin, "run").unwrap();
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["model"], "digits-cnn");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_example_reaches_its_accuracy() {
    let sandbox = sandbox();
    let example = digits().with_file_name("run.toml");
    let args = ["train", example.to_str().unwrap(), "--output", "json"];
    let mut process: Process = sandbox.start(&args);
    let (code, summary) = process.summary();
    assert_eq!(code, Some(0), "{}", process.stderr());
    assert!(summary["val_acc"].as_f64() > Some(0.96), "{summary}");
}
