//! Stages on the nodes of a domain, which come and go.

use super::{BACK, BATCHES, ENDLESS, formation, params_hash, run_file, sandbox, undisturbed};
use crate::run::{RUN, Run, assert_whole};
use phalanx_testkit::{Process, Sandbox, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

#[test]
fn without_nodes_for_all_stages_a_run_pauses_and_says_what_is_missing() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}"), "stages = 3");
    let mut nodes: Vec<_> =
        ["a", "b", "c"].map(|name| sandbox.node(&["--name", name, "--cores", "1"])).into();
    let mut run = Run::start(&sandbox, &[]);
    run.reaches(45);
    let (lost, id) = nodes.remove(1);
    lost.signal(Signal::KILL);
    run.process.says(&format!("{id} is lost"));
    run.process.says("waiting: ");
    let said = run.process.stderr();
    let waiting = said.lines().find(|line| line.contains("waiting: ")).unwrap();
    assert!(waiting.contains("3 stages") && waiting.contains("`phalanx node` starts one"), "{waiting}");
    nodes.push(sandbox.node(&["--name", "d", "--cores", "1"]));
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    assert!(!run.process.stderr().contains(BACK), "{}", run.process.stderr());
    let epochs = formation(&run.dir);
    assert!(epochs.last().unwrap().replicas[0].contains(&nodes[2].1), "{epochs:?}");
    drop(nodes);
    let alone = undisturbed(&sandbox, &["--local", "3"]);
    assert_eq!(params_hash(&run.dir), alone.hash);
}

#[test]
fn what_nodes_hold_is_saved_while_the_run_waits_for_others() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}\ncheckpoint_every = \"never\""), "stages = 3");
    let node = |name| sandbox.node(&["--name", name, "--cores", "1"]);
    let mut nodes: Vec<_> = ["a", "b", "c"].map(node).into();
    let mut run = Run::start(&sandbox, &[]);
    run.reaches(45);
    nodes.remove(1).0.signal(Signal::KILL);
    let saved = || sandbox.json(&["run", "show", RUN, "--output", "json"])["checkpoint"].as_u64();
    let step = eventually("a checkpoint", saved);
    assert!(step > 0, "nothing was saved of 45 steps");
    // Now the remaining nodes do not hold the whole model.
    nodes.remove(0).0.signal(Signal::KILL);
    nodes.extend(["d", "e"].map(node));
    run.ends();
    assert!(run.process.stderr().contains(&format!("{BACK}, step {step}")), "{}", run.process.stderr());
    assert_whole(run.lines(), passes * BATCHES);
    drop(nodes);
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &["--local", "3"]).hash);
}

#[test]
fn a_checkpoint_that_is_newer_than_all_copies_is_what_a_run_goes_on_from() {
    let sandbox = sandbox();
    let passes = 15;
    let often = "checkpoint_every = 10";
    run_file(&sandbox, &format!("epochs = {passes}\n{often}"), "stages = 3\ncopies = 1000");
    let node = |name| sandbox.node(&["--name", name, "--cores", "1"]);
    let mut nodes: Vec<_> = ["a", "b", "c"].map(node).into();
    let mut run = Run::start(&sandbox, &[]);
    let saved = run.saves_after(30);
    nodes.remove(1).0.signal(Signal::KILL);
    run.process.says("waiting: ");
    // Interrupted while it waits: what is on disk stays, and is what counts.
    let done = run.interrupt();
    assert!(done >= saved, "there was a checkpoint of step {saved}, and {done} were done");
    nodes.push(node("d"));
    let mut run = Run::resume(&sandbox, &[]);
    run.saves_after(done);
    let (lost, id) = nodes.remove(0);
    lost.signal(Signal::KILL);
    nodes.push(node("e"));
    run.process.says(&format!("{id} is lost"));
    run.ends();
    assert!(
        run.process.stderr().contains("newer than the copies that nodes hold"),
        "{}",
        run.process.stderr()
    );
    assert_whole(run.lines(), passes * BATCHES);
    drop(nodes);
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &["--local", "3"]).hash);
}

/// A run that would be faster with a second node, and its node. Whether it would be is measured: another test could
/// take the cores that make it faster.
fn run_on_one_node(sandbox: &Sandbox) -> (Run, Process) {
    run_file(sandbox, ENDLESS, "stages = \"auto\"");
    let (first, _) = sandbox.node(&["--name", "a", "--cores", "1"]);
    // With so few operators only large batches pay for the transfer to another node.
    let mut run = Run::start(sandbox, &["--batch", "512"]);
    run.reaches(30);
    (run, first)
}

#[test]
fn a_node_that_makes_the_run_faster_is_let_in() {
    let sandbox = Sandbox::alone(crate::BINARY);
    let (mut run, _first) = run_on_one_node(&sandbox);
    let _second = sandbox.node(&["--name", "b", "--cores", "1"]);
    run.until_replicas("two nodes", |nodes| nodes.len() == 2);
    run.interrupt();
    let epochs = formation(&run.dir);
    assert!(epochs.last().unwrap().from_step >= 30, "{epochs:?}");
}

/// Lets a process compute for a small part of the time.
struct Slowed {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slowed {
    fn new(process: &Process) -> Self {
        let pid = Pid::from_raw(process.id().cast_signed()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                for (signal, millis) in [(Signal::STOP, 95), (Signal::CONT, 3)] {
                    kill_process(pid, signal).unwrap();
                    std::thread::park_timeout(Duration::from_millis(millis));
                }
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_node_that_was_too_slow_is_let_in_when_it_is_not_any_more() {
    let sandbox = Sandbox::alone(crate::BINARY);
    let (mut run, _first) = run_on_one_node(&sandbox);
    let (second, id) = sandbox.node(&["--name", "b", "--cores", "1"]);
    let slowed = Slowed::new(&second);
    run.process.says(&format!("{id} would not make the run faster: "));
    drop(slowed);
    run.until_replicas("two nodes", |nodes| nodes.len() == 2);
    run.interrupt();
}

#[test]
fn of_a_node_that_would_not_make_the_run_faster_it_is_said_so() {
    let sandbox = sandbox();
    run_file(&sandbox, ENDLESS, "stages = 2\nreplicas = 1");
    let node = |name| sandbox.node(&["--name", name, "--cores", "1"]);
    let _first = ["a", "b"].map(node);
    let mut run = Run::start(&sandbox, &[]);
    run.reaches(30);
    let (third, id) = node("c");
    let slowed = Slowed::new(&third);
    run.process.says(&format!("{id} would not make the run faster: "));
    drop(slowed);
    // It was measured, not assumed.
    let nodes = sandbox.json(&["nodes", "--output", "json"]);
    let speed =
        nodes.as_array().unwrap().iter().find(|of| of["id"] == id.as_str()).map(|of| &of["speed_gflops"]);
    assert!(speed.is_some_and(|speed| speed.as_f64() > Some(0.0)), "{nodes}");
    run.goes_on(10);
    run.interrupt();
}
