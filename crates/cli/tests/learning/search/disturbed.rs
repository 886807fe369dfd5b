//! Drivers and nodes of searches are killed.

use super::{reached, search_file};
use crate::sandbox;
use phalanx_testkit::{Process, eventually, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// The process of a node that a driver has started.
pub(super) fn node_of(driver: &Process) -> Option<u32> {
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
        let node = eventually("further results and a node", || {
            assert!(driver.is_running(), "the search ended after {} kills: {}", kill - 1, driver.stderr());
            (events_so_far(&search) >= kill * 2).then(|| node_of(&driver)).flatten()
        });
        signal(node, Signal::KILL);
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
