//! Training as people and programs use it: runs on disk, interruptions, wrong inputs, what comes after.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "train/after.rs"]
mod after;
#[path = "train/contract.rs"]
mod contract;
#[path = "train/disturbed.rs"]
mod disturbed;
#[path = "train/library.rs"]
mod library;
#[path = "train/same.rs"]
mod same;
#[path = "train/wrong.rs"]
mod wrong;

use phalanx_testkit::Sandbox;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}

/// The digits that come with the examples.
fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.npz")
}

/// A run file for a model on the digits; `train` is put into its section of that name.
fn run_file(sandbox: &Sandbox, model: &str, train: &str) -> PathBuf {
    let file = digits();
    let file = file.display();
    let text = format!(
        r#"
[model]
{model}
[data]
train = {{ file = "{file}", x = "x_train", y = "y_train" }}
valid = {{ file = "{file}", x = "x_test", y = "y_test" }}
scale = 0.0625
[train]
loss = "cross_entropy"
batch = 64
seed = 42
{train}
"#
    );
    let path = sandbox.path().join("run.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// A small model without anything random in its steps.
const MLP: &str = "zoo = \"mlp\"\ninput = [1, 8, 8]";
/// The same with dropout and batch norm.
const CNN: &str = "zoo = \"digits-cnn\"";

/// Trains to the end; gives the summary.
fn train(sandbox: &Sandbox, args: &[&str]) -> Value {
    sandbox.json(&[&["train", "run.toml", "--output", "json"], args].concat())
}

/// The lines of a run's metrics, as JSON.
fn metrics(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Step and loss of every step that is recorded.
fn losses(run: &Path) -> Vec<(u64, f64)> {
    let steps = metrics(run).into_iter().filter(|line| line["val_loss"].is_null());
    steps.map(|line| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap())).collect()
}
