//! Work distribution as users see it: real nodes, real jobs, every way a job can end.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "jobs/background.rs"]
mod background;
#[path = "jobs/draining.rs"]
mod draining;
#[path = "jobs/endings.rs"]
mod endings;
#[path = "jobs/payloads.rs"]
mod payloads;
#[path = "jobs/poison.rs"]
mod poison;
#[path = "jobs/sharing.rs"]
mod sharing;
#[path = "jobs/waiting.rs"]
mod waiting;

use phalanx_testkit::{Process, Sandbox};
use serde_json::Value;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}

/// Starts a main node that waits for its jobs.
fn submit(sandbox: &Sandbox, args: &[&str]) -> Process {
    sandbox.start(&[&["job", "submit", "--wait", "--output", "json"], args].concat())
}

/// The numbers of a summary, in the order submitted, solved, failed, cancelled, expired.
fn counts(summary: &Value) -> [u64; 5] {
    ["submitted", "solved", "failed", "cancelled", "expired"].map(|key| summary[key].as_u64().unwrap())
}

/// The unfinished jobs of a sandbox.
fn list(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(&["job", "list", "--output", "json"]).as_array().unwrap().clone()
}
