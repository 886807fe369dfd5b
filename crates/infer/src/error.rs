//! Why a model cannot be served, or has no answer.

use phalanx_jobs::{MainError, NodeError};
use phalanx_train::{TrainError, TrainedModelError};
use phalanx_types::Class;
use phalanx_wire::reason::FailReason;

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error("a model cannot be called {name:?}")]
    Name { name: String },
    #[error("two models are called {name:?}")]
    Twice { name: String },
    #[error("could not load the model {name:?}")]
    Load { name: String, source: Box<TrainedModelError> },
    #[error("the model {name:?} cannot be computed")]
    Compile { name: String, source: Box<TrainError> },
    #[error(transparent)]
    Node(#[from] NodeError),
}

impl ServeError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Name { .. } => Some("use 1 to 64 letters, digits, dots, dashes and underscores".to_owned()),
            Self::Load { source, .. } => source.hint(),
            Self::Compile { source, .. } => source.hint(),
            Self::Twice { .. } | Self::Node(_) => None,
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InferError {
    #[error("no node serves a model {model:?}{}", served_text(served))]
    UnknownModel { model: String, served: Vec<String>, nearest: Option<String> },
    #[error("the request to {model:?} failed: {reason}")]
    Failed { model: String, reason: FailReason },
    #[error("the request to {model:?} was cancelled")]
    Cancelled { model: String },
    #[error("the request to {model:?} was not answered in time")]
    Expired { model: String },
    #[error(transparent)]
    Main(#[from] MainError),
    #[error("could not start a runtime for an edge node")]
    Runtime(#[source] phalanx_nodes::NodesError),
}

impl InferError {
    pub fn class(&self) -> Class {
        match self {
            Self::Expired { .. } => Class::Retry,
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownModel { nearest: Some(nearest), .. } => Some(format!("did you mean {nearest:?}?")),
            Self::UnknownModel { model, .. } => {
                Some(format!("`phalanx node --serve {model}=FILE` serves it"))
            }
            _ => None,
        }
    }
}

fn served_text(served: &[String]) -> String {
    match served {
        [] => "; no model is served".to_owned(),
        names => format!("; served: {}", names.join(", ")),
    }
}
