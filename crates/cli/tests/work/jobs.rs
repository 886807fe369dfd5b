//! Work distribution: real nodes, real jobs, every way a job can end.

mod background;
mod draining;
mod endings;
mod payloads;
mod poison;
mod sharing;
mod waiting;

use crate::sandbox;
use phalanx_testkit::{Process, Sandbox};
use serde_json::Value;

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
