//! The JSON on standard output.

use super::{keys, sandbox};
use phalanx_testkit::eventually;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

const SUMMARY: [&str; 8] =
    ["submitted", "solved", "failed", "cancelled", "expired", "reruns", "wall_s", "jobs_per_s"];

const NODE: [&str; 9] =
    ["id", "kind", "state", "cores", "memory_bytes", "address", "jobs_running", "jobs_done", "since"];

#[test]
fn a_summary_is_one_line_with_the_documented_keys() {
    let sandbox = sandbox();
    let _node = sandbox.node(&[]);
    let submit = ["job", "submit", "--kind", "upper", "--arg", "hi", "--wait", "--output", "json"];
    let printed = sandbox.stdout(&[&submit[..], &["--count", "7"]].concat());
    let summary: Value = serde_json::from_str(printed.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!((printed.lines().count(), keys(&summary)), (1, BTreeSet::from(SUMMARY)), "{printed}");
    assert_eq!((&summary["submitted"], &summary["solved"]), (&7.into(), &7.into()));
    assert!(
        summary["wall_s"].as_f64() > Some(0.0) && summary["jobs_per_s"].as_f64() > Some(0.0),
        "{summary}"
    );

    let single = sandbox.json(&submit);
    assert!(keys(&single).is_superset(&BTreeSet::from(SUMMARY)), "{single}");
    assert_eq!(single["solution"], "HI");
}

#[test]
fn nodes_are_listed_with_the_documented_keys() {
    let sandbox = sandbox();
    assert_eq!(sandbox.stdout(&["nodes", "--output", "json"]), "[]\n");
    assert_eq!(sandbox.stdout(&["nodes", "--output", "quiet"]), "");
    let (_node, id) = sandbox.node(&["--cores", "3", "--memory", "5GiB"]);
    let nodes = sandbox.nodes();
    let node = &nodes[0];
    assert!(nodes.len() == 1 && keys(node).is_superset(&BTreeSet::from(NODE)), "{nodes:?}");
    assert_eq!([&node["id"], &node["kind"], &node["state"]], [id.as_str(), "computing", "running"]);
    assert_eq!((&node["cores"], &node["memory_bytes"]), (&3.into(), &(5_u64 << 30).into()));
    assert_eq!((&node["jobs_running"], &node["jobs_done"]), (&0.into(), &0.into()));
    assert!(node["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{node}");
    assert!(node["since"].as_str().unwrap().ends_with('Z'), "{node}");
    assert_eq!(sandbox.stdout(&["nodes", "--output", "quiet"]).trim(), id);
    let table = sandbox.stdout(&["nodes"]);
    assert!(table.contains(&id) && table.contains("3 cores, 5 GiB"), "{table}");
}

#[test]
fn a_watch_shows_nodes_appear_change_and_go() {
    let sandbox = sandbox();
    let mut watch = sandbox.watch(&[]);
    let (node, id) = sandbox.node(&["--cores", "1"]);
    let (event, appeared) = watch.next();
    assert_eq!((event.as_str(), &appeared["id"]), ("appeared", &Value::from(id.as_str())));
    assert!(keys(&appeared).is_superset(&BTreeSet::from(NODE)), "{appeared}");
    let args = ["job", "submit", "--kind", "echo", "--count", "3", "--wait", "--output", "json"];
    assert_eq!(sandbox.json(&args)["solved"], 3);
    watch.until_is(&id, "jobs_done", 3);
    node.signal(Signal::KILL);
    let gone = loop {
        let (event, node) = watch.next();
        if event == "gone" && node["id"] == id.as_str() {
            break node;
        }
    };
    assert!(gone["state"] == "lost" && gone["why"].is_string(), "{gone}");
    assert_eq!(watch.stop(), Some(0), "Ctrl-C is how a watch ends");
}

#[test]
fn a_watch_ends_when_its_output_is_closed() {
    let sandbox = sandbox();
    let mut command = sandbox.command(&["nodes", "--watch"]);
    let mut watch = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("watching as "), "{line}");
    let status = eventually("it ends though no node comes or goes", || watch.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_look_at_the_nodes_ends_with_ctrl_c() {
    let sandbox = sandbox();
    // Accepts connections and stays silent, so that there is something to wait for.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut look = sandbox.start(&["nodes", "--patience", "50s", "--connect", &address]);
    let _connection = silent.accept().unwrap();
    look.signal(Signal::INT);
    let (status, _) = look.finish_within(Duration::from_secs(20));
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
}

#[test]
fn a_node_says_who_it_is_on_one_line() {
    let sandbox = sandbox();
    let mut node = sandbox.start(&["node", "--name", "alice", "--cores", "1", "--output", "json"]);
    let started = node.json();
    let expected = ["id", "domain", "address", "secure", "cores", "memory_bytes", "handles", "pid"];
    assert_eq!(keys(&started), BTreeSet::from(expected));
    assert!(started["id"].as_str().unwrap().starts_with("alice-"), "{started}");
    assert_eq!((&started["pid"], &started["secure"]), (&node.id().into(), &false.into()));
    node.signal(Signal::TERM);
    let (status, printed) = node.finish();
    assert_eq!((status.code(), printed), (Some(0), Vec::new()), "{}", node.stderr());
    assert!(node.stderr().contains("node started"), "logs go to standard error: {}", node.stderr());
}

#[test]
fn quiet_prints_only_the_essential() {
    let sandbox = sandbox();
    let mut node = sandbox.start(&["node", "--name", "bob", "--output", "quiet"]);
    assert!(node.line().starts_with("bob-"));
    let submit = ["job", "submit", "--kind", "upper", "--arg", "psst", "--wait", "--output", "quiet"];
    let output = sandbox.run(&submit);
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), output.stderr.len()), ("PSST\n", 0));
    let many = sandbox.run(&[&submit[..], &["--count", "3"]].concat());
    assert_eq!((many.stdout.len(), many.stderr.len(), many.status.code()), (0, 0, Some(0)));
    node.signal(Signal::INT);
    node.finish();
    assert_eq!(node.stderr(), "");
}

