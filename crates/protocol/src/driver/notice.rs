//! What users are told, and why a run fails.

use super::{FetchFailure, Ticket};
use crate::Pause;
use phalanx_types::NodeId;
use phalanx_wire::detail::Detail;
use phalanx_wire::node::LostReason;
use phalanx_wire::train_reason::{BreakReason, RankFailure, RunRefusal};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Something to know.
    Note,
    /// Nothing moves, and why.
    Waiting,
    /// Something is not as it should be, but the run goes on.
    Warning,
}

/// Something that a user should know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Notice {
    /// A member of the group is lost.
    NodeLost {
        /// The node.
        node: NodeId,
        /// Why its link ended.
        loss: LostReason,
    },
    /// A member left the group, which broke.
    NodeLeft {
        /// The node.
        node: NodeId,
        /// What it says.
        reason: BreakReason,
    },
    /// A node refuses to take part.
    NodeRefused {
        /// The node.
        node: NodeId,
        /// What it says.
        refusal: RunRefusal,
    },
    /// A node of the pool is not used.
    NodeUnused {
        /// The node.
        node: NodeId,
        /// Why.
        why: String,
    },
    /// A formation with these nodes would not be faster.
    NotFaster {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// Seconds of a step with them.
        with_s: f64,
        /// Seconds of a step without.
        without_s: f64,
    },
    /// The run waits for nodes.
    Paused {
        /// Why.
        pause: Pause,
        /// Nodes that are busy with another run.
        busy: usize,
    },
    /// A rank waits for another one.
    RankWaits {
        /// The rank that waits.
        node: NodeId,
        /// The rank it waits for.
        on: NodeId,
        /// How long already.
        since: Duration,
    },
    /// The next pass over the stream cannot begin yet.
    StreamWaits {
        /// Why, in the words of the store.
        wait: Detail,
    },
    /// A checkpoint could not be fetched.
    NoCheckpoint {
        /// Its step.
        step: u64,
        /// The node that held it.
        node: NodeId,
        /// Why.
        failure: FetchFailure,
    },
    /// The model could not be fetched from a node at the end of the run.
    NoModel {
        /// The node.
        node: NodeId,
        /// Why.
        failure: FetchFailure,
    },
    /// The run goes back to a checkpoint.
    WentBack {
        /// The last step that was recorded.
        from: u64,
        /// The step of the checkpoint.
        to: u64,
        /// Nodes hold all of the model, but of an older step.
        held: bool,
    },
    /// Every rank that knew these steps is lost before it could report them.
    StepsUnknown {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Every rank that knew this validation is lost before it could report it.
    ValidationUnknown {
        /// Its step.
        step: u64,
    },
}

impl Notice {
    /// How much it matters.
    pub fn level(&self) -> NoticeLevel {
        match self {
            Self::NodeUnused { .. } | Self::NotFaster { .. } => NoticeLevel::Note,
            Self::Paused { .. } | Self::RankWaits { .. } | Self::StreamWaits { .. } => NoticeLevel::Waiting,
            Self::NodeLost { .. }
            | Self::NodeLeft { .. }
            | Self::NodeRefused { .. }
            | Self::NoCheckpoint { .. }
            | Self::NoModel { .. }
            | Self::WentBack { .. }
            | Self::StepsUnknown { .. }
            | Self::ValidationUnknown { .. } => NoticeLevel::Warning,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeLost { node, loss } => write!(f, "{node} is lost: {loss}"),
            Self::StreamWaits { wait } => wait.fmt(f),
            Self::NodeLeft { node, reason } => write!(f, "{node} left the group: {reason}"),
            Self::NodeRefused { node, refusal } => write!(f, "{node} does not take part: {refusal}"),
            Self::NodeUnused { node, why } => write!(f, "{node} is not used: {why}"),
            Self::NotFaster { nodes, with_s, without_s } => {
                let nodes = nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let (with, without) = (with_s * 1e3, without_s * 1e3);
                write!(
                    f,
                    "{nodes} would not make the run faster: a step should take {with:.3} ms with and {without:.3} ms \
                     without"
                )
            }
            Self::Paused { pause, busy: 0 } => write!(f, "{pause}"),
            Self::Paused { pause, busy: 1 } => write!(f, "{pause}; 1 node is busy"),
            Self::Paused { pause, busy } => write!(f, "{pause}; {busy} nodes are busy"),
            Self::RankWaits { node, on, since } => {
                let since = humantime::format_duration(Duration::from_secs(since.as_secs()));
                write!(f, "{node} waits for {on}, since {since}")
            }
            Self::NoCheckpoint { step, node, failure } => {
                write!(f, "no checkpoint of step {step}: {node}: {failure}")
            }
            Self::NoModel { node, failure } => write!(f, "could not fetch the model from {node}: {failure}"),
            Self::WentBack { from, to, held: false } => write!(
                f,
                "the model is lost on all nodes; the run goes back from step {from} to its last checkpoint, step {to}"
            ),
            Self::WentBack { from, to, held: true } => write!(
                f,
                "the run goes back from step {from} to the checkpoint of step {to}, which is newer than the copies \
                 that nodes hold"
            ),
            Self::StepsUnknown { from, to } if from == to => {
                write!(f, "step {from} is not in the records: every node that knew it is lost")
            }
            Self::StepsUnknown { from, to } => {
                write!(f, "steps {from} to {to} are not in the records: every node that knew them is lost")
            }
            Self::ValidationUnknown { step } => {
                write!(
                    f,
                    "the validation of step {step} is not in the records: every node that knew it is lost"
                )
            }
        }
    }
}

/// Why a run fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum DriverFailure {
    /// A rank cannot go on, and no other group could.
    Rank {
        /// The node.
        node: NodeId,
        /// What it says.
        failure: RankFailure,
    },
    /// All nodes of this process refuse.
    AllRefuse {
        /// What the last one says.
        refusal: RunRefusal,
    },
    /// There can be no plan; the shell knows the error by the ticket.
    NoPlan {
        /// Of the request.
        ticket: Ticket,
    },
    /// Every node that held the model is lost, and there is no checkpoint to end with.
    ModelLost,
}
