//! Trained models in other programs: PyTorch loads the weights, ONNX Runtime the graph, and both must compute what
//! `phalanx predict` computed.
//!
//! The Python is `PHALANX_TORCH_PYTHON`, or `target/venv/torch`; `cargo xtask test` creates it. Without one the tests
//! say so and pass, unless `PHALANX_REQUIRE_TORCH` is 1.

use phalanx_graph::{Weights, weights};
use phalanx_testkit::Sandbox;
use phalanx_types::{DType, Tensor};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TOLERANCE: f64 = 1e-5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A Python with PyTorch and ONNX Runtime; `None`, with a message, if there is none and none is required.
#[expect(clippy::explicit_write, reason = "a test that passes keeps what `eprintln!` writes to itself")]
fn python() -> Option<PathBuf> {
    let said = std::env::var_os("PHALANX_TORCH_PYTHON").map(PathBuf::from);
    let found = said.unwrap_or_else(|| root().join("target/venv/torch/bin/python"));
    if found.is_file() {
        return Some(found);
    }
    let missing = format!("there is no {}; `cargo xtask test` makes one", found.display());
    assert!(std::env::var_os("PHALANX_REQUIRE_TORCH").is_none_or(|required| required != "1"), "{missing}");
    writeln!(std::io::stderr(), "skipped: the round trip through PyTorch: {missing}").unwrap();
    None
}

/// Samples to predict, and the names of their arrays.
struct Samples {
    file: PathBuf,
    x: &'static str,
    y: &'static str,
}

/// Exports and predicts with the run called `run`, then compares with the other programs.
fn check(sandbox: &Sandbox, python: &Path, samples: &Samples, args: &[&str]) -> Output {
    let file = samples.file.to_str().unwrap();
    sandbox.stdout(&["export", "run", "--onnx", "model.onnx", "--safetensors", "model.safetensors"]);
    sandbox.stdout(&["predict", "run", file, "--x", samples.x, "-o", "predictions.safetensors"]);
    ask(sandbox, python, samples, args)
}

fn ask(sandbox: &Sandbox, python: &Path, samples: &Samples, args: &[&str]) -> Output {
    Command::new(python)
        .arg(root().join("tests/roundtrip/check.py"))
        .args(["model.safetensors", "model.onnx", "predictions.safetensors"])
        .arg(&samples.file)
        .args(["--x", samples.x, "--y", samples.y])
        .args(args)
        .current_dir(sandbox.path())
        .output()
        .unwrap()
}

/// Checks that the other programs got the same; returns their answer.
fn assert_same(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    for who in ["torch", "ort"] {
        let difference = answer[format!("{who}_max_diff")].as_f64();
        assert!(difference.is_some_and(|d| d <= TOLERANCE), "{who}: {answer}");
        assert_eq!(answer[format!("{who}_acc")], answer["phalanx_acc"], "{who}: {answer}");
    }
    answer
}

/// A file of random samples: numbers, or tokens below `classes` with a label for each.
fn random_samples(sandbox: &Sandbox, count: u64, shape: &[u64], tokens: bool, classes: i64) -> Samples {
    let mut dice = Pcg64::seed_from_u64(11);
    let dims: Vec<u64> = std::iter::once(count).chain(shape.iter().copied()).collect();
    let mut whole = |dims: &[u64]| {
        let numbers = (0..dims.iter().product()).map(|_| dice.random_range(0..classes));
        let bytes: Vec<u8> = numbers.flat_map(i64::to_le_bytes).collect();
        Tensor::new(DType::I64, dims.to_vec(), bytes.into()).unwrap()
    };
    let y = whole(if tokens { &dims } else { &dims[..1] });
    let x = if tokens {
        whole(&dims)
    } else {
        let numbers: Vec<f32> = (0..dims.iter().product()).map(|_| dice.random_range(-1.0..1.0)).collect();
        Tensor::from_f32(dims, &numbers).unwrap()
    };
    let file = sandbox.path().join("samples.safetensors");
    weights::save(&file, &Weights::from([("x".to_owned(), x), ("y".to_owned(), y)])).unwrap();
    Samples { file, x: "x", y: "y" }
}

