use crate::StoreError;
use phalanx_streams::{StreamRefusal, StreamWait};
use phalanx_types::Class;
use std::time::Duration;

/// Why a stream did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream's own reason.
    #[error("the stream refused: {0}")]
    Refused(StreamRefusal),
    /// The store cannot record anything, for instance since its disk is full. Clients try again until it can.
    #[error("the store records nothing now: {text}")]
    NotRecorded { text: String },
    #[error("gave up after {within:?}; {reason}")]
    TimedOut { reason: Box<StreamWait>, within: Duration },
    #[error("nothing was known of {what} within {within:?}")]
    NotThere { what: &'static str, within: Duration },
    #[error("this server has no streams, only a phalanx store has")]
    NoStreams,
    #[error("this process has only joined the run, it does not commit steps")]
    NotOwner,
    #[error("{0:?} is no name of a producer, reader or trainer")]
    Name(String),
    #[error("memory of {room} bytes was given for {needed} bytes of {field}")]
    Room { field: String, needed: usize, room: usize },
    #[error("an upload needs tensors with the same first dimension: {problem}")]
    Upload { problem: &'static str },
    #[error("settings cannot be written as JSON")]
    Json(#[source] serde_json::Error),
}

impl StreamError {
    /// How to act on it.
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Refused(refusal) => refusal.class(),
            Self::NotRecorded { .. } | Self::TimedOut { .. } | Self::NotThere { .. } => Class::Retry,
            Self::NoStreams
            | Self::NotOwner
            | Self::Name(_)
            | Self::Room { .. }
            | Self::Upload { .. }
            | Self::Json(_) => Class::Fatal,
        }
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::NoStreams => Some("`phalanx store serve` starts a store with streams"),
            _ => None,
        }
    }
}
