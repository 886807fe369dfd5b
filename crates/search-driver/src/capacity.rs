//! How many trials the nodes of the domain can train at once.

use phalanx_fabric::Fabric;
use phalanx_types::{ByteSize, NodeId};
use phalanx_wire::node::{NodeState, NodeStatus};
use phalanx_wire::usage::Holder;

/// Slots on all nodes that solve jobs of this kind: so many trials of `cores` cores, at most `workers`.
pub(crate) fn slots(fabric: &Fabric, kind: &str, cores: u32, workers: Option<usize>) -> usize {
    let own = fabric.id();
    let all: usize = fabric.nodes().iter().map(|node| slots_of(node, own, kind, cores)).sum();
    all.min(workers.unwrap_or(usize::MAX))
}

/// The memory of the largest node that solves jobs of this kind.
pub(crate) fn largest_memory(fabric: &Fabric, kind: &str) -> Option<ByteSize> {
    let own = fabric.id();
    let nodes = fabric.nodes();
    let able = nodes.iter().filter(|node| slots_of(node, own, kind, 1) > 0);
    able.map(|node| node.resources.memory).max()
}

fn slots_of(node: &NodeStatus, own: &NodeId, kind: &str, cores: u32) -> usize {
    let solves = node.state == NodeState::Running
        && node.id != *own
        && node.handles.iter().any(|handled| handled == kind);
    if !solves {
        return 0;
    }
    let others = node.uses.iter().filter(|part| !matches!(part.holder, Holder::Jobs { .. }));
    let taken: u32 = others.map(|part| part.cores).sum();
    (node.resources.cores.saturating_sub(taken) / cores.max(1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_fabric::NodeKind;
    use phalanx_types::{Incarnation, Resources};
    use phalanx_wire::usage::NodeUse;

    fn node(cores: u32, handles: &[&str], uses: Vec<NodeUse>) -> NodeStatus {
        NodeStatus {
            id: NodeId::with_suffix("n", 1).unwrap(),
            incarnation: Incarnation(1),
            kind: NodeKind::Computing,
            state: NodeState::Running,
            resources: Resources { cores, ..Resources::default() },
            handles: handles.iter().map(|&kind| kind.into()).collect(),
            topics: Vec::new(),
            addresses: Vec::new(),
            jobs_running: 0,
            jobs_done: 0,
            uses,
            since_unix_ms: 0,
            version: 1,
            store: None,
        }
    }

    #[test]
    fn a_node_has_slots_for_the_cores_that_others_leave() {
        let own = NodeId::with_suffix("search", 2).unwrap();
        let part = |holder, cores| NodeUse { holder, cores, memory: ByteSize(0) };
        let run = Holder::Rank { launcher: own.clone() };
        let uses = vec![part(Holder::Jobs { running: 3 }, 3), part(run, 2)];
        assert_eq!(slots_of(&node(8, &["trial"], uses.clone()), &own, "trial", 1), 6);
        assert_eq!(slots_of(&node(8, &["trial"], uses.clone()), &own, "trial", 4), 1);
        assert_eq!(slots_of(&node(8, &["echo"], uses), &own, "trial", 1), 0);
        let mut leaving = node(8, &["trial"], Vec::new());
        leaving.state = NodeState::Draining;
        assert_eq!(slots_of(&leaving, &own, "trial", 1), 0);
    }
}
