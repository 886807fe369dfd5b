//! `phalanx launch --domain`: ranks on nodes.

use super::sandbox;
use phalanx_testkit::{Process, Sandbox, eventually, is_alive};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};

/// Says which rank it is, which process, and of which node; then waits for a file.
const WAITS: &str = "echo $PHALANX_RANK $$ $PPID; while [ ! -e go ]; do sleep 0.02; done";

fn node(sandbox: &Sandbox, args: &[&str]) -> Process {
    let all: Vec<&str> = ["--domain", "lab", "--cores", "2"].iter().chain(args).copied().collect();
    sandbox.node(&all).0
}

fn launch(sandbox: &Sandbox, args: &[&str], script: &str) -> Process {
    let begin = ["launch", "--domain", "lab"];
    let all: Vec<&str> = begin.iter().chain(args).chain(&["--", "sh", "-c", script]).copied().collect();
    sandbox.start(&all)
}

/// A line of [`WAITS`]: rank, process, process of its node.
fn told(launcher: &Process) -> (u32, u32, u32) {
    let line = launcher.line();
    let numbers: Vec<u32> = line.split(['[', ']', ' ']).filter_map(|word| word.parse().ok()).collect();
    assert_eq!((numbers.len(), numbers[0]), (4, numbers[1]), "{line}");
    (numbers[1], numbers[2], numbers[3])
}

fn all_end(processes: impl IntoIterator<Item = u32>) {
    for process in processes {
        eventually("the rank ends", || (!is_alive(process)).then_some(()));
    }
}

/// The cores of the nodes that ranks use.
fn cores_of_ranks(sandbox: &Sandbox) -> u64 {
    let nodes = sandbox.json(&["nodes", "--domain", "lab", "--output", "json"]);
    let uses =
        nodes.as_array().unwrap().iter().flat_map(|node| node["uses"].as_array().into_iter().flatten());
    let of_ranks = uses.filter(|part| part["kind"] == "rank");
    of_ranks
        .map(|part| {
            assert!(part["driver"].as_str().unwrap().starts_with("launch-"), "{part}");
            part["cores"].as_u64().unwrap()
        })
        .sum()
}

#[test]
fn ranks_are_spread_over_nodes_and_their_lines_come_back() {
    let sandbox = sandbox();
    let nodes = [node(&sandbox, &["--allow-exec"]), node(&sandbox, &["--allow-exec"])];
    let script = "echo $PHALANX_RANK of $PHALANX_SIZE by $PPID, $GREETING $OMP_NUM_THREADS; pwd >&2";
    let mut launcher = launch(&sandbox, &["-n", "3", "--env", "GREETING=hello"], script);
    let (status, mut lines) = launcher.finish();
    let said = launcher.stderr();
    assert_eq!(status.code(), Some(0), "{said}");
    lines.sort_unstable();
    let mut hosts = BTreeSet::new();
    for (rank, line) in lines.iter().enumerate() {
        let begin = format!("[{rank}] {rank} of 3 by ");
        let rest = line.strip_prefix(&begin).unwrap_or_else(|| panic!("{line} does not begin with {begin}"));
        hosts.insert(rest.strip_suffix(", hello 1").unwrap().parse::<u32>().unwrap());
    }
    assert_eq!(lines.len(), 3);
    assert_eq!(hosts, nodes.iter().map(Process::id).collect());
    let here = sandbox.path().canonicalize().unwrap();
    assert_eq!(said.matches(&format!("] {}", here.display())).count(), 3, "{said}");
}

#[test]
fn a_rank_that_fails_ends_all_and_cores_are_free_again() {
    let sandbox = sandbox();
    let _nodes = [node(&sandbox, &["--allow-exec"]), node(&sandbox, &["--allow-exec"])];
    let script = format!("{WAITS}; test $PHALANX_RANK = 1 && exit 7; exec sleep 600");
    let mut launcher = launch(&sandbox, &["-n", "3", "--cores-per-rank", "1"], &script);
    let ranks: Vec<u32> = (0..3).map(|_| told(&launcher).1).collect();
    assert_eq!(cores_of_ranks(&sandbox), 3);
    std::fs::write(sandbox.path().join("go"), "").unwrap();
    let (status, _) = launcher.finish();
    assert_eq!(status.code(), Some(7));
    assert!(launcher.stderr().contains("rank 1 ended with exit code 7"), "{}", launcher.stderr());
    all_end(ranks);
    eventually("the cores are free", || (cores_of_ranks(&sandbox) == 0).then_some(()));
}

#[test]
fn ranks_end_with_the_launcher_however_it_ends() {
    for (signal, code) in [(Signal::KILL, None), (Signal::INT, Some(130))] {
        let sandbox = sandbox();
        let _node = node(&sandbox, &["--allow-exec"]);
        let mut launcher = launch(&sandbox, &["-n", "2"], WAITS);
        let ranks = [told(&launcher).1, told(&launcher).1];
        launcher.signal(signal);
        assert_eq!(launcher.finish().0.code(), code);
        all_end(ranks);
        eventually("the cores are free", || (cores_of_ranks(&sandbox) == 0).then_some(()));
    }
}

