//! What is known of nodes: resources that they announce, and speeds and links that were measured.

use super::Driver;
use super::states::Reply;
use phalanx_fabric::{Fabric, NodeStatus};
use phalanx_formation::Link;
use phalanx_measure as measure;
use phalanx_measure::KnownNode;
use phalanx_protocol::driver::NodeToMeasure;
use phalanx_types::{ByteSize, Needs, NodeId, RunId};
use phalanx_wire::usage::{self, Holder, NodeUse};
use std::collections::{BTreeMap, BTreeSet};

/// Measured links between nodes.
pub(super) type Links = BTreeMap<(NodeId, NodeId), Link>;

/// Speeds of nodes and links.
#[derive(Debug, Default)]
pub(super) struct Machines {
    /// Billions of floating-point operations per second.
    speeds: BTreeMap<NodeId, f64>,
    links: Links,
    /// Nodes that told this driver their speed: that is newer than what they announce.
    asked: BTreeSet<NodeId>,
}

/// What nodes were found to do.
#[derive(Debug, Default)]
pub(super) struct Measured {
    nodes: Vec<NodeId>,
    speeds: Vec<(NodeId, f64)>,
    links: Vec<((NodeId, NodeId), Link)>,
}

impl Machines {
    pub(super) fn links(&self) -> Links {
        self.links.clone()
    }

    /// Takes in what was measured; returns the nodes that were.
    pub(super) fn on_measured(&mut self, measured: Measured) -> Vec<NodeId> {
        self.asked.extend(measured.speeds.iter().map(|(node, _)| node.clone()));
        self.speeds.extend(measured.speeds);
        self.links.extend(measured.links);
        measured.nodes
    }
}

impl Driver<'_> {
    /// Takes in the speeds that nodes announce.
    fn read_announced(&mut self) {
        if !self.task.config.formation.measure {
            return;
        }
        for node in self.fabric.nodes() {
            if let Some(gflops) =
                node.resources.speed_gflops.filter(|_| !self.machines.asked.contains(&node.id))
            {
                self.machines.speeds.insert(node.id, f64::from(gflops));
            }
        }
    }

    /// Nodes as the planner sees them.
    pub(super) fn known_nodes(&mut self, nodes: &[NodeId]) -> Vec<KnownNode> {
        self.read_announced();
        let status = self.fabric.nodes();
        let formation = &self.task.config.formation;
        let known = |id: &NodeId| {
            let status = status.iter().find(|node| node.id == *id);
            let node = KnownNode {
                id: id.clone(),
                resources: status.map(|node| node.resources.clone()).unwrap_or_default(),
                gflops: self.machines.speeds.get(id).copied(),
            };
            let free = status.map(|node| memory_for(node, self.run)).unwrap_or_default();
            node.limited_to(formation.cores, formation.memory.unwrap_or(free))
        };
        nodes.iter().map(known).collect()
    }

    /// Has nodes measured; those whose speed is known are asked for their links only.
    pub(super) fn measure(&mut self, nodes: Vec<NodeToMeasure>) {
        self.read_announced();
        let known = |asked: NodeToMeasure| {
            let known = !asked.again && self.machines.speeds.contains_key(&asked.node);
            (asked.node, known)
        };
        let nodes: Vec<(NodeId, bool)> = nodes.into_iter().map(known).collect();
        let (fabric, back) = (self.fabric.clone(), self.replies.0.clone());
        tokio::spawn(async move {
            let measured = measure_nodes(&fabric, nodes).await;
            // A driver that has ended needs it no more.
            drop(back.send(Reply::Measured(measured)));
        });
    }
}

/// The memory of a node that nothing but this run uses.
fn memory_for(node: &NodeStatus, run: RunId) -> ByteSize {
    let own = |holder: &Holder| matches!(holder, Holder::Run { run: of, .. } if *of == run);
    let others: Vec<NodeUse> = node.uses.iter().filter(|part| !own(&part.holder)).cloned().collect();
    let all = Needs { cores: node.resources.cores, memory: node.resources.memory };
    usage::free(all, &others).memory
}

/// Measures one node after the other, since they may share a machine.
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
