//! Whole training runs under faults: the real driver core, with simulated nodes that follow the rules of real ranks.
//!
//! ```text
//!   nodes come, die, freeze ─► links that lose what a dead node sent ─► DriverCore (real) ─► book, planner, fetches
//!              ^                                                             │
//!              └── votes, holdings, report log (real) ◄── groups of ranks ◄──┘
//! ```
//! Replicas hold the whole model; stages hold parts of it, as a simulated planner decides. Rounds are single steps, or
//! intervals of several: replicas that average, stages that overlap. Nodes die, freeze, refuse and lose their links; the
//! driver may be slow, so that it lags many steps behind. The driver's process dies, between any two commands, the user
//! stops the run, a rank finds that it cannot go on: each time another driver resumes the run from its directory. After
//! the faults everything heals, and the run must end.
//!
//! Checked after every event: steps are recorded once and in order, with every sample of their batch once, and intervals
//! as a whole; every validation and checkpoint that is due is recorded once and in order, over all lives of the driver,
//! unless every rank that knew it is lost; a run that ends has saved what nodes hold; no rank begins with a part of the
//! state that no node gave it; no rank waits without a reason. [`kinds`] names every kind of event and command of the
//! driver's core, and a test asks that each of them is simulated.
//!
//! How long things take is a `pace::Pace`: rough and random here, predicted from a model and its links in
//! `crate::train`.

mod book;
mod cluster;
mod copies;
mod coverage;
mod event;
mod faults;
mod group;
mod life;
mod options;
pub(crate) mod pace;
mod planner;
mod process;
mod queries;
mod reasons;
mod round;
mod shell;
mod stream;
mod verdict;
mod world;

pub use coverage::kinds;
pub use options::{Options, Stream};

use pace::{Pace, RoughPace};
use phalanx_recording::RecordingError;
use phalanx_types::Time;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use world::World;

/// What came of one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Decides everything that is random.
    pub seed: u64,
    /// Steps in the records.
    pub steps: u64,
    /// Validations in the records.
    pub validations: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Groups that began.
    pub groups: u64,
    /// Nodes that died or froze.
    pub deaths: u64,
    /// Steps that were computed more than once.
    pub redone: u64,
    /// Times that the run went back to a checkpoint.
    pub rewinds: u64,
    /// Times that the driver's process died.
    pub restarts: u64,
    /// Times that the user stopped the run.
    pub stops: u64,
    /// Times that the run failed, as it should.
    pub failures: u64,
    /// Rounds of several steps that were done as one.
    pub intervals: u64,
    /// Times that a group waited until the store had heard of its checkpoint.
    pub commits_waited: u64,
    /// Queries that were answered.
    pub answers: u64,
    /// Reports that no rank could repeat, because all that knew them were lost.
    pub unknown: u64,
    /// Steps that nodes held last.
    pub held: u64,
    /// Faults were so frequent that the run was not followed to its end.
    pub gave_up: bool,
    /// Events that were simulated.
    pub events: u64,
    /// The virtual time at the end.
    pub ended_at: Time,
    /// Kinds of events and commands that the driver's core had.
    pub kinds: BTreeSet<&'static str>,
    /// Equal for equal runs, whether or not the text was kept.
    pub trace_hash: u64,
    /// What happened, one line per event and command.
    pub trace: Option<String>,
    /// What went wrong first.
    pub violation: Option<Violation>,
}

/// Something that must never happen, and happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// What.
    pub what: String,
}

/// Simulates one run to its end, or to its first violation.
pub fn run(seed: u64, options: &Options) -> Report {
    simulate(seed, options, RoughPace::new(seed, options)).0
}

/// The same, and records what the driver's core is told until its process first dies, for `phalanx replay`.
///
/// # Errors
/// The recording cannot be begun.
pub fn run_recorded(seed: u64, options: &Options, recording: &Path) -> Result<Report, RecordingError> {
    let world = World::new(seed, options, RoughPace::new(seed, options), Some(recording))?;
    Ok(finish(seed, world).0)
}

/// The same with another model of time.
pub(crate) fn simulate<P: Pace>(seed: u64, options: &Options, pace: P) -> (Report, P) {
    finish(seed, World::new(seed, options, pace, None).expect("only a recording can fail"))
}

fn finish<P: Pace>(seed: u64, mut world: World<'_, P>) -> (Report, P) {
    // The cores assert what they rely on; a failed assertion is a violation like any other.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        world.violate(format!("a core panicked: {}", text.unwrap_or("no message")));
    }
    world.into_report(seed)
}
