//! Main nodes and computing nodes under faults: no job lost, none ended twice.
//!
//! ```text
//!   Plan (from the seed) -> World: [MainCore + shell model] <- links -> [WorkerCore + shell model]
//!                             ^ faults, users                            threads, blobs
//! ```
//! The shells are models, the cores and the codec are the real ones. What is checked stands in
//! `checks` (while it runs) and `verdict` (when all is quiet).

mod checks;
mod event;
mod faults;
mod journal;
mod link;
mod main_commands;
mod main_shell;
mod plan;
mod references;
mod threads;
mod training;
mod verdict;
mod worker_runs;
mod worker_shell;
mod world;

use phalanx_types::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// How large a run is and what is kept of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Keeps the text of the trace.
    pub trace: bool,
    /// The most jobs a scenario may have beyond its first twenty.
    pub jobs: u32,
    /// Has half of all messages come twice, and jobs take kept solutions, in every scenario.
    pub doubled: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { trace: false, jobs: 80, doubled: false }
    }
}

/// What came of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub events: u64,
    /// The virtual time at the end.
    pub ended_at: Time,
    pub outcomes: Outcomes,
    /// Equal for equal runs, whether or not the text was kept.
    pub trace_hash: u64,
    pub trace: Option<String>,
    pub violation: Option<Violation>,
}

/// How many jobs came to which recorded end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    pub submitted: u64,
    pub solved: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub expired: u64,
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
    // The cores assert their own books; a failed assertion is a violation like any other.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        world.violate(format!("a core panicked: {}", text.unwrap_or("no message")));
    }
    world.into_report(seed)
}
