//! Which algorithm computes a collective.
//!
//! All ranks of a group must choose alike, so a choice rests only on what all of them know.

use super::words::{Algorithm, Kind};
use serde::{Deserialize, Serialize};

/// Where the ranks of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) ranks: usize,
    pub(crate) hosts: usize,
    /// Whether ranks of one host can map each other's memory.
    pub(crate) shared: bool,
}

/// From which sizes on which algorithm is used between hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Table {
    /// The most bytes that a rank receives from all others together when everybody sends everything to everybody.
    pub(crate) direct_bytes: u64,
    /// From this many bytes on parts travel around a ring.
    pub(crate) ring_bytes: u64,
}

impl Default for Table {
    /// `direct_bytes` is measured once, on loopback of a busy machine: direct was faster up to 64 KiB with 2 ranks and
    /// 16 KiB with 4. `ring_bytes` is an estimate: with 4 ranks the ring was ahead at 4 MiB, not yet at 1 MiB.
    fn default() -> Self {
        Self { direct_bytes: 48 << 10, ring_bytes: 512 << 10 }
    }
}

/// Chooses the algorithm for one collective; `bytes` is what all ranks get together of one result.
pub(crate) fn choose(kind: Kind, bytes: u64, place: Place, table: &Table) -> Algorithm {
    if place.shared && place.hosts == 1 {
        return Algorithm::Shared;
    }
    let several = place.shared && place.ranks > place.hosts;
    let others = place.ranks.saturating_sub(1) as u64;
    let by_size = || {
        if bytes.saturating_mul(others) <= table.direct_bytes {
            Algorithm::Direct
        } else if bytes < table.ring_bytes {
            Algorithm::HalvingDoubling
        } else {
            Algorithm::Ring
        }
    };
    match kind {
        Kind::AllReduce | Kind::Broadcast { .. } | Kind::Reduce { .. } if several => Algorithm::Hierarchical,
        Kind::AllReduce | Kind::Broadcast { .. } | Kind::Reduce { .. } => by_size(),
        Kind::AllGather if by_size() == Algorithm::Direct => Algorithm::Direct,
        Kind::AllGather | Kind::ReduceScatter => Algorithm::Ring,
        Kind::Gather { .. } | Kind::Scatter { .. } | Kind::AllToAll => Algorithm::Direct,
        Kind::Barrier | Kind::Join => Algorithm::HalvingDoubling,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ranks: usize, hosts: usize) -> Place {
        Place { ranks, hosts, shared: true }
    }

    #[test]
    fn size_decides_between_hosts() {
        let all_reduce = |bytes| choose(Kind::AllReduce, bytes, place(2, 2), &Table::default());
        assert_eq!(all_reduce(0), Algorithm::Direct);
        assert_eq!(all_reduce(48 << 10), Algorithm::Direct);
        assert_eq!(all_reduce((48 << 10) + 4), Algorithm::HalvingDoubling);
        assert_eq!(all_reduce(512 << 10), Algorithm::Ring);
        assert_eq!(all_reduce(u64::MAX), Algorithm::Ring);
    }

    #[test]
    fn many_ranks_send_less_directly() {
        let choice = choose(Kind::AllReduce, 8 << 10, place(16, 16), &Table::default());
        assert_eq!(choice, Algorithm::HalvingDoubling);
    }

    #[test]
    fn place_decides_within_hosts() {
        let table = Table::default();
        assert_eq!(choose(Kind::AllReduce, 1 << 20, place(4, 1), &table), Algorithm::Shared);
        assert_eq!(choose(Kind::AllReduce, 1 << 20, place(4, 2), &table), Algorithm::Hierarchical);
        assert_eq!(choose(Kind::AllToAll, 1 << 20, place(4, 2), &table), Algorithm::Direct);
        let apart = Place { ranks: 4, hosts: 1, shared: false };
        assert_eq!(choose(Kind::AllReduce, 1 << 20, apart, &table), Algorithm::Ring);
    }
}
