//! Searches: fronts that are found, drivers and nodes that are killed, programs as trials, wrong inputs.

mod disturbed;
mod killed;
mod programs;
mod wrong;

use crate::sandbox;
use phalanx_testkit::{Sandbox, digits_data};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Twenty-four networks for digits of 8 by 8 pixels; `search` is added to its section of that name.
fn search_file(sandbox: &Sandbox, search: &str) {
    let data = digits_data();
    let text = format!(
        r#"
[space]
layers = {{ from = 1, to = 3 }}
kernel = [1, 3]
width = [4, 8]
lr = [0.003, 0.03]

[model]
input = [1, 8, 8]
[[model.layer]]
repeat = "$layers"
layer = [
  {{ type = "conv2d", out = "$width", kernel = "$kernel", padding = "same" }},
  {{ type = "batch_norm", activation = "relu" }},
]
[[model.layer]]
type = "global_avg_pool"
[[model.layer]]
type = "linear"
out = 10

[data]
{data}
scale = 0.0625

[train]
loss = "cross_entropy"
optimizer = {{ name = "adam", lr = "$lr" }}
batch = 64
epochs = 4

[search]
seed = 1
rungs = {{ first = "0.5 epochs", factor = 3 }}
{search}

[objective.accuracy]
goal = "max"
from = "valid.accuracy"
[objective.params]
goal = "min"
"#
    );
    std::fs::write(sandbox.path().join("search.toml"), text).unwrap();
}

/// The records of a search, in their order.
fn events(search: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(search.join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How often each trial reached each budget, in thousandths.
fn reached(search: &Path) -> BTreeMap<(u64, u64), usize> {
    let mut counts = BTreeMap::new();
    for event in events(search).iter().filter(|event| event["event"] == "trial_reached") {
        let (trial, budget) =
            (event["value"]["trial"].as_u64().unwrap(), event["value"]["budget"].as_f64().unwrap());
        *counts.entry((trial, (budget * 1000.0).round() as u64)).or_default() += 1;
    }
    counts
}

/// The candidates in the order in which they were proposed.
fn proposed(search: &Path) -> Vec<String> {
    let events = events(search);
    let proposed = events.iter().filter(|event| event["event"] == "trial_proposed");
    proposed.map(|event| event["value"]["archid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_search_finds_a_front_whose_models_are_worth_what_was_recorded() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 10");
    let space = sandbox.json(&["search", "space", "search.toml", "--output", "json"]);
    assert_eq!(space["candidates"], 24);
    let words =
        ["search", "run", "search.toml", "--local", "2", "--dir", "searches/first", "--output", "json"];
    let searched = sandbox.json(&words);
    assert_eq!(
        (&searched["end"]["state"], &searched["trials"]),
        (&"finished".into(), &10.into()),
        "{searched}"
    );
    let front = searched["front"].as_array().unwrap();
    assert!(!front.is_empty() && front.iter().all(|member| member["budget"] == 4.0), "{front:?}");
    let models = searched["models"].as_array().unwrap();
    assert_eq!(models.len(), front.len());
    assert!(
        models.iter().all(|model| model["agrees"] == true && model["samples"].as_u64() > Some(100)),
        "{models:?}"
    );

    let search = sandbox.path().join("searches/first");
    assert!(reached(&search).values().all(|count| *count == 1));
    for file in
        ["search_state_1.csv", "pareto.json", "models.json", "status.csv", "pareto_accuracy_vs_params.svg"]
    {
        assert!(search.join("results").join(file).is_file(), "{file}");
    }
    // A trial is an ordinary run.
    let best = models[0]["trial"].as_u64().unwrap();
    let run = format!("searches/first/trials/t{best}");
    let evaluated = sandbox.json(&["eval", &run, "--output", "json"]);
    assert_eq!(evaluated["accuracy"], models[0]["recorded_accuracy"], "{evaluated}");

    let all = sandbox.json(&["search", "status", "--output", "json"]);
    assert_eq!(all.as_array().unwrap().len(), 10);
    let some = sandbox.json(&["search", "status", "--where", "state = completed", "--output", "json"]);
    assert!(some.as_array().unwrap().len() >= front.len());
    let listed = sandbox.json(&["search", "list", "--output", "json"]);
    assert_eq!((&listed[0]["search"], &listed[0]["state"]), (&"first".into(), &"finished".into()));
    let shown = sandbox.json(&["search", "show", "--trial", &format!("t{best}"), "--output", "json"]);
    assert_eq!(shown["choices"].as_object().unwrap().len(), 4, "{shown}");
    let plotted = sandbox.run(&["search", "plot", "first", "--to", "plots"]);
    assert!(
        plotted.status.success() && sandbox.path().join("plots/hypervolume.png").is_file(),
        "{plotted:?}"
    );
}

#[test]
fn a_finished_search_is_resumed_to_go_further() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 3");
    let run = ["search", "run", "search.toml", "--local", "1", "--dir", "searches/first", "--output", "json"];
    assert_eq!(sandbox.json(&run)["trials"], 3);
    let search = sandbox.path().join("searches/first");
    let before = events(&search).len();
    let resume = ["search", "resume", "first", "--local", "1", "--output", "json"];
    assert_eq!(sandbox.json(&resume)["trials"], 3);
    assert_eq!(events(&search).len(), before, "a finished search without a new total has nothing to do");
    let further = sandbox.json(&[&resume[..], &["--trials", "6"]].concat());
    assert_eq!((&further["end"]["state"], &further["trials"]), (&"finished".into(), &6.into()), "{further}");
    assert!(reached(&search).values().all(|count| *count == 1));
}

#[test]
fn equal_searches_on_one_node_propose_equal_candidates() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 8");
    let mut all = Vec::new();
    for name in ["a", "b"] {
        let dir = format!("searches/{name}");
        sandbox.json(&[
            "search",
            "run",
            "search.toml",
            "--local",
            "1",
            "--workers",
            "1",
            "--dir",
            &dir,
            "--output",
            "json",
        ]);
        let search = sandbox.path().join(dir);
        all.push((proposed(&search), std::fs::read_to_string(search.join("results/pareto.json")).unwrap()));
    }
    assert_eq!(all[0], all[1]);
}
