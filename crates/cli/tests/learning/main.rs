//! Training on one machine, and what is done with a model: runs on disk, fusing, live questions, measuring, other
//! programs that read what was trained.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod fuse;
mod live;
mod measure;
mod memory;
mod roundtrip;
mod train;

use phalanx_testkit::Sandbox;

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_phalanx");

fn sandbox() -> Sandbox {
    Sandbox::new(BINARY)
}
