use super::{keyed, tells, with};
use phalanx_testkit::{Host, Namespace, Node, Process};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// How late a loss may be reported on a busy machine.
const MARGIN: Duration = Duration::from_millis(300);
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Starts a watcher that has seen the node.
fn watch(host: Host<'_>, node: &Node, domain: &[&str]) -> Process {
    let watch = host.start(&with(&["nodes", "--watch", "--output", "json"], domain));
    watch.json_where("the node", |line| tells(line, "appeared", &node.id));
    watch
}

/// How long after `since` the watcher reports that the node is gone, and its report.
fn told_gone(watch: &Process, node: &Node, since: Instant) -> (Duration, Value) {
    let gone = watch.json_where("the node gone", |line| tells(line, "gone", &node.id));
    let told = since.elapsed();
    assert_eq!(gone["state"], "lost");
    (told, gone)
}

fn assert_silent(gone: &Value, told: Duration) {
    assert_eq!(gone["why"], "silent for longer than the heartbeat of 1000 ms");
    // The last message may have come up to a quarter of the heartbeat before.
    assert!(told > HEARTBEAT / 2 && told < HEARTBEAT + MARGIN, "{told:?}");
}

#[test]
fn a_killed_node_is_noticed_at_once_and_a_frozen_one_within_its_heartbeat() {
    let sandbox = crate::sandbox();
    let host = sandbox.host("host", None);
    let domain = ["--heartbeat", "1s"];
    for _ in 0..3 {
        let node = host.node(&domain);
        let watch = watch(host, &node, &domain);
        let since = Instant::now();
        node.process.signal(Signal::KILL);
        let (told, gone) = told_gone(&watch, &node, since);
        println!("a killed node was noticed after {told:?}: {}", gone["why"]);
        assert!(told < MARGIN, "{told:?}");
    }

    let node = host.node(&domain);
    let watch = watch(host, &node, &domain);
    let since = Instant::now();
    node.process.signal(Signal::STOP);
    let (told, gone) = told_gone(&watch, &node, since);
    println!("a frozen node was noticed after {told:?}");
    assert_silent(&gone, told);
    node.process.signal(Signal::CONT);
    watch.json_where("the node back", |line| tells(line, "appeared", &node.id));
}

#[test]
fn a_cut_cable_is_noticed_within_the_heartbeat() {
    let sandbox = keyed();
    let spaces = [Namespace::new(), Namespace::new()];
    let cable = spaces[0].cable(&spaces[1], ("10.74.0.1/24", "10.74.0.2/24"));
    let [a, b] = [0, 1].map(|i| sandbox.host(["a", "b"][i], Some(&spaces[i])));
    let domain = ["--domain", "lab", "--no-mdns", "--heartbeat", "1s"];
    let node = a.node(&with(&["--bind", "10.74.0.1:7000"], &domain));
    let watch = watch(b, &node, &with(&["--connect", "10.74.0.1:7000"], &domain));
    let since = Instant::now();
    cable.cut();
    let (told, gone) = told_gone(&watch, &node, since);
    println!("a cut cable was noticed after {told:?}");
    assert_silent(&gone, told);
    cable.mend();
    watch.json_where("the node back", |line| tells(line, "appeared", &node.id));
}
