//! Training on one machine: run directories, interruptions, wrong inputs, using the result.

mod after;
mod contract;
mod disturbed;
mod files;
mod library;
mod plots;
mod same;
mod wrong;

use crate::sandbox;
use phalanx_testkit::{Sandbox, digits, digits_data, metrics};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Writes a run file for a model on the digits; `train` is added to its section of that name.
fn run_file(sandbox: &Sandbox, model: &str, train: &str) -> PathBuf {
    let data = format!("{}\nscale = 0.0625", digits_data());
    let train = format!("loss = \"cross_entropy\"\nbatch = 64\nseed = 42\n{train}");
    sandbox.run_file(model, &data, &train, "")
}

/// A small model without randomness in its steps.
const MLP: &str = "zoo = \"mlp\"\ninput = [1, 8, 8]";
/// The same with dropout and batch norm.
const CNN: &str = "zoo = \"digits-cnn\"";

/// Trains to the end; returns the summary.
fn train(sandbox: &Sandbox, args: &[&str]) -> Value {
    sandbox.json(&[&["train", "run.toml", "--output", "json"], args].concat())
}

/// Step and loss of every recorded step.
fn losses(run: &Path) -> Vec<(u64, f64)> {
    let steps = metrics(run).into_iter().filter(|line| line["val_loss"].is_null());
    steps.map(|line| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap())).collect()
}
