//! What replicas exchange, how rarely and how compressed, and a timeline of it.

use super::{BATCHES, CNN, run_file, sandbox};
use crate::run::{Run, assert_whole, is_step};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;

const ADAM: &str = "optimizer = { name = \"adam\", lr = 0.001 }\nbatch = 64\nepochs = 20";

/// Trains on two replicas with these keys in [sync]; returns the validation accuracy and the bytes that a replica sent.
fn trained(sync: &str) -> (f64, u64) {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, ADAM, &format!("[sync]\n{sync}"));
    let mut run = Run::start(&sandbox, &["--local", "2"]);
    let accuracy = run.ends()["val_acc"].as_f64().unwrap();
    let said = run.process.stderr();
    assert_eq!(said.matches("`formation.shares = \"equal\"` makes them repeat").count(), 1, "{said}");
    assert_whole(run.lines(), 20 * BATCHES);
    let sent = run.lines().iter().filter_map(|line| line["sent_bytes"].as_u64()).sum();
    (accuracy, sent)
}

#[test]
fn compressed_and_rare_exchange_learns_as_well_with_fewer_bytes() {
    let (exact, all) = trained("verify = 1");
    assert!(exact > 0.9, "{exact}");
    for (sync, most) in [
        ("compress = \"f16\"\nverify = 1", 0.51),
        ("compress = \"int8\"\nverify = 1", 0.30),
        ("exchange = \"parameters\"\nevery = 5", 0.30),
        ("exchange = \"outer\"\nevery = 20", 0.10),
        ("exchange = \"outer\"\nevery = 20\ncompress = \"int8\"", 0.03),
    ] {
        let (accuracy, sent) = trained(sync);
        let part = sent as f64 / all as f64;
        println!("{sync:?}: {accuracy:.3} to {exact:.3}, {part:.3} of the bytes");
        assert!(accuracy > exact - 0.05, "{sync}: {accuracy} to {exact}");
        assert!(part > 0.0 && part <= most, "{sync}: {part} of the bytes");
    }
}

#[test]
fn a_round_that_a_loss_breaks_is_done_again_as_a_whole() {
    let sandbox = sandbox();
    let steps = 30 * BATCHES;
    run_file(
        &sandbox,
        CNN,
        "optimizer = \"adam\"\nbatch = 64\nepochs = 30",
        "[sync]\nexchange = \"outer\"\nevery = 10",
    );
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    run.reaches(2 * BATCHES);
    run.nodes()[0].signal(Signal::KILL);
    run.ends();
    assert_whole(run.lines(), steps);
    let epochs: BTreeSet<u64> = run.lines().iter().filter_map(|line| line["epoch"].as_u64()).collect();
    assert!(epochs.len() > 1, "{epochs:?}");
}

#[test]
fn a_timeline_shows_what_every_replica_did_in_every_step() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "optimizer = \"adam\"\nbatch = 64\nepochs = 2", "");
    let mut run = Run::start(&sandbox, &["--local", "2", "--trace"]);
    run.ends();
    let steps = run.lines().iter().filter(|line| is_step(line)).count();
    let trace: Value = serde_json::from_slice(&std::fs::read(run.dir.join("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names = events.iter().filter(|event| event["name"] == "process_name").count();
    assert_eq!(names, 2);
    for process in 0..2 {
        for what in ["data", "compute", "bucket 0", "wait for exchange", "vote", "update"] {
            let of = |event: &&Value| event["pid"] == process && event["name"] == what;
            let done: BTreeSet<u64> =
                events.iter().filter(of).map(|event| event["args"]["step"].as_u64().unwrap()).collect();
            assert_eq!(done.len(), steps, "{what} of process {process}");
        }
    }
    // On one clock, as precisely as replicas woke at the same moment: no replica votes on a step before all have
    // computed it.
    let ends = |step: u64, what: &str| {
        let of = move |event: &&Value| event["name"] == what && event["args"]["step"] == step;
        let end = |event: &Value| event["ts"].as_u64().unwrap() + event["dur"].as_u64().unwrap();
        events.iter().filter(of).map(end).collect::<Vec<_>>()
    };
    for step in 2..=steps as u64 {
        let (computed, voted) = (ends(step, "compute"), ends(step, "vote"));
        let slack = 100_000;
        assert!(computed.iter().max().unwrap() <= &(voted.iter().min().unwrap() + slack), "step {step}");
    }
}
