//! Replicas on the nodes of a domain, which come and go.

use super::{BATCHES, CNN, ENDLESS, SGD, VERIFY, digits, formation, run_file, run_file_on, sandbox};
use crate::run::{Run, assert_whole, resume_to_the_end};
use phalanx_testkit::{Process, Sandbox};
use rustix::process::Signal;
use std::path::Path;
use std::time::Instant;

#[test]
fn nodes_come_and_go_while_a_run_goes_on() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let (first, a) = sandbox.node(&["--name", "a", "--cores", "1"]);
    let (_second, b) = sandbox.node(&["--name", "b", "--cores", "1"]);
    let mut run = Run::start(&sandbox, &["--replicas", "2"]);
    run.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    run.goes_on(5);

    let (mut third, c) = sandbox.node(&["--name", "c", "--cores", "1"]);
    run.until_replicas("three replicas", |replicas| replicas == [a.as_str(), &b, &c]);
    run.goes_on(5);

    let since = Instant::now();
    third.signal(Signal::TERM);
    let (status, _) = third.finish();
    assert!(status.success(), "it drains: {status}; {}", third.stderr());
    run.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    println!("a drained node was gone after {:?}", since.elapsed());
    run.goes_on(5);

    // The first one, which has reported for the others so far.
    first.signal(Signal::KILL);
    run.until_replicas("one replica", |replicas| replicas == [b.as_str()]);
    let (_fourth, d) = sandbox.node(&["--name", "d", "--cores", "1"]);
    run.until_replicas("two replicas", |replicas| replicas == [b.as_str(), &d]);
    let done = run.interrupt();
    let epochs = formation(&run.dir);
    let nodes: Vec<usize> = epochs.iter().map(|epoch| epoch.nodes.len()).collect();
    assert_eq!(nodes, [2, 3, 2, 1, 2], "{epochs:?}");
    assert!(epochs[1].ended.as_ref().is_some_and(|ended| ended.contains(&c)), "{epochs:?}");
    assert!(epochs[2].ended.as_ref().is_some_and(|ended| ended.contains(&a)), "{epochs:?}");
    // Nodes serve the next driver, too.
    resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn nodes_that_come_at_the_same_time_are_all_let_in() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let start = || sandbox.start(&["node", "--output", "json", "--cores", "1"]);
    let _first = [start(), start()];
    let mut run = Run::start(&sandbox, &["--replicas", "2"]);
    run.until_replicas("two replicas", |replicas| replicas.len() == 2);
    let others = [start(), start(), start(), start(), start()];
    run.until_replicas("seven replicas", |replicas| replicas.len() == 7);
    others.iter().for_each(|node| node.signal(Signal::KILL));
    run.until_replicas("two replicas", |replicas| replicas.len() == 2);
    let done = run.interrupt();
    resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn with_fewer_than_the_fewest_replicas_a_run_waits() {
    let sandbox = sandbox();
    let fewest = format!("{VERIFY}\n[formation]\nmin_replicas = 2");
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\nepochs = 4"), &fewest);
    let (_first, a) = sandbox.node(&["--name", "a", "--cores", "1"]);
    let mut run = Run::start(&sandbox, &["--replicas", "2"]);
    run.process.says("waiting: needs 2 replicas, there are 1");
    assert_eq!(run.lines().len(), 0);
    // A waiting run is stopped like any other.
    assert_eq!(run.interrupt(), 0);

    let mut run = Run::start(&sandbox, &["--replicas", "2"]);
    run.process.says("waiting: needs 2 replicas, there are 1");
    let (second, b) = sandbox.node(&["--name", "b", "--cores", "1"]);
    run.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    second.signal(Signal::KILL);
    let waits = |said: &str| said.matches("waiting: needs 2 replicas, there are 1").count() == 2;
    run.process.says_where("that it waits again", waits);
    let (_third, c) = sandbox.node(&["--name", "c", "--cores", "1"]);
    run.until_replicas("two replicas again", |replicas| replicas == [a.as_str(), &c]);
    assert_eq!(run.ends()["steps"], 4 * BATCHES);
    assert_whole(run.lines(), 4 * BATCHES);
}

/// Starts a node with this cache directory.
fn node_with_cache(sandbox: &Sandbox, name: &str, cache: &Path) -> (Process, String) {
    let mut command = sandbox.command(&["node", "--output", "json", "--cores", "1", "--name", name]);
    command.env("PHALANX_CACHE_DIR", cache);
    let process = Process::start(command);
    let id = process.json()["id"].as_str().unwrap().to_owned();
    (process, id)
}

#[test]
fn a_node_that_cannot_open_the_data_is_named_with_its_reason() {
    let sandbox = sandbox();
    let data = sandbox.path().join("copy.npz");
    std::fs::copy(digits(), &data).unwrap();
    let source = "train = { file = \"copy.npz\", x = \"x_train\", y = \"y_train\" }";
    run_file_on(&sandbox, CNN, source, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let (_first, a) = sandbox.node(&["--name", "a", "--cores", "1"]);
    let (_second, b) = sandbox.node(&["--name", "b", "--cores", "1"]);
    let mut run = Run::start(&sandbox, &["--replicas", "2"]);
    run.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    // Nodes that train have read it; others get it from the driver, if they have a cache.
    std::fs::remove_file(&data).unwrap();
    let (_third, c) = node_with_cache(&sandbox, "c", Path::new("/dev/null/nowhere"));
    run.process.says(&format!("warning: {c} does not take part: "));
    let said = run.process.stderr();
    let reason = said.lines().find(|line| line.contains("does not take part")).unwrap();
    assert!(reason.contains("copy.npz") && reason.contains("/dev/null/nowhere"), "{reason}");
    run.goes_on(10);
    assert_eq!(run.members(), [a.as_str(), &b]);
    let (_fourth, d) = node_with_cache(&sandbox, "d", &sandbox.path().join("cache"));
    run.until_replicas("three replicas", |replicas| replicas == [a.as_str(), &b, &d]);
    run.interrupt();
}

#[test]
fn a_second_run_begins_when_the_first_lets_go_of_the_nodes() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let (_first, a) = sandbox.node(&["--name", "a", "--cores", "1"]);
    let (_second, b) = sandbox.node(&["--name", "b", "--cores", "1"]);
    let mut run = Run::start(&sandbox, &["--replicas", "2"]);
    run.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    let other = ["train", "run.toml", "--run-dir", "other", "--output", "json", "--epochs", "2"];
    let mut other = sandbox.start(&[&other[..], &["--replicas", "2"]].concat());
    let why = "does not take part: needs 1 core, 0 of 1 are free (run of driver-";
    other.says_where("why both do not take part", |said| said.matches(why).count() >= 2);
    run.goes_on(10);
    run.interrupt();
    let (code, summary) = other.summary();
    assert_eq!((code, &summary["steps"]), (Some(0), &(2 * BATCHES).into()), "{}", other.stderr());
}
