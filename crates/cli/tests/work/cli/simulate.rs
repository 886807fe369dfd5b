//! Simulated training from the command line.

use super::{keys, sandbox};
use std::collections::BTreeSet;

const KEYS: [&str; 32] = [
    "model",
    "replicas",
    "hosts",
    "batch",
    "seed",
    "steps",
    "steps_done",
    "gave_up",
    "step_ms",
    "step_p95_ms",
    "samples_per_s",
    "alone_samples_per_s",
    "efficiency",
    "efficiency_of_ideal",
    "compute_ms",
    "exchange_ms",
    "exchange_hidden",
    "exposed_ms",
    "vote_ms",
    "update_ms",
    "bytes_per_step",
    "algorithms",
    "lost_work",
    "reforming",
    "saving",
    "reformations",
    "deaths",
    "joins",
    "steps_lost",
    "simulated_s",
    "events",
    "violation",
];

#[test]
fn simulated_training_gives_the_documented_numbers_and_repeats_itself() {
    let sandbox = sandbox();
    let run = |seed: &str| {
        let cluster = ["--replicas", "6", "--model", "digits-cnn", "--batch", "96", "--step-time", "100ms"];
        let faults = ["--mtbf", "60s", "--mttr", "5s", "--slow", "0.5x2", "--checkpoint-every", "10"];
        let rest = ["--link", "1Gbps/5ms", "--steps", "50", "--seed", seed, "--output", "json"];
        sandbox.json(&[&["simulate", "train"], &cluster[..], &faults, &rest].concat())
    };
    let first = run("3");
    assert_eq!(keys(&first), BTreeSet::from(KEYS));
    assert_eq!(
        (&first["steps_done"], &first["violation"]),
        (&50.into(), &serde_json::Value::Null),
        "{first}"
    );
    assert!(first["deaths"].as_u64() > Some(0) && first["reformations"].as_u64() > Some(0), "{first}");
    assert!(first["efficiency"].as_f64() > Some(0.0) && first["efficiency"].as_f64() < Some(1.0), "{first}");
    assert_eq!(first, run("3"));
    assert_ne!(first["events"], run("4")["events"]);
}

#[test]
fn a_run_with_stages_is_simulated_under_losses() {
    let args = ["--stages", "3", "--replicas", "2", "--model", "mlp", "--steps", "60", "--mtbf", "2m"];
    let more = ["--checkpoint-every", "10", "--step-time", "2s", "--mttr", "5s", "--output", "json"];
    let run = |seed| sandbox().json(&[&["simulate", "train"], &args[..], &more, &["--seed", seed]].concat());
    let first = run("3");
    assert_eq!((&first["steps"], &first["violation"]), (&60.into(), &serde_json::Value::Null), "{first}");
    assert!(first["deaths"].as_u64() > Some(0) && first["groups"].as_u64() > Some(1), "{first}");
    assert_eq!(first, run("3"));
    assert_ne!(first["events"], run("4")["events"]);
}

#[test]
fn wrong_links_speeds_and_batches_are_named() {
    let sandbox = sandbox();
    let wrong: &[(&[&str], &str)] = &[
        (&["--link", "fast"], "1Gbps/20ms"),
        (&["--speed", "50"], "50gflops"),
        (&["--slow", "4"], "0.1x4"),
        (&["--replicas", "9", "--batch", "8"], "--batch"),
        (&["--model", "resnet-19"], "resnet-18"),
        (&["--local", "--mtbf", "1h"], "--mtbf"),
        (&["--stages", "63", "--model", "mlp"], "63 stages"),
        (&["--stages", "2", "--local"], "--local"),
    ];
    for (args, names) in wrong {
        let said = sandbox.fails(2, &[&["simulate", "train"], *args].concat());
        assert!(said.contains(names), "{args:?} should name {names}: {said}");
    }
}

#[test]
fn replicas_on_this_machine_are_predicted_from_measurements() {
    let args = ["--local", "--replicas", "2", "--model", "mlp", "--batch", "32", "--output", "json"];
    let predicted = sandbox().json(&[&["simulate", "train"], &args[..]].concat());
    let number = |key: &str| predicted[key].as_f64().unwrap_or_else(|| panic!("{key} in {predicted}"));
    let parts = ["compute_ms", "exposed_ms", "statistics_ms", "vote_ms"].map(number).iter().sum::<f64>();
    assert!(
        number("compute_ms") > 0.0 && number("exchange_ms") > 0.0 && number("vote_ms") > 0.0,
        "{predicted}"
    );
    assert!((parts - number("step_ms")).abs() < 1e-6 * parts, "{predicted}");
    assert!((number("samples_per_s") * number("step_ms") / 32e3 - 1.0).abs() < 1e-6, "{predicted}");
}
