//! The first words on a connection.
//!
//! ```text
//! dialer                              acceptor
//!   | -- preface (8 bytes) ------------> |
//!   | <----------- preface, Challenge -- |
//!   | -- Hello{proof over nonce} ------> |
//!   | <-- Welcome{proof} or Refused ---- |
//! ```
//! With a domain key all of it runs inside mutual TLS 1.3; without one the proofs show that both
//! ends may read the domain's token file, which only their user can.

use crate::VERSION;
use crate::node::{NodeKind, PeerAddr};
use phalanx_types::{DomainName, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// The bytes of a preface.
pub const PREFACE_LEN: usize = 8;
const MAGIC: [u8; 4] = *b"PHLX";

/// What the dialer wants to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    Node = 0,
    Relay = 1,
}

/// Why the first bytes of a connection were not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefaceError {
    #[error("the other side does not speak Phalanx")]
    NotPhalanx,
    #[error("protocol version {theirs}, this side speaks {ours}")]
    Version { ours: u16, theirs: u16 },
    #[error("a node was dialed as a relay, or a relay as a node")]
    Purpose,
}

/// The fixed first bytes of both sides; their form never changes between versions.
pub fn preface(purpose: Purpose) -> [u8; PREFACE_LEN] {
    let [m0, m1, m2, m3] = MAGIC;
    let [v0, v1] = VERSION.to_le_bytes();
    [m0, m1, m2, m3, v0, v1, purpose as u8, 0]
}

/// Checks the other side's preface.
///
/// # Errors
/// Not Phalanx, another version, or the wrong kind of listener.
pub fn check_preface(bytes: [u8; PREFACE_LEN], expected: Purpose) -> Result<(), PrefaceError> {
    let [m0, m1, m2, m3, v0, v1, purpose, _] = bytes;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(PrefaceError::NotPhalanx);
    }
    let theirs = u16::from_le_bytes([v0, v1]);
    if theirs != VERSION {
        return Err(PrefaceError::Version { ours: VERSION, theirs });
    }
    if purpose != expected as u8 { Err(PrefaceError::Purpose) } else { Ok(()) }
}

/// A number used once, for a proof.
pub type Nonce = [u8; 16];
/// A keyed hash that shows knowledge of a shared secret.
pub type Proof = [u8; 32];

/// What a connection will carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    Control,
    /// Bulk transfers beside the control connection that both ends know by this number.
    Bulk {
        link: u64,
    },
    /// Bytes of the users' own beside that control connection; both ends know them by the key.
    Stream {
        link: u64,
        key: [u8; 16],
    },
}

/// Acceptor → dialer, first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    pub nonce: Nonce,
}

/// Who is speaking; the dialer's answer to the challenge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub domain: DomainName,
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub kind: NodeKind,
    pub channel: Channel,
    pub addresses: Vec<PeerAddr>,
    pub heartbeat_ms: u32,
    pub nonce: Nonce,
    pub proof: Proof,
}

/// Acceptor → dialer, last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    Welcome(Welcome),
    Refused(Refusal),
}

/// The acceptor's introduction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub kind: NodeKind,
    pub addresses: Vec<PeerAddr>,
    pub heartbeat_ms: u32,
    /// The number both ends give this link.
    pub link: u64,
    pub proof: Proof,
}

/// Why a connection was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("this node is in domain {ours}, not {theirs}")]
    WrongDomain { ours: DomainName, theirs: DomainName },
    #[error("the proof of membership is wrong")]
    BadProof,
    #[error("the certificate was not issued to {claimed}")]
    IdentityMismatch { claimed: NodeId },
    #[error("a better link to this node exists already")]
    Duplicate,
    #[error("this is the same node")]
    Myself,
    #[error("another process of this domain is running under the id {id}")]
    IdTaken { id: NodeId },
    #[error("no control link {link} to attach a bulk connection to")]
    UnknownLink { link: u64 },
    #[error("the node is stopping")]
    Stopping,
    #[error("too many connections")]
    Busy,
}
