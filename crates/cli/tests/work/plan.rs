//! `phalanx plan`: pools from files and from real nodes, and errors.

use phalanx_testkit::{Sandbox, example};
use serde_json::Value;

const POOL: &str = r#"
[[node]]
name = "large"
memory = "4GB"
speed = 40.0
bandwidth = "100Mbit"
[[node]]
name = "middle"
memory = "2GB"
speed = 20.0
bandwidth = "100Mbit"
[[node]]
name = "small"
memory = "1GB"
speed = 10.0
bandwidth = "100Mbit"
"#;
/// The same three.
const NODE_CONFIGS: &str = r#"{
  "0": {"IP": "10.0.0.1:8080", "benchmarks": {"ram": 4, "bandwidth": 100, "speed": 40}},
  "1": {"IP": "10.0.0.2:8080", "benchmarks": {"ram": 2, "bandwidth": 100, "speed": 20}},
  "2": {"IP": "10.0.0.3:8080", "benchmarks": {"ram": 1, "bandwidth": 100, "speed": 10}}
}"#;

const NODES: &str = "1 replica: there are nodes for one only";

/// A sandbox with these files; the data of the run are missing, and not needed.
fn sandbox(files: &[(&str, &str)]) -> Sandbox {
    let sandbox = crate::sandbox();
    let run = "[model]\nzoo = \"digits-cnn\"\n[data]\ntrain = { file = \"not-here.npz\", x = \"x\", y = \"y\" }\n\
               [train]\nloss = \"cross_entropy\"\nepochs = 1\nbatch = 64\n";
    for (name, text) in [("run.toml", run)].iter().chain(files) {
        std::fs::write(sandbox.path().join(name), text).unwrap();
    }
    sandbox
}

fn plan(sandbox: &Sandbox, args: &[&str]) -> Value {
    sandbox.json(&[&["plan", "run.toml", "--output", "json"], args].concat())
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().unwrap_or_else(|| panic!("no list of {key} in {of}"))
}

