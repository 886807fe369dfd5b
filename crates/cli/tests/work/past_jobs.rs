//! Jobs of a main node that was killed: the ledger knows them, and loses none when it is made anew.

use phalanx_jobs::read_journal;
use phalanx_testkit::{Sandbox, eventually};
use rustix::process::Signal;
use serde_json::Value;

/// Two jobs that end by themselves, one that fails, and two that do not end.
const COMMAND: &str = "case $PHALANX_JOB in 1|2) echo done;; 3) printf 'no\\033[2J luck' >&2; exit 7;; *) exec sleep 600;; esac";

fn past(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(&["job", "list", "--all", "--output", "json"]).as_array().unwrap().clone()
}

fn text<'a>(job: &'a Value, key: &str) -> &'a str {
    job[key].as_str().unwrap_or_default()
}

#[test]
fn jobs_of_a_killed_main_node_are_listed_with_outcome_solver_and_times() {
    let sandbox = crate::sandbox();
    std::fs::create_dir(sandbox.path().join("runs")).unwrap();
    let (_node, solver) = sandbox.node(&["--cores", "4", "--allow-exec"]);
    let journal = sandbox.path().join("mine.journal");
    let submit =
        ["job", "submit", "--wait", "--kind", "exec", "--arg", COMMAND, "--count", "5", "--attempts", "1"];
    let mut main = sandbox.start(&[&submit[..], &["--journal", journal.to_str().unwrap()]].concat());
    eventually("three jobs have ended", || {
        let history = read_journal(&journal).ok()?;
        (history.jobs.values().filter(|job| job.outcome.is_some()).count() == 3).then_some(())
    });
    // The ledger also says who solved jobs of a main node that is there.
    eventually("its solver is listed", || {
        let live = past(&sandbox);
        let first = live.iter().find(|job| text(job, "job").starts_with("1@"))?;
        (text(first, "node") == solver && first["ended_ms"].is_u64()).then_some(())
    });
    main.signal(Signal::KILL);
    main.finish();
    eventually("nobody takes it for live", || {
        sandbox.nodes().iter().all(|node| node["kind"] != "main" || node["state"] == "lost").then_some(())
    });

    let jobs = past(&sandbox);
    assert!(sandbox.path().join("runs/ledger.sqlite").is_file(), "the main node fed the ledger");
    let names: Vec<&str> = jobs.iter().map(|job| text(job, "job")).collect();
    assert_eq!(names, ["1@mine", "2@mine", "3@mine", "4@mine", "5@mine"], "{jobs:?}");
    let states: Vec<&str> = jobs.iter().map(|job| text(job, "state")).collect();
    assert_eq!(states, ["solved", "solved", "failed", "waiting", "waiting"], "{jobs:?}");
    assert_eq!((text(&jobs[0], "node"), text(&jobs[1], "node")), (&*solver, &*solver));
    let time = |job: &Value, key: &str| job[key].as_u64();
    for job in &jobs[..3] {
        assert!(time(job, "submitted_ms").unwrap() <= time(job, "ended_ms").unwrap(), "{job}");
    }
    assert!(text(&jobs[2], "why").contains("no\u{1b}[2J luck"), "as it was: {}", jobs[2]);
    assert!(text(&jobs[3], "why").contains("its main node mine is gone") && jobs[3]["ended_ms"].is_null());
    let unfinished = sandbox.json(&["job", "list", "--output", "json"]);
    assert_eq!(unfinished.as_array().unwrap().len(), 2, "{unfinished}");

    // For people nothing of it is obeyed by a terminal.
    let table = sandbox.stdout(&["job", "list", "--all"]);
    assert!(table.contains(r"no\u{1b}[2J luck") && table.contains("TOOK"), "{table}");
    assert!(!table.contains('\u{1b}') && table.contains(&solver), "{table}");
    for verb in ["show", "explain"] {
        let shown = sandbox.stdout(&["job", verb, "3@mine"]);
        assert!(shown.contains(r"no\u{1b}[2J luck") && !shown.contains('\u{1b}'), "{shown}");
    }

    let rebuilt = sandbox.json(&["ledger", "rebuild", "--output", "json"]);
    assert_eq!(rebuilt["journals"]["journals"], 1, "{rebuilt}");
    assert_eq!(past(&sandbox), jobs, "made anew");
    assert_eq!(sandbox.json(&["ledger", "info", "--output", "json"])["jobs"], 5);
    // A new ledger finds what is in the usual place.
    let usual = sandbox.path().join("state/jobs/default");
    std::fs::create_dir_all(&usual).unwrap();
    std::fs::rename(&journal, usual.join("mine.journal")).unwrap();
    for end in ["", "-wal", "-shm"] {
        // The last process may have removed the others.
        let _removed = std::fs::remove_file(sandbox.path().join(format!("runs/ledger.sqlite{end}")));
    }
    assert_eq!(past(&sandbox), jobs, "from an empty ledger");
    // Without a ledger the journals say the same.
    let mut without = sandbox.command(&["job", "list", "--all", "--output", "json"]);
    let said = without.env("PHALANX_LEDGER", "none").output().unwrap();
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&said.stdout).unwrap(), jobs, "from the journal");
}
