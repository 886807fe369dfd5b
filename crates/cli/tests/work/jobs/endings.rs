use super::{counts, sandbox, submit};
use phalanx_testkit::{Process, Sandbox, eventually, is_alive};
use rustix::process::Signal;
use std::time::Duration;

/// Far less than the jobs here would take if they were not stopped.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn an_error_of_the_handler_fails_the_job_and_is_told() {
    let sandbox = sandbox();
    let _node = sandbox.node(&[]);
    let mut main = submit(&sandbox, &["--kind", "fail", "--arg", "out of cheese", "--count", "3"]);
    let (code, summary) = main.summary();
    assert_eq!((code, counts(&summary)), (Some(1), [3, 0, 3, 0, 0]), "{summary}");
    assert_eq!(summary["reruns"], 0, "an error is an answer: {summary}");
    let why = summary["first_failure"].as_str().unwrap();
    assert!(why.ends_with("handler failed: out of cheese"), "{why}");
    assert!(main.stderr().contains("3 of 3 jobs were not solved"), "{}", main.stderr());
}

#[test]
fn a_job_past_its_deadline_expires_and_its_handler_stops() {
    let sandbox = sandbox();
    let (_node, id) = sandbox.node(&["--cores", "1"]);
    let mut watch = sandbox.watch(&[]);
    // The second one expires while it waits behind the first.
    let args = ["--kind", "sleep", "--arg", "60s", "--count", "2", "--deadline", "300ms"];
    let mut main = submit(&sandbox, &args);
    watch.until_is(&id, "jobs_running", 1);
    let (status, printed) = main.finish_within(SOON);
    let summary = serde_json::from_str(printed.last().unwrap()).unwrap();
    assert_eq!((status.code(), counts(&summary)), (Some(1), [2, 0, 0, 0, 2]), "{summary}");
    watch.until_is(&id, "jobs_running", 0);
}

#[test]
fn a_cancelled_job_stops_where_it_runs() {
    let sandbox = sandbox();
    let (_node, id) = sandbox.node(&["--cores", "2"]);
    let mut watch = sandbox.watch(&[]);
    let mut main = submit(&sandbox, &["--kind", "sleep", "--arg", "60s", "--count", "4"]);
    watch.until_is(&id, "jobs_running", 2);
    let cancelled = sandbox.json(&["job", "cancel", "1", "3", "--output", "json"]);
    assert_eq!(cancelled["cancelled"], 2, "one that runs, one that waits");
    let cancelled = sandbox.json(&["job", "cancel", "--all", "--output", "json"]);
    assert_eq!(cancelled["cancelled"], 2);
    let (status, printed) = main.finish_within(SOON);
    let summary = serde_json::from_str(printed.last().unwrap()).unwrap();
    assert_eq!((status.code(), counts(&summary)), (Some(1), [4, 0, 0, 4, 0]), "{summary}");
    watch.until_is(&id, "jobs_running", 0);
    assert_eq!(submit(&sandbox, &["--kind", "upper", "--arg", "on"]).summary().1["solution"], "ON");
}

#[test]
fn a_submission_without_end_can_be_stopped() {
    let sandbox = sandbox();
    let mut main = submit(&sandbox, &["--kind", "echo", "--count", "4000000000"]);
    eventually("it has begun", || (!sandbox.nodes().is_empty()).then_some(()));
    main.signal(Signal::INT);
    let (status, printed) = main.finish_within(SOON);
    assert_eq!(status.code(), Some(1), "{}", main.stderr());
    assert!(main.stderr().contains("stopped before all jobs had ended"), "{}", main.stderr());
    let summary = serde_json::from_str(printed.last().unwrap()).unwrap();
    let [submitted, solved, _, cancelled, _] = counts(&summary);
    assert!((submitted, solved) == (cancelled, 0) && submitted < 4_000_000_000, "{summary}");
}

