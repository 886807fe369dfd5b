//! Training on several replicas: its results, and what happens when nodes come and go.
//!
//! Some hosts are network namespaces made by the test, so this needs root and `ip`.

mod apart;
mod cut_off;
mod driver;
mod equal;
mod frozen;
mod hostile_driver;
mod killed;
mod nodes;
mod policies;
mod shared_nodes;

use crate::run::BATCHES;
use crate::sandbox;
use phalanx_testkit::{Sandbox, digits, digits_data, read_json};
use serde_json::Value;
use std::path::Path;

/// More steps than any test waits for.
const ENDLESS: &str = "steps = 1000000";
/// With batch norm, which all replicas compute together; without dropout, whose random numbers depend on the replica.
const CNN: &str = "zoo = \"digits-cnn\"\ndropout = 0.0";
/// Small, and without batch norm.
const MLP: &str = "zoo = \"mlp\"\ninput = [1, 8, 8]";
/// Learns slowly enough for steps to be compared.
const SGD: &str = "optimizer = { name = \"sgd\", lr = 0.005, momentum = 0.9 }";
/// Replicas compare their parameters before every step, and fail the run if they differ.
const VERIFY: &str = "[sync]\nverify = 1";

/// Writes a run file for a model on the digits; `train` is added to its section of that name, `rest` at the end.
fn run_file(sandbox: &Sandbox, model: &str, train: &str, rest: &str) {
    run_file_on(sandbox, model, &digits_data(), train, rest);
}

/// The same on any data.
fn run_file_on(sandbox: &Sandbox, model: &str, data: &str, train: &str, rest: &str) {
    let train = format!("loss = \"cross_entropy\"\nseed = 42\n{train}");
    sandbox.run_file(model, data, &train, rest);
}

/// Steps and their losses from `losses.csv`.
fn losses(run: &Path) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(run.join("losses.csv")).unwrap();
    let line = |line: &str| {
        let (step, loss) = line.split_once(',').unwrap();
        (step.parse().unwrap(), loss.parse().unwrap())
    };
    text.lines().skip(1).map(line).collect()
}

/// One group of replicas in `formation.json`.
#[derive(Debug)]
struct Epoch {
    /// Counted by each driver of the run.
    number: u64,
    nodes: Vec<String>,
    /// Steps before it.
    from_step: u64,
    /// Why it ended, if it was broken.
    ended: Option<String>,
}

/// All groups of a run.
fn formation(run: &Path) -> Vec<Epoch> {
    let formation = read_json(run.join("formation.json"));
    let node = |replica: &Value| replica["stages"][0]["node"].as_str().unwrap().to_owned();
    let epoch = |epoch: &Value| Epoch {
        number: epoch["epoch"].as_u64().unwrap(),
        nodes: epoch["replicas"].as_array().unwrap().iter().map(node).collect(),
        from_step: epoch["from_step"].as_u64().unwrap(),
        ended: epoch["ended"].as_str().map(str::to_owned),
    };
    formation["epochs"].as_array().unwrap().iter().map(epoch).collect()
}
