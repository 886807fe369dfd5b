//! Drivers and nodes of searches are killed.

use super::{events, proposed, reached, search_file};
use crate::sandbox;
use phalanx_testkit::{Process, Sandbox, eventually, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// Finishes a search, killing its driver whenever it has recorded this many more lines.
fn kill_driver_every(sandbox: &Sandbox, lines: usize, search: &Path) -> usize {
    let mut command = vec!["search", "run", "search.toml", "--local", "1", "--workers", "1"];
    command.extend(["--dir", "searches/killed", "--output", "json"]);
    let mut kills = 0;
    loop {
        let before = count(search);
        let mut driver = sandbox.start(&command);
        command = vec!["search", "resume", "killed", "--local", "1", "--workers", "1", "--output", "json"];
        let ended = eventually("the driver ends or has recorded more", || {
            if !driver.is_running() {
                return Some(true);
            }
            (count(search) >= before + lines).then_some(false)
        });
        if ended {
            let (status, _) = driver.finish();
            assert!(status.success(), "{}", driver.stderr());
            return kills;
        }
        driver.signal(Signal::KILL);
        driver.finish();
        kills += 1;
    }
}

fn count(search: &Path) -> usize {
    std::fs::read_to_string(search.join("events.jsonl")).unwrap_or_default().lines().count()
}

#[test]
fn a_search_whose_driver_is_killed_again_and_again_ends_as_if_nothing_had_happened() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 8");
    let words = ["search", "run", "search.toml", "--local", "1", "--workers", "1", "--dir", "searches/whole"];
    let whole = sandbox.json(&[&words[..], &["--output", "json"]].concat());
    let (undisturbed, killed) =
        (sandbox.path().join("searches/whole"), sandbox.path().join("searches/killed"));
    let kills = kill_driver_every(&sandbox, 7, &killed);
    assert!(kills >= 4, "{kills} kills");
    assert!(reached(&killed).values().all(|count| *count == 1), "a recorded training is not done again");
    assert_eq!(reached(&killed), reached(&undisturbed));
    assert_eq!(proposed(&killed), proposed(&undisturbed));
    let values = |search: &Path| -> Vec<Value> {
        let of = |event: &Value| event["value"]["values"]["accuracy"].clone();
        events(search).iter().filter(|event| event["event"] == "trial_reached").map(of).collect()
    };
    assert_eq!(values(&killed), values(&undisturbed), "trials that go on come to the same");
    assert_eq!(whole["end"]["state"], "finished");
}

/// The process of the node that trains something now.
fn busy_node(driver: &Process) -> Option<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let children = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = format!("--die-with\0{}\0", driver.id());
    children.into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&parent)
    })
}

#[test]
fn nodes_that_are_killed_cost_no_trial() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 10");
    let words =
        ["search", "run", "search.toml", "--local", "2", "--dir", "searches/first", "--output", "json"];
    let mut driver = sandbox.start(&words);
    let search = sandbox.path().join("searches/first");
    for kill in 1..=3 {
        let running = eventually("a node trains, or all is done", || {
            if !driver.is_running() {
                return Some(None);
            }
            let results = events_so_far(&search);
            (results >= kill * 2).then(|| busy_node(&driver))
        });
        if let Some(node) = running {
            signal(node, Signal::KILL);
        }
    }
    let (status, printed) = driver.finish();
    assert!(status.success(), "{}", driver.stderr());
    let searched: Value = serde_json::from_str(&printed.join("\n")).unwrap();
    assert_eq!(
        (&searched["end"]["state"], &searched["trials"]),
        (&"finished".into(), &10.into()),
        "{searched}"
    );
    assert!(reached(&search).values().all(|count| *count == 1));
    assert!(!driver.stderr().contains(" failed: "), "{}", driver.stderr());
}

fn events_so_far(search: &Path) -> usize {
    let text = std::fs::read_to_string(search.join("events.jsonl")).unwrap_or_default();
    text.lines().filter(|line| line.contains("trial_reached")).count()
}

#[test]
fn ctrl_c_stops_a_search_that_then_goes_on() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 12");
    let words =
        ["search", "run", "search.toml", "--local", "1", "--dir", "searches/first", "--output", "json"];
    let mut driver = sandbox.start(&words);
    let search = sandbox.path().join("searches/first");
    eventually("a trial has a result", || (events_so_far(&search) > 0).then_some(()));
    driver.signal(Signal::INT);
    let (status, _) = driver.finish();
    assert_eq!(status.code(), Some(1), "{}", driver.stderr());
    assert!(driver.stderr().contains("phalanx search resume"), "{}", driver.stderr());
    let searched = sandbox.json(&["search", "resume", "first", "--local", "1", "--output", "json"]);
    assert_eq!(searched["end"]["state"], "finished", "{searched}");
    assert!(reached(&search).values().all(|count| *count == 1));
}
