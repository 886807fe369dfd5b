//! The command line as programs and people rely on it: JSON, exit codes, help, clean ends.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "cli/contracts.rs"]
mod contracts;
#[path = "cli/domains.rs"]
mod domains;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/local_nodes.rs"]
mod local_nodes;
#[path = "cli/simulate.rs"]
mod simulate;
#[path = "cli/usage.rs"]
mod usage;

use phalanx_testkit::Sandbox;
use serde_json::Value;
use std::collections::BTreeSet;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object
        .as_object()
        .unwrap_or_else(|| panic!("not an object: {object}"))
        .keys()
        .map(String::as_str)
        .collect()
}
