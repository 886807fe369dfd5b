//! Replays of recordings of main nodes that were disturbed.

use crate::sandbox;
use phalanx_jobs::core::{MainCommand, MainCore, MainEvent};
use phalanx_jobs::{JobSpec, Outcome, read_journal};
use phalanx_recording::{Limits, Recorded, Replay};
use phalanx_testkit::{Sandbox, eventually};
use phalanx_types::{Epoch, JobId, Outbox, Parcel, SessionId, Time};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::Path;

/// How the jobs of a journal ended.
fn journaled(path: &Path) -> BTreeMap<u64, String> {
    let name = |outcome: &Outcome| match outcome {
        Outcome::Solved(_) | Outcome::Kept { .. } => "solved",
        Outcome::Failed(_) => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Expired => "expired",
    };
    let jobs = read_journal(path).unwrap().jobs.into_iter();
    jobs.filter_map(|(id, job)| Some((id.0, name(job.outcome.as_ref()?).to_owned()))).collect()
}

/// Runs a few jobs in a sandbox; returns the path of the recording.
fn record_some(sandbox: &Sandbox) -> String {
    let submit =
        ["job", "submit", "--kind", "echo", "--arg", "private words", "--count", "3", "--local", "1"];
    let out = sandbox.run(&[&submit[..], &["--wait", "--journal", "some.journal"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    "some.journal.recording".to_owned()
}

#[test]
fn what_happened_while_nodes_were_killed_is_replayed_to_the_same_outcomes() {
    let sandbox = sandbox();
    let nodes: Vec<_> = (0..3).map(|_| sandbox.node(&["--cores", "2", "--heartbeat", "500ms"])).collect();
    let journal = sandbox.path().join("jobs.journal");
    let submit = ["job", "submit", "--kind", "sleep", "--arg", "5ms", "--count", "1200", "--wait"];
    let rest = ["--output", "json", "--heartbeat", "500ms", "--journal", "jobs.journal"];
    let mut main = sandbox.start(&[&submit[..], &rest].concat());
    let ended = |jobs: usize| {
        eventually("jobs are recorded as ended", || {
            let history = read_journal(&journal).ok()?;
            (history.jobs.values().filter(|job| job.outcome.is_some()).count() >= jobs).then_some(())
        });
    };
    for (jobs, node, signal) in [(100, 0, Signal::KILL), (300, 1, Signal::STOP)] {
        ended(jobs);
        nodes[node].0.signal(signal);
    }
    let (code, summary) = main.summary();
    assert_eq!((code, summary["solved"].as_u64()), (Some(0), Some(1200)), "{summary}");
    let replayed = sandbox.replay("jobs.journal.recording");
    assert_eq!(replayed.outcomes(), journaled(&journal));
    let said = |what: &str| {
        replayed.decisions.iter().filter(|d| d["text"].as_str().unwrap().starts_with(what)).count()
    };
    assert!(said("offer ") > 1200, "lost jobs were offered again");
    assert_eq!(said("finish job "), 1200);
}

#[test]
fn a_main_node_that_was_killed_leaves_a_recording_and_the_next_adds_to_it() {
    let sandbox = sandbox();
    let _node = sandbox.node(&["--cores", "2"]);
    let submit = ["job", "submit", "--kind", "sleep", "--arg", "10ms", "--count", "100", "--wait"];
    let start = || sandbox.start(&[&submit[..], &["--output", "json", "--journal", "jobs.journal"]].concat());
    let mut main = start();
    let journal = sandbox.path().join("jobs.journal");
    let recording = sandbox.path().join("jobs.journal.recording");
    eventually("some jobs are recorded as ended", || {
        read_journal(&journal).ok()?.jobs.values().any(|job| job.outcome.is_some()).then_some(())
    });
    eventually("something is recorded", || (std::fs::metadata(&recording).ok()?.len() > 1000).then_some(()));
    main.signal(Signal::KILL);
    main.finish();
    assert!(sandbox.replay(&recording).outcomes().len() < 100);
    assert_eq!(start().summary().0, Some(0));
    let replayed = sandbox.replay(&recording);
    assert_eq!(replayed.sections, 2);
    assert!(replayed.outcomes().values().all(|outcome| outcome == "solved"));
    // The very last job ended in the second process, whose recording is complete.
    assert_eq!(replayed.outcomes().last_key_value(), journaled(&journal).last_key_value());
}

#[test]
fn people_read_every_event_with_its_decisions_and_their_reasons() {
    let sandbox = sandbox();
    let file = record_some(&sandbox);
    let out = sandbox.run(&["replay", &file]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}");
    for part in [
        "main node, phalanx 0.1.0, recorded from ",
        "3 jobs submitted: echo",
        " is linked (link ",
        "offer 1#1 to link ",
        "finish job 3: solved",
        " decisions, all as recorded",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let bytes = std::fs::read(sandbox.path().join(&file)).unwrap();
    assert!(!bytes.windows(7).any(|window| window == b"private"), "payloads are not recorded");

    let out = sandbox.run(&["replay", &file, "--until", "2"]);
    let short = String::from_utf8(out.stdout).unwrap();
    assert!(short.contains("2 events, "), "{short}");
    assert!(text.starts_with(short.lines().next().unwrap()) && short.lines().count() < text.lines().count());
    let out = sandbox.run(&["replay", &file, "--until", "0.000000s", "--output", "quiet"]);
    assert_eq!(String::from_utf8(out.stdout).unwrap().trim(), "0");
}

#[test]
fn files_that_cannot_be_replayed_end_with_2_and_say_why() {
    let sandbox = sandbox();
    let file = sandbox.path().join(record_some(&sandbox));
    let whole = std::fs::read(&file).unwrap();
    let broken = sandbox.path().join("broken");
    let refused = |bytes: &[u8], says: &str| {
        std::fs::write(&broken, bytes).unwrap();
        let out = sandbox.run(&[Path::new("replay"), &broken]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{says:?} is not in {said}");
    };
    refused(b"my notes", "is not a recording");
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    refused(&damaged, "is damaged at byte 12");
    let out = sandbox.run(&["replay", "nothing-here"]);
    assert_eq!(out.status.code(), Some(2));
    // A power failure leaves half of the last block: everything before it is replayed.
    std::fs::write(&broken, &whole[..whole.len() - 3]).unwrap();
    let out = sandbox.run(&[Path::new("replay"), &broken]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8(out.stdout).unwrap().contains("a torn block at the end was left out"));
}

/// A main node's core that makes up a decision on its third event.
struct Liar {
    core: MainCore,
    events: u64,
}

impl Replay for Liar {
    const CORE: &'static str = MainCore::CORE;
    type Config = MainCore;
    type Event = MainEvent;
    type Command = MainCommand;

    fn new(core: MainCore) -> Self {
        Self { core, events: 0 }
    }

    fn feed(&mut self, now: Time, event: MainEvent, out: &mut Outbox<MainCommand>) {
        self.core.feed(now, event, out);
        self.events += 1;
        if self.events == 3 {
            out.push(MainCommand::Attempt { job: JobId(1), attempts: 9 });
        }
    }
}

#[test]
fn a_decision_that_differs_ends_with_1_and_names_the_place() {
    let sandbox = sandbox();
    let file = sandbox.path().join("lies.recording");
    let core = MainCore::new(SessionId(1), Epoch(1));
    let mut core = Recorded::<Liar>::begin(core, &file, Limits::default()).unwrap();
    let specs = vec![JobSpec::new("echo", Parcel::default())];
    for (at, event) in [
        (10, MainEvent::Submitted { specs }),
        (20, MainEvent::TurnEnded),
        (30, MainEvent::Cancelled { jobs: vec![JobId(1)] }),
        (40, MainEvent::TurnEnded),
    ] {
        core.feed(Time(at), event, &mut Outbox::default());
    }
    drop(core);
    let out = sandbox.run(&[Path::new("replay"), &file]);
    let (printed, said) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("decisions differ at entry 3 (0.000030s): recorded were 2"), "{said}");
    assert!(printed.contains("finish job 1: cancelled"), "what the core decides there is shown: {printed}");
    let out = sandbox.run(&[Path::new("replay"), &file, Path::new("--until=2")]);
    assert!(out.status.success(), "everything before is as recorded");
}
