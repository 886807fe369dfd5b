//! How an operation can fail.

use crate::core::failure::OpFailure;
use crate::rendezvous::RendezvousError;
use phalanx_collective::{CollectiveError, Reduction};
use phalanx_types::{Class, DType};
use std::sync::Arc;
use std::time::Duration;

/// Why an operation, or all of them, did not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// The ranks do not agree about the operation. All ranks of the set get this error.
    #[error(transparent)]
    Failed(#[from] OpFailure),
    /// A rank died or its connection broke. Every operation ends so, until the next init or reset.
    #[error("rank {rank} is lost")]
    PeerLost {
        /// The rank.
        rank: u32,
    },
    /// This process or the leader has shut down.
    #[error("rank {rank} has shut down")]
    ShutDown {
        /// The rank that shut down.
        rank: u32,
    },
    /// This rank has an operation of the same name under way.
    #[error("an operation named {name:?} is under way already")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// There is no such set, or this rank is not in it.
    #[error("this rank is not in process set {set}")]
    NotInSet {
        /// The number of the set.
        set: u32,
    },
    /// There is no such rank.
    #[error("there is no rank {rank} among {size}")]
    NoRank {
        /// The rank.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// Memory and shape, or splits and rows, do not fit.
    #[error("{name:?} needs {wanted} {what}, not {got}")]
    Length {
        /// The name of the operation.
        name: String,
        /// What is counted.
        what: &'static str,
        /// How many there should be.
        wanted: usize,
        /// How many there are.
        got: usize,
    },
    /// This type cannot be reduced so.
    #[error("{name:?}: there is no {reduction} of {dtype:?}")]
    Unsupported {
        /// The name of the operation.
        name: String,
        /// The reduction.
        reduction: Reduction,
        /// The type.
        dtype: DType,
    },
    /// The operation is not done yet.
    #[error("not done after {waited:?}")]
    Timeout {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The process was forked after init; only its parent is a rank.
    #[error("this process was forked from rank {rank}, which alone can use its operations")]
    Forked {
        /// The rank of the parent.
        rank: u32,
    },
    /// The ranks did not find each other.
    #[error("the ranks did not find each other")]
    Rendezvous(#[source] Arc<RendezvousError>),
    /// A collective failed below the level of operations.
    #[error("a collective failed")]
    Collective(#[from] CollectiveError),
    /// The system refused something.
    #[error("could not {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// A rank said what is no message.
    #[error("rank {rank} broke the protocol")]
    Protocol {
        /// The rank.
        rank: u32,
    },
}

impl OpsError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            OpsError::PeerLost { .. } | OpsError::Timeout { .. } => Class::Retry,
            OpsError::Protocol { .. } => Class::Peer,
            OpsError::Rendezvous(error) => error.class(),
            OpsError::Collective(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            OpsError::Failed(OpFailure::Mismatch { .. }) => {
                Some("give each tensor its own name, and the same one on all ranks")
            }
            OpsError::Failed(OpFailure::Stalled { .. }) => {
                Some("every rank must issue the operation; a rank that has no more data calls join")
            }
            OpsError::PeerLost { .. } => Some("an elastic run calls reset and goes on with the other ranks"),
            OpsError::Duplicate { .. } => Some("wait for the first operation, or give another name"),
            OpsError::Forked { .. } => Some("start processes by spawn instead of fork"),
            OpsError::Rendezvous(error) => error.hint(),
            _ => None,
        }
    }

    pub(crate) fn system(what: &'static str, source: impl Into<std::io::Error>) -> Self {
        OpsError::System { what, source: Arc::new(source.into()) }
    }
}

impl From<RendezvousError> for OpsError {
    fn from(error: RendezvousError) -> Self {
        OpsError::Rendezvous(Arc::new(error))
    }
}
