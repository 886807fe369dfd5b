//! Replicas on hosts of their own, which a network joins that breaks.

use crate::run::{Run, assert_whole};
use crate::{BATCHES, CNN, ENDLESS, SGD, VERIFY, losses, run_file, sandbox};
use phalanx_testkit::{Bridge, Namespace};
use std::time::{Duration, Instant};

const LAB: [&str; 5] = ["--domain", "lab", "--no-mdns", "--heartbeat", "1s"];
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How much longer than a silence may last the others may take to go on.
const MARGIN: Duration = Duration::from_secs(1);
const SEED: &str = "10.75.0.1:7000";

#[test]
fn replicas_on_three_hosts_go_on_when_a_cable_is_cut() {
    let sandbox = sandbox();
    sandbox.stdout(&["domain", "new", "lab", "--output", "quiet"]);
    let equal = format!("{VERIFY}\n[formation]\nshares = \"equal\"");
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), &equal);
    let bridge = Bridge::new();
    let spaces: Vec<Namespace> = (0..4).map(|_| Namespace::new()).collect();
    let cables: Vec<_> =
        (0..4).map(|i| bridge.attach(&spaces[i], &format!("10.75.0.{}/24", i + 1))).collect();
    let hosts: Vec<_> =
        (0..4).map(|i| sandbox.host(["a", "b", "c", "driver"][i], Some(&spaces[i]))).collect();
    let seed = hosts[0].node(&[&["--name", "a", "--cores", "1", "--bind", SEED], &LAB[..]].concat());
    let join = |i: usize, name| {
        hosts[i].node(&[&["--name", name, "--cores", "1", "--connect", SEED], &LAB[..]].concat())
    };
    let (second, third) = (join(1, "b"), join(2, "c"));
    let all = [seed.id.as_str(), &second.id, &third.id];

    let domain = [&["--replicas", "3", "--connect", SEED], &LAB[..]].concat();
    let train = ["train", "run.toml", "--run-dir", "run", "--output", "json"];
    let mut run = Run::of(&sandbox, hosts[3].start(&[&train, &domain[..]].concat()));
    run.until_replicas("three replicas", |replicas| replicas == all);
    run.goes_on(20);
    cables[2].cut();
    let took = run.goes_on_without(&third.id);
    println!("without the cut off replica after {took:?}");
    assert!(took <= HEARTBEAT + MARGIN, "{took:?}");
    run.goes_on(20);
    let since = Instant::now();
    cables[2].mend();
    run.until_replicas("three replicas again", |replicas| replicas == all);
    println!("back {:?} after the cable was mended", since.elapsed());
    run.goes_on(20);
    let done = run.interrupt();

    let steps = (done / BATCHES + 2) * BATCHES;
    let resume = ["run", "resume", "run", "--output", "json", "--steps", &steps.to_string()];
    let mut run = Run::of(&sandbox, hosts[3].start(&[&resume, &domain[..]].concat()));
    run.ends();
    assert_whole(run.lines(), steps);

    let one = ["train", "run.toml", "--run-dir", "one", "--output", "json", "--steps", &steps.to_string()];
    sandbox.json(&one);
    let last = |name: &str| {
        let losses = losses(&sandbox.path().join(name));
        losses.iter().rev().take(BATCHES as usize).map(|(_, loss)| loss).sum::<f64>() / BATCHES as f64
    };
    let (apart, alone) = (last("run"), last("one"));
    println!("loss of the last of {steps} steps: {apart} on three hosts, {alone} on one");
    assert!((apart - alone).abs() <= 0.01 * alone, "{apart} on three hosts, {alone} on one");
}
