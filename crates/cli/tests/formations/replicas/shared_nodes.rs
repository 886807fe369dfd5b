//! Nodes that several runs and jobs share.

use super::{CNN, ENDLESS, SGD, VERIFY, run_file, sandbox};
use crate::run::Run;
use phalanx_testkit::{Process, Sandbox, eventually};
use rustix::process::Signal;
use serde_json::Value;

const TWO_REPLICAS: [&str; 2] = ["--replicas", "2"];
const ONE_CORE: [&str; 2] = ["--set", "formation.cores=1"];

/// Writes a run file for a run that ends only when it is stopped.
fn endless(sandbox: &Sandbox) {
    run_file(sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
}

fn jobs(sandbox: &Sandbox, args: &[&str]) -> Process {
    sandbox.start(&[&["job", "submit", "--wait", "--output", "json"], args].concat())
}

/// The uses of each computing node at one moment, which must not exceed its resources.
fn sample(sandbox: &Sandbox) -> Vec<Vec<Value>> {
    let nodes = sandbox.nodes();
    let computing = nodes.iter().filter(|node| node["kind"] == "computing");
    let uses = |node: &Value| {
        let uses = node["uses"].as_array().cloned().unwrap_or_default();
        let sum = |key: &str| uses.iter().map(|part| part[key].as_u64().unwrap()).sum::<u64>();
        assert!(sum("cores") <= node["cores"].as_u64().unwrap(), "oversubscribed: {node}");
        assert!(sum("memory_bytes") <= node["memory_bytes"].as_u64().unwrap(), "oversubscribed: {node}");
        uses
    };
    computing.map(uses).collect()
}

/// How much of a node is used by one kind of holder, by cores.
fn cores(uses: &[Value], kind: &str) -> Vec<u64> {
    let of = uses.iter().filter(|part| part["kind"] == kind);
    of.map(|part| part["cores"].as_u64().unwrap()).collect()
}

/// The number of replicas in a node's process.
fn replica_threads(node: &Process) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", node.id())).unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "replica").count()
}

#[test]
fn two_runs_train_at_once_on_the_same_nodes_with_jobs_beside_them() {
    let sandbox = sandbox();
    endless(&sandbox);
    let (first, a) = sandbox.node(&["--name", "a", "--cores", "3"]);
    let (second, b) = sandbox.node(&["--name", "b", "--cores", "3"]);
    let mut jobs = jobs(&sandbox, &["--kind", "sleep", "--arg", "20ms", "--count", "1000000"]);
    let args = [TWO_REPLICAS, ONE_CORE].concat();
    let mut one = Run::start_in(&sandbox, "one", &args);
    let mut two = Run::start_in(&sandbox, "two", &args);
    for run in [&mut one, &mut two] {
        run.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    }
    assert_eq!((replica_threads(&first), replica_threads(&second)), (2, 2));
    for _ in 0..10 {
        one.goes_on(1);
        two.goes_on(1);
        for uses in sample(&sandbox) {
            assert_eq!(cores(&uses, "run"), [1, 1], "{uses:?}");
        }
    }
    eventually("jobs on both nodes", || {
        sample(&sandbox).iter().all(|uses| cores(uses, "jobs") == [1]).then_some(())
    });

    let args = [TWO_REPLICAS, ["--set", "formation.cores=2"]].concat();
    let mut three = Run::start_in(&sandbox, "three", &args);
    let why = |said: &str| {
        let lines = said.lines().filter(|line| line.contains("does not take part: needs 2 cores, "));
        lines.filter(|line| line.matches("run of driver-").count() == 2).count() == 2
    };
    three.process.says_where("why both nodes do not take part", why);
    one.goes_on(5);
    two.goes_on(5);
    assert_eq!(three.lines().len(), 0);
    one.interrupt();
    three.until_replicas("two replicas", |replicas| replicas == [a.as_str(), &b]);
    two.goes_on(5);
    for uses in sample(&sandbox) {
        let mut runs = cores(&uses, "run");
        runs.sort_unstable();
        assert_eq!((runs, cores(&uses, "jobs")), (vec![1, 2], vec![]), "{uses:?}");
    }
    two.interrupt();
    three.interrupt();
    eventually("jobs use all cores again", || {
        sample(&sandbox).iter().all(|uses| cores(uses, "jobs") == [3]).then_some(())
    });
    jobs.signal(Signal::INT);
    jobs.finish();
}

