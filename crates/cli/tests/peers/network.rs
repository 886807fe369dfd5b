//! Nodes on separate networks: relays, multicast, introductions, links that break.
//!
//! Every host but loopback is a network namespace made by the test, so this needs root and `ip`.

mod introduced;
mod launch;
mod liveness;
mod mdns;
mod relay;

use phalanx_testkit::{Host, Sandbox};
use serde_json::Value;

/// A sandbox with a key for the domain `lab` on every host.
fn keyed() -> Sandbox {
    let sandbox = crate::sandbox();
    let made = sandbox.run(&["domain", "new", "lab", "--output", "quiet"]);
    assert!(made.status.success(), "{made:?}");
    sandbox
}

/// The arguments of a command with these behind it.
fn with<'a>(command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    command.iter().chain(more).copied().collect()
}

/// Submits jobs and waits for all of them.
fn submit(host: Host<'_>, domain: &[&str], jobs: &[&str]) -> Value {
    let command = with(&["job", "submit", "--wait", "--output", "json"], jobs);
    host.json(&with(&command, domain))
}

/// Checks that a summary says that all of these jobs were solved.
fn assert_all_solved(summary: &Value, jobs: u64) {
    assert_eq!((&summary["submitted"], &summary["solved"]), (&jobs.into(), &jobs.into()), "{summary}");
}

/// The row of a node in what `phalanx nodes` lists.
fn row<'a>(listed: &'a Value, id: &str) -> Option<&'a Value> {
    listed.as_array()?.iter().find(|row| row["id"] == id)
}

/// Whether a line of `phalanx nodes --watch` reports this event of a node.
fn tells(line: &Value, event: &str, id: &str) -> bool {
    line["event"] == event && line["id"] == id
}
