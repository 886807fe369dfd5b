//! Reasons as simulated nodes, links and planners give them; nothing depends on their words.

use phalanx_protocol::driver::{DriverEvent, NoPlan, NoPlanKind};
use phalanx_types::{Epoch, NodeId, RunId};
use phalanx_wire::train::{FromReplica, LeftWhy, ToReplica};

pub(super) fn broken() -> LeftWhy {
    LeftWhy::Broken { reason: "the group is over".to_owned() }
}

pub(super) fn failed(cause: bool) -> LeftWhy {
    LeftWhy::Failed { reason: "something is not finite".to_owned(), cause }
}

pub(super) fn wrong_input() -> LeftWhy {
    LeftWhy::WrongInput { reason: "a label is out of range".to_owned(), hint: None }
}

pub(super) fn refused(run: RunId, busy: bool) -> FromReplica {
    FromReplica::Refused { run, reason: "it cannot".to_owned(), busy }
}

pub(super) fn not_computed(run: RunId, number: u64) -> FromReplica {
    FromReplica::NotComputed { run, number, reason: "it cannot".to_owned() }
}

pub(super) fn node_down(node: NodeId) -> DriverEvent {
    DriverEvent::NodeDown { node, reason: "it is silent".to_owned() }
}

pub(super) fn not_fetched() -> String {
    "the node is gone".to_owned()
}

pub(super) fn no_plan(kind: NoPlanKind) -> NoPlan {
    NoPlan { reason: "there are not enough nodes".to_owned(), kind }
}

pub(super) fn left_out(node: NodeId) -> (NodeId, String) {
    (node, "there are enough".to_owned())
}

pub(super) fn abort(run: RunId, epoch: Epoch, reason: &str) -> ToReplica {
    ToReplica::Abort { run, epoch, reason: reason.to_owned() }
}
