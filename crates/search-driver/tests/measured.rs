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
