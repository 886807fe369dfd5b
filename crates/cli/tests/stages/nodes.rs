//! Stages on the nodes of a domain, which come and go as they like.

use crate::run::{Run, assert_whole};
use crate::{BACK, BATCHES, ENDLESS, formation, params_hash, run_file, sandbox, undisturbed};
use rustix::process::Signal;

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
fn a_node_that_makes_the_run_faster_is_let_in() {
    let sandbox = sandbox();
    run_file(&sandbox, ENDLESS, "stages = \"auto\"");
    let node = |name| sandbox.node(&["--name", name, "--cores", "1"]);
    let _first = node("a");
    // With so few operators only large batches are worth the way to another node.
    let mut run = Run::start(&sandbox, &["--batch", "512"]);
    run.reaches(30);
    let _second = node("b");
    run.until_replicas("two nodes", |nodes| nodes.len() == 2);
    run.interrupt();
    let epochs = formation(&run.dir);
    assert!(epochs.last().unwrap().from_step >= 30, "{epochs:?}");
}

#[test]
fn of_a_node_that_would_not_make_the_run_faster_it_is_said_so() {
    let sandbox = sandbox();
    run_file(&sandbox, ENDLESS, "stages = 2\nreplicas = 1");
    let node = |name| sandbox.node(&["--name", name, "--cores", "1"]);
    let _first = ["a", "b"].map(node);
    let mut run = Run::start(&sandbox, &[]);
    run.reaches(30);
    let (_third, id) = node("c");
    run.process.says(&format!("{id} would not make the run faster: "));
    run.goes_on(10);
    run.interrupt();
}
