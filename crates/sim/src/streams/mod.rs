//! Producers, a store and readers under faults: every upload counts once, every sample is used once in a pass.
//!
//! ```text
//!   Plan (from the seed) -> World: [producers] -> network -> [store: StreamCore + journal] <- network <- [trainers]
//!                             ^ faults                          v facts                                    v shares
//!                                                             Audit: what must hold after every fact
//! ```
//! The shells are models, the core is the real one. The store may die between any two events; what its journal had
//! not made durable is lost, together with every answer that waited for it.

mod audit;
mod checks;
mod faults;
mod plan;
mod producers;
mod readers;
mod store;
mod trainers;
mod world;

use phalanx_types::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// What is kept of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Options {
    /// Keeps the text of the trace.
    pub trace: bool,
}

/// What came of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub events: u64,
    /// The virtual time at the end.
    pub ended_at: Time,
    pub counts: Counts,
    /// Equal for equal runs, whether or not the text was kept.
    pub trace_hash: u64,
    pub trace: Option<String>,
    pub violation: Option<Violation>,
}

/// What happened how often.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub uploads: u64,
    /// Uploads whose bytes arrived again and did not count.
    pub repeated: u64,
    pub steps: u64,
    pub passes: u64,
    /// Shares that were computed, also those that did not count.
    pub shares: u64,
    pub store_restarts: u64,
    /// Facts that a restart lost before anybody was told of them.
    pub lost_facts: u64,
    pub fenced: u64,
    pub waits: u64,
    pub cut_windows: u64,
    pub rewinds: u64,
    pub released: u64,
    pub freed: u64,
    pub shrunk: u64,
}

/// Something that must never happen, and happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub at: Time,
    pub what: String,
}

/// Runs the scenario of one seed to its end or its first violation.
pub fn run(seed: u64, options: &Options) -> Report {
    let mut world = World::new(seed, options);
    // The core asserts its own books; a failed assertion is a violation like any other.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        world.violate(format!("the core panicked: {}", text.unwrap_or("no message")));
    }
    world.into_report(seed)
}
