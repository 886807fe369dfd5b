use phalanx_data::DataError;
use phalanx_fabric::{FetchError, RequestError};
use phalanx_types::{Class, NodeId};
use phalanx_wire::codec::CodecError;
use phalanx_wire::live::LiveRefusal;
use std::path::PathBuf;

/// Why the model of a run did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{driver} does not answer: {reason}")]
    Refused { driver: NodeId, reason: LiveRefusal },
    #[error("could not encode a question")]
    Encode(#[source] CodecError),
    #[error("{driver} gave an answer that cannot be read")]
    Malformed {
        driver: NodeId,
        #[source]
        source: CodecError,
    },
    #[error("{driver} gave an answer that makes no sense")]
    Senseless { driver: NodeId },
    #[error("no link to {driver}")]
    NoLink { driver: NodeId },
    #[error("could not fetch the outputs")]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("a task of this program ended early")]
    Task(#[from] tokio::task::JoinError),
    #[error("could not write {}", path.display())]
    WriteNote { path: PathBuf, source: std::io::Error },
    #[error("could not read {}", path.display())]
    ReadNote { path: PathBuf, source: std::io::Error },
    #[error("could not understand {}", path.display())]
    MalformedNote { path: PathBuf, source: serde_json::Error },
}

impl LiveError {
    pub fn class(&self) -> Class {
        match self {
            LiveError::Request(error) => error.class(),
            LiveError::Refused { reason: LiveRefusal::Late { .. }, .. }
            | LiveError::NoLink { .. }
            | LiveError::Fetch(_) => Class::Retry,
            LiveError::Refused { .. } => Class::Fatal,
            LiveError::Data(error) => error.class(),
            LiveError::WriteNote { .. } | LiveError::ReadNote { .. } | LiveError::MalformedNote { .. } => {
                Class::Fatal
            }
            LiveError::Encode(_) | LiveError::Task(_) => Class::Bug,
            LiveError::Malformed { .. } | LiveError::Senseless { .. } => Class::Peer,
        }
    }
}
