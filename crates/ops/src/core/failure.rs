//! Why an operation does not happen, as all ranks are told.

use super::signature::{Difference, OpSignature};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why an operation does not happen. Every rank that takes part gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum OpFailure {
    /// Ranks mean different operations by one name.
    #[error("{name:?} differs in {difference}: rank {rank} has {first}, rank {other_rank} has {second}")]
    Mismatch {
        /// The name of the operation.
        name: String,
        /// What differs.
        difference: Difference,
        /// The rank that announced it first.
        rank: u32,
        /// The rank whose operation differs.
        other_rank: u32,
        /// The operation of `rank`.
        first: Box<OpSignature>,
        /// The operation of `other_rank`.
        second: Box<OpSignature>,
    },
    /// Some ranks never announced the operation.
    #[error("{name:?} has waited {waited:.1?} for ranks {missing:?}")]
    Stalled {
        /// The name of the operation.
        name: String,
        /// The ranks that did not announce it.
        missing: Vec<u32>,
        /// The time since the first announcement.
        waited: Duration,
    },
    /// A rank has joined, and the operation needs data of all ranks.
    #[error("{name:?} ({kind}) needs data of rank {rank}, which has joined")]
    Joined {
        /// The name of the operation.
        name: String,
        /// Its kind.
        kind: String,
        /// A rank that has joined.
        rank: u32,
    },
    /// A rank that the operation needs has shut down.
    #[error("{name:?} needs rank {rank}, which has shut down")]
    ShutDown {
        /// The name of the operation.
        name: String,
        /// The rank.
        rank: u32,
    },
    /// There is no such set of ranks, or it cannot be removed.
    #[error("{name:?} names process set {set}, which does not exist or cannot be removed")]
    NoSet {
        /// The name of the operation.
        name: String,
        /// The number of the set.
        set: u32,
    },
}

impl OpFailure {
    /// The name of the operation.
    pub fn name(&self) -> &str {
        match self {
            OpFailure::Mismatch { name, .. }
            | OpFailure::Stalled { name, .. }
            | OpFailure::Joined { name, .. }
            | OpFailure::ShutDown { name, .. }
            | OpFailure::NoSet { name, .. } => name,
        }
    }
}
