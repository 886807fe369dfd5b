use super::{counts, sandbox, submit};
use phalanx_jobs::read_journal;
use phalanx_testkit::{Sandbox, eventually};
use rustix::process::Signal;

fn jobs_done(sandbox: &Sandbox) -> u64 {
    let nodes = sandbox.nodes();
    nodes.iter().filter(|n| n["kind"] == "computing").map(|n| n["jobs_done"].as_u64().unwrap()).sum()
}

#[test]
fn two_main_nodes_share_the_nodes_fairly() {
    const JOBS: u64 = 400;
    let sandbox = sandbox();
    let _nodes = [sandbox.node(&["--cores", "1"]), sandbox.node(&["--cores", "1"])];
    // Busy all along, and there first.
    let mut first =
        submit(&sandbox, &["--name", "first", "--kind", "sleep", "--arg", "5ms", "--count", "100000"]);
    eventually("the first is at work", || (jobs_done(&sandbox) > 50).then_some(()));
    let before = jobs_done(&sandbox);
    let count = JOBS.to_string();
    let args = ["--name", "second", "--kind", "sleep", "--arg", "5ms", "--count", &count];
    let (code, summary) = submit(&sandbox, &args).summary();
    assert_eq!((code, counts(&summary)), (Some(0), [JOBS, JOBS, 0, 0, 0]), "{summary}");
    let share = JOBS as f64 / (jobs_done(&sandbox) - before) as f64;
    assert!((0.3..=0.7).contains(&share), "the second got {:.0} %", share * 100.0);
    first.signal(Signal::INT);
    assert_eq!(first.summary().0, Some(1));
}

#[test]
fn jobs_of_higher_priority_go_first() {
    let sandbox = sandbox();
    let line = "echo $PHALANX_JOB >> order";
    let submit = |count: &str, priority: &str| {
        let jobs = ["--kind", "exec", "--arg", line, "--count", count, "--priority", priority];
        submit(&sandbox, &[&jobs[..], &["--journal", "jobs"]].concat())
    };
    let recorded = |jobs: usize| {
        let journal = sandbox.path().join("jobs");
        eventually("the jobs are recorded", || {
            read_journal(&journal).ok().filter(|h| h.jobs.len() == jobs).map(|_| ())
        });
    };
    // A journal collects jobs of three priorities in one main node before a node joins.
    for (count, priority) in [("2", "0"), ("4", "-3")] {
        let mut main = submit(count, priority);
        recorded(count.parse().unwrap());
        main.signal(Signal::KILL);
        main.finish();
    }
    let mut main = submit("6", "7");
    recorded(6);
    let _node = sandbox.node(&["--cores", "1", "--allow-exec"]);
    assert_eq!(main.summary().0, Some(0));
    let order = std::fs::read_to_string(sandbox.path().join("order")).unwrap();
    assert_eq!(order.split_whitespace().collect::<Vec<_>>(), ["5", "6", "1", "2", "3", "4"]);
}
