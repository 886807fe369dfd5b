//! Nodes on networks of their own: relays, multicast, introductions, links that break.
//!
//! Every host but loopback is a network namespace made by the test, so this needs root and `ip`.

#[path = "network/introduced.rs"]
mod introduced;
#[path = "network/liveness.rs"]
mod liveness;
#[path = "network/mdns.rs"]
mod mdns;
#[path = "network/relay.rs"]
mod relay;

use phalanx_testkit::{Host, Sandbox};
use serde_json::Value;

/// A sandbox in which the domain `lab` has a key, known to every host.
fn keyed() -> Sandbox {
    let sandbox = Sandbox::new(env!("CARGO_BIN_EXE_phalanx"));
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

/// Whether a summary says that every one of so many jobs was solved.
fn assert_all_solved(summary: &Value, jobs: u64) {
    assert_eq!((&summary["submitted"], &summary["solved"]), (&jobs.into(), &jobs.into()), "{summary}");
}

/// The row of a node in what `phalanx nodes` lists.
fn row<'a>(listed: &'a Value, id: &str) -> Option<&'a Value> {
    listed.as_array()?.iter().find(|row| row["id"] == id)
}

/// Whether a line of `phalanx nodes --watch` tells this of a node.
fn tells(line: &Value, event: &str, id: &str) -> bool {
    line["event"] == event && line["id"] == id
}
