//! Models cut into stages over nodes that are killed, frozen and restarted: no step is lost or done twice.

mod driver;
mod frozen;
mod killed;
mod nodes;

use crate::run::{BATCHES, Run, SAMPLES, is_step};
use crate::sandbox;
use phalanx_testkit::{Sandbox, digits_data, metrics, read_json};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// More steps than any test waits for.
const ENDLESS: &str = "steps = 1000000";
/// One replica of three stages.
const CHAIN: [&str; 4] = ["--local", "3", "--set", "formation.stages=3"];
/// Two of them.
const CHAINS: [&str; 6] = ["--local", "6", "--set", "formation.stages=3", "--set", "formation.replicas=2"];
/// The message if the nodes together did not hold the whole state.
const BACK: &str = "to its last checkpoint";

/// Writes a run file for a model with batch norm on the digits; `train` is added to its section of that name, `rest` at
/// the end. Batches are always cut alike, so one replica computes the same numbers whatever happens to it.
fn run_file(sandbox: &Sandbox, train: &str, rest: &str) {
    let model = "zoo = \"digits-cnn\"\ndropout = 0.0";
    let optimizer = "optimizer = { name = \"sgd\", lr = 0.005, momentum = 0.9 }";
    let train = format!("loss = \"cross_entropy\"\nseed = 42\nbatch = 64\n{optimizer}\n{train}");
    let rest = format!("[formation]\nmicro_batches = 4\n{rest}");
    sandbox.run_file(model, &digits_data(), &train, &rest);
}

/// One group in `formation.json`.
#[derive(Debug)]
struct Epoch {
    /// The nodes of every replica's stages.
    replicas: Vec<Vec<String>>,
    /// Steps before it.
    from_step: u64,
    /// Why it ended, if it was broken.
    ended: Option<String>,
}

/// All groups of a run.
fn formation(run: &Path) -> Vec<Epoch> {
    let formation = read_json(run.join("formation.json"));
    let list = |value: &Value| value.as_array().unwrap().clone();
    let node = |stage: &Value| stage["node"].as_str().unwrap().to_owned();
    let replica = |replica: &Value| list(&replica["stages"]).iter().map(node).collect();
    let epoch = |epoch: &Value| Epoch {
        replicas: list(&epoch["replicas"]).iter().map(replica).collect(),
        from_step: epoch["from_step"].as_u64().unwrap(),
        ended: epoch["ended"].as_str().map(str::to_owned),
    };
    list(&formation["epochs"]).iter().map(epoch).collect()
}

/// Checks that `formation.json` has the measurements of every stage of every group with steps.
fn assert_measured(run: &Path) {
    let formation = read_json(run.join("formation.json"));
    let epochs = formation["epochs"].as_array().unwrap();
    let done = epochs.iter().filter(|epoch| epoch["measured_step_ms"].is_f64());
    let stages: Vec<&Value> = done
        .flat_map(|epoch| epoch["replicas"].as_array().unwrap())
        .flat_map(|replica| replica["stages"].as_array().unwrap())
        .collect();
    assert!(!stages.is_empty(), "{formation:#}");
    for stage in stages {
        assert!(stage["measured_busy_ms"].as_f64() > Some(0.0), "{stage:#}");
        let predicted = stage["predicted_memory_bytes"].as_u64();
        let measured = stage["measured_memory_bytes"].as_u64().unwrap();
        // The prediction includes the process itself.
        assert!(measured > 0 && Some(measured) < predicted, "{stage:#}");
    }
}

/// The hash in the run's `state.json`.
fn params_hash(run: &Path) -> String {
    let state = read_json(run.join("state.json"));
    state["params_hash"].as_str().unwrap_or_else(|| panic!("no params_hash in {state}")).to_owned()
}

/// The sample checksums of all steps.
fn seen(lines: &[Value]) -> Vec<String> {
    let steps = lines.iter().filter(|line| is_step(line));
    steps.map(|line| line["seen"].as_str().unwrap().to_owned()).collect()
}

/// The result of an undisturbed run of `passes` passes, in a directory of its own.
struct Undisturbed {
    hash: String,
    accuracy: f64,
    seen: Vec<String>,
}

fn undisturbed(sandbox: &Sandbox, args: &[&str]) -> Undisturbed {
    let dir: PathBuf = sandbox.path().join("undisturbed");
    let train = ["train", "run.toml", "--run-dir", "undisturbed", "--output", "json"];
    let summary = sandbox.json(&[&train, args].concat());
    Undisturbed {
        hash: params_hash(&dir),
        accuracy: summary["val_acc"].as_f64().unwrap(),
        seen: seen(&metrics(&dir)),
    }
}

/// Kills the node of a rank; returns its id.
fn kill(run: &mut Run, rank: usize) -> String {
    let id = run.members().swap_remove(rank);
    let node = run.nodes().into_iter().find(|node| node.among(&[&id]).is_some());
    node.unwrap_or_else(|| panic!("{id} is not there")).signal(rustix::process::Signal::KILL);
    id
}
