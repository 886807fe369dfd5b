//! Why something waits or failed, as data; every front prints the same words for it.

use crate::usage::Shortage;
use bytes::Bytes;
use phalanx_types::{ByteSize, NodeId};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Why a job has not been given to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitReason {
    NoNodes,
    NoHandler {
        kind: SmolStr,
    },
    NeedsMemory {
        needed: ByteSize,
        largest: ByteSize,
        node: NodeId,
    },
    NeedsCores {
        needed: u32,
        largest: u32,
        node: NodeId,
    },
    NodesDraining {
        nodes: u32,
    },
    AllBusy {
        nodes: u32,
        ahead: u64,
    },
    /// Training uses so much of every suitable node that the job does not fit beside it; of the nodes, the one with
    /// the most free cores is named.
    InUse {
        nodes: u32,
        node: NodeId,
        shortage: Shortage,
    },
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::NoNodes => f.write_str("no computing node in this domain yet"),
            WaitReason::NoHandler { kind } => write!(f, "no node of this domain handles {kind:?}"),
            WaitReason::NeedsMemory { needed, largest, node } => {
                write!(f, "needs {needed}, largest free node has {largest} ({node})")
            }
            WaitReason::NeedsCores { needed, largest, node } => {
                write!(f, "needs {needed} cores, largest node has {largest} ({node})")
            }
            WaitReason::NodesDraining { nodes } => {
                write!(f, "every node that could take it is draining ({nodes})")
            }
            WaitReason::AllBusy { nodes, ahead } => {
                let s = if *nodes == 1 { "" } else { "s" };
                write!(f, "{nodes} suitable node{s} busy, {ahead} jobs ahead")
            }
            WaitReason::InUse { nodes, node, shortage } => {
                write!(f, "{shortage} on {node}")?;
                match nodes.saturating_sub(1) {
                    0 => Ok(()),
                    1 => f.write_str(" and too few on 1 other node"),
                    others => write!(f, " and too few on {others} other nodes"),
                }
            }
        }
    }
}

/// Why a job failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailReason {
    /// The handler returned an error.
    Handler { message: String },
    /// The handler panicked.
    Panicked { message: String },
    /// Every node it ran on was lost while it ran.
    NodesLost { attempts: u32, nodes: Vec<NodeId> },
    /// The solution could not be taken over from the node.
    Unreadable { message: String },
    /// A Python function raised an exception.
    Raised(Box<Raised>),
}

/// An exception of a Python function, as far as it can be told elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Raised {
    /// The qualified name of its class: `ValueError`, `mine.Broken`.
    pub exception: String,
    pub message: String,
    /// The lines that Python prints for it.
    pub traceback: String,
    /// The exception itself, pickled; empty if it could not be pickled or is too long.
    pub pickled: Bytes,
}

impl Raised {
    /// About how many bytes it takes in a message.
    pub fn encoded_len(&self) -> usize {
        self.exception.len() + self.message.len() + self.traceback.len() + self.pickled.len() + 40
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.is_empty() {
            true => f.write_str(&self.exception),
            false => write!(f, "{}: {}", self.exception, self.message),
        }
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailReason::Handler { message } => write!(f, "handler failed: {message}"),
            FailReason::Panicked { message } => write!(f, "handler panicked: {message}"),
            FailReason::NodesLost { attempts, nodes } => {
                write!(f, "set aside after {attempts} attempts; nodes lost while running it: ")?;
                for (i, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            FailReason::Unreadable { message } => write!(f, "solution could not be read: {message}"),
            FailReason::Raised(raised) => write!(f, "the function raised {raised}"),
        }
    }
}
