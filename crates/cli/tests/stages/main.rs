//! Models cut into stages over nodes that are killed, frozen and started anew: no step is lost, none is done twice.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod driver;
mod frozen;
mod killed;
mod nodes;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../replicas/run.rs"]
mod run;

use phalanx_testkit::Sandbox;
use run::{Run, is_step};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Samples of the digits to learn from.
const SAMPLES: u64 = 1078;
/// Batches of 64 that make a pass over them; the last one has 54 samples.
const BATCHES: u64 = 17;
/// Longer than any test waits.
const ENDLESS: &str = "steps = 1000000";
/// One replica of three stages.
const CHAIN: [&str; 4] = ["--local", "3", "--set", "formation.stages=3"];
/// Two of them.
const CHAINS: [&str; 6] = ["--local", "6", "--set", "formation.stages=3", "--set", "formation.replicas=2"];
/// That nothing which the nodes held was enough.
const BACK: &str = "to its last checkpoint";

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}

/// Writes a run file for a model with batch norm on the digits; `train` is put into its section of that name, `rest`
/// behind all. Batches are always cut alike, so one replica comes to the same numbers whatever happens to it.
fn run_file(sandbox: &Sandbox, train: &str, rest: &str) {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.npz");
    let file = digits.display();
    let text = format!(
        r#"[model]
zoo = "digits-cnn"
dropout = 0.0
[data]
train = {{ file = "{file}", x = "x_train", y = "y_train" }}
valid = {{ file = "{file}", x = "x_test", y = "y_test" }}
[train]
loss = "cross_entropy"
seed = 42
batch = 64
optimizer = {{ name = "sgd", lr = 0.005, momentum = 0.9 }}
{train}
[formation]
micro_batches = 4
{rest}
"#
    );
    std::fs::write(sandbox.path().join("run.toml"), text).unwrap();
}

/// One group, as `formation.json` has it.
#[derive(Debug)]
struct Epoch {
    /// The nodes of every replica's stages.
    replicas: Vec<Vec<String>>,
    /// Steps that were done before it.
    from_step: u64,
    /// Why it ended, if something broke it.
    ended: Option<String>,
}

/// All groups that a run had.
fn formation(run: &Path) -> Vec<Epoch> {
    let bytes = std::fs::read(run.join("formation.json")).unwrap();
    let formation: Value = serde_json::from_slice(&bytes).unwrap();
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

/// Checks that `formation.json` says what every stage of every group needed that has done steps.
fn assert_measured(run: &Path) {
    let bytes = std::fs::read(run.join("formation.json")).unwrap();
    let formation: Value = serde_json::from_slice(&bytes).unwrap();
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
        // The process itself is in what was predicted.
        assert!(measured > 0 && Some(measured) < predicted, "{stage:#}");
    }
}

/// The run's end as `state.json` has it.
fn params_hash(run: &Path) -> String {
    let state: Value = serde_json::from_slice(&std::fs::read(run.join("state.json")).unwrap()).unwrap();
    state["params_hash"].as_str().unwrap_or_else(|| panic!("no params_hash in {state}")).to_owned()
}

/// Which samples every step has computed.
fn seen(lines: &[Value]) -> Vec<String> {
    let steps = lines.iter().filter(|line| is_step(line));
    steps.map(|line| line["seen"].as_str().unwrap().to_owned()).collect()
}

/// What a run of so many passes comes to when nothing happens to it, in a directory of its own.
struct Undisturbed {
    hash: String,
    accuracy: f64,
    seen: Vec<String>,
}

fn undisturbed(sandbox: &Sandbox, args: &[&str]) -> Undisturbed {
    let dir: PathBuf = sandbox.path().join("undisturbed");
    let train = ["train", "run.toml", "--run-dir", "undisturbed", "--output", "json"];
    let summary = sandbox.json(&[&train, args].concat());
    let text = std::fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Undisturbed {
        hash: params_hash(&dir),
        accuracy: summary["val_acc"].as_f64().unwrap(),
        seen: seen(&lines),
    }
}

/// Kills the node of a rank; gives its id.
fn kill(run: &mut Run, rank: usize) -> String {
    let id = run.members().swap_remove(rank);
    let node = run.nodes().into_iter().find(|node| node.among(&[&id]).is_some());
    node.unwrap_or_else(|| panic!("{id} is not there")).signal(rustix::process::Signal::KILL);
    id
}
