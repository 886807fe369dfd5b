//! Jobs and commands: the command line, work distribution, journals, replays, plans, nodes that are killed meanwhile.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod chaos;
mod cli;
mod domain_store;
mod infer;
mod jobs;
mod journal;
mod past_jobs;
mod plan;
mod replay;
mod searches_elsewhere;
mod store;
mod store_kills;
mod store_spill;

use phalanx_testkit::Sandbox;

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_phalanx");

fn sandbox() -> Sandbox {
    Sandbox::new(BINARY)
}
