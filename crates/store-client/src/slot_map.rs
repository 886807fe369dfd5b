use phalanx_resp::{Reply, slot};
use std::collections::{BTreeMap, BTreeSet};

/// Which node of a cluster has which slot, as a node of it told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// By their first slots.
    ranges: BTreeMap<u16, SlotRange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SlotRange {
    last: u16,
    master: String,
    replicas: Vec<String>,
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS` of the node at `asked`; `None` if it makes no sense.
    pub(crate) fn read(reply: Reply, asked: &str) -> Option<Self> {
        let Reply::Array(ranges) = reply else { return None };
        let mut map = Self::default();
        for range in ranges {
            let Reply::Array(fields) = range else { return None };
            let [Reply::Integer(first), Reply::Integer(last), nodes @ ..] = &fields[..] else { return None };
            let mut nodes = nodes.iter().map(|node| node_address(node, asked));
            let master = nodes.next()??;
            let replicas = nodes.collect::<Option<Vec<_>>>()?;
            let range = SlotRange { last: u16::try_from(*last).ok()?, master, replicas };
            map.ranges.insert(u16::try_from(*first).ok()?, range);
        }
        (!map.ranges.is_empty()).then_some(map)
    }

    fn range_of(&self, key: &[u8]) -> Option<&SlotRange> {
        let slot = slot(key);
        self.ranges.range(..=slot).next_back().map(|(_, range)| range).filter(|range| slot <= range.last)
    }

    /// The node that has a key; `None` when the cluster has lost the key's slot.
    pub(crate) fn owner(&self, key: &[u8]) -> Option<&str> {
        self.range_of(key).map(|range| range.master.as_str())
    }

    /// Whether a replica could take over the slot of a key.
    pub(crate) fn has_replica(&self, key: &[u8]) -> bool {
        self.range_of(key).is_some_and(|range| !range.replicas.is_empty())
    }

    /// Whether any node has a replica.
    pub(crate) fn any_replica(&self) -> bool {
        self.ranges.values().any(|range| !range.replicas.is_empty())
    }

    /// The nodes that have slots.
    pub(crate) fn masters(&self) -> BTreeSet<&str> {
        self.ranges.values().map(|range| range.master.as_str()).collect()
    }

    /// All nodes that can be asked about the cluster.
    pub(crate) fn nodes(&self) -> BTreeSet<&str> {
        self.ranges
            .values()
            .flat_map(|range| std::iter::once(&range.master).chain(&range.replicas))
            .map(String::as_str)
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// `[host, port, …]` as an address. A node that does not know its own host is the one that was asked.
fn node_address(node: &Reply, asked: &str) -> Option<String> {
    let Reply::Array(fields) = node else { return None };
    let (host, port) = match &fields[..] {
        [Reply::Bulk(host), Reply::Integer(port), ..] => (std::str::from_utf8(host).ok()?, port),
        [Reply::Null, Reply::Integer(port), ..] => ("", port),
        _ => return None,
    };
    let port = u16::try_from(*port).ok()?;
    Some(joined(host, &port.to_string(), asked))
}

/// A host and a port that a node told; the host of the node itself when it gave none.
pub(crate) fn joined(host: &str, port: &str, asked: &str) -> String {
    match host {
        "" | "?" => format!("{}:{port}", asked.rsplit_once(':').map_or(asked, |(host, _)| host)),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64) -> Reply {
        Reply::Array(vec![Reply::bulk(host.to_owned()), Reply::Integer(port), Reply::bulk("id")])
    }

    fn range(first: i64, last: i64, nodes: Vec<Reply>) -> Reply {
        Reply::Array([Reply::Integer(first), Reply::Integer(last)].into_iter().chain(nodes).collect())
    }

    #[test]
    fn keys_find_their_nodes_and_gaps_have_none() {
        let reply = Reply::Array(vec![
            range(10923, 16383, vec![node("c", 3), node("d", 4)]),
            range(0, 5460, vec![node("", 1)]),
        ]);
        let map = SlotMap::read(reply, "asked:9").unwrap();
        assert_eq!((map.owner(b"foo"), map.has_replica(b"foo")), (Some("c:3"), true));
        assert_eq!(map.owner(b"{\x00\x00}"), Some("asked:1"));
        assert!(!map.has_replica(b"{\x00\x00}"));
        // Slot 5461 belongs to no range.
        assert_eq!(map.owner(b"{\x38\x4d}"), None);
        assert_eq!(map.masters().into_iter().collect::<Vec<_>>(), ["asked:1", "c:3"]);
        assert_eq!(map.nodes().len(), 3);
    }

    #[test]
    fn replies_that_make_no_sense_are_refused() {
        let wrong = [
            Reply::OK,
            Reply::Array(Vec::new()),
            Reply::Array(vec![Reply::Integer(1)]),
            Reply::Array(vec![range(0, 5, Vec::new())]),
            Reply::Array(vec![range(0, 99_999, vec![node("a", 1)])]),
            Reply::Array(vec![range(-1, 5, vec![node("a", 1)])]),
            Reply::Array(vec![range(0, 5, vec![node("a", 70_000)])]),
            Reply::Array(vec![range(0, 5, vec![Reply::Array(Vec::new())])]),
        ];
        for reply in wrong {
            assert_eq!(SlotMap::read(reply.clone(), "a:1"), None, "{reply:?}");
        }
    }

    #[test]
    fn addresses_of_ipv6_have_brackets() {
        assert_eq!(joined("::1", "7", "x:1"), "[::1]:7");
        assert_eq!(joined("", "7", "[::1]:9"), "[::1]:7");
    }
}
