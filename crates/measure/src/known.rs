//! The nodes of a domain as the planner sees them: the same for `plan` and for the driver of a run.

use super::host::{host_names, this_host};
use crate::costs::Here;
use phalanx_formation::{Link, Pool, PoolNode};
use phalanx_types::{ByteSize, NodeId, Resources};
use std::collections::BTreeMap;

/// The memory of a node that does not report it: practically unlimited.
pub const BOUNDLESS: u64 = u64::MAX / 4;

/// A node, its resources, and its speed in GFLOP/s if that is known.
#[derive(Debug, Clone)]
pub struct KnownNode {
    pub id: NodeId,
    pub resources: Resources,
    pub gflops: Option<f64>,
}

impl KnownNode {
    /// Restricts the node to a run's share: this many cores (all if `None`) and this memory. Speed is assumed to be
    /// proportional to the cores.
    #[must_use]
    pub fn limited_to(mut self, cores: Option<u32>, memory: ByteSize) -> Self {
        let all = self.resources.cores;
        if let Some(cores) = cores.filter(|cores| *cores < all) {
            self.resources.cores = cores;
            self.gflops = self.gflops.map(|gflops| gflops * f64::from(cores) / f64::from(all));
        }
        // A node that does not report its memory is assumed to have enough.
        if self.resources.memory.0 > 0 {
            self.resources.memory = ByteSize(memory.0.clamp(1, self.resources.memory.0));
        }
        self
    }
}

/// A pool of nodes; speeds are in GFLOP/s, the unit of costs. Nodes of unknown speed count as the slowest of the
/// others, or as fast as a core of this machine, if that is known.
pub fn pool_of(nodes: &[KnownNode], links: &BTreeMap<(NodeId, NodeId), Link>, own: &Here) -> Pool {
    // Reported numbers are not trusted.
    let speed = |node: &KnownNode| node.gflops.filter(|speed| speed.is_finite() && *speed > 0.0);
    let usual = nodes.iter().filter_map(speed).reduce(f64::min).or(own.gflops).unwrap_or(USUAL_GFLOPS);
    let hosts = host_names(nodes.iter().filter_map(|node| node.resources.host.as_deref()));
    let node = |known: &KnownNode| {
        let KnownNode { id, resources, .. } = known;
        let host = resources.host.as_deref();
        let threads = f64::from(resources.cores.max(1));
        let name = host.and_then(|host| hosts.get(&host.boot).cloned());
        PoolNode {
            name: id.to_string(),
            memory: if resources.memory.0 == 0 { BOUNDLESS } else { resources.memory.0 },
            speed: speed(known).unwrap_or(usual),
            host: name.unwrap_or_else(|| id.to_string()),
            cores: host.map_or(threads, |host| f64::from(host.cores.max(1))),
            threads,
            uplink: None,
        }
    };
    let mut pool = Pool::new(nodes.iter().map(node).collect());
    pool.local_link = own.local_link();
    let here = this_host().and_then(|host| hosts.get(&host.boot).cloned());
    note_parts_of_cores(&mut pool, here.zip(own.gflops));
    let place = |id: &NodeId| nodes.iter().position(|node| node.id == *id);
    for ((from, to), link) in links {
        if let Some(pair) = place(from).zip(place(to)) {
            pool.links.insert(pair, *link);
        }
    }
    let between = pool.links.iter().filter(|((a, b), _)| pool.nodes[*a].host != pool.nodes[*b].host);
    if let Some(usual) = usual_link(between.map(|(_, link)| *link).collect()) {
        pool.default_link = usual;
    }
    pool
}

