//! What a node says about itself.

use crate::detail::Detail;
use crate::usage::{Holder, NodeUse};
use phalanx_types::{Incarnation, NodeId, Resources};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;
use std::net::SocketAddr;

/// What a node is in its domain for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Asks for jobs to be solved.
    Main,
    /// Solves jobs.
    Computing,
    /// Only looks.
    Observer,
    /// Asks models for their outputs.
    Edge,
    /// Serves models, and solves jobs.
    Inference,
}

impl NodeKind {
    /// Whether it hands out jobs.
    pub fn asks(self) -> bool {
        matches!(self, NodeKind::Main | NodeKind::Edge)
    }

    /// Whether it solves jobs.
    pub fn solves(self) -> bool {
        matches!(self, NodeKind::Computing | NodeKind::Inference)
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NodeKind::Main => "main",
            NodeKind::Computing => "computing",
            NodeKind::Observer => "observer",
            NodeKind::Edge => "edge",
            NodeKind::Inference => "inference",
        })
    }
}

/// How a node is doing, as far as the node that says it knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    Running,
    /// Finishes what it has and takes nothing new.
    Draining,
    /// Said goodbye.
    Stopped,
    /// Went without a word.
    Lost(LostReason),
}

impl NodeState {
    /// Whether the node can still be talked to.
    pub fn is_live(&self) -> bool {
        matches!(self, NodeState::Running | NodeState::Draining)
    }

    /// The one word for it.
    pub fn name(&self) -> &'static str {
        match self {
            NodeState::Running => "running",
            NodeState::Draining => "draining",
            NodeState::Stopped => "stopped",
            NodeState::Lost(_) => "lost",
        }
    }
}

/// Why a node counts as lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LostReason {
    /// The connection broke.
    LinkBroken { detail: Detail },
    /// Nothing was heard within the heartbeat.
    Silent { heartbeat_ms: u64 },
    /// It broke the protocol and was cut off.
    Misbehaved { detail: Detail },
    /// It did not take what was sent to it fast enough.
    TooSlow { queued_bytes: u64 },
    /// Another process came back under its id.
    Replaced,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostReason::LinkBroken { detail } => write!(f, "the link broke ({detail})"),
            LostReason::Silent { heartbeat_ms } => {
                write!(f, "silent for longer than the heartbeat of {heartbeat_ms} ms")
            }
            LostReason::Misbehaved { detail } => write!(f, "cut off for misbehaving ({detail})"),
            LostReason::TooSlow { queued_bytes } => {
                write!(f, "cut off with {queued_bytes} bytes it did not take")
            }
            LostReason::Replaced => f.write_str("replaced by a newer process of the same id"),
        }
    }
}

/// One way to reach a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PeerAddr {
    Tcp(SocketAddr),
    /// Through the relay that listens at this `host:port`.
    Relay(SmolStr),
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddr::Tcp(addr) => write!(f, "{addr}"),
            PeerAddr::Relay(relay) => write!(f, "relay:{relay}"),
        }
    }
}

/// A store that a node serves, or its part of the store of the domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreOffer {
    /// Where clients reach it. Those of other hosts need the domain's key.
    pub addresses: Vec<SocketAddr>,
    /// Which part it holds, from 1.
    pub shard: u16,
    /// How many parts the store has.
    pub shards: u16,
}

/// Everything a node publishes about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub id: NodeId,
    pub incarnation: Incarnation,
    pub kind: NodeKind,
    pub state: NodeState,
    pub resources: Resources,
    /// The kinds of job it solves.
    pub handles: Vec<SmolStr>,
    /// The topics it subscribed to.
    pub topics: Vec<SmolStr>,
    pub addresses: Vec<PeerAddr>,
    pub jobs_running: u32,
    pub jobs_done: u64,
    /// Who uses how much of its resources; [`MAX_USES`](crate::usage::MAX_USES) entries at most.
    pub uses: Vec<NodeUse>,
    /// When the process started, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Grows with every change within an incarnation; the higher one is the newer.
    pub version: u64,
    /// The store that it serves.
    pub store: Option<Box<StoreOffer>>,
}

impl NodeStatus {
    /// The drivers of the runs that it trains, and the launchers of the ranks that it runs.
    pub fn drivers(&self) -> impl Iterator<Item = &NodeId> {
        self.uses.iter().filter_map(|part| match &part.holder {
            Holder::Run { driver, .. } => Some(driver),
            Holder::Rank { launcher } => Some(launcher),
            Holder::Jobs { .. }
            | Holder::WaitingRun { .. }
            | Holder::Others { .. }
            | Holder::WaitingRank { .. }
            | Holder::Store => None,
        })
    }
}
