//! Errors of measurements.

use crate::costs::NoCut;
use phalanx_fabric::RequestError;
use phalanx_records::Blame;
use phalanx_train::config::ConfigError;
use phalanx_types::{Class, NodeId};
use phalanx_wire::codec::CodecError;
use phalanx_wire::measure::MeasureRefusal;

/// Why a node or a link was not measured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{node} does not measure now: {reason}")]
    Refused { node: NodeId, reason: MeasureRefusal },
    #[error("could not encode a question")]
    Encode(#[source] CodecError),
    #[error("{node} gave an answer that cannot be read")]
    Malformed {
        node: NodeId,
        #[source]
        source: CodecError,
    },
    #[error("{node} gave an answer that makes no sense")]
    Senseless { node: NodeId },
}

impl MeasureError {
    pub fn class(&self) -> Class {
        match self {
            MeasureError::Request(error) => error.class(),
            MeasureError::Refused { .. } => Class::Retry,
            MeasureError::Encode(_) => Class::Bug,
            MeasureError::Malformed { .. } | MeasureError::Senseless { .. } => Class::Peer,
        }
    }
}

/// Why the cost of a model, or its cuts, could not be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    NoCut(Box<NoCut>),
    #[error("could not measure the model: {what}")]
    Measure { what: String },
}

impl CostError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Config(_) | Self::NoCut(_) => Blame::Input,
            Self::Measure { .. } => Blame::Work,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::NoCut(error) => Some(error.hint()),
            Self::Measure { .. } => None,
        }
    }
}
