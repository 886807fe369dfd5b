//! Why a run on nodes cannot start or go on.

use phalanx_data::DataError;
use phalanx_engine::WeightsError;
use phalanx_formation::Shortfall;
use phalanx_measure::CostError;
use phalanx_protocol::NotSealed;
use phalanx_rank::RankError;
use phalanx_records::run_dir::RunDirError;
use phalanx_records::{Blame, RecordError, StateError};
use phalanx_train::config::ConfigError;
use phalanx_train::stream::FeedError;
use phalanx_train::{ModelError, TrainError};
use phalanx_types::{Class, NodeId};
use phalanx_wire::train_reason::{RankFailure, RunRefusal};

/// Why a run on nodes cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    #[error(transparent)]
    Train(Box<TrainError>),
    #[error(transparent)]
    Cost(#[from] CostError),
    #[error(transparent)]
    Rank(Box<RankError>),
    #[error("the model cannot be trained in these stages: {0}")]
    NoFormation(#[source] Shortfall),
    #[error(
        "BatchNorm `{node}` needs more than one sample at a time, but of a batch of {whole} a replica computes its {own} \
         one by one"
    )]
    OneSample { node: String, whole: usize, own: usize },
    /// A node found that the run cannot go on.
    #[error("{node}: {failure}")]
    Node { node: NodeId, failure: RankFailure },
    #[error("no node can train this: {refusal}")]
    AllRefuse { refusal: RunRefusal },
    #[error("no node has said how long the passes over the stream are")]
    NotSealed(#[from] NotSealed),
    #[error("there is no thread to plan with")]
    NoPlanner,
    #[error("the planner panicked")]
    PlannerPanicked,
    #[error("could not {what} the node that drives the run")]
    Fabric { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Errors of training that happen in the driver.
macro_rules! from_training {
    ($($error:ty),*) => {
        $(impl From<$error> for DriverError {
            fn from(error: $error) -> Self {
                Self::Train(Box::new(error.into()))
            }
        })*
    };
}

from_training!(
    TrainError,
    FeedError,
    ConfigError,
    DataError,
    ModelError,
    RecordError,
    RunDirError,
    StateError,
    WeightsError
);

impl From<RankError> for DriverError {
    fn from(error: RankError) -> Self {
        Self::Rank(Box::new(error))
    }
}

impl DriverError {
    pub fn class(&self) -> Class {
        match self {
            Self::Train(error) => error.class(),
            Self::Cost(error) => error.class(),
            Self::Rank(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Train(error) => error.blame(),
            Self::Cost(error) => error.blame(),
            Self::Rank(error) => error.blame(),
            Self::Node { failure: RankFailure::WrongInput { .. }, .. } => Blame::Input,
            Self::Node { .. }
            | Self::AllRefuse { .. }
            | Self::NotSealed(_)
            | Self::NoPlanner
            | Self::PlannerPanicked
            | Self::NoFormation(_) => Blame::Work,
            Self::Fabric { .. } => Blame::Machine,
            Self::OneSample { .. } => Blame::Input,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Train(error) => error.hint(),
            Self::Cost(error) => error.hint(),
            Self::Rank(error) => error.hint(),
            Self::Node { failure, .. } => failure.hint().map(str::to_owned),
            Self::NoFormation(shortfall) => shortfall_hint(shortfall).map(str::to_owned),
            Self::OneSample { .. } => Some(
                "say fewer `formation.micro_batches`, a larger `train.batch`, or `data.drop_last = true`"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// What to do when no formation fits.
pub fn shortfall_hint(shortfall: &Shortfall) -> Option<&'static str> {
    match shortfall {
        Shortfall::Memory { .. } | Shortfall::NoFit { .. } => Some(
            "add nodes or memory; a smaller `train.batch`, more `formation.micro_batches`, or an optimizer that keeps \
             less need less of it",
        ),
        Shortfall::Part { .. } => {
            Some("a node of the pool must hold at least that; a smaller `train.batch` needs less")
        }
        Shortfall::Nodes { .. } => Some("add nodes, or say fewer `formation.stages` or `formation.replicas`"),
        Shortfall::Cuts { .. } => {
            Some("say fewer `formation.stages`, or let it be cut at more `formation.cuts`")
        }
        Shortfall::Batch { .. } => Some("say a larger `train.batch`, or fewer `formation.replicas`"),
        _ => None,
    }
}
