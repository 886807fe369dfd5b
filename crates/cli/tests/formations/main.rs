//! Training on many nodes that come, go, freeze and are killed: replicas of a model, and models cut into stages.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod replicas;
mod run;
mod stages;
mod streams;

use phalanx_testkit::Sandbox;

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_phalanx");

fn sandbox() -> Sandbox {
    Sandbox::new(BINARY)
}
