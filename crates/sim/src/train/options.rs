//! What is simulated.

use crate::runs;
use phalanx_collective::{Algorithm, Compression};
use std::time::Duration;

/// How long the driver waits for all nodes at the start.
const PATIENCE: Duration = Duration::from_secs(60);

/// What joins two hosts, the same for all pairs. A host sends and receives at once, each at the full rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    pub bytes_per_sec: f64,
    /// One way.
    pub latency: Duration,
}

impl Link {
    /// Seconds that so many bytes take to leave a host.
    pub(super) fn seconds(&self, bytes: f64) -> f64 {
        bytes / self.bytes_per_sec
    }
}

/// What replicas exchange, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Gradients of every step, while they are computed.
    Gradients,
    /// Parameters, after so many steps that each replica does alone.
    Parameters { every: u32 },
    /// How far parameters have moved in so many steps; an outer optimizer applies the mean.
    Outer { every: u32 },
}

impl Sync {
    /// Steps from one exchange to the next.
    pub(super) fn every(self) -> u32 {
        self.interval().unwrap_or(1)
    }

    /// Steps that replicas do alone before they exchange what they learned.
    fn interval(self) -> Option<u32> {
        match self {
            Sync::Gradients => None,
            Sync::Parameters { every } | Sync::Outer { every } => Some(every.max(1)),
        }
    }
}

/// How long a replica computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Floating-point operations per second of a node that is not slow.
    Flops(f64),
    /// What its equal share of the batch takes a node that is not slow, forward and backward.
    Step(Duration),
}

/// Some nodes compute slower than the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// The part of all nodes, from 0 to 1.
    pub part: f64,
    /// How many times longer they compute.
    pub times: f64,
}

/// How often nodes fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Mean time until a node dies.
    pub mtbf: Duration,
    /// Mean time until it is back, with nothing in its memory.
    pub mttr: Duration,
    /// After so many deaths nothing fails any more.
    pub most: u64,
}

/// A cluster and what it trains.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub replicas: usize,
    /// Replicas that share a host, its memory and its link.
    pub host_ranks: usize,
    /// With fewer the run waits.
    pub min: usize,
    /// Samples of a step over all replicas.
    pub batch: usize,
    pub steps: u64,
    pub link: Link,
    /// Bytes per second that ranks of one host sum in shared memory.
    pub shared_bytes_per_sec: f64,
    pub speed: Speed,
    pub slow: Option<Slow>,
    /// By how much the time of a rank may differ from step to step, as a part of it.
    pub jitter: f64,
    pub faults: Option<Faults>,
    /// How long a frozen node is silent before it counts as lost.
    pub heartbeat: Duration,
    pub sync: Sync,
    pub compression: Compression,
    /// The algorithm between hosts; what a group would choose when not said.
    pub algorithm: Option<Algorithm>,
    /// Statistics of batch norm are summed over all replicas.
    pub statistics: bool,
    /// Steps from one checkpoint to the next.
    pub checkpoint_every: Option<u64>,
    /// Keeps the text of the trace.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            replicas: 4,
            host_ranks: 1,
            min: 1,
            batch: 256,
            steps: 200,
            link: Link { bytes_per_sec: 125e6, latency: Duration::from_micros(100) },
            shared_bytes_per_sec: 4e9,
            speed: Speed::Flops(50e9),
            slow: None,
            jitter: 0.02,
            faults: None,
            heartbeat: Duration::from_secs(2),
            sync: Sync::Gradients,
            compression: Compression::None,
            algorithm: None,
            statistics: false,
            checkpoint_every: None,
            trace: false,
        }
    }
}

impl Options {
    /// Samples that a replica takes when all take the same.
    pub(super) fn share(&self) -> f64 {
        self.batch as f64 / self.replicas.max(1) as f64
    }

    /// The run and its faults; what takes how long is not in them.
    pub(super) fn run(&self) -> runs::Options {
        let faults = self.faults;
        runs::Options {
            nodes: self.replicas,
            min: self.min.clamp(1, self.replicas),
            // A node may be back before its death is known.
            max: self.replicas * 2,
            patience: PATIENCE,
            steps: self.steps,
            pass: 1,
            validates: false,
            checkpoint_every: self.checkpoint_every.map(|every| every.max(1)),
            batch: self.batch,
            average_every: self.sync.interval().map(u64::from),
            mtbf: faults.map(|faults| faults.mtbf),
            mttr: faults.map_or(Duration::ZERO, |faults| faults.mttr),
            heartbeat: self.heartbeat,
            heals_at: Duration::MAX,
            most_deaths: faults.map_or(0, |faults| faults.most),
            gives_up: true,
            trace: self.trace,
            ..runs::Options::default()
        }
    }
}
