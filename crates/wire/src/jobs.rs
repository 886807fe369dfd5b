//! What main nodes and computing nodes say to each other.
//!
//! Everything is batched: one [`Dispatch`] or [`Report`] carries all that came up since the last.
//! On a link they are numbered, from 1 on. A receiver drops a message whose number it has heard: a message that comes a
//! second time, and late, would undo what was said since. Different messages may repeat each other, as a [`Join`] does.

use crate::bulk::BlobId;
use crate::detail::{Bounded, Detail};
use crate::reason::FailReason;
use crate::usage::NodeUse;
use bytes::Bytes;
use phalanx_types::{Epoch, JobId, LeaseId, Needs, NodeId, Parcel, ParcelHead, SessionId};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A payload or solution up to this many bytes rides inside the message; a larger one is a blob.
pub const INLINE_LIMIT: u64 = 16 << 10;

/// The longest description of a payload or solution: names and shapes of its tensors.
pub const MAX_HEAD_LEN: usize = 1 << 20;

/// Main node → computing node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// First on every link: whose jobs these are, and in which life of it.
    Invite {
        session: SessionId,
        epoch: Epoch,
    },
    Dispatch(Dispatch),
}

/// Computing node → main node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    Join(Join),
    Report(Report),
}

/// The answer to an invitation: what the node can do and what it holds of this session already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    pub session: SessionId,
    pub epoch: Epoch,
    pub kinds: Vec<SmolStr>,
    pub capacity: Needs,
    /// How many leases of this session the node wants to hold at once.
    pub window: u32,
    /// What jobs cannot have of the capacity, because training uses it or is about to.
    pub taken: Vec<NodeUse>,
    /// Leases it holds unfinished from before, by whether they run.
    pub held: Vec<Held>,
    /// Solutions that were never acknowledged.
    pub done: Vec<Done>,
    /// Solutions of this session that it keeps: its own, and copies of others that its jobs took.
    pub kept: Vec<KeptSolution>,
}

/// A solution that stays at a computing node until the main node says that it is not needed any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSolution {
    pub job: JobId,
    pub head: ParcelHead,
    pub blob: BlobId,
}

/// A lease that outlived its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub lease: LeaseId,
    pub running: bool,
}

/// All that a main node has to say to one computing node at a moment.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    pub epoch: Epoch,
    /// Rises from message to message of a link.
    pub number: u64,
    /// Results that are recorded; the node may forget them.
    pub acks: Vec<LeaseId>,
    /// Results that are recorded; the node keeps them for other jobs.
    pub keeps: Vec<LeaseId>,
    /// Jobs whose solutions the node need not keep any more.
    pub drops: Vec<JobId>,
    /// Careful jobs that may start now.
    pub go: Vec<LeaseId>,
    /// Leases that end now, whether running or not.
    pub cancels: Vec<LeaseId>,
    /// Leases to hand back unless they run already.
    pub recalls: Vec<LeaseId>,
    pub offers: Vec<OfferGroup>,
}

/// Offers that share a kind and needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferGroup {
    pub kind: SmolStr,
    pub needs: Needs,
    pub offers: Vec<Offer>,
}

/// One leased job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub lease: LeaseId,
    pub priority: i32,
    /// A node was lost with this job before: ask before starting it, and start it alone.
    pub careful: bool,
    pub payload: ParcelRef,
    /// Solutions of other jobs that it takes, in order.
    pub inputs: Vec<Input>,
}

/// The most solutions of other jobs that one job takes.
pub const MAX_INPUTS: usize = 1024;

/// The solution of a job that another job takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub job: JobId,
    pub place: InputPlace,
}

/// Where a node finds an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputPlace {
    Inline {
        head: ParcelHead,
        body: Bytes,
    },
    /// At a node, which may be the one that is told.
    At {
        node: NodeId,
        head: ParcelHead,
        blob: BlobId,
    },
}