#[test]
fn standard_output_carries_only_data_however_much_is_logged() {
    let sandbox = sandbox();
    let mut node = sandbox.start(&["node", "-vv", "--output", "json"]);
    node.json();
    let args = ["job", "submit", "-vv", "--kind", "echo", "--count", "20", "--wait", "--output", "json"];
    let printed = sandbox.stdout(&args);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    serde_json::from_str::<Value>(&printed).unwrap();
    let nodes = sandbox.stdout(&["nodes", "-vv", "--output", "json"]);
    assert!(serde_json::from_str::<Value>(&nodes).unwrap().is_array());
    node.signal(Signal::INT);
    assert_eq!(node.finish().1, Vec::<String>::new());
    assert!(node.stderr().contains("TRACE"), "{}", node.stderr());
}

#[test]
fn listed_jobs_have_the_documented_keys() {
    let sandbox = sandbox();
    let args = ["job", "submit", "--kind", "echo", "--priority", "4", "--wait", "--output", "json"];
    let mut main = sandbox.start(&args);
    let job = eventually("the job is listed", || {
        sandbox.json(&["job", "list", "--output", "json"]).as_array()?.first().cloned()
    });
    let expected = ["job", "kind", "state", "why", "priority", "attempts", "age_ms"];
    assert_eq!(keys(&job), BTreeSet::from(expected));
    assert_eq!((&job["state"], &job["priority"]), (&"waiting".into(), &4.into()));
    let name = job["job"].as_str().unwrap();
    assert_eq!(sandbox.stdout(&["job", "list", "--output", "quiet"]).trim(), name);
    let explained = sandbox.json(&["job", "explain", name, "--output", "json"]);
    assert_eq!(keys(&explained), BTreeSet::from(expected));
    let _node = sandbox.node(&[]);
    assert_eq!(main.summary().0, Some(0));
}

#[test]
fn a_benchmark_of_jobs_gives_the_documented_numbers() {
    let small = ["--jobs", "2000", "--queued", "2000", "--round-trips", "20"];
    let measured = sandbox().json(&[&["bench", "jobs", "--output", "json"], &small[..]].concat());
    for key in ["jobs_per_s", "rtt_p50_us", "rtt_p99_us", "rtt_1mib_p50_us", "bytes_per_queued_job"] {
        assert!(measured[key].as_f64() > Some(0.0), "{key} in {measured}");
    }
    assert!(measured["rtt_p99_us"].as_f64() >= measured["rtt_p50_us"].as_f64(), "{measured}");
}

#[test]
fn a_benchmark_of_sums_gives_the_documented_numbers() {
    let sandbox = sandbox();
    let bench = ["bench", "allreduce", "--ranks", "3", "--time", "10ms", "--output", "json"];
    let expected = [
        "ranks",
        "bytes",
        "algbw_gb_s",
        "latency_us",
        "cpu_us",
        "algorithm",
        "transport",
        "buffers",
        "calls",
    ];
    let one = sandbox.json(&[&bench[..], &["--size", "64KiB"]].concat());
    assert_eq!(keys(&one), BTreeSet::from(expected));
    assert_eq!((&one["ranks"], &one["bytes"]), (&3.into(), &65536.into()));
    assert_eq!([&one["algorithm"], &one["transport"], &one["buffers"]], ["shared", "shared", "shared"]);
    let (rate, time) = (one["algbw_gb_s"].as_f64().unwrap(), one["latency_us"].as_f64().unwrap());
    assert!((rate * time * 1e3 - 65536.0).abs() < 1.0 && one["cpu_us"].as_f64() > Some(0.0), "{one}");

    let several = ["--private", "--limit", "--size", "1000", "--size", "1MiB"];
    let rows = sandbox.json(&[&bench[..], &several].concat());
    let bytes: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["bytes"]).collect();
    assert_eq!(bytes, [1000, 1 << 20]);
    let limit = |key: &str| rows[1][key].as_f64().unwrap();
    assert!((limit("limit_gb_s") * 6.0 / limit("copy_gb_s") - 1.0).abs() < 1e-9, "{rows}");
    assert_eq!(rows[1]["buffers"], "private");

    let refused = sandbox.fails(2, &[&bench[..], &["--size", "10"]].concat());
    assert!(refused.contains("multiple of 4"), "{refused}");
}

#[test]
fn a_simulation_finds_nothing_and_repeats_itself() {
    let sandbox = sandbox();
    let found = sandbox.json(&["simulate", "jobs", "--seeds", "3", "--output", "json"]);
    assert_eq!((&found["seeds"], &found["violations"]), (&3.into(), &serde_json::json!([])), "{found}");
    let traced = || sandbox.stdout(&["simulate", "jobs", "--seed", "2", "--trace", "--output", "quiet"]);
    let trace = traced();
    assert!(trace.lines().count() > 10, "{trace}");
    assert!(trace == traced(), "the same seed gives the same trace");
}
