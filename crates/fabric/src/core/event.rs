use phalanx_types::{Incarnation, NodeId, Time};
use phalanx_wire::handshake::Refusal;
use phalanx_wire::node::{LostReason, NodeKind, NodeStatus, PeerAddr};
use smol_str::SmolStr;
use std::fmt;
use std::time::Duration;

/// One link of this node, numbered by this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);

impl fmt::Display for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

/// A change of a node in the domain.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeEvent {
    Appeared(NodeStatus),
    Changed(NodeStatus),
    /// The state is `Stopped` or `Lost`.
    Gone(NodeStatus),
}

impl NodeEvent {
    pub fn status(&self) -> &NodeStatus {
        match self {
            NodeEvent::Appeared(status) | NodeEvent::Changed(status) | NodeEvent::Gone(status) => status,
        }
    }
}

/// What a dial is meant to reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DialTarget {
    Peer(NodeId),
    /// Any node that listens at this `host:port`.
    Seed(SmolStr),
}

impl fmt::Display for DialTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialTarget::Peer(node) => write!(f, "{node}"),
            DialTarget::Seed(seed) => write!(f, "{seed}"),
        }
    }
}

/// Why a dial did not lead to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialEnd {
    Failed,
    /// The address is this node's own.
    Myself,
    /// The node there already has a better link to this node.
    Duplicate,
}

/// A connection whose other end has proved its identity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkOffer {
    pub(crate) link: LinkKey,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: NodeKind,
    pub(crate) addresses: Vec<PeerAddr>,
    pub(crate) heartbeat: Duration,
    /// The target that this node dialed; `None` if the other side dialed.
    pub(crate) dialed: Option<DialTarget>,
    /// When the current link to the same node was last heard from.
    pub(crate) present_heard: Option<Time>,
}

/// When a link last received and last sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkSample {
    pub(crate) link: LinkKey,
    pub(crate) heard: Time,
    pub(crate) sent: Time,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Seeded(SmolStr),
    RelayAdded(SmolStr),
    Listening,
    Listened,
    Learned { node: NodeId, address: PeerAddr },
    RelayPresent { relay: SmolStr, nodes: Vec<NodeId> },
    RelayFailed { relay: SmolStr },
    LinkOffered(LinkOffer),
    LinkDown { link: LinkKey, reason: LostReason, goodbye: bool },
    DialFailed { target: DialTarget, why: DialEnd },
    StatusHeard { link: LinkKey, status: NodeStatus },
    KnownHeard { link: LinkKey, known: Vec<NodeStatus> },
    OwnStatus(NodeStatus),
    Ticked(Vec<LinkSample>),
    Stopping,
}

/// The content of a control frame.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ControlMessage {
    Heartbeat,
    Goodbye,
    Status(Box<NodeStatus>),
    Known(Vec<NodeStatus>),
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "few commands exist at a time, and none is stored")]
pub(crate) enum Command {
    Dial {
        target: DialTarget,
        addresses: Vec<PeerAddr>,
    },
    CancelDial {
        target: DialTarget,
    },
    Accept {
        link: LinkKey,
    },
    Refuse {
        link: LinkKey,
        refusal: Refusal,
    },
    Close {
        link: LinkKey,
        reason: LostReason,
    },
    Send {
        link: LinkKey,
        words: ControlMessage,
    },
    Announce(NodeEvent),
    /// A peer named this relay.
    JoinRelay(SmolStr),
    /// There was no news of the node for so long that its entry is dropped.
    Forget(NodeId),
}
