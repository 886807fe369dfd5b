//! Reasons as simulated nodes, links and planners give them; nothing depends on their words.

use phalanx_protocol::driver::{DriverEvent, FetchFailure, NoPlan, NoPlanKind};
use phalanx_types::{Epoch, NodeId, RunId};
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{FromReplica, LeftWhy, ToReplica};
use phalanx_wire::train_reason::{BreakReason, QueryRefusal, RankFailure, RunRefusal, StepFailure};

pub(super) fn broken() -> LeftWhy {
    LeftWhy::Broken { reason: BreakReason::Failed { detail: "the group is over".into() } }
}

pub(super) fn failed(is_cause: bool) -> LeftWhy {
    LeftWhy::Failed(match is_cause {
        true => RankFailure::Error { detail: "something is not finite".into() },
        false => RankFailure::Step(StepFailure::NormNotFinite),
    })
}

pub(super) fn wrong_input() -> LeftWhy {
    LeftWhy::Failed(RankFailure::WrongInput { detail: "a label is out of range".into(), hint: None })
}

pub(super) fn refused(run: RunId, is_temporary: bool) -> FromReplica {
    let refusal = match is_temporary {
        true => RunRefusal::OtherDriver,
        false => RunRefusal::Unable { detail: "it cannot".into() },
    };
    FromReplica::Refused { run, refusal }
}

pub(super) fn not_computed(run: RunId, number: u64) -> FromReplica {
    FromReplica::NotComputed { run, number, refusal: QueryRefusal::Failed { detail: "it cannot".into() } }
}

pub(super) fn node_down(node: NodeId) -> DriverEvent {
    DriverEvent::NodeDown { node, loss: LostReason::Silent { heartbeat_ms: 2000 } }
}

pub(super) fn not_fetched() -> FetchFailure {
    FetchFailure::Transfer { detail: "the node is gone".into() }
}

pub(super) fn no_plan(kind: NoPlanKind) -> NoPlan {
    NoPlan { detail: "there are not enough nodes".into(), kind }
}

pub(super) fn left_out(node: NodeId) -> (NodeId, String) {
    (node, "there are enough".to_owned())
}

pub(super) fn abort(run: RunId, epoch: Epoch, reason: &BreakReason) -> ToReplica {
    ToReplica::Abort { run, epoch, reason: reason.clone() }
}
