use super::main::WorkerKey;
use super::queue::ClassId;
use phalanx_types::{JobId, Needs, Parcel, Time};
use phalanx_wire::reason::FailReason;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::time::Duration;

/// How often a job may take its node down, or fail in a way worth retrying, before it is set aside.
pub const DEFAULT_ATTEMPTS: u32 = 5;

/// A unit of work as the user describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Which handler solves it.
    pub kind: SmolStr,
    pub payload: Parcel,
    /// Higher goes first.
    pub priority: i32,
    /// Counted from submission; a job without outcome by then is expired.
    pub deadline: Option<Duration>,
    pub max_attempts: u32,
    pub needs: Needs,
    /// Its solution stays at the node that makes it, for other jobs to take.
    pub keep: bool,
    /// Jobs of the same main node, submitted before with `keep`, whose solutions it takes.
    pub inputs: Vec<JobId>,
}

impl JobSpec {
    pub fn new(kind: impl Into<SmolStr>, payload: Parcel) -> Self {
        Self {
            kind: kind.into(),
            payload,
            priority: 0,
            deadline: None,
            max_attempts: DEFAULT_ATTEMPTS,
            needs: Needs::default(),
            keep: false,
            inputs: Vec::new(),
        }
    }
}

/// The one recorded end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Solved(Parcel),
    /// Solved; the solution, of this many bytes, stays at the node that made it.
    Kept {
        len: u64,
    },
    Failed(FailReason),
    Cancelled,
    Expired,
}

impl Outcome {
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Outcome::Solved(_) | Outcome::Kept { .. } => Ending::Solved,
            Outcome::Failed(_) => Ending::Failed,
            Outcome::Cancelled => Ending::Cancelled,
            Outcome::Expired => Ending::Expired,
        }
    }
}

/// How a job ended: what is kept of it, besides its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    NotYet,
    Solved,
    Failed,
    Cancelled,
    Expired,
}

/// A job that has not ended. A million of these wait in memory, so it is kept small.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// No decision depends on it, so snapshots leave it out.
    #[serde(skip)]
    pub(crate) payload: Parcel,
    /// The length of the payload.
    pub(crate) payload_len: u64,
    pub(crate) state: State,
    pub(crate) submitted: Time,
    /// `Time::NEVER` when it has none.
    #[serde(with = "super::recorded::short_never")]
    pub(crate) deadline: Time,
    pub(crate) class: ClassId,
    pub(crate) priority: i32,
    /// The number of its newest lease; 0 before the first.
    pub(crate) leases: u32,
    pub(crate) attempts: u16,
    pub(crate) max_attempts: u16,
    /// A node was lost while it held this job.
    pub(crate) careful: bool,
    /// Its outcome is told; it lives on because its solution is kept.
    pub(crate) told: bool,
    /// Its payload is not remembered any more, so it cannot run again.
    pub(crate) forgotten: bool,
}

/// Where an unfinished job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Waiting,
    /// Some of its inputs are not there.
    Blocked,
    /// Solved; the solution is kept, or may be made again.
    Stored,
    Leased {
        worker: WorkerKey,
        /// Which lease of the job it is; not the newest when an older one was adopted.
        number: u32,
        since: Time,
        phase: Phase,
    },
}

/// How far a lease has come, as far as its main node was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Given out, not known to run.
    Given,
    /// Asked back; the node has not answered.
    Recalled,
    Running,
    /// Solved; the solution is on its way.
    Taking,
}
