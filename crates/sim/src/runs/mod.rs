//! Whole training runs under faults: the real driver core, with simulated nodes that follow the rules of real ranks.
//!
//! ```text
//!   nodes come, die, freeze ─► links that lose what a dead node sent ─► DriverCore (real) ─► book, planner, fetches
//!              ^                                                             │
//!              └── votes, holdings, report log (real) ◄── groups of ranks ◄──┘
//! ```
//! Replicas hold the whole model; stages hold parts of it, as a simulated planner decides. The driver may be slow, so
//! that it lags many steps behind. After the faults everything heals, and the run must end.
//!
//! Checked after every event: steps are recorded once and in order, with every sample of their batch once; every
//! validation and checkpoint that is due is recorded once and in order, unless every rank that knew it is lost; no rank
//! begins with a part of the state that nobody gave it; nobody waits without a reason.

mod book;
mod cluster;
mod faults;
mod group;
mod planner;
mod process;
mod shell;
mod verdict;
mod world;

use phalanx_recording::RecordingError;
use phalanx_types::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use world::World;

/// A cluster and the run that it trains.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Stages of a replica; replicas are not cut when 0.
    pub stages: usize,
    /// Operators of the model.
    pub operators: u32,
    /// Steps of the run.
    pub steps: u64,
    /// Steps of a pass: the model is validated after each.
    pub pass: u64,
    /// Steps from one checkpoint to the next.
    pub checkpoint_every: u64,
    /// Steps from one copy of a stage's state to the next; none with 0.
    pub copies: u64,
    /// Samples of a step.
    pub batch: usize,
    /// How long a step computes, about.
    pub step: Duration,
    /// One way, at least.
    pub latency: Duration,
    /// Seconds that the whole state takes to travel.
    pub state_seconds: f64,
    /// Mean time until a node dies or freezes; never without.
    pub mtbf: Option<Duration>,
    /// Mean time until it is back.
    pub mttr: Duration,
    /// How long a frozen node is silent before it counts as lost.
    pub heartbeat: Duration,
    /// After this time nothing fails any more.
    pub heals_at: Duration,
    /// Whether the driver is slow at times.
    pub slow_driver: bool,
    /// Keeps the text of the trace.
    pub trace: bool,
}

impl Options {
    /// A cluster as the seed decides: everything that can go wrong does in some of them.
    pub fn random(seed: u64) -> Self {
        let mut dice = crate::dice::Dice::new(seed, "options");
        let stages = if dice.chance(1, 3) { 0 } else { 2 + dice.index(3) };
        let nodes = stages.max(2) + dice.index(4);
        Self {
            nodes,
            stages,
            operators: 12,
            steps: 40 + dice.number(0..40),
            pass: 5 + dice.number(0..12),
            checkpoint_every: 3 + dice.number(0..12),
            copies: [0, 2, 5][dice.index(3)],
            batch: 24,
            step: dice.millis(50..1500),
            latency: dice.micros(100..80_000),
            state_seconds: dice.number(1..4000) as f64 / 1e3,
            mtbf: (!dice.chance(1, 20)).then(|| dice.millis(5_000..60_000) * nodes as u32),
            mttr: dice.millis(500..20_000),
            heartbeat: Duration::from_secs(2),
            heals_at: dice.millis(20_000..120_000),
            slow_driver: dice.chance(1, 2),
            trace: false,
        }
    }
}

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
    /// Reports that no rank could repeat, because all that knew them were lost.
    pub unknown: u64,
    /// Events that were simulated.
    pub events: u64,
    /// The virtual time at the end.
    pub ended_at: Time,
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
    finish(seed, World::new(seed, options, None).expect("only a recording can fail"))
}

/// The same, and records what the driver's core is told, for `phalanx replay`.
///
/// # Errors
/// The recording cannot be begun.
pub fn run_recorded(seed: u64, options: &Options, recording: &Path) -> Result<Report, RecordingError> {
    Ok(finish(seed, World::new(seed, options, Some(recording))?))
}

fn finish(seed: u64, mut world: World<'_>) -> Report {
    // The cores assert what they rely on; a failed assertion is a violation like any other.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        world.violate(format!("a core panicked: {}", text.unwrap_or("no message")));
    }
    world.into_report(seed)
}