#[test]
fn a_killed_node_takes_its_ranks_along() {
    let sandbox = sandbox();
    let nodes = [node(&sandbox, &["--allow-exec"]), node(&sandbox, &["--allow-exec"])];
    let mut launcher = launch(&sandbox, &["-n", "2"], WAITS);
    let ranks: Vec<(u32, u32, u32)> = (0..2).map(|_| told(&launcher)).collect();
    nodes[0].signal(Signal::KILL);
    let (status, _) = launcher.finish();
    let said = launcher.stderr();
    assert_eq!(status.code(), Some(3), "{said}");
    let lost = ranks.iter().find(|(_, _, node)| *node == nodes[0].id()).unwrap().0;
    assert!(said.contains(&format!("lost: rank {lost} with node ")), "{said}");
    assert!(said.contains(&format!("rank {lost} ended with the loss of its node")), "{said}");
    all_end(ranks.into_iter().map(|(_, process, _)| process));
}

#[test]
fn an_elastic_rank_of_a_killed_node_is_started_on_another() {
    let sandbox = sandbox();
    let nodes = [node(&sandbox, &["--allow-exec"]), node(&sandbox, &["--allow-exec"])];
    let args = ["-n", "2", "--min", "1", "--output", "json"];
    let mut launcher = launch(&sandbox, &args, WAITS);
    let ranks: BTreeMap<u32, u32> =
        (0..2).map(|_| told(&launcher)).map(|(rank, _, node)| (rank, node)).collect();
    let lost = *ranks.iter().find(|(_, node)| **node == nodes[0].id()).unwrap().0;
    nodes[0].signal(Signal::KILL);
    let (rank, _, host) = told(&launcher);
    assert_eq!((rank, host), (lost, nodes[1].id()));
    std::fs::write(sandbox.path().join("go"), "").unwrap();
    let (status, lines) = launcher.finish();
    assert_eq!(status.code(), Some(0), "{}", launcher.stderr());
    let summary: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!((&summary["resets"], &summary["exit_code"]), (&1.into(), &0.into()));
}

#[test]
fn ranks_wait_for_nodes_and_say_why() {
    let sandbox = sandbox();
    let mut launcher = launch(&sandbox, &["-n", "3"], "echo runs");
    launcher.says("waiting: there is no computing node in the domain");
    let _closed = node(&sandbox, &[]);
    launcher.says("may not run programs (nodes run programs when started with --allow-exec)");
    let _first = node(&sandbox, &["--allow-exec"]);
    launcher.says("3 ranks with 1 free core each cannot be placed: there is room for 2");
    let _second = node(&sandbox, &["--allow-exec"]);
    let (status, lines) = launcher.finish();
    assert_eq!((status.code(), lines.len()), (Some(0), 3), "{}", launcher.stderr());
}

#[test]
fn waiting_ends_with_ctrl_c() {
    let sandbox = sandbox();
    let _node = node(&sandbox, &["--allow-exec", "--name", "gpu1"]);
    for args in [["--nodes", "gpu1,gpu2"], ["--nodes", "2"], ["--cores-per-rank", "3"]] {
        let mut launcher = launch(&sandbox, &args, "true");
        launcher.says("waiting: ");
        launcher.signal(Signal::INT);
        assert_eq!(launcher.finish().0.code(), Some(130), "{}", launcher.stderr());
    }
}

#[test]
fn what_a_node_does_not_have_is_named() {
    let sandbox = sandbox();
    let _node = node(&sandbox, &["--allow-exec"]);
    let mut launcher = launch(&sandbox, &["--directory", "/nowhere"], "true");
    assert_eq!(launcher.finish().0.code(), Some(2));
    let said = launcher.stderr();
    assert!(
        said.contains("there is no directory /nowhere") && said.contains("hint: files are not copied"),
        "{said}"
    );
    let said = sandbox.fails(2, &["launch", "--domain", "lab", "--cores", "2", "--", "true"]);
    assert!(said.contains("--cores-per-rank"), "{said}");
    let said = sandbox.fails(2, &["launch", "--env", "A=1", "--", "true"]);
    assert!(said.contains("--env is for ranks on nodes of a domain"), "{said}");
}

#[test]
fn ranks_are_added_when_a_node_joins_until_there_are_enough() {
    let sandbox = sandbox();
    let first = node(&sandbox, &["--allow-exec"]);
    // As many ranks as the fewest, when their number is not given.
    let mut launcher = launch(&sandbox, &["--min", "2", "--max", "3"], WAITS);
    for _ in 0..2 {
        assert_eq!(told(&launcher).2, first.id());
    }
    let second = node(&sandbox, &["--allow-exec"]);
    let (rank, _, host) = told(&launcher);
    assert_eq!((rank, host), (2, second.id()));
    assert_eq!(cores_of_ranks(&sandbox), 3, "the second node has room for one more");
    std::fs::write(sandbox.path().join("go"), "").unwrap();
    let (status, lines) = launcher.finish();
    let said = launcher.stderr();
    assert_eq!((status.code(), lines.len()), (Some(0), 0), "{said}");
    assert_eq!(said.matches("placed: ").count(), 2, "{said}");
    assert!(!said.contains("waiting: "), "nobody waits for room that is not needed: {said}");
}
