use super::{counts, list, sandbox, submit};
use phalanx_testkit::eventually;
use rustix::process::Signal;

#[test]
fn a_node_told_to_stop_finishes_what_runs_and_hands_back_the_rest() {
    let sandbox = sandbox();
    let (mut leaver, id) = sandbox.node(&["--cores", "1"]);
    let _stayer = sandbox.node(&["--cores", "1"]);
    let mut main = submit(&sandbox, &["--kind", "sleep", "--arg", "1s", "--count", "4"]);
    eventually("it runs one job and has another in hand", || {
        let why: Vec<String> =
            list(&sandbox).iter().map(|job| job["why"].as_str().unwrap().to_owned()).collect();
        let has = |start: String| why.iter().any(|w| w.starts_with(&start));
        (has(format!("on {id} for")) && has(format!("next at {id}"))).then_some(())
    });
    leaver.signal(Signal::INT);
    assert_eq!(leaver.finish().0.code(), Some(0), "{}", leaver.stderr());
    assert!(leaver.stderr().contains("draining"), "{}", leaver.stderr());
    let (code, summary) = main.summary();
    assert_eq!((code, counts(&summary)), (Some(0), [4, 4, 0, 0, 0]), "{summary}");
    assert_eq!(summary["reruns"], 0, "{summary}");
}

#[test]
fn a_node_told_twice_stops_at_once_and_its_job_runs_elsewhere() {
    let sandbox = sandbox();
    let (mut leaver, id) = sandbox.node(&["--cores", "1", "--allow-exec"]);
    let mut watch = sandbox.watch(&[]);
    // The first node to run it never finishes it; the second one does at once.
    let line = "if mkdir begun; then exec sleep 300; fi";
    let mut main = submit(&sandbox, &["--kind", "exec", "--arg", line]);
    watch.until_is(&id, "jobs_running", 1);
    let _stayer = sandbox.node(&["--cores", "1", "--allow-exec"]);
    leaver.signal(Signal::INT);
    leaver.says("draining");
    watch.until_state(&id, "draining");
    leaver.signal(Signal::INT);
    assert_eq!(leaver.finish().0.code(), Some(0), "{}", leaver.stderr());
    let (code, summary) = main.summary();
    assert_eq!((code, counts(&summary)), (Some(0), [1, 1, 0, 0, 0]), "{summary}");
    assert_eq!(summary["reruns"], 1, "{summary}");
}

#[test]
fn a_node_that_solves_some_jobs_and_is_told_to_stop_finishes_the_one_that_runs() {
    let sandbox = sandbox();
    let (mut leaver, id) = sandbox.node(&["--solve", "3"]);
    let mut watch = sandbox.watch(&[]);
    let mut main = submit(&sandbox, &["--kind", "sleep", "--arg", "1s", "--count", "3"]);
    watch.until_is(&id, "jobs_running", 1);
    leaver.signal(Signal::INT);
    leaver.says("draining");
    assert_eq!(leaver.finish().0.code(), Some(0), "{}", leaver.stderr());
    watch.until_is(&id, "jobs_done", 1);
    let (_rest, rest) = sandbox.node(&["--cores", "2"]);
    let (code, summary) = main.summary();
    assert_eq!((code, counts(&summary)), (Some(0), [3, 3, 0, 0, 0]), "{summary}");
    assert_eq!(summary["reruns"], 0, "{summary}");
    watch.until_is(&rest, "jobs_done", 2);
}

#[test]
fn a_node_that_solves_some_jobs_and_is_told_twice_stops_at_once() {
    let sandbox = sandbox();
    let (mut leaver, id) = sandbox.node(&["--solve", "3"]);
    let mut watch = sandbox.watch(&[]);
    let _main = submit(&sandbox, &["--kind", "sleep", "--arg", "300s"]);
    watch.until_is(&id, "jobs_running", 1);
    leaver.signal(Signal::INT);
    leaver.says("draining");
    leaver.signal(Signal::INT);
    assert_eq!(leaver.finish().0.code(), Some(0), "{}", leaver.stderr());
}

#[test]
fn a_node_that_solves_two_jobs_solves_exactly_two() {
    let sandbox = sandbox();
    let (mut node, id) = sandbox.node(&["--solve", "2"]);
    let mut watch = sandbox.watch(&[]);
    let mut main = submit(&sandbox, &["--kind", "sleep", "--arg", "20ms", "--count", "5"]);
    assert_eq!(node.finish().0.code(), Some(0), "{}", node.stderr());
    watch.until_is(&id, "jobs_done", 2);
    eventually("three are left", || (list(&sandbox).len() == 3).then_some(()));
    let (_rest, rest) = sandbox.node(&[]);
    let (code, summary) = main.summary();
    assert_eq!((code, counts(&summary)), (Some(0), [5, 5, 0, 0, 0]), "{summary}");
    watch.until_is(&rest, "jobs_done", 3);
    assert_eq!(summary["reruns"], 0, "{summary}");
}
