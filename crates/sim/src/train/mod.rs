//! Elastic data-parallel training on simulated nodes: how fast it would be, and whether it stays right under faults.
//!
//! ```text
//!   nodes come, die, return ─► FormationCore (real) ─► groups ─► rounds: compute ─┐
//!                                     ^                             exchange, overlapped (real programs)
//!                                     └── left, lost, asked ◄────── votes (real), shares and balance (real)
//! ```
//! The decisions are those of the real cores; nodes, links and the shells around the cores are models. What is checked
//! stands in `checks`; a violation names the seed that replays it.

mod checks;
mod driver;
mod event;
mod group;
mod network;
mod node;
mod options;
mod report;
mod step;
mod tally;
mod walk;
mod work;
mod world;

pub use options::{Faults, Link, Options, Slow, Speed, Sync};
pub use report::{Report, Violation};
pub use work::{Bucket, Work};

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Simulates a run to its last step, or to its first violation.
pub fn run(work: &Work, options: &Options, seed: u64) -> Report {
    let mut world = World::new(work, options, seed);
    // The cores assert what they rely on; a failed assertion is a violation like any other.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        world.violate(format!("a core panicked: {}", text.unwrap_or("no message")));
    }
    world.into_report(seed)
}
