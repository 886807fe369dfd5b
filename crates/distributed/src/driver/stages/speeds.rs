//! What the planner has to know: how fast nodes and links are, and what the model costs.

use super::super::Fetched;
use super::Driver;
use crate::error::DistributedError;
use phalanx_fabric::{Fabric, NodeStatus};
use phalanx_formation::{Link, ModelCost, Pool};
use phalanx_measure as measure;
use phalanx_measure::costs;
use phalanx_protocol::FormationEvent;
use phalanx_records::Events;
use phalanx_types::{ByteSize, Needs, NodeId, RunId};
use phalanx_wire::usage::{self, Holder, NodeUse};

/// What nodes were found to be able to do.
#[derive(Debug, Default)]
pub(in super::super) struct Measured {
    /// Those that were asked.
    nodes: Vec<NodeId>,
    speeds: Vec<(NodeId, f64)>,
    /// Links of nodes to others.
    links: Vec<((NodeId, NodeId), Link)>,
}

impl Driver<'_> {
    /// Has nodes measured of which nobody knows how fast they are; whether an answer is waited for. Nodes that this
    /// process started are all alike.
    pub(super) fn ask_speeds(&mut self, nodes: &[NodeId]) -> bool {
        let formation = &self.task.config.formation;
        if !formation.measure {
            return false;
        }
        for node in self.fabric.nodes() {
            // What a node has told this driver is newer than what has gone around.
            let told = self.staging.asked.contains(&node.id) && self.staging.speeds.contains_key(&node.id);
            if let Some(gflops) = node.resources.speed_gflops.filter(|_| !told) {
                self.staging.speeds.insert(node.id, f64::from(gflops));
            }
        }
        if formation.local > 0 {
            return false;
        }
        let new = nodes.iter().filter(|node| !self.staging.asked.contains(*node));
        let known =
            |node: &NodeId| self.staging.speeds.contains_key(node) && !self.staging.stale.contains(node);
        let unknown: Vec<(NodeId, bool)> = new.map(|node| (node.clone(), known(node))).collect();
        if !unknown.is_empty() {
            let asked = || unknown.iter().map(|(node, _)| node.clone());
            self.staging.asked.extend(asked());
            let (again, first): (Vec<NodeId>, Vec<NodeId>) =
                asked().partition(|node| self.staging.stale.contains(node));
            self.staging.stale.retain(|node| !again.contains(node));
            self.staging.measured_again.extend(again);
            self.staging.awaited.extend(first);
            let (fabric, back) = (self.fabric.clone(), self.fetched.0.clone());
            tokio::spawn(async move {
                let measured = measure_nodes(&fabric, unknown).await;
                // A driver that has ended needs it no more.
                drop(back.send(Fetched::Measured(measured)));
            });
        }
        nodes.iter().any(|node| self.staging.awaited.contains(node))
    }

    /// Nodes were measured: what waits for it can be done.
    pub(in super::super) fn on_measured(
        &mut self,
        measured: Measured,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        for node in &measured.nodes {
            self.staging.awaited.remove(node);
            self.staging.measured_again.remove(node);
        }
        self.staging.speeds.extend(measured.speeds);
        self.staging.links.extend(measured.links);
        self.core.feed(self.now(), FormationEvent::MusterRepeated, &mut self.out);
        match self.staging.weighing.take() {
            Some(waiting) => {
                let here = waiting.into_iter().filter(|node| self.peers.contains_key(node));
                let here: Vec<NodeId> = here.collect();
                if here.is_empty() { Ok(()) } else { self.weigh(&here, events) }
            }
            None => Ok(()),
        }
    }

    pub(super) fn cost(&mut self) -> Result<ModelCost, DistributedError> {
        if let Some(cost) = &self.staging.cost {
            return Ok(cost.clone());
        }
        let (mut cost, here) = costs::measured(&self.task.graph, &self.options.compute, &self.task.config)?;
        costs::keep_cuts(&mut cost, &self.task.config.formation.cuts)?;
        self.staging.here = here;
        self.staging.cost = Some(cost.clone());
        Ok(cost)
    }

    /// The nodes as the planner sees them.
    pub(super) fn pool(&self, nodes: &[NodeId]) -> Pool {
        let status = self.fabric.nodes();
        let formation = &self.task.config.formation;
        let known = |id: &NodeId| {
            let status = status.iter().find(|of| of.id == *id);
            let node = measure::KnownNode {
                id: id.clone(),
                resources: status.map(|of| of.resources.clone()).unwrap_or_default(),
                gflops: self.staging.speeds.get(id).copied(),
            };
            let free = status.map(|of| memory_for(of, self.run)).unwrap_or_default();
            node.limited_to(formation.cores, formation.memory.unwrap_or(free))
        };
        let nodes: Vec<_> = nodes.iter().map(known).collect();
        measure::pool_of(&nodes, &self.staging.links, &self.staging.here)
    }
}

/// The memory of a node that nobody but this run uses.
fn memory_for(node: &NodeStatus, run: RunId) -> ByteSize {
    let own = |holder: &Holder| matches!(holder, Holder::Run { run: of, .. } if *of == run);
    let others: Vec<NodeUse> = node.uses.iter().filter(|part| !own(&part.holder)).cloned().collect();
    let all = Needs { cores: node.resources.cores, memory: node.resources.memory };
    usage::free(all, &others).memory
}

/// One after the other, since they may share a machine; those whose speed is known are asked for their links only.
async fn measure_nodes(fabric: &Fabric, nodes: Vec<(NodeId, bool)>) -> Measured {
    let mut measured = Measured::default();
    for (node, known) in nodes {
        if !known {
            match measure::ask_speed(fabric, &node).await {
                Ok(speed) => measured.speeds.push((node.clone(), f64::from(speed.gflops))),
                Err(error) => tracing::debug!(%node, %error, "a node could not be measured"),
            }
        }
        // What `phalanx nodes --measure` found out.
        if let Ok(known) = measure::ask_known(fabric, &node).await {
            let link = |link: measure::LinkSpeed| {
                ((node.clone(), link.to), Link::new(link.bytes_per_s, link.latency_s))
            };
            measured.links.extend(known.links.into_iter().map(link));
        }
        measured.nodes.push(node);
    }
    measured
}
