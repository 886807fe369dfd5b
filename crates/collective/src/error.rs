//! Errors of collectives.

use crate::core::words::Signature;
use phalanx_types::{Class, DType};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    #[error("the group of epoch {epoch} is over: {reason}")]
    Aborted { epoch: u64, reason: String },
    #[error("rank {rank} calls {theirs}, while rank {own_rank} calls {ours}")]
    Mismatch { own_rank: usize, rank: usize, ours: Box<Signature>, theirs: Box<Signature> },
    #[error("{what} takes no tensors of {dtype:?}")]
    DType { what: &'static str, dtype: DType },
    #[error("there is no rank {rank} in a group of {ranks}")]
    NoRank { rank: usize, ranks: usize },
    #[error("{what} needs {wanted} elements, not {got}")]
    Length { what: &'static str, wanted: usize, got: usize },
    #[error("could not {what}: {problem}")]
    System { what: &'static str, problem: String },
}

impl CollectiveError {
    pub fn class(&self) -> Class {
        match self {
            CollectiveError::Aborted { .. } => Class::Retry,
            CollectiveError::Mismatch { .. }
            | CollectiveError::DType { .. }
            | CollectiveError::NoRank { .. }
            | CollectiveError::Length { .. }
            | CollectiveError::System { .. } => Class::Fatal,
        }
    }
}