/// Takes some steps with a model of the zoo on these samples.
fn train(sandbox: &Sandbox, model: &str, settings: &str, steps: u32) {
    let text = format!(
        "[model]\nzoo = \"{model}\"\n{settings}\n\
         [data]\ntrain = {{ file = \"samples.safetensors\", x = \"x\", y = \"y\" }}\n\
         [train]\nloss = \"cross_entropy\"\nlr = 0.0001\nsteps = {steps}\nbatch = 4\n"
    );
    std::fs::write(sandbox.path().join("run.toml"), text).unwrap();
    sandbox.stdout(&["train", "run.toml", "--run-dir", "run"]);
}

#[test]
fn digits_are_recognised_as_well_by_others() {
    let Some(python) = python() else { return };
    let sandbox = crate::sandbox();
    let example = root().join("examples/digits");
    let run_file = example.join("run.toml");
    let args = ["train", run_file.to_str().unwrap(), "--epochs", "10", "--run-dir", "run"];
    let summary = sandbox.json(&[&args[..], &["--output", "json"]].concat());
    let samples = Samples { file: example.join("digits.npz"), x: "x_test", y: "y_test" };
    let answer = assert_same(&check(&sandbox, &python, &samples, &["--arch", "digits-cnn"]));
    assert!(answer["phalanx_acc"].as_f64() > Some(0.8), "{answer}");
    let difference = answer["phalanx_acc"].as_f64().unwrap() - summary["val_acc"].as_f64().unwrap();
    assert!(difference.abs() < 1e-6, "{answer} {summary}");
}

#[test]
fn a_multilayer_perceptron_is_the_same_elsewhere_and_a_difference_is_found() {
    let Some(python) = python() else { return };
    let sandbox = crate::sandbox();
    let samples = random_samples(&sandbox, 16, &[784], false, 10);
    train(&sandbox, "mlp", "", 2);
    assert_same(&check(&sandbox, &python, &samples, &["--arch", "mlp"]));

    let file = sandbox.path().join("predictions.safetensors");
    let mut predictions = weights::from_bytes(std::fs::read(&file).unwrap().into()).unwrap();
    let outputs = &predictions["outputs"];
    let mut numbers: Vec<f32> = outputs.to_f32().unwrap();
    numbers[7] += 1e-3;
    let wrong = Tensor::from_f32(outputs.shape().to_vec(), &numbers).unwrap();
    predictions.insert("outputs".to_owned(), wrong);
    weights::save(&file, &predictions).unwrap();
    let output = ask(&sandbox, &python, &samples, &["--arch", "mlp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("torch differs from Phalanx by 1.000e-03"), "{said}");
}

#[test]
fn convolutional_networks_are_the_same_elsewhere() {
    let Some(python) = python() else { return };
    // With its initial statistics, a deep BatchNorm network's outputs do not depend on the samples.
    for (model, steps) in [("mobilenet-v2", 80), ("resnet-18", 2)] {
        let sandbox = crate::sandbox();
        let samples = random_samples(&sandbox, 8, &[3, 32, 32], false, 10);
        train(&sandbox, model, "input = [3, 32, 32]\nclasses = 10", steps);
        assert_same(&check(&sandbox, &python, &samples, &["--arch", model, "--classes", "10"]));
    }
}

#[test]
fn a_language_model_is_the_same_elsewhere() {
    let Some(python) = python() else { return };
    let sandbox = crate::sandbox();
    let samples = random_samples(&sandbox, 8, &[128], true, 1000);
    train(&sandbox, "gpt-small", "", 2);
    assert_same(&check(&sandbox, &python, &samples, &["--arch", "gpt-small"]));
}
