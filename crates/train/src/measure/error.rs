use phalanx_fabric::RequestError;
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
