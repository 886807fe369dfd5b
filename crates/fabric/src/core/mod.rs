//! Who is in the domain: a state machine without IO.
use phalanx_wire::node::NodeStatus;

/// One link of this node, numbered by this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);

/// What happened to somebody in the domain.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeEvent {
    Appeared(NodeStatus),
    Changed(NodeStatus),
    /// The state is `Stopped` or `Lost`.
    Gone(NodeStatus),
}
