//! Latencies that a search file wants before anything is trained.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use phalanx_search_driver::{Overrides, SearchPlan, Surveyed};

const TEXT: &str = r#"
[space]
width = [4, 8]
lr = [0.01, 0.1]

[model]
input = [1, 8, 8]
[[model.layer]]
type = "conv2d"
out = "$width"
kernel = 3
[[model.layer]]
type = "global_avg_pool"
[[model.layer]]
type = "linear"
out = 10

[data]
train = { file = "x.npy", labels_file = "y.npy" }

[train]
loss = "cross_entropy"
optimizer = { name = "adam", lr = "$lr" }
batch = 8
epochs = 1

[objective.loss]
goal = "min"
from = "train.loss"
[objective.fast]
goal = "min"
from = "latency"
cheap = true
trials = 3
[constraint]
"#;

fn survey(constraint: &str) -> Vec<Surveyed> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("search.toml");
    std::fs::write(&file, format!("{TEXT}{constraint}\n")).unwrap();
    SearchPlan::load(&file, "measured", &Overrides::default()).unwrap().survey(4)
}

#[test]
fn a_cheap_latency_is_measured_beforehand_once_for_each_network() {
    let surveyed = survey("");
    assert_eq!(surveyed.len(), 4);
    let mut latencies: Vec<f64> = surveyed.iter().map(|candidate| candidate.known["fast"]).collect();
    assert!(latencies.iter().all(|ms| *ms > 0.0), "{surveyed:?}");
    latencies.sort_by(f64::total_cmp);
    latencies.dedup();
    assert!(latencies.len() <= 2, "the learning rate makes no other network: {latencies:?}");
}

#[test]
fn constraints_on_latencies_are_checked_before_training() {
    for constraint in ["fast = { at_most = 1e-9 }", "onnx_latency = { at_most = 1e-9 }"] {
        let name = constraint.split(' ').next().unwrap();
        for candidate in survey(constraint) {
            assert!(candidate.why_not.clone().unwrap_or_default().contains(name), "{candidate:?}");
        }
    }
    // Nothing is measured of a candidate that is refused anyway.
    assert!(survey("params = { at_most = 1 }").iter().all(|candidate| !candidate.known.contains_key("fast")));
}

const PROGRAM: &str = "[objective.chip]\ngoal = \"min\"\nprogram = [\"sh\", \"cost.sh\"]\n[constraint]";

/// A survey of candidates that a script tells the cost of.
fn asked(script: &str) -> Vec<Surveyed> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("search.toml");
    std::fs::write(&file, TEXT.replace("[constraint]", PROGRAM)).unwrap();
    // A relative path begins at the search file.
    std::fs::write(dir.path().join("cost.sh"), script).unwrap();
    SearchPlan::load(&file, "asked", &Overrides::default()).unwrap().survey(4)
}

#[test]
fn a_program_of_the_users_tells_an_objective() {
    let script = "set -e\ngrep -q adam \"$PHALANX_RUN\"\ntest -s \"$PHALANX_ONNX\"\necho $PHALANX_GENE_WIDTH";
    let surveyed = asked(script);
    assert_eq!(surveyed.len(), 4);
    for candidate in surveyed {
        let width = candidate.archid.trim_start_matches('(').split(',').next().unwrap().parse().ok();
        assert_eq!(candidate.known.get("chip").copied(), width, "{candidate:?}");
    }
    for candidate in asked("echo no such chip >&2; exit 2") {
        let why = candidate.why_not.unwrap_or_default();
        assert!(why.contains("cost.sh") && why.contains("no such chip"), "{why}");
    }
}