#[test]
fn a_small_run_does_not_overtake_a_large_one_that_asked_before() {
    let sandbox = sandbox();
    endless(&sandbox);
    let (_node, id) = sandbox.node(&["--name", "a", "--cores", "2"]);
    let small = [["--replicas", "1"], ONE_CORE].concat();
    let mut first = Run::start_in(&sandbox, "first", &small);
    first.goes_on(1);
    let mut large = Run::start_in(&sandbox, "large", &["--replicas", "1"]);
    large.process.says(&format!("{id} does not take part: needs 2 cores, 1 of 2 is free (run of driver-"));
    let mut second = Run::start_in(&sandbox, "second", &small);
    second.process.says_where("who is before it", |said| {
        said.contains("needs 1 core, 0 of 2 are free (run of driver-") && said.contains(" is next for 2)")
    });
    first.goes_on(1);
    assert_eq!((large.lines().len(), second.lines().len()), (0, 0));
    first.interrupt();
    large.goes_on(1);
    assert_eq!(second.lines().len(), 0);
    large.interrupt();
    second.goes_on(1);
    second.interrupt();
}

#[test]
fn jobs_wait_for_cores_that_runs_use_and_say_so() {
    let sandbox = sandbox();
    endless(&sandbox);
    let (_node, id) = sandbox.node(&["--name", "a", "--cores", "2"]);
    let args = [["--replicas", "1"], ONE_CORE].concat();
    let mut one = Run::start_in(&sandbox, "one", &args);
    let mut two = Run::start_in(&sandbox, "two", &args);
    one.goes_on(1);
    two.goes_on(1);
    let mut job = jobs(&sandbox, &["--kind", "echo", "--arg", "hello"]);
    let (free, end) = ("waiting: needs 1 core, 0 of 2 are free (run of driver-", format!(" uses 1) on {id}"));
    job.says_where("why it waits", |said| said.contains(free) && said.contains(&end));
    let why = sandbox.stdout(&["job", "explain", "1"]);
    assert!(why.starts_with(free) && why.trim().ends_with(&end), "{why}");
    let table = sandbox.stdout(&["nodes"]);
    assert_eq!(table.matches("run of driver-").count(), 2, "{table}");
    one.interrupt();
    let (code, summary) = job.summary();
    assert_eq!((code, summary["solution"].as_str()), (Some(0), Some("hello")), "{summary}");
    two.goes_on(1);
    two.interrupt();
}

#[test]
fn a_run_that_wants_all_of_a_node_waits_for_the_jobs_on_it() {
    let sandbox = sandbox();
    endless(&sandbox);
    let (_node, id) = sandbox.node(&["--name", "a", "--cores", "2", "--allow-exec"]);
    let until_told = "until [ -e go ]; do sleep 0.02; done";
    let mut main = jobs(&sandbox, &["--kind", "exec", "--arg", until_told, "--count", "4"]);
    eventually("two jobs run", || {
        sample(&sandbox).iter().any(|uses| cores(uses, "jobs") == [2]).then_some(())
    });
    let mut run = Run::start_in(&sandbox, "one", &["--replicas", "1"]);
    run.process.says(&format!("{id} does not take part: needs 2 cores, 0 of 2 are free (2 jobs use 2)"));
    assert_eq!(run.lines().len(), 0);
    std::fs::write(sandbox.path().join("go"), "").unwrap();
    // The other two jobs release it first; otherwise it would wait as long as there are jobs.
    run.goes_on(1);
    let uses = sample(&sandbox);
    assert_eq!(cores(&uses[0], "run"), [2], "{uses:?}");
    assert_eq!(cores(&uses[0], "jobs"), [0; 0], "{uses:?}");
    main.says_where("why jobs wait", |said| {
        said.contains("waiting: needs 1 core, 0 of 2 are free (run of driver-")
    });
    run.interrupt();
    let (code, summary) = main.summary();
    assert_eq!((code, &summary["solved"]), (Some(0), &4.into()), "{summary}");
}

#[test]
fn a_run_that_asks_for_more_than_any_node_has_is_told_so() {
    let sandbox = sandbox();
    endless(&sandbox);
    let (_node, id) = sandbox.node(&["--name", "a", "--cores", "2", "--memory", "1GiB"]);
    let asks = |set: &str, why: &str| {
        let mut run = Run::start_in(&sandbox, "one", &["--replicas", "1", "--set", set]);
        run.process.says(&format!("{id} does not take part: {why}"));
        run.interrupt();
    };
    asks("formation.cores=3", "needs 3 cores, the node has 2");
    asks("formation.memory=2GiB", "needs 2 GiB of memory, the node has 1 GiB");
}
