//! Replicas on separate hosts, with a network that breaks.

use super::{BATCHES, CNN, ENDLESS, SGD, VERIFY, losses, run_file, sandbox};
use crate::run::{RUN, Run, assert_whole};
use phalanx_testkit::{Bridge, Cable, Host, Namespace, Node, Sandbox};
use std::time::{Duration, Instant};

const LAB: [&str; 5] = ["--domain", "lab", "--no-mdns", "--heartbeat", "1s"];
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How much longer than the heartbeat the others may take to continue.
const MARGIN: Duration = Duration::from_secs(1);
const SEED: &str = "10.75.0.1:7000";

/// Hosts on one switch: each has a node, except the last, which is the driver's.
struct Lab<'a> {
    sandbox: &'a Sandbox,
    spaces: Vec<Namespace>,
    cables: Vec<Cable>,
    _bridge: Bridge,
}

const HOSTS: [&str; 4] = ["a", "b", "c", "driver"];

impl<'a> Lab<'a> {
    fn new(sandbox: &'a Sandbox) -> Self {
        sandbox.stdout(&["domain", "new", "lab", "--output", "quiet"]);
        let bridge = Bridge::new();
        let spaces: Vec<Namespace> = HOSTS.iter().map(|_| Namespace::new()).collect();
        let attach = |(i, space)| bridge.attach(space, &format!("10.75.0.{}/24", i + 1));
        let cables = spaces.iter().enumerate().map(attach).collect();
        Self { sandbox, spaces, cables, _bridge: bridge }
    }

    fn host(&self, i: usize) -> Host<'_> {
        self.sandbox.host(HOSTS[i], Some(&self.spaces[i]))
    }

    fn nodes(&self) -> Vec<Node> {
        let node = |i: usize| {
            let meet = if i == 0 { "--bind" } else { "--connect" };
            self.host(i).node(&[&["--name", HOSTS[i], "--cores", "1", meet, SEED], &LAB[..]].concat())
        };
        (0..HOSTS.len() - 1).map(node).collect()
    }

    /// Starts a driver with this command.
    fn drive(&self, command: &[&str]) -> Run {
        let domain = [&["--output", "json", "--replicas", "3", "--connect", SEED], &LAB[..]].concat();
        Run::of(self.sandbox, self.host(3).start(&[command, &domain].concat()))
    }
}

#[test]
fn replicas_on_three_hosts_go_on_when_a_cable_is_cut() {
    let sandbox = sandbox();
    let equal = format!("{VERIFY}\n[formation]\nshares = \"equal\"");
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), &equal);
    let lab = Lab::new(&sandbox);
    let nodes = lab.nodes();
    let all: Vec<&str> = nodes.iter().map(|node| node.id.as_str()).collect();
    let mut run = lab.drive(&["train", "run.toml", "--run-dir", RUN]);
    run.until_replicas("three replicas", |replicas| replicas == all);
    run.goes_on(20);
    lab.cables[2].cut();
    let took = run.goes_on_without(all[2]);
    println!("without the cut off replica after {took:?}");
    assert!(took <= HEARTBEAT + MARGIN, "{took:?}");
    run.goes_on(20);
    let since = Instant::now();
    lab.cables[2].mend();
    run.until_replicas("three replicas again", |replicas| replicas == all);
    println!("back {:?} after the cable was mended", since.elapsed());
    run.goes_on(20);
    let done = run.interrupt();

    let steps = (done / BATCHES + 2) * BATCHES;
    let mut run = lab.drive(&["run", "resume", RUN, "--steps", &steps.to_string()]);
    run.ends();
    assert_whole(run.lines(), steps);

    let one = ["train", "run.toml", "--run-dir", "one", "--output", "json", "--steps", &steps.to_string()];
    sandbox.json(&one);
    let last = |name: &str| {
        let losses = losses(&sandbox.path().join(name));
        losses.iter().rev().take(BATCHES as usize).map(|(_, loss)| loss).sum::<f64>() / BATCHES as f64
    };
    let (apart, alone) = (last(RUN), last("one"));
    println!("loss of the last of {steps} steps: {apart} on three hosts, {alone} on one");
    assert!((apart - alone).abs() <= 0.01 * alone, "{apart} on three hosts, {alone} on one");
}

#[test]
fn a_driver_that_was_cut_off_finds_its_nodes_again() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = 10"), VERIFY);
    let lab = Lab::new(&sandbox);
    let nodes = lab.nodes();
    let all: Vec<&str> = nodes.iter().map(|node| node.id.as_str()).collect();
    let mut run = lab.drive(&["train", "run.toml", "--run-dir", RUN]);
    run.until_replicas("three replicas", |replicas| replicas == all);
    run.goes_on(30);
    lab.cables[3].cut();
    run.process
        .says_where("that all are lost", |said| all.iter().all(|id| said.contains(&format!("{id} is lost"))));
    for node in &nodes {
        node.process.says("no link to its driver any more");
    }
    let since = Instant::now();
    lab.cables[3].mend();
    run.until_replicas("three replicas again", |replicas| replicas == all);
    println!("it went on {:?} after the cable was mended", since.elapsed());
    let done = run.interrupt();
    let steps = (done / BATCHES + 2) * BATCHES;
    let mut run = lab.drive(&["run", "resume", RUN, "--steps", &steps.to_string()]);
    run.ends();
    assert_whole(run.lines(), steps);
}
