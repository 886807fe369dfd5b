//! Numbers of a node.

use phalanx_fabric::Fabric;
use phalanx_nodes::Node;
use phalanx_telemetry::{Exposition, Kind, Sample, Source, add_process};
use phalanx_types::Needs;
use phalanx_wire::node::NodeState;
use phalanx_wire::usage::Holder;
use std::collections::BTreeMap;
use std::pin::Pin;

/// A node, as collectors see it.
#[derive(Debug)]
pub(crate) struct NodeSource {
    fabric: Fabric,
    account: phalanx_account::NodeAccount,
}

impl NodeSource {
    pub(crate) fn new(node: &Node) -> Self {
        Self { fabric: node.fabric().clone(), account: node.account().clone() }
    }

    fn exposition(&self) -> Exposition {
        let mut metrics = Exposition::default();
        let labels = vec![("node", self.fabric.id().as_str()), ("version", env!("CARGO_PKG_VERSION"))];
        metrics.add(Kind::Gauge, "phalanx_node_info", "The node", [Sample { labels, value: 1.0 }]);
        let Needs { cores, memory } = self.account.capacity();
        metrics.gauge("phalanx_node_cores", "Cores that jobs and runs may use", f64::from(cores));
        metrics.gauge("phalanx_node_memory_bytes", "Memory that jobs and runs may use", memory.0 as f64);
        self.add_uses(&mut metrics);
        let nodes = self.fabric.nodes();
        if let Some(own) = nodes.iter().find(|node| &node.id == self.fabric.id()) {
            let labels = vec![("state", "running")];
            let running = Sample { labels, value: f64::from(own.jobs_running) };
            metrics.add(Kind::Gauge, "phalanx_node_jobs", "Jobs of the node by state", [running]);
            metrics.counter("phalanx_node_jobs_done", "Jobs that the node has solved", own.jobs_done as f64);
        }
        let mut states: BTreeMap<&str, f64> = BTreeMap::new();
        for node in &nodes {
            *states.entry(state(&node.state)).or_default() += 1.0;
        }
        let by_state =
            states.into_iter().map(|(state, value)| Sample { labels: vec![("state", state)], value });
        metrics.add(Kind::Gauge, "phalanx_domain_nodes", "Nodes of the domain by state", by_state);
        let held = self.fabric.held_bytes() as f64;
        metrics.gauge("phalanx_node_held_bytes", "Bytes that the node keeps for others to fetch", held);
        add_process(&mut metrics);
        metrics
    }

    fn add_uses(&self, metrics: &mut Exposition) {
        let mut uses: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for part in self.account.uses() {
            let used = uses.entry(holder(&part.holder)).or_default();
            used.0 += f64::from(part.cores);
            used.1 += part.memory.0 as f64;
        }
        let samples = |pick: fn(&(f64, f64)) -> f64| -> Vec<Sample<'_>> {
            uses.iter()
                .map(|(holder, used)| Sample { labels: vec![("by", holder)], value: pick(used) })
                .collect()
        };
        let help = "Cores in use, by what uses them";
        metrics.add(Kind::Gauge, "phalanx_node_used_cores", help, samples(|used| used.0));
        let help = "Memory in use, by what uses it";
        metrics.add(Kind::Gauge, "phalanx_node_used_memory_bytes", help, samples(|used| used.1));
    }
}

fn holder(holder: &Holder) -> &'static str {
    match holder {
        Holder::Jobs { .. } => "jobs",
        Holder::Run { .. } => "run",
        Holder::WaitingRun { .. } => "waiting_run",
        Holder::Others { .. } => "others",
        Holder::Rank { .. } => "rank",
        Holder::WaitingRank { .. } => "waiting_rank",
        Holder::Store => "store",
    }
}

fn state(state: &NodeState) -> &'static str {
    match state {
        NodeState::Running => "running",
        NodeState::Draining => "draining",
        NodeState::Stopped => "stopped",
        NodeState::Lost(_) => "lost",
    }
}

impl Source for NodeSource {
    fn collect(&self) -> Pin<Box<dyn Future<Output = Exposition> + Send + '_>> {
        Box::pin(async { self.exposition() })
    }
}
