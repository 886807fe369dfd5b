//! What nodes and a relay say to each other before their streams are spliced.
//!
//! The relay learns who wants to reach whom within a domain it knows only by a tag. After
//! `Spliced` it passes bytes through unread; the two nodes then shake hands with each other as if
//! they were connected directly.

use crate::handshake::{Nonce, Proof};
use phalanx_types::NodeId;
use serde::{Deserialize, Serialize};

/// A domain as a relay knows it: a hash that gives nothing away.
pub type DomainTag = [u8; 32];

/// Relay → node, first on every connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayChallenge {
    pub nonce: Nonce,
}

/// Node → relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRelay {
    /// Keeps this connection as the way to tell `node` about callers.
    Register {
        tag: DomainTag,
        node: NodeId,
        proof: Proof,
    },
    /// Asks for a stream to `to`; this connection becomes that stream.
    Dial {
        tag: DomainTag,
        node: NodeId,
        to: NodeId,
        proof: Proof,
    },
    /// Answers an `Incoming`; this connection becomes the stream.
    Accept {
        tag: DomainTag,
        node: NodeId,
        ticket: u64,
        proof: Proof,
    },
    Heartbeat,
}

/// Relay → node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRelay {
    /// The nodes of the same domain registered here, at once and on every change.
    Present(Vec<NodeId>),
    Incoming {
        ticket: u64,
        from: NodeId,
    },
    /// From the next byte on this connection is the other node.
    Spliced,
    Refused(RelayRefusal),
    Heartbeat,
}

/// Why a relay does not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum RelayRefusal {
    #[error("the relay does not serve this domain, or the relay token is wrong")]
    BadProof,
    #[error("node {node} is not registered at the relay")]
    NotPresent { node: NodeId },
    #[error("node {node} did not answer the relay's call in time")]
    NoAnswer { node: NodeId },
    #[error("unknown ticket")]
    UnknownTicket,
    #[error("the relay has as many connections as it may")]
    Busy,
}
