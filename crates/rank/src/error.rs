//! Why a rank cannot begin or go on.

use phalanx_collective::CollectiveError;
use phalanx_data::DataError;
use phalanx_engine::{CompileError, LossError, RunError, WeightsError};
use phalanx_graph::CutError;
use phalanx_protocol::{NotSealed, VoteError};
use phalanx_records::run_dir::RunDirError;
use phalanx_records::{Blame, RecordError, StateError};
use phalanx_train::config::ConfigError;
use phalanx_train::stream::FeedError;
use phalanx_train::{MissingLoss, ModelError, TrainError};
use phalanx_types::{ByteSize, Class, NodeId};
use phalanx_wire::train_reason::StepFailure;
use std::path::PathBuf;

/// Why a rank cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    #[error(transparent)]
    Train(Box<TrainError>),
    #[error("could not go on together with the other replicas")]
    Together(#[from] CollectiveError),
    #[error("the replicas do not agree")]
    Vote(#[from] VoteError),
    #[error(transparent)]
    NotSealed(#[from] NotSealed),
    #[error("the model cannot be cut there")]
    Cut(#[from] CutError),
    #[error("rank {rank} holds other parameters than rank 0 before step {step}")]
    Differs { rank: usize, step: u64 },
    #[error("the store told ranks of different passes before step {step}")]
    OtherPass { step: u64 },
    #[error("{0}")]
    Step(StepFailure),
    #[error("{path}: {problem}")]
    File { path: String, problem: FileProblem },
    #[error(transparent)]
    NoLoss(#[from] MissingLoss),
}

/// Why a file of a run cannot be brought to this node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    #[error("could not be fetched from {from}: {detail}")]
    Fetch { from: NodeId, detail: String },
    #[error("is not here, and there is nobody to ask for it")]
    NoWay,
    #[error("the driver sent other bytes than it said")]
    OtherBytes,
    #[error("could not write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("names a file that is not in the list of the run's files, and in no directory of --data-root")]
    NotListed,
    #[error("is no name that a file can be kept under")]
    Name,
    #[error("has {}, of which this node fetches {} at most", ByteSize(*bytes), ByteSize(*limit))]
    TooLong { bytes: u64, limit: u64 },
}

/// Errors of training that happen on a node.
macro_rules! from_training {
    ($($error:ty),*) => {
        $(impl From<$error> for RankError {
            fn from(error: $error) -> Self {
                Self::Train(Box::new(error.into()))
            }
        })*
    };
}

from_training!(
    TrainError,
    FeedError,
    CompileError,
    ConfigError,
    DataError,
    LossError,
    ModelError,
    RecordError,
    RunDirError,
    RunError,
    StateError,
    WeightsError
);

impl RankError {
    pub fn class(&self) -> Class {
        match self {
            Self::Train(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Train(error) => error.blame(),
            Self::Step(_)
            | Self::File { .. }
            | Self::Differs { .. }
            | Self::NotSealed(_)
            | Self::OtherPass { .. } => Blame::Work,
            Self::Together(_) => Blame::Machine,
            Self::Vote(_) | Self::Cut(_) | Self::NoLoss(_) => Blame::Input,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Train(error) => error.hint(),
            _ => None,
        }
    }
}
