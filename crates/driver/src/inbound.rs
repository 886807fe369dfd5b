//! What links and helpers say, as events of the core.

use super::Driver;
use super::planner::PlanReply;
use super::states::Reply;
use phalanx_fabric::{LinkEvent, NodeKind};
use phalanx_protocol::driver::DriverEvent;
use phalanx_records::ModelState;
use phalanx_wire::codec;
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
                Some(DriverEvent::NodeDown { node, reason: reason.to_string() })
            }
            LinkEvent::Frame { link, body } => {
                let node = self.nodes.get(&link)?.clone();
                match codec::decode::<FromReplica>(&body) {
                    Ok(FromReplica::Spans { run, epoch, rank, spans }) => {
                        if let Some(trace) = self.trace.as_mut().filter(|_| run == self.run) {
                            trace.on_spans(epoch, rank as usize, spans);
                        }
                        None
                    }
                    Ok(message) => Some(DriverEvent::Message { node, message }),
                    Err(error) => {
                        tracing::debug!(from = %node, %error, "no report of a replica");
                        None
                    }
                }
            }
        }
    }

    /// A helper has done what it was asked for; the core hears of it without the bytes.
    pub(super) fn on_reply(&mut self, reply: Reply) -> DriverEvent {
        match reply {
            Reply::State { ticket, result } => {
                let state = result.and_then(|bytes| {
                    ModelState::from_bytes(bytes).map_err(|error| phalanx_records::with_causes(&error))
                });
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
