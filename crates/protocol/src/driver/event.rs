//! Inputs of the driver's core. They carry no large bytes, so that they can be recorded and replayed.

use crate::progress::Place;
use phalanx_types::NodeId;
use phalanx_wire::detail::Detail;
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{FromReplica, Layout};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names one request of the core. A reply with a ticket that nobody waits for any more changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// Something that happened to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DriverEvent {
    /// The run begins, or goes on in a new process.
    Started,
    /// There is a link to a computing node.
    NodeUp {
        /// The node.
        node: NodeId,
    },
    /// The link to a node is gone.
    NodeDown {
        /// The node.
        node: NodeId,
        /// Why the link ended.
        loss: LostReason,
    },
    /// A node said something.
    Message {
        /// The node.
        node: NodeId,
        /// What it said.
        message: FromReplica,
    },
    /// Nodes were measured, or could not be.
    Measured {
        /// All that were asked for.
        nodes: Vec<NodeId>,
    },
    /// Reply to [`super::DriverCommand::Plan`].
    Planned {
        /// Of the request.
        ticket: Ticket,
        /// The plan, or why there is none.
        plan: Result<PlannedGroup, NoPlan>,
    },
    /// Reply to [`super::DriverCommand::Compare`].
    Compared {
        /// Of the request.
        ticket: Ticket,
        /// Nothing when one of the two formations is impossible.
        comparison: Option<Comparison>,
    },
    /// Reply to [`super::DriverCommand::Calibrate`].
    Calibrated {
        /// Of the request.
        ticket: Ticket,
        /// Whether the costs of the model are different now.
        changed: bool,
    },
    /// Reply to [`super::DriverCommand::Fetch`] and [`super::DriverCommand::FetchPart`]. The shell keeps the bytes.
    Fetched {
        /// Of the request.
        ticket: Ticket,
        /// The step of the state, or why it did not come.
        result: Result<u64, FetchFailure>,
    },
    /// Reply to [`super::DriverCommand::Rewind`]: the records end after this step now.
    Rewound {
        /// The place of the newest checkpoint, the beginning without one.
        place: Place,
        /// The last step of which there is a validation.
        validated: u64,
    },
    /// A client asks the model something.
    QueryAsked {
        /// A number that the shell gave it.
        query: u64,
    },
    /// The client of a query waits no longer.
    QueryDropped {
        /// Its number.
        query: u64,
    },
    /// The user wants the run to end.
    StopAsked,
    /// Time has passed: [`super::DriverCore::next_tick`] says when this is due.
    Tick,
}

/// Why a state did not come from a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchFailure {
    /// There is no link to the node.
    NoLink {
        /// The node.
        node: NodeId,
    },
    /// The node announced more bytes than a state of the model can have.
    TooLarge {
        /// Announced.
        bytes: u64,
        /// Allowed.
        most: u64,
    },
    /// It got lost on the way; what the fabric or the system says.
    Transfer {
        /// The error with its causes.
        detail: Detail,
    },
    /// What came is no state.
    Unreadable {
        /// The error with its causes.
        detail: Detail,
    },
}

impl fmt::Display for FetchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchFailure::NoLink { node } => write!(f, "there is no link to {node}"),
            FetchFailure::TooLarge { bytes, most } => {
                write!(f, "a state of {bytes} bytes, of {most} at most")
            }
            FetchFailure::Transfer { detail } | FetchFailure::Unreadable { detail } => write!(f, "{detail}"),
        }
    }
}

/// A formation that a planner found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedGroup {
    /// By rank.
    pub members: Vec<NodeId>,
    /// Which part of the model each rank holds.
    pub layout: Layout,
    /// Into how many parts a replica cuts its share of a batch.
    pub micro_batches: usize,
    /// Nodes that are not used, and why.
    pub left_out: Vec<(NodeId, String)>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoPlan {
    /// What the planner says.
    pub detail: Detail,
    /// What could change that.
    pub kind: NoPlanKind,
}

/// What could make a plan possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoPlanKind {
    /// More or larger nodes.
    NeedsNodes,
    /// Other nodes: with these an operator would compute single samples that cannot.
    NeedsOtherNodes,
    /// Nothing.
    Hopeless,
}

/// The present formation against the best one with other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Score of the present formation; less is better.
    pub present_score: f64,
    /// Score of the other one.
    pub other_score: f64,
    /// Seconds of a step in the present formation.
    pub present_s: f64,
    /// Seconds of a step in the other one.
    pub other_s: f64,
    /// Micro-batches of the other one.
    pub micro_batches: usize,
}
