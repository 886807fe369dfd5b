//! `phalanx nodes --measure` on real nodes: its output, files and announcements, and its failures.

use crate::sandbox;
use phalanx_formation::Pool;
use phalanx_testkit::{Process, Sandbox};
use rustix::process::Signal;
use serde_json::Value;

const MEASURE: [&str; 4] = ["nodes", "--measure", "--output", "json"];

/// Nodes of these names, one core each; they are measured in this order.
fn start<const N: usize>(sandbox: &Sandbox, names: [&str; N]) -> [(Process, String); N] {
    names.map(|name| sandbox.node(&["--name", name, "--cores", "1", "--memory", "2GiB"]))
}

fn list<'a>(report: &'a Value, key: &str) -> &'a [Value] {
    report[key].as_array().unwrap_or_else(|| panic!("no list of {key} in {report}"))
}

fn is_measured(link: &Value) -> bool {
    link["bandwidth_bytes_per_s"].as_f64() > Some(0.0) && link["latency_s"].as_f64() > Some(0.0)
}

#[test]
fn nodes_and_links_are_measured_written_and_announced() {
    let sandbox = sandbox();
    let nodes = start(&sandbox, ["a", "b", "c"]);
    let ids = nodes.each_ref().map(|(_, id)| id.as_str());
    let mut watch = sandbox.watch(&[]);
    let report = sandbox.json(&[&MEASURE[..], &["--write", "pool.toml"]].concat());
    let measured = list(&report, "nodes");
    assert_eq!(measured.iter().map(|node| node["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    for node in measured {
        assert!(node["speed_gflops"].as_f64() > Some(0.0), "{node}");
        assert!(node["measured_ms"].as_u64() >= Some(250), "{node}");
        assert_eq!((&node["threads"], &node["cores"]), (&1.into(), &1.into()));
        assert!(node["host_cores"].as_u64() >= Some(1), "{node}");
        assert_eq!(node["host"], measured[0]["host"], "they are on one machine");
    }
    let links = list(&report, "links");
    let ends: Vec<_> =
        links.iter().map(|l| (l["from"].as_str().unwrap(), l["to"].as_str().unwrap())).collect();
    assert_eq!(ends, [(ids[0], ids[1]), (ids[0], ids[2]), (ids[1], ids[2])]);
    assert!(links.iter().all(is_measured), "{report}");

    let pool = std::fs::read_to_string(sandbox.path().join("pool.toml")).unwrap();
    assert_eq!((pool.matches("[[node]]").count(), pool.matches("[[link]]").count()), (3, 3), "{pool}");
    let first = format!("[[node]]\nname = \"{}\"\nmemory = \"2GiB\"\nspeed = ", ids[0]);
    assert!(pool.contains(&first), "{pool}");
    assert_eq!(Pool::from_toml(&pool).unwrap().to_toml(), pool, "what is written is what is read");
    let digits = |line: &str| line.chars().filter(char::is_ascii_digit).count();
    let numbers =
        |line: &&str| ["speed", "threads", "bandwidth", "latency"].iter().any(|key| line.starts_with(key));
    let long: Vec<&str> = pool.lines().filter(numbers).filter(|line| digits(line) > 10).collect();
    assert!(long.is_empty(), "more digits than count: {long:?}");
    assert!(pool.starts_with("# Assumed of links"), "{pool}");
    let link = format!("[[link]]\nfrom = \"{}\"\nto = \"{}\"\nbandwidth = ", ids[1], ids[2]);
    assert!(pool.contains(&link), "{pool}");

    for node in measured {
        let (id, speed) = (node["id"].as_str().unwrap(), &node["speed_gflops"]);
        watch.until(|nodes| (nodes.get(id)?["speed_gflops"] == *speed).then_some(()));
    }
    let table = sandbox.stdout(&["nodes"]);
    assert!(table.contains("SPEED") && table.matches("GFLOP/s").count() == 3, "{table}");
}

#[test]
fn a_node_that_is_killed_meanwhile_is_told_and_the_rest_goes_on() {
    let sandbox = sandbox();
    let [(_a, a), (_b, b), (c, _)] = start(&sandbox, ["a", "b", "c"]);
    let mut measuring = sandbox.start(&MEASURE);
    measuring.says("node 1/3");
    c.signal(Signal::KILL);
    let (code, report) = measuring.summary();
    assert_eq!(code, Some(0), "{}", measuring.stderr());
    let speeds = list(&report, "nodes").iter().filter(|node| node["speed_gflops"].is_number());
    let measured: Vec<_> = speeds.map(|node| node["id"].as_str().unwrap()).collect();
    assert!(measured.starts_with(&[&a, &b]), "{report}");
    let [ab, ac, bc] = list(&report, "links") else { panic!("not three links: {report}") };
    assert!(is_measured(ab), "{report}");
    assert!(ac["error"].is_string() && bc["error"].is_string(), "{report}");
}

#[test]
fn a_node_that_runs_a_job_is_not_measured() {
    let sandbox = sandbox();
    let [(_node, id)] = start(&sandbox, ["a"]);
    let mut watch = sandbox.watch(&[]);
    let _main = sandbox.start(&["job", "submit", "--kind", "sleep", "--arg", "60s", "--wait"]);
    watch.until_is(&id, "jobs_running", 1);
    let mut measuring = sandbox.start(&MEASURE);
    let (code, report) = measuring.summary();
    assert_eq!(code, Some(1), "{report}");
    let error = list(&report, "nodes")[0]["error"].as_str().unwrap();
    assert!(error.ends_with("it runs a job"), "{report}");
    measuring.says("no node could be measured");
}

#[test]
fn ctrl_c_ends_it_with_what_was_measured() {
    let sandbox = sandbox();
    let _nodes = start(&sandbox, ["a", "b", "c"]);
    let mut measuring = sandbox.start(&[&MEASURE[..], &["--write", "pool.toml"]].concat());
    measuring.says("node 1/3");
    measuring.signal(Signal::INT);
    let (code, report) = measuring.summary();
    assert_eq!(code, Some(1), "{}", measuring.stderr());
    assert!(list(&report, "nodes")[0]["speed_gflops"].is_number(), "{report}");
    assert!(measuring.stderr().contains("stopped with"), "{}", measuring.stderr());
    assert!(!sandbox.path().join("pool.toml").exists(), "half a pool was written");
}

#[test]
fn without_a_computing_node_there_is_nothing_to_measure() {
    let sandbox = sandbox();
    let said = sandbox.fails(3, &MEASURE);
    assert!(said.contains("no computing node") && said.contains("hint: "), "{said}");
    // Whether the file can be written is checked before anything is measured, and the check leaves nothing behind.
    let write = |path: &str| sandbox.fails(3, &[&MEASURE[..], &["--write", path]].concat());
    let said = write("not-there/pool.toml");
    assert!(said.contains("could not write the pool file not-there/pool.toml"), "{said}");
    std::fs::write(sandbox.path().join("old.toml"), "old").unwrap();
    assert!(["old.toml", "new.toml"].iter().all(|path| write(path).contains("no computing node")));
    assert_eq!(std::fs::read(sandbox.path().join("old.toml")).unwrap(), b"old");
    assert!(!sandbox.path().join("new.toml").exists());
    let said = sandbox.fails(2, &["nodes", "--write", "pool.toml"]);
    assert!(said.contains("--measure"), "{said}");
}