/// The assumed link between hosts that was not measured: the median of the measured links.
fn usual_link(measured: Vec<Link>) -> Option<Link> {
    let middle = |of: fn(&Link) -> f64| {
        let mut all: Vec<f64> = measured.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    Some(Link::new(middle(|link| link.bytes_per_s)?, middle(|link| link.latency_s)?))
}

/// The assumed GFLOP/s of a node if nothing is known.
pub const USUAL_GFLOPS: f64 = 10.0;

/// A node that is slower than a core of its host, because it may use only part of one, keeps only that part busy. `own`
/// is this host, and the speed of one of its cores.
fn note_parts_of_cores(pool: &mut Pool, own: Option<(String, f64)>) {
    let mut fastest: BTreeMap<String, f64> = own.into_iter().collect();
    for node in &pool.nodes {
        let of_core = node.speed / node.threads.max(1.0);
        let known = fastest.entry(node.host.clone()).or_insert(of_core);
        *known = known.max(of_core);
    }
    for node in &mut pool.nodes {
        let core = fastest.get(&node.host).copied().unwrap_or(node.speed);
        let busy = node.speed / core.max(f64::MIN_POSITIVE);
        // Further digits are noise.
        node.threads = ((node.threads.min(busy) * 100.0).round() / 100.0).max(0.01);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Host;

    #[test]
    fn nodes_of_one_machine_share_it_and_a_slowed_one_takes_a_part_of_a_core() {
        let host = Host { name: "rack".parse().unwrap(), boot: 7, cores: 4 };
        let node = |name: &str, gflops: Option<f64>| KnownNode {
            id: name.parse().unwrap(),
            resources: Resources { cores: 1, host: Some(Box::new(host.clone())), ..Resources::default() },
            gflops,
        };
        let mut nodes = ["a-0000", "b-0000", "c-0000", "d-0000"]
            .into_iter()
            .zip([Some(40.0), Some(10.0), None, Some(f64::NAN)])
            .map(|(name, gflops)| node(name, gflops))
            .collect::<Vec<_>>();
        nodes[0].resources.memory = ByteSize(5);
        let link = Link::new(1.0, 2.0);
        let links = BTreeMap::from([((nodes[0].id.clone(), nodes[2].id.clone()), link)]);
        let pool = pool_of(&nodes, &links, &Here::default());
        let all: Vec<_> =
            pool.nodes.iter().map(|n| (n.memory, n.speed, n.host.as_str(), n.cores, n.threads)).collect();
        assert_eq!(all[0], (5, 40.0, "rack", 4.0, 1.0));
        assert_eq!(all[1], (BOUNDLESS, 10.0, "rack", 4.0, 0.25));
        assert_eq!((all[2], all[3]), (all[1], all[1]));
        assert_eq!((pool.link(2, 0), pool.link(0, 1)), (link, Here::default().local_link()));
        assert_eq!(
            pool.default_link,
            Pool::new(Vec::new()).default_link,
            "nothing between hosts was measured"
        );
        nodes[1].gflops = Some(30.123);
        assert_eq!(pool_of(&nodes, &links, &Here::default()).nodes[1].threads, 0.75);
    }
    #[test]
    fn half_a_node_is_half_as_fast_and_has_the_memory_that_is_left() {
        let resources = Resources { cores: 4, memory: ByteSize(100), ..Resources::default() };
        let node = KnownNode { id: "a-0000".parse().unwrap(), resources, gflops: Some(40.0) };
        let seen = |node: &KnownNode| {
            let pool = pool_of(std::slice::from_ref(node), &BTreeMap::new(), &Here::default());
            (pool.nodes[0].threads, pool.nodes[0].speed, pool.nodes[0].memory)
        };
        assert_eq!(seen(&node.clone().limited_to(Some(2), ByteSize(30))), (2.0, 20.0, 30));
        assert_eq!(seen(&node.clone().limited_to(None, ByteSize(500))), (4.0, 40.0, 100));
        assert_eq!(seen(&node.clone().limited_to(Some(9), ByteSize(0))), (4.0, 40.0, 1), "none is left");
        let unsaid = KnownNode { resources: Resources { memory: ByteSize(0), ..node.resources }, ..node };
        assert_eq!(seen(&unsaid.limited_to(Some(1), ByteSize(0))), (1.0, 10.0, BOUNDLESS));
    }

    #[test]
    fn unmeasured_links_count_as_the_median_of_measured_ones() {
        let node = |name: &str, boot: u64| KnownNode {
            id: name.parse().unwrap(),
            resources: Resources {
                cores: 1,
                host: Some(Box::new(Host { name: name.parse().unwrap(), boot, cores: 1 })),
                ..Resources::default()
            },
            gflops: None,
        };
        let nodes = [node("a-0000", 1), node("b-0000", 2), node("c-0000", 3), node("d-0000", 4)];
        let id = |i: usize| nodes[i].id.clone();
        let links = BTreeMap::from([
            ((id(0), id(1)), Link::new(5e6, 0.01)),
            ((id(1), id(2)), Link::new(6e6, 0.02)),
            ((id(0), id(2)), Link::new(9e6, 0.03)),
        ]);
        assert_eq!(pool_of(&nodes, &links, &Here::default()).link(0, 3), Link::new(6e6, 0.02));
    }
}
