//! What links and helpers say, as events of the core.

use super::Driver;
use super::planner::PlanReply;
use super::states::Reply;
use phalanx_fabric::{LinkEvent, NodeKind};
use phalanx_protocol::driver::{DriverEvent, FetchFailure, check_numbers};
use phalanx_records::{ModelState, StateError, with_causes};
use phalanx_types::NodeId;
use phalanx_wire::codec;
use phalanx_wire::detail::Detail;
use phalanx_wire::node::LostReason;
use phalanx_wire::train::FromReplica;

impl Driver<'_> {
    pub(super) fn on_link(&mut self, event: LinkEvent) -> Option<DriverEvent> {
        match event {
            LinkEvent::Up(peer) if peer.kind() == NodeKind::Computing => {
                let node = peer.id().clone();
                self.nodes.insert(peer.key(), node.clone());
                self.peers.insert(node.clone(), peer);
                Some(DriverEvent::NodeUp { node })
            }
            LinkEvent::Up(_) => None,
            LinkEvent::Down { link, node, reason, .. } => {
                self.nodes.remove(&link);
                self.peers.get(&node).filter(|peer| peer.key() == link)?;
                self.peers.remove(&node);
                Some(DriverEvent::NodeDown { node, loss: reason })
            }
            LinkEvent::Frame { link, body } => {
                let node = self.nodes.get(&link)?.clone();
                match codec::decode::<FromReplica>(&body) {
                    Ok(FromReplica::Spans { run, epoch, rank, spans }) => {
                        if let Some(trace) = self.trace.as_mut().filter(|_| run == self.run) {
                            trace.on_spans(epoch, rank as usize, &node, spans);
                        }
                        None
                    }
                    Ok(message) => match check_numbers(&message) {
                        Ok(()) => Some(DriverEvent::Message { node, message }),
                        Err(error) => {
                            self.cut_off(&node, &error);
                            None
                        }
                    },
                    Err(error) => {
                        self.cut_off(&node, &error);
                        None
                    }
                }
            }
        }
    }

    /// Ends the link to a node that said what cannot be decoded or be true. The run loses it when the link is down.
    fn cut_off(&self, node: &NodeId, error: &dyn std::error::Error) {
        let detail = Detail::new(with_causes(error));
        tracing::warn!(%node, %detail, "computing node cut off");
        if let Some(peer) = self.peers.get(node) {
            peer.close(LostReason::Misbehaved { detail });
        }
    }

    /// A helper has done what it was asked for; the core hears of it without the bytes.
    pub(super) fn on_reply(&mut self, reply: Reply) -> DriverEvent {
        match reply {
            Reply::State { ticket, result } => {
                let unreadable =
                    |error: StateError| FetchFailure::Unreadable { detail: with_causes(&error).into() };
                let state = result.and_then(|bytes| ModelState::from_bytes(bytes).map_err(unreadable));
                let result = state.map(|state| {
                    let step = state.steps();
                    self.fetched.insert(ticket, state);
                    step
                });
                DriverEvent::Fetched { ticket, result }
            }
            Reply::Measured(measured) => DriverEvent::Measured { nodes: self.machines.on_measured(measured) },
            Reply::Plan(PlanReply::Planned { ticket, result }) => {
                let plan = match result {
                    Ok((group, detail)) => {
                        // Plans of earlier groups are not needed any more.
                        self.plans.clear();
                        self.plans.insert(ticket, detail);
                        Ok(group)
                    }
                    Err((no_plan, error)) => {
                        self.plan_errors.clear();
                        self.plan_errors.insert(ticket, *error);
                        Err(no_plan)
                    }
                };
                DriverEvent::Planned { ticket, plan }
            }
            Reply::Plan(PlanReply::Compared { ticket, comparison }) => {
                DriverEvent::Compared { ticket, comparison }
            }
            Reply::Plan(PlanReply::Calibrated { ticket, changed }) => {
                DriverEvent::Calibrated { ticket, changed }
            }
        }
    }
}
