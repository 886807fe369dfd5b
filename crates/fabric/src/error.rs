//! Errors of the operations of the fabric.

use phalanx_types::{Class, IdError, NodeId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::fabric::ReplyError;
use phalanx_wire::frame::PutError;
use phalanx_wire::node::LostReason;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Why a node could not join its domain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("a node without a domain key listens on loopback only, not on {bind}")]
    KeyRequired { bind: SocketAddr },
    #[error("relays can be used only with a domain key")]
    RelayNeedsKey,
    #[error("the key is for domain {key}, the node is in {domain}")]
    WrongKey { key: phalanx_types::DomainName, domain: phalanx_types::DomainName },
    #[error("not a node name: {name:?}")]
    Name {
        name: String,
        #[source]
        source: IdError,
    },
    #[error("the heartbeat must be between 10 ms and 1 hour, not {0:?}")]
    Heartbeat(Duration),
    #[error("could not listen on {bind}")]
    Bind {
        bind: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the runtime directory belongs to another user: {path}")]
    ForeignDirectory { path: PathBuf },
    #[error("the token of the domain is not a private file of 32 bytes: {path}")]
    Token { path: PathBuf },
    #[error("could not use the runtime directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not make this node's certificate")]
    Key(#[from] crate::security::KeyError),
    #[error("the system gave no random numbers")]
    Random,
}

impl StartError {
    pub fn class(&self) -> Class {
        match self {
            StartError::Random => Class::Retry,
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StartError::KeyRequired { .. } | StartError::RelayNeedsKey => {
                Some("make a key with `phalanx domain new` and give it to every node")
            }
            StartError::Token { .. } => {
                Some("stop the nodes of the domain and remove the file; the next node makes another")
            }
            StartError::ForeignDirectory { .. } => Some("set PHALANX_RUNTIME_DIR to a directory of your own"),
            _ => None,
        }
    }
}

/// Why a message was not queued for a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    #[error("the link to {node} is closed")]
    Closed { node: NodeId },
    #[error("{node} left {queued_bytes} bytes unread and was cut off")]
    TooSlow { node: NodeId, queued_bytes: u64 },
    #[error("the message could not be encoded")]
    Encode(#[from] PutError),
}

impl SendError {
    pub fn class(&self) -> Class {
        match self {
            SendError::Closed { .. } => Class::Retry,
            SendError::TooSlow { .. } => Class::Peer,
            SendError::Encode(_) => Class::Fatal,
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    #[error("no link to {node}")]
    NotConnected { node: NodeId },
    #[error("{node} did not answer within {deadline:?}")]
    Deadline { node: NodeId, deadline: Duration },
    #[error("{node} was lost before it answered: {reason}")]
    Lost { node: NodeId, reason: LostReason },
    #[error("{node} stopped before it answered")]
    Stopped { node: NodeId },
    #[error("request not sent")]
    Send(#[from] SendError),
    #[error("{node} refused")]
    Reply {
        node: NodeId,
        #[source]
        source: ReplyError,
    },
}

impl RequestError {
    pub fn class(&self) -> Class {
        match self {
            RequestError::Send(error) => error.class(),
            RequestError::Reply { .. } => Class::Fatal,
            _ => Class::Retry,
        }
    }
}

/// Why a message was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    #[error("a published message has at most {max} bytes, this one has {len}")]
    TooLong { len: usize, max: usize },
}

impl PublishError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// Why a blob could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("{node} does not hold {blob}")]
    Missing { node: NodeId, blob: BlobId },
    #[error("{blob} at {node} has {got} bytes, expected {expected}")]
    Length { node: NodeId, blob: BlobId, expected: u64, got: u64 },
    #[error("the link to {node} went down while fetching {blob}")]
    LinkDown { node: NodeId, blob: BlobId },
    #[error("the bulk connection to {node} broke {attempts} times while fetching {blob}")]
    BulkLost { node: NodeId, blob: BlobId, attempts: u32 },
    #[error("no bulk connection to {node} could be opened within {within:?}")]
    NoBulk { node: NodeId, within: Duration },
    #[error("no memory for the {len} bytes of {blob}")]
    OutOfMemory { blob: BlobId, len: u64 },
}

impl FetchError {
    pub fn class(&self) -> Class {
        match self {
            FetchError::Missing { .. } | FetchError::OutOfMemory { .. } => Class::Fatal,
            FetchError::Length { .. } => Class::Peer,
            FetchError::LinkDown { .. } | FetchError::BulkLost { .. } | FetchError::NoBulk { .. } => {
                Class::Retry
            }
        }
    }
}

/// Why there is no stream to a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    #[error("no link to {node}")]
    NotConnected { node: NodeId },
    #[error("the link to {node} went down")]
    LinkDown { node: NodeId },
    #[error("{node} opened no stream of this key within {within:?}")]
    NotOpened { node: NodeId, within: Duration },
    #[error("another call waits for the stream of {node} with this key now")]
    Replaced { node: NodeId },
    #[error("too many streams to {node} wait to be accepted")]
    TooMany { node: NodeId },
    #[error("could not open a stream to {node}")]
    Dial {
        node: NodeId,
        #[source]
        source: std::io::Error,
    },
    #[error("could not ask {node} to open a stream")]
    Ask {
        node: NodeId,
        #[source]
        source: RequestError,
    },
    #[error("the system gave no socket or no random numbers")]
    System(#[source] std::io::Error),
}

impl StreamError {
    pub fn class(&self) -> Class {
        match self {
            StreamError::Replaced { .. } => Class::Bug,
            StreamError::TooMany { .. } => Class::Peer,
            StreamError::Ask { source, .. } => source.class(),
            _ => Class::Retry,
        }
    }
}
