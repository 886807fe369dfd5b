//! Nodes that a command starts for itself end with it, however it ends.

use super::sandbox;
use phalanx_testkit::{Process, Sandbox, eventually, is_alive};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Far less than the jobs here would take.
const SOON: Duration = Duration::from_secs(20);

/// The processes that a process started.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>())
        .collect()
}

/// A command with two local nodes that are at work, and the nodes' processes.
fn busy_with_two_nodes(sandbox: &Sandbox) -> (Process, Vec<u32>) {
    let args = ["--kind", "sleep", "--arg", "60s", "--count", "4", "--local", "2", "--domain", "mine"];
    let main = sandbox.start(&[&["job", "submit", "--wait", "--output", "json"], &args[..]].concat());
    eventually("both nodes are at work", || {
        let nodes = sandbox.json(&["nodes", "--domain", "mine", "--output", "json"]);
        let busy = nodes.as_array()?.iter().filter(|node| node["jobs_running"].as_u64() > Some(0));
        (busy.count() == 2).then_some(())
    });
    let nodes = children(main.id());
    assert!(nodes.len() == 2 && nodes.iter().all(|pid| is_alive(*pid)), "{nodes:?}");
    (main, nodes)
}

#[test]
fn an_interrupted_command_takes_its_nodes_with_it() {
    let sandbox = sandbox();
    let (mut main, nodes) = busy_with_two_nodes(&sandbox);
    main.signal(Signal::INT);
    let (status, printed) = main.finish_within(SOON);
    assert_eq!(status.code(), Some(1), "{}", main.stderr());
    assert!(!nodes.iter().any(|pid| is_alive(*pid)), "a node outlived its command");
    let summary: serde_json::Value = serde_json::from_str(printed.last().unwrap()).unwrap();
    assert_eq!((&summary["solved"], &summary["cancelled"]), (&0.into(), &4.into()), "{summary}");
    assert!(main.stderr().contains("stopped before all jobs had ended"), "{}", main.stderr());
}

#[test]
fn a_killed_command_leaves_no_node_behind() {
    let sandbox = sandbox();
    let (mut main, nodes) = busy_with_two_nodes(&sandbox);
    main.signal(Signal::KILL);
    let killed = Instant::now();
    main.finish_within(SOON);
    eventually("its nodes are gone", || (!nodes.iter().any(|pid| is_alive(*pid))).then_some(()));
    assert!(killed.elapsed() < SOON, "they went after {:?}", killed.elapsed());
}

#[test]
fn a_killed_benchmark_leaves_no_rank_behind() {
    let sandbox = sandbox();
    let args = ["bench", "allreduce", "--ranks", "3", "--size", "16MiB", "--time", "120s"];
    let mut main = sandbox.start(&args);
    let ranks = eventually("all ranks are there", || Some(children(main.id())).filter(|r| r.len() == 3));
    main.signal(Signal::KILL);
    let killed = Instant::now();
    main.finish_within(SOON);
    eventually("its ranks are gone", || (!ranks.iter().any(|pid| is_alive(*pid))).then_some(()));
    assert!(killed.elapsed() < SOON, "they went after {:?}", killed.elapsed());
}

#[test]
fn local_nodes_work_alone_and_disturb_no_other_node() {
    let sandbox = sandbox();
    let (_other, id) = sandbox.node(&[]);
    let args = ["--kind", "exec", "--arg", "echo $PHALANX_JOB", "--count", "6", "--local", "2"];
    let summary = sandbox.json(&[&["job", "submit", "--wait", "--output", "json"], &args[..]].concat());
    assert_eq!(summary["solved"], 6, "{summary}");
    let nodes = sandbox.nodes();
    assert_eq!((nodes.len(), &nodes[0]["id"]), (1, &id.as_str().into()));
    assert_eq!(nodes[0]["jobs_done"], 0, "they are in a domain of their own");
}

#[test]
fn local_nodes_join_a_domain_with_a_key_and_leave_the_users_address_alone() {
    let sandbox = sandbox();
    sandbox.stdout(&["domain", "new", "lab", "--file", "lab.key"]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let args = ["--kind", "upper", "--arg", "hi", "--count", "6", "--local", "2", "--heartbeat", "5s"];
    let domain = ["--domain", "lab", "--key", "lab.key", "--output", "json"];
    let mut command = sandbox.command(&[&["job", "submit"], &args[..], &domain].concat());
    // The address is for this command only; its nodes cannot use the same.
    let output = command.env("PHALANX_BIND", free).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let summary: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((output.status.code(), &summary["solved"]), (Some(0), &6.into()), "{summary} {said}");
}

#[test]
fn local_nodes_run_the_commands_of_a_journal() {
    let sandbox = sandbox();
    let submit = ["job", "submit", "--wait", "--output", "json", "--journal", "jobs"];
    let mut main = sandbox.start(&[&submit[..], &["--kind", "exec", "--arg", "echo done"]].concat());
    eventually("the job is recorded", || {
        let jobs = sandbox.json(&["job", "list", "--output", "json"]);
        (jobs.as_array()?.len() == 1).then_some(())
    });
    main.signal(Signal::KILL);
    main.finish();
    let summary = sandbox.json(&[&submit[..], &["--local", "1"]].concat());
    assert_eq!((&summary["solved"], &summary["solution"]), (&1.into(), &"done\n".into()), "{summary}");
}