/// All that a computing node has to say to one main node at a moment.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub epoch: Epoch,
    /// Rises from message to message of a link.
    pub number: u64,
    pub window: u32,
    /// No new leases are taken; what is held will be finished or handed back.
    pub draining: bool,
    /// What jobs cannot have of the capacity, because training uses it or is about to.
    pub taken: Vec<NodeUse>,
    /// Careful leases that could start now and wait for `go`.
    pub asks: Vec<LeaseId>,
    pub started: Vec<LeaseId>,
    pub progress: Vec<Progress>,
    pub done: Vec<Done>,
    pub handed_back: Vec<LeaseId>,
    /// Copies of other nodes' solutions that it has from now on.
    pub kept: Vec<KeptSolution>,
    /// Leases that it hands back because an input could not be had.
    pub missing: Vec<MissingInput>,
}

/// An input that a node could not have from where it was said to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingInput {
    pub lease: LeaseId,
    pub input: JobId,
    pub node: NodeId,
    /// The copy that was asked for: the node may have another one by now.
    pub blob: BlobId,
    /// That node answered that it does not have it; else it could not be asked.
    pub is_gone: bool,
}

/// How far a running job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub lease: LeaseId,
    /// Thousandths of the whole.
    pub permille: u16,
    /// At most [`Detail::MAX`] bytes.
    #[serde(with = "Bounded::<{ Detail::MAX }>")]
    pub note: String,
}

/// The end of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub lease: LeaseId,
    pub result: DoneResult,
    pub run_micros: u64,
}

/// How a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DoneResult {
    Solved(ParcelRef),
    /// With `retry` the job may run again elsewhere while it has attempts left.
    Failed {
        reason: FailReason,
        retry: bool,
    },
}

/// A parcel in a message, or where to fetch its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParcelRef {
    Inline { head: ParcelHead, body: Bytes },
    Blob { head: ParcelHead, blob: BlobId },
}

impl ParcelRef {
    /// Puts a small parcel inside.
    pub fn inline(parcel: &Parcel) -> Self {
        ParcelRef::Inline { head: parcel.head(), body: parcel.body() }
    }
}

/// The service by which a main node answers questions about its jobs.
pub const QUERY_SERVICE: &str = "jobs";

/// A question to a main node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobQuery {
    /// Jobs with an id above `after`, in order of id; finished ones only when `all`.
    List {
        after: JobId,
        limit: u32,
        all: bool,
    },
    Show {
        job: JobId,
    },
    Cancel {
        jobs: Vec<JobId>,
    },
    CancelAll,
}

/// The answer to a [`JobQuery`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobAnswer {
    Jobs { jobs: Vec<JobInfo>, more: bool },
    Cancelled { jobs: u64 },
    NoSuchJob { job: JobId },
}

/// A job as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    pub job: JobId,
    pub kind: SmolStr,
    pub priority: i32,
    pub needs: Needs,
    pub state: JobState,
    /// Runs that ended with their node or with an error worth retrying.
    pub attempts: u32,
    pub max_attempts: u32,
    pub age_ms: u64,
    pub deadline_in_ms: Option<u64>,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobState {
    Waiting(crate::reason::WaitReason),
    /// In a node's hand, behind what the node runs.
    Leased {
        node: NodeId,
    },
    Running {
        node: NodeId,
        for_ms: u64,
        progress: Option<(u16, String)>,
    },
    Solved,
    Failed(FailReason),
    Cancelled,
    Expired,
}

impl JobState {
    /// The one word for it.
    pub fn name(&self) -> &'static str {
        match self {
            JobState::Waiting(_) => "waiting",
            JobState::Leased { .. } => "leased",
            JobState::Running { .. } => "running",
            JobState::Solved => "solved",
            JobState::Failed(_) => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Expired => "expired",
        }
    }
    /// The reason for it or the place of it; empty when the name says all.
    pub fn why(&self) -> String {
        match self {
            JobState::Waiting(reason) => reason.to_string(),
            JobState::Leased { node } => format!("next at {node}"),
            JobState::Running { node, for_ms, progress } => {
                let mut text = format!("on {node} for {:.1} s", *for_ms as f64 / 1000.0);
                if let Some((permille, note)) = progress {
                    text += &format!(", {:.0} % {note}", f64::from(*permille) / 10.0);
                }
                text
            }
            JobState::Failed(reason) => reason.to_string(),
            JobState::Solved | JobState::Cancelled | JobState::Expired => String::new(),
        }
    }
}
