//! Which links are measured, and in which order.

/// Up to this many nodes every link is measured.
pub const ALL_PAIRS: usize = 8;
/// With more nodes, the links of each node to this many following ones.
pub const NEXT: usize = 3;

/// The pairs of nodes whose links are measured, one after the other.
pub fn pairs(nodes: usize) -> Vec<(usize, usize)> {
    if nodes <= ALL_PAIRS {
        return (0..nodes).flat_map(|i| (i + 1..nodes).map(move |j| (i, j))).collect();
    }
    // Ordered by distance, so that a node is not asked several times in a row.
    (1..=NEXT).flat_map(|away| (0..nodes).map(move |i| (i, (i + away) % nodes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn few_nodes_have_all_their_links_measured() {
        assert_eq!(pairs(0), []);
        assert_eq!(pairs(1), []);
        assert_eq!(pairs(3), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(pairs(8).len(), 28);
    }

    #[test]
    fn of_many_nodes_each_is_measured_with_six_others_once() {
        for nodes in [9, 10, 100] {
            let pairs = pairs(nodes);
            assert_eq!(pairs.len(), 3 * nodes);
            let links: BTreeSet<_> = pairs.iter().map(|(i, j)| (i.min(j), i.max(j))).collect();
            assert_eq!(links.len(), pairs.len(), "a link is measured twice");
            for node in 0..nodes {
                assert_eq!(pairs.iter().filter(|(i, j)| *i == node || *j == node).count(), 6);
            }
        }
    }
}