#[test]
fn what_was_solved_before_a_submission_was_stopped_is_kept() {
    let sandbox = sandbox();
    let (_node, id) = sandbox.node(&["--cores", "1"]);
    let mut watch = sandbox.watch(&[]);
    let args = ["--kind", "sleep", "--arg", "5ms", "--count", "4000000000", "--solutions", "out"];
    let mut main = submit(&sandbox, &args);
    watch.until(|nodes| (nodes.get(&id)?["jobs_done"].as_u64()? > 0).then_some(()));
    main.signal(Signal::INT);
    let (status, printed) = main.finish_within(SOON);
    assert_eq!(status.code(), Some(1), "{}", main.stderr());
    let summary = serde_json::from_str(printed.last().unwrap()).unwrap();
    let kept = std::fs::read_dir(sandbox.path().join("out")).unwrap().count() as u64;
    assert!(kept > 0 && kept == counts(&summary)[1], "{kept} files, {summary}");
}

/// Starts a command that has a child and does not exit; returns both processes once they exist.
fn stubborn_command(sandbox: &Sandbox) -> (Process, [u32; 2]) {
    let line = "sleep 60 & echo $$ $! > pids.new; mv pids.new pids; wait";
    let main = submit(sandbox, &["--kind", "exec", "--arg", line]);
    let pids = eventually("the command says who it is", || {
        let pids = std::fs::read_to_string(sandbox.path().join("pids")).ok()?;
        Some(pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>())
    });
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    (main, pids.try_into().unwrap())
}

fn assert_gone(pids: [u32; 2]) {
    eventually("both processes are gone", || (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
}

#[test]
fn a_cancelled_command_is_killed_with_its_children() {
    let sandbox = sandbox();
    let (_node, id) = sandbox.node(&["--allow-exec"]);
    let mut watch = sandbox.watch(&[]);
    let (mut main, pids) = stubborn_command(&sandbox);
    watch.until_is(&id, "jobs_running", 1);
    sandbox.json(&["job", "cancel", "1", "--output", "json"]);
    assert_eq!(main.finish_within(SOON).0.code(), Some(1));
    watch.until_is(&id, "jobs_running", 0);
    assert_gone(pids);
}

#[test]
fn commands_end_with_a_node_that_stops_at_once() {
    let sandbox = sandbox();
    let (mut node, _) = sandbox.node(&["--allow-exec"]);
    let (_main, pids) = stubborn_command(&sandbox);
    node.signal(Signal::INT);
    node.says("draining");
    node.signal(Signal::INT);
    assert_eq!(node.finish_within(SOON).0.code(), Some(0), "{}", node.stderr());
    assert_gone(pids);
}

#[test]
fn a_command_ends_with_its_killed_node() {
    let sandbox = sandbox();
    let (mut node, _) = sandbox.node(&["--allow-exec"]);
    let (_main, [command, child]) = stubborn_command(&sandbox);
    node.signal(Signal::KILL);
    node.finish_within(SOON);
    eventually("the command is gone", || (!is_alive(command)).then_some(()));
    // The kernel ends the command, but not what the command has started.
    phalanx_testkit::signal(child, Signal::KILL);
}

#[test]
fn nodes_stay_usable_after_their_main_node_was_killed() {
    let sandbox = sandbox();
    let (_node, id) = sandbox.node(&["--cores", "2"]);
    let mut watch = sandbox.watch(&[]);
    let mut main = submit(&sandbox, &["--kind", "sleep", "--arg", "60s"]);
    watch.until_is(&id, "jobs_running", 1);
    main.signal(Signal::KILL);
    main.finish();
    let args = ["--kind", "upper", "--arg", "still here", "--count", "20"];
    let (code, summary) = submit(&sandbox, &args).summary();
    assert_eq!((code, counts(&summary)), (Some(0), [20, 20, 0, 0, 0]), "{summary}");
    assert_eq!(sandbox.json(&["job", "list", "--output", "json"]), serde_json::json!([]));
}
