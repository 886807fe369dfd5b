//! Training on one machine and using the model: run directories, fusing, live queries, measurements, and other programs
//! that read the result.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod dashboard;
mod fuse;
mod ledger;
mod live;
mod measure;
mod memory;
mod roundtrip;
mod search;
mod train;

use phalanx_testkit::Sandbox;

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_phalanx");

fn sandbox() -> Sandbox {
    Sandbox::new(BINARY)
}
