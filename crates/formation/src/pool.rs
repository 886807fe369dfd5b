//! The machines a formation may use, and the links between them.

mod error;
mod fields;
mod file;
mod json;
mod units;

pub use error::PoolError;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The nodes that may hold a part of the model, and how they are linked.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub nodes: Vec<PoolNode>,
    /// Between nodes of different hosts for which nothing else is known.
    pub default_link: Link,
    /// Between nodes of one host.
    pub local_link: Link,
    /// Between two nodes by their indices, in either order.
    pub links: BTreeMap<(usize, usize), Link>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolNode {
    pub name: String,
    /// Bytes that a training process may use.
    pub memory: u64,
    /// In the unit of the model's [`Work`](crate::Work): 1 if that is in seconds, otherwise operations per second.
    pub speed: f64,
    pub host: String,
    /// Cores of the host; its nodes share them.
    pub cores: f64,
    /// Cores that this node keeps busy while it computes.
    pub threads: f64,
    /// The link to nodes of other hosts.
    pub uplink: Option<Link>,
}

/// Bandwidth and latency of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub bytes_per_s: f64,
    pub latency_s: f64,
}

/// A Gigabit network.
const NETWORK: Link = Link { bytes_per_s: 125e6, latency_s: 2e-4 };
/// Sockets or memory of one host.
const LOCAL: Link = Link { bytes_per_s: 2e9, latency_s: 3e-5 };

impl Link {
    pub fn new(bytes_per_s: f64, latency_s: f64) -> Self {
        Self { bytes_per_s, latency_s }
    }

    /// Seconds to transfer this many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.latency_s + bytes / self.bytes_per_s
    }

    fn slower(self, other: Self) -> Self {
        Self::new(self.bytes_per_s.min(other.bytes_per_s), self.latency_s.max(other.latency_s))
    }
}

impl PoolNode {
    /// A node that is alone on its host, with one core.
    pub fn new(name: impl Into<String>, memory: u64, speed: f64) -> Self {
        let name = name.into();
        Self { host: name.clone(), name, memory, speed, cores: 1.0, threads: 1.0, uplink: None }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self { nodes: Vec::new(), default_link: NETWORK, local_link: LOCAL, links: BTreeMap::new() }
    }
}

impl Pool {
    /// A pool of these nodes, linked by a Gigabit network unless they are on one host.
    pub fn new(nodes: Vec<PoolNode>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// The link between two nodes: as measured, otherwise that of their host, otherwise the slower of their uplinks.
    pub fn link(&self, a: usize, b: usize) -> Link {
        let known = if self.links.is_empty() { None } else { self.measured(a, b) };
        known.unwrap_or_else(|| self.assumed(&self.nodes[a], &self.nodes[b]))
    }

    fn measured(&self, a: usize, b: usize) -> Option<Link> {
        self.links.get(&(a, b)).or_else(|| self.links.get(&(b, a))).copied()
    }

    fn assumed(&self, a: &PoolNode, b: &PoolNode) -> Link {
        if a.host == b.host {
            return self.local_link;
        }
        self.between_hosts(a, b)
    }

    pub(crate) fn between_hosts(&self, a: &PoolNode, b: &PoolNode) -> Link {
        match (a.uplink, b.uplink) {
            (Some(a), Some(b)) => a.slower(b),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => self.default_link,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_the_best_known_one() {
        let mut pool = Pool::new(["a", "b", "c", "d"].map(|n| PoolNode::new(n, 1, 1.0)).into());
        pool.nodes[1].host = "a".into();
        pool.nodes[2].uplink = Some(Link::new(10.0, 0.5));
        pool.nodes[3].uplink = Some(Link::new(20.0, 0.7));
        pool.links.insert((3, 1), Link::new(7.0, 0.1));
        assert_eq!(pool.link(0, 1), LOCAL);
        assert_eq!(pool.link(0, 2), Link::new(10.0, 0.5));
        assert_eq!(pool.link(2, 3), Link::new(10.0, 0.7));
        assert_eq!(pool.link(1, 3), Link::new(7.0, 0.1));
        assert_eq!(pool.link(3, 1), Link::new(7.0, 0.1));
        pool.nodes[2].uplink = None;
        assert_eq!(pool.link(0, 2), NETWORK);
    }
}