/// Checks that each replica holds all operators once, no node holds two stages, and everything fits.
fn check(plan: &Value) {
    let rows = list(plan, "formation");
    let stages: Vec<usize> = list(plan, "stages").iter().map(|n| n.as_u64().unwrap() as usize).collect();
    assert_eq!((plan["replicas"].as_u64(), stages.iter().sum()), (Some(stages.len() as u64), rows.len()));
    let of = |replica: u64| rows.iter().filter(move |row| row["replica"] == replica);
    let operators = list(&plan["plan"]["replicas"][0], "stages").last().unwrap()["ops"]["end"].as_u64();
    for replica in 0..stages.len() as u64 {
        let sum = |key: &str| of(replica).map(|row| row[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(Some(sum("parameters")), plan["parameters"].as_u64(), "{plan}");
        assert_eq!(Some(sum("operators")), operators, "{plan}");
    }
    let samples: u64 = (0..stages.len() as u64)
        .map(|replica| of(replica).next().unwrap()["samples"].as_u64().unwrap())
        .sum();
    assert_eq!(Some(samples), plan["batch"].as_u64(), "{plan}");
    let mut nodes: Vec<&str> = rows.iter().map(|row| row["node"].as_str().unwrap()).collect();
    nodes.extend(list(plan, "left_out").iter().map(|left| left["node"].as_str().unwrap()));
    nodes.sort_unstable();
    let mut all: Vec<&str> = list(plan, "nodes").iter().map(|node| node["name"].as_str().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(nodes, all, "every node holds one stage, or is left out with a reason");
    for row in rows {
        assert!(row["memory_bytes"].as_u64() <= row["memory_of_bytes"].as_u64(), "{row}");
        assert!((0.0..=1.0).contains(&row["utilisation"].as_f64().unwrap()), "{row}");
    }
}

#[test]
fn three_unequal_nodes_of_a_file() {
    let sandbox = sandbox(&[("pool.toml", POOL), ("node_configs.json", NODE_CONFIGS)]);
    let three = ["--nodes", "pool.toml", "--set", "formation.stages=3"];
    let found = plan(&sandbox, &three);
    check(&found);
    assert_eq!((&found["replicas"], &found["stages"]), (&1.into(), &serde_json::json!([3])), "{found}");
    assert_eq!((&found["method"], &found["costs"]), (&"exact".into(), &"measured".into()), "{found}");
    assert!(found["measured_gflops"].as_f64() > Some(0.0), "{found}");
    assert!(list(&found, "notes").is_empty(), "{found}");

    let three = [&three[..], &["--counted"]].concat();
    let table = sandbox.stdout(&[&["plan", "run.toml"], &three[..]].concat());
    for words in
        ["1 x 3 (replicas x stages)", "samples/s", "│", "3 stages in replica 0: as given", "OPERATORS", NODES]
    {
        assert!(table.contains(words), "{words} in {table}");
    }
    let quiet = sandbox.stdout(&[&["plan", "run.toml", "--output", "quiet"], &three[..]].concat());
    let mut names: Vec<&str> = quiet.split_whitespace().collect();
    names.sort_unstable();
    assert_eq!((names, quiet.lines().count()), (vec!["large", "middle", "small"], 3));

    // The same nodes as JSON have other names; nothing else differs.
    let counted = plan(&sandbox, &three);
    for words in ["samples/s", counted["bottleneck"].as_str().unwrap()] {
        assert_eq!(table.matches(words).count(), 1, "{words} in {table}");
    }
    let json = plan(&sandbox, &["--nodes", "node_configs.json", "--set", "formation.stages=3", "--counted"]);
    check(&json);
    assert_eq!(
        (&json["step_s"], &json["plan"]["replicas"]),
        (&counted["step_s"], &counted["plan"]["replicas"])
    );
}

#[test]
fn speeds_and_costs_have_the_same_unit() {
    let pool = |speed: &str| format!("[[node]]\nname = \"a\"\nmemory = \"1GiB\"\nspeed = {speed}\n");
    let (slow, fast) = (pool("2.0"), pool("8.0"));
    let sandbox = sandbox(&[("slow.toml", &slow), ("fast.toml", &fast)]);
    // The time to agree on a step does not depend on the nodes.
    let agree = phalanx_measure::costs::Here::default().agree_s();
    let step =
        |file: &str| plan(&sandbox, &["--nodes", file, "--counted"])["step_s"].as_f64().unwrap() - agree;
    let model = sandbox.json(&["model", "inspect", "zoo:digits-cnn", "--output", "json"]);
    // Forward, and twice that backward, of 64 samples at 2 GFLOP/s.
    let expected = 3.0 * model["flops"].as_f64().unwrap() * 64.0 / 2e9;
    assert!((step("slow.toml") / expected - 1.0).abs() < 1e-6, "{} s, not {expected}", step("slow.toml"));
    assert!((step("slow.toml") / step("fast.toml") - 4.0).abs() < 1e-6);

    // A machine as fast as this one takes as long as it took here: more than nothing, less than a second.
    let here = plan(&sandbox, &["--nodes", "slow.toml"]);
    let own = here["step_s"].as_f64().unwrap() * 2.0 / here["measured_gflops"].as_f64().unwrap();
    assert!((1e-5..1.0).contains(&own), "{own} s: {here}");
}

#[test]
fn what_is_not_said_is_chosen() {
    let sandbox = sandbox(&[("pool.toml", POOL)]);
    for method in ["auto", "exact", "genetic", "greedy"] {
        let args = ["--nodes", "pool.toml", "--counted", "--budget", "2s", "--method", method];
        let found = plan(&sandbox, &args);
        check(&found);
        let notes = list(&found, "notes");
        assert!(notes[0].as_str().unwrap().contains("does not say `formation.stages`"), "{found}");
        assert!(!list(&found, "why").is_empty(), "{found}");
    }
    let said = plan(&sandbox, &["--nodes", "pool.toml", "--counted", "--set", "formation.stages=1"]);
    assert!(list(&said, "stages").iter().all(|stages| *stages == 1), "{said}");
    let asynchronous = ["--nodes", "pool.toml", "--counted", "--set", "formation.mode=asynchronous"];
    let found = plan(&sandbox, &asynchronous);
    assert!(found["mode"]["asynchronous"]["in_flight"].as_u64() > Some(0), "{found}");
}

#[test]
fn what_does_not_fit_or_cannot_be_read_is_told() {
    let tiny = POOL.replace("GB", "MB");
    let wrong = POOL.replace("speed = 20.0", "speeed = 20.0");
    let json = NODE_CONFIGS.replace("\"ram\": 2,", "\"ram\": -2,");
    let sandbox = sandbox(&[
        ("pool.toml", POOL),
        ("tiny.toml", &tiny),
        ("kilo.toml", &POOL.replace("\"1GB\"", "\"1KiB\"")),
        ("wrong.toml", &wrong),
        ("wrong.json", &json),
        ("no.toml", "[[node"),
    ]);
    let fails =
        |code: i32, args: &[&str]| sandbox.fails(code, &[&["plan", "run.toml", "--counted"], args].concat());
    let said = fails(1, &["--nodes", "tiny.toml"]);
    assert!(
        said.contains("the nodes of tiny.toml") && said.contains("MiB") && said.contains("hint: "),
        "{said}"
    );
    let said = fails(1, &["--nodes", "pool.toml", "--set", "formation.stages=4"]);
    assert!(said.contains("1 replica of 4 stages needs 4 nodes, the pool has 3"), "{said}");
    let said = fails(1, &["--nodes", "kilo.toml", "--set", "formation.stages=3"]);
    assert!(said.contains("hint: small can hold no part of the model (1 KiB is less than the "), "{said}");
    let said = fails(2, &["--nodes", "wrong.toml"]);
    assert!(
        said.contains("wrong.toml") && said.contains("node middle has an unknown key `speeed`"),
        "{said}"
    );
    let said = fails(2, &["--nodes", "wrong.json"]);
    assert!(
        said.contains("wrong.json") && said.contains("`ram` of node 1 must be a number above 0"),
        "{said}"
    );
    let said = fails(2, &["--nodes", "no.toml"]);
    assert!(said.contains("no.toml") && said.contains("line 1"), "{said}");
    let said = fails(2, &["--nodes", "not-there.toml"]);
    assert!(said.contains("could not read the pool file not-there.toml"), "{said}");
    let said = fails(2, &["--nodes", "pool.toml", "--set", "formation.stagse=2"]);
    assert!(said.contains("stages"), "{said}");
}

#[test]
fn cuts_and_parts_that_cannot_be_are_told_with_their_place() {
    let sandbox = sandbox(&[("pool.toml", POOL)]);
    let run = std::fs::read_to_string(sandbox.path().join("run.toml")).unwrap();
    let fails = |formation: &str| {
        std::fs::write(sandbox.path().join("bad.toml"), format!("{run}[formation]\n{formation}\n")).unwrap();
        sandbox.fails(2, &["plan", "bad.toml", "--counted", "--nodes", "pool.toml"])
    };
    for (formation, words) in [
        (
            "cuts = [\"conv2d_2\", \"dense1\"]",
            "unknown operator \"dense1\" for `formation.cuts` at bad.toml:10:21; did you mean `dense_1`?",
        ),
        (
            "cuts = [\"conv2d_1\"]",
            "the model cannot be cut before `conv2d_1`: it is the first operator, at bad.toml:10:9",
        ),
        ("cuts = [\"conv2d_1\"]", "hint: next to it the model can be cut before `"),
        (
            "micro_batches = 65",
            "`formation.micro_batches` must be at most the batch, 64, not 65, at bad.toml:10:17",
        ),
    ] {
        let said = fails(formation);
        assert!(said.contains(words), "{words} in {said}");
    }
}

#[test]
fn the_nodes_of_a_domain() {
    let sandbox = sandbox(&[]);
    let said = sandbox.fails(3, &["plan", "run.toml"]);
    assert!(said.contains("no computing node in domain default") && said.contains("--nodes FILE"), "{said}");
    let names = ["a", "b"];
    let nodes = names.map(|name| sandbox.node(&["--name", name, "--cores", "1", "--memory", "1GiB"]));
    let ids = nodes.each_ref().map(|(_, id)| id.as_str());
    let found = plan(&sandbox, &["--counted", "--set", "formation.stages=2"]);
    check(&found);
    let mut rows: Vec<&str> =
        list(&found, "formation").iter().map(|row| row["node"].as_str().unwrap()).collect();
    rows.sort_unstable();
    assert_eq!(rows, ids);
    assert!(list(&found, "formation").iter().all(|row| row["memory_of_bytes"] == 1u64 << 30), "{found}");
    assert!(list(&found, "nodes").iter().all(|node| node["speed"].as_f64() > Some(0.0)), "{found}");

    // The file of measurements is a pool, too.
    sandbox.stdout(&["nodes", "--measure", "--write", "pool.toml", "--output", "json"]);
    let written = plan(&sandbox, &["--counted", "--nodes", "pool.toml", "--set", "formation.stages=2"]);
    check(&written);
    let mut rows: Vec<&str> =
        list(&written, "nodes").iter().map(|node| node["name"].as_str().unwrap()).collect();
    rows.sort_unstable();
    assert_eq!(rows, ids);
}

#[test]
fn the_pools_of_the_example_are_the_same() {
    let sandbox = sandbox(&[]);
    let file = |name: &str| example("decentralized-digits").join(name).to_str().unwrap().to_owned();
    let step = |pool: &str| {
        let args = ["plan", &file("run.toml"), "--nodes", &file(pool), "--counted", "--output", "json"];
        let found = sandbox.json(&args);
        check(&found);
        assert_eq!(found["stages"], serde_json::json!([3]), "{found}");
        found["step_s"].as_f64().unwrap()
    };
    assert_eq!(step("pool.toml"), step("node_configs.json"));
}
