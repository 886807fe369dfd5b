//! Elastic data-parallel training on simulated nodes: how fast it would be, and whether it stays right under faults.
//!
//! ```text
//!   runs: nodes come, die, return ─► DriverCore (real) ─► groups, votes, shares, records, checkpoints
//!             how long does it take? ─► Throughput: compute ─┐
//!                                                   exchange, overlapped (real programs)
//! ```
//! The decisions are those of the real cores, as [`crate::runs`] simulates and checks them; this is a model of time for
//! them. A violation names the seed that replays it.

mod network;
mod options;
mod report;
mod step;
mod tally;
mod throughput;
mod walk;
mod work;

pub use options::{Faults, Link, Options, Slow, Speed, Sync};
pub use report::{Report, Violation};
pub use work::{Bucket, Work};

use crate::runs::simulate;
use throughput::Throughput;

/// Simulates a run to its last step, or to its first violation.
pub fn run(work: &Work, options: &Options, seed: u64) -> Report {
    let (report, pace) = simulate(seed, &options.run(), Throughput::new(work, options, seed));
    pace.into_report(report)
}
