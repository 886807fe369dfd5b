//! Which algorithm computes a collective.
//!
//! All ranks of a group must choose alike, so the choice depends only on what all of them know.

use super::words::{Algorithm, Kind};
use serde::{Deserialize, Serialize};

/// How many ranks a group has, on how many hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupShape {
    pub(crate) ranks: usize,
    pub(crate) hosts: usize,
    /// Whether ranks of one host can map each other's memory.
    pub(crate) shared: bool,
}

/// The sizes from which each algorithm is used between hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AlgorithmTable {
    /// The most bytes that a rank receives in total with the direct algorithm.
    pub(crate) direct_bytes: u64,
    /// From this many bytes on the ring is used between two hosts. A ring has as many rounds as hosts, halving and
    /// doubling only their logarithm, so with more hosts the ring needs more bytes to pay off.
    pub(crate) ring_bytes: u64,
    /// A rank that contributes at most this many bytes sends them to all other ranks directly, whatever their number.
    pub(crate) few_bytes: u64,
}

impl AlgorithmTable {
    /// The number of bytes from which a ring of `hosts` hosts is used.
    fn ring_from(&self, hosts: usize) -> u64 {
        let rounds = hosts.saturating_sub(1).max(1) as u64;
        let fewer = u64::from(hosts.max(2).next_power_of_two().ilog2());
        self.ring_bytes.saturating_mul(rounds) / fewer
    }
}

impl Default for AlgorithmTable {
    /// Measured over loopback on 2 cores that others kept busy, so only clear differences count; the median time of an
    /// all-reduce in µs, direct / halving and doubling / ring:
    ///
    /// | ranks | 4 KiB | 64 KiB | 256 KiB | 1 MiB | 4 MiB | 64 MiB |
    /// |---|---|---|---|---|---|---|
    /// | 2 | 12/21/21 | 36/33/34 | 92/60/139 | 1043/650/516 | 15681/6214/8019 | 226692/120561/127819 |
    /// | 4 | 68/93/115 | 218/134/177 | 1018/413/404 | 5280/1786/1575 | 61244/13696/8919 | 1163679/494558/179675 |
    ///
    /// With 2 ranks halving and doubling sends what the ring sends. Between hosts nothing is measured.
    fn default() -> Self {
        Self { direct_bytes: 48 << 10, ring_bytes: 512 << 10, few_bytes: 1 << 10 }
    }
}

/// Chooses the algorithm for one collective; `bytes` is what all ranks get together of one result.
pub(crate) fn choose(kind: Kind, bytes: u64, place: GroupShape, table: &AlgorithmTable) -> Algorithm {
    if place.shared && place.hosts == 1 {
        return Algorithm::Shared;
    }
    let several = place.shared && place.ranks > place.hosts;
    let others = place.ranks.saturating_sub(1) as u64;
    let by_size = || {
        if bytes.saturating_mul(others) <= table.direct_bytes {
            Algorithm::Direct
        } else if bytes < table.ring_from(place.hosts.max(if place.shared { 1 } else { place.ranks })) {
            Algorithm::HalvingDoubling
        } else {
            Algorithm::Ring
        }
    };
    match kind {
        Kind::AllReduce | Kind::Broadcast { .. } | Kind::Reduce { .. } if several => Algorithm::Hierarchical,
        Kind::AllReduce | Kind::Broadcast { .. } | Kind::Reduce { .. } => by_size(),
        Kind::AllGather if bytes / (place.ranks as u64).max(1) <= table.few_bytes => Algorithm::Direct,
        Kind::AllGather if by_size() == Algorithm::Direct => Algorithm::Direct,
        Kind::AllGather | Kind::ReduceScatter => Algorithm::Ring,
        Kind::Gather { .. } | Kind::Scatter { .. } | Kind::AllToAll => Algorithm::Direct,
        Kind::Barrier | Kind::Join => Algorithm::HalvingDoubling,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ranks: usize, hosts: usize) -> GroupShape {
        GroupShape { ranks, hosts, shared: true }
    }

    #[test]
    fn size_decides_between_hosts() {
        let all_reduce = |bytes| choose(Kind::AllReduce, bytes, place(2, 2), &AlgorithmTable::default());
        assert_eq!(all_reduce(0), Algorithm::Direct);
        assert_eq!(all_reduce(48 << 10), Algorithm::Direct);
        assert_eq!(all_reduce((48 << 10) + 4), Algorithm::HalvingDoubling);
        assert_eq!(all_reduce(512 << 10), Algorithm::Ring);
        assert_eq!(all_reduce(u64::MAX), Algorithm::Ring);
    }

    #[test]
    fn a_ring_of_many_hosts_needs_many_bytes() {
        let all_reduce =
            |bytes, hosts| choose(Kind::AllReduce, bytes, place(hosts, hosts), &AlgorithmTable::default());
        assert_eq!(all_reduce(25 << 20, 64), Algorithm::Ring);
        assert_eq!(all_reduce(25 << 20, 1024), Algorithm::HalvingDoubling);
        let votes = choose(Kind::AllGather, 4096 * 64, place(4096, 4096), &AlgorithmTable::default());
        assert_eq!(votes, Algorithm::Direct);
    }

    #[test]
    fn many_ranks_send_less_directly() {
        let choice = choose(Kind::AllReduce, 8 << 10, place(16, 16), &AlgorithmTable::default());
        assert_eq!(choice, Algorithm::HalvingDoubling);
    }

    #[test]
    fn place_decides_within_hosts() {
        let table = AlgorithmTable::default();
        assert_eq!(choose(Kind::AllReduce, 1 << 20, place(4, 1), &table), Algorithm::Shared);
        assert_eq!(choose(Kind::AllReduce, 1 << 20, place(4, 2), &table), Algorithm::Hierarchical);
        assert_eq!(choose(Kind::AllToAll, 1 << 20, place(4, 2), &table), Algorithm::Direct);
        let apart = GroupShape { ranks: 4, hosts: 1, shared: false };
        assert_eq!(choose(Kind::AllReduce, 1 << 20, apart, &table), Algorithm::Ring);
    }
}
