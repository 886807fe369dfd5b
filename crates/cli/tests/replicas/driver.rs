//! What becomes of a run whose driver is killed or asked to stop, or whose numbers are none any more.

use crate::run::{LocalNode, Run, assert_whole, last_step};
use crate::{BATCHES, CNN, ENDLESS, SGD, VERIFY, run_file, sandbox};
use phalanx_testkit::eventually;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Waits until nodes are gone whose driver is.
fn all_end(nodes: &[LocalNode]) {
    assert!(!nodes.is_empty());
    eventually("the nodes end with their driver", || nodes.iter().all(|node| !node.is_alive()).then_some(()));
}

#[test]
fn a_killed_driver_leaves_nobody_behind_and_its_run_goes_on() {
    let sandbox = sandbox();
    let passes = 20;
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\nepochs = {passes}\ncheckpoint_every = 23"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    for at in [50, 150] {
        run.reaches(at);
        let nodes = run.until_nodes(3);
        run.process.signal(Signal::KILL);
        run.process.finish();
        all_end(&nodes);
        let shown = sandbox.json(&["run", "show", "run", "--output", "json"]);
        assert_eq!(shown["state"], "interrupted", "{shown}");
        let saved = shown["checkpoint"].as_u64().unwrap();
        assert!(saved >= at - 2 * 23, "step {saved} is saved, {at} was recorded");
        run = Run::resume(&sandbox, &[]);
        run.process.says(&format!("from step {saved} on"));
    }
    let nodes = run.until_nodes(3);
    let summary = run.ends();
    all_end(&nodes);
    assert_eq!(summary["steps"], passes * BATCHES);
    assert_whole(run.lines(), passes * BATCHES);
    assert!(run.dir.join("model.safetensors").is_file());
}

#[test]
fn an_interrupted_driver_saves_everything_and_its_run_goes_on() {
    let sandbox = sandbox();
    let passes = 12;
    run_file(
        &sandbox,
        CNN,
        &format!("{SGD}\nbatch = 64\nepochs = {passes}\ncheckpoint_every = \"never\""),
        VERIFY,
    );
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    for (at, signal) in [(30, Signal::INT), (90, Signal::TERM)] {
        run.reaches(at);
        let nodes = run.until_nodes(3);
        run.process.signal(signal);
        let (code, summary) = run.process.summary();
        let said = run.process.stderr();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("stopping after this step"), "{said}");
        assert!(said.contains("hint: `phalanx run resume run` goes on"), "{said}");
        let step = summary["steps"].as_u64().unwrap();
        assert_eq!(last_step(run.lines()), step, "all steps that were done are recorded");
        let checkpoint = run.dir.join(format!("checkpoints/step-{step:06}/manifest.json"));
        assert!(checkpoint.is_file(), "{summary}");
        assert!(nodes.iter().all(|node| !node.is_alive()), "nodes end before their driver");
        // The same command goes on with the same run.
        run = Run::start(&sandbox, &["--local", "3"]);
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
}

#[test]
fn whoever_asks_twice_does_not_wait_for_the_step() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = 10"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "2", "--heartbeat", "5m"]);
    run.reaches(25);
    let nodes = run.until_nodes(2);
    // Nobody takes a frozen node for lost so soon, so this step does not end.
    nodes[0].signal(Signal::STOP);
    run.process.signal(Signal::INT);
    run.process.says("stopping after this step");
    let since = Instant::now();
    run.process.signal(Signal::INT);
    let (status, printed) = run.process.finish();
    let said = run.process.stderr();
    assert_eq!((status.code(), printed.len()), (Some(1), 0), "{said}");
    assert!(said.contains("error: stopped at once"), "{said}");
    println!("stopped after {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    all_end(&nodes);
    let mut run = Run::resume(&sandbox, &["--steps", "51"]);
    run.ends();
    assert_whole(run.lines(), 51);
}

#[test]
fn a_run_whose_loss_is_no_number_fails_and_says_where() {
    let sandbox = sandbox();
    let train = "optimizer = { name = \"sgd\", lr = 1e30 }\nbatch = 64\nsteps = 100";
    run_file(&sandbox, CNN, train, VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    let nodes = run.until_nodes(3);
    let (status, _) = run.process.finish();
    let said = run.process.stderr();
    assert_eq!(status.code(), Some(1), "{said}");
    let error = said.split_once("error: ").map(|(_, error)| error).unwrap_or_default();
    assert!(error.contains("in step 2") || error.contains("at step 2") || error.contains("step 2"), "{said}");
    assert!(error.contains("NaN") || error.contains("inf"), "{said}");
    assert!(nodes.iter().all(|node| !node.is_alive()), "nodes end before their driver");
    let shown = sandbox.json(&["run", "show", "run", "--output", "json"]);
    assert_eq!(shown["state"], "failed", "{shown}");
    assert!(shown["reason"].as_str().unwrap().contains("step 2"), "{shown}");
    assert_eq!(last_step(run.lines()), 1, "the step that failed is not recorded");
}
