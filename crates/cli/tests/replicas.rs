//! Training on several replicas as people run it: what it comes to, and what happens to it when nodes come and go.
//!
//! Some hosts are network namespaces made by the test, so this needs root and `ip`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "replicas/apart.rs"]
mod apart;
#[path = "replicas/driver.rs"]
mod driver;
#[path = "replicas/equal.rs"]
mod equal;
#[path = "replicas/frozen.rs"]
mod frozen;
#[path = "replicas/killed.rs"]
mod killed;
#[path = "replicas/nodes.rs"]
mod nodes;
#[path = "replicas/policies.rs"]
mod policies;
#[path = "replicas/run.rs"]
mod run;
#[path = "replicas/shared_nodes.rs"]
mod shared_nodes;

use phalanx_testkit::Sandbox;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Samples of the digits to learn from.
const SAMPLES: u64 = 1078;
/// Batches of 64 that make a pass over them; the last one has 54 samples.
const BATCHES: u64 = 17;
/// Longer than any test waits.
const ENDLESS: &str = "steps = 1000000";
/// With batch norm, which all replicas compute together; without dropout, which would tell one replica from several.
const CNN: &str = "zoo = \"digits-cnn\"\ndropout = 0.0";
/// Small, and without batch norm.
const MLP: &str = "zoo = \"mlp\"\ninput = [1, 8, 8]";
/// Learns slowly enough for steps to be compared.
const SGD: &str = "optimizer = { name = \"sgd\", lr = 0.005, momentum = 0.9 }";
/// Replicas compare their parameters before every step, and fail the run if they differ.
const VERIFY: &str = "[sync]\nverify = 1";

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}

/// The digits that come with the examples.
fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.npz")
}

/// Writes a run file for a model on the digits; `train` is put into its section of that name, `rest` behind all.
fn run_file(sandbox: &Sandbox, model: &str, train: &str, rest: &str) {
    let digits = digits();
    let file = digits.display();
    let data = format!(
        r#"train = {{ file = "{file}", x = "x_train", y = "y_train" }}
valid = {{ file = "{file}", x = "x_test", y = "y_test" }}"#
    );
    run_file_on(sandbox, model, &data, train, rest);
}

/// The same on any data.
fn run_file_on(sandbox: &Sandbox, model: &str, data: &str, train: &str, rest: &str) {
    let train = format!("[train]\nloss = \"cross_entropy\"\nseed = 42\n{train}\n");
    let text = format!("[model]\n{model}\n[data]\n{data}\n{train}{rest}\n");
    std::fs::write(sandbox.path().join("run.toml"), text).unwrap();
}

/// Steps and their losses, as `losses.csv` has them.
fn losses(run: &Path) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(run.join("losses.csv")).unwrap();
    let line = |line: &str| {
        let (step, loss) = line.split_once(',').unwrap();
        (step.parse().unwrap(), loss.parse().unwrap())
    };
    text.lines().skip(1).map(line).collect()
}

/// One group of replicas, as `formation.json` has it.
#[derive(Debug)]
struct Epoch {
    /// Counted by each driver of the run.
    number: u64,
    nodes: Vec<String>,
    /// Steps that were done before it.
    from_step: u64,
    /// Why it ended, if something broke it.
    ended: Option<String>,
}

/// All groups that a run had.
fn formation(run: &Path) -> Vec<Epoch> {
    let bytes = std::fs::read(run.join("formation.json")).unwrap();
    let formation: Value = serde_json::from_slice(&bytes).unwrap();
    let node = |replica: &Value| replica["stages"][0]["node"].as_str().unwrap().to_owned();
    let epoch = |epoch: &Value| Epoch {
        number: epoch["epoch"].as_u64().unwrap(),
        nodes: epoch["replicas"].as_array().unwrap().iter().map(node).collect(),
        from_step: epoch["from_step"].as_u64().unwrap(),
        ended: epoch["ended"].as_str().map(str::to_owned),
    };
    formation["epochs"].as_array().unwrap().iter().map(epoch).collect()
}
