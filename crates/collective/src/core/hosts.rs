//! Which ranks of a group share memory, and which rank leads each host.
//!
//! A *host* is a set of ranks that share memory. Hosts are ordered by their first rank; the first rank of a host is its
//! *leader*. Within a host a rank is identified by its position, between hosts by its host.

use super::schedule::{Program, Step};
use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// The ranks of each host, in order.
    members: Vec<Vec<usize>>,
    /// The host of each rank and the rank's position there.
    seats: Vec<(usize, usize)>,
}

impl Hosts {
    /// Groups ranks with the same key; a rank without a key is a host of its own.
    pub(crate) fn new<K: PartialEq>(keys: &[Option<K>]) -> Self {
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut seats = Vec::with_capacity(keys.len());
        for (rank, key) in keys.iter().enumerate() {
            let same = |ranks: &Vec<usize>| key.is_some() && keys[ranks[0]] == *key;
            let host = members.iter().position(same).unwrap_or(members.len());
            if host == members.len() {
                members.push(Vec::new());
            }
            seats.push((host, members[host].len()));
            members[host].push(rank);
        }
        Self { members, seats }
    }

    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn members(&self, host: usize) -> &[usize] {
        &self.members[host]
    }

    /// The host of a rank and the rank's position there.
    pub(crate) fn seat(&self, rank: usize) -> (usize, usize) {
        self.seats[rank]
    }

    pub(crate) fn leaders(&self) -> Vec<usize> {
        self.members.iter().map(|members| members[0]).collect()
    }

    /// The ranks of each host.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().map(Vec::len)
    }

    /// The ranks that a rank exchanges bytes with: leaders with each other and with the other ranks of their host.
    pub(crate) fn connected(&self, rank: usize) -> Vec<usize> {
        let (host, place) = self.seat(rank);
        if self.count() == 1 {
            return Vec::new();
        }
        if place > 0 {
            return vec![self.members[host][0]];
        }
        let mut ranks = self.leaders();
        ranks.extend(&self.members[host][1..]);
        ranks.retain(|other| *other != rank);
        ranks.sort_unstable();
        ranks
    }

    /// All ranks, host by host.
    pub(crate) fn by_host(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().flatten().copied()
    }

    /// Reorders parts from host order to rank order; `lengths` is by rank. Also returns where each part ends.
    pub(crate) fn in_rank_order(&self, bytes: Vec<u8>, lengths: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let ends: Vec<usize> = ends(lengths.iter().copied()).collect();
        if self.by_host().is_sorted() {
            return (bytes, ends);
        }
        let mut ordered = vec![0; bytes.len()];
        let mut start = 0;
        for rank in self.by_host() {
            let length = lengths[rank];
            ordered[ends[rank] - length..ends[rank]].copy_from_slice(&bytes[start..start + length]);
            start += length;
        }
        (ordered, ends)
    }

    /// Reorders parts of equal length from rank order to host order.
    pub(crate) fn host_by_host(&self, bytes: &[u8], part: usize) -> Vec<u8> {
        let mut ordered = Vec::with_capacity(bytes.len());
        for rank in self.by_host() {
            ordered.extend_from_slice(&bytes[part_of(part, rank)]);
        }
        ordered
    }
}

/// The byte range of part `index`, for parts of equal length.
pub(crate) fn part_of(part: usize, index: usize) -> Range<usize> {
    part * index..part * (index + 1)
}

/// The end offsets of consecutive parts.
fn ends(lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = usize> {
    lengths.scan(0, |end, length| {
        *end += length;
        Some(*end)
    })
}

/// Converts a program that numbers hosts into one that numbers ranks.
pub(crate) fn renumber(program: &mut Program, leaders: &[usize]) {
    for step in &mut program.steps {
        if let Step::Send { to: rank, .. } | Step::Receive { from: rank, .. } = step {
            *rank = leaders[*rank];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed() -> Hosts {
        Hosts::new(&["a", "b", "a", "b", "a", "c"].map(Some))
    }

    #[test]
    fn ranks_with_one_key_are_one_host() {
        let hosts = mixed();
        assert_eq!(hosts.count(), 3);
        assert_eq!(hosts.members(0), [0, 2, 4]);
        assert_eq!(hosts.members(1), [1, 3]);
        assert_eq!(hosts.leaders(), [0, 1, 5]);
        assert_eq!(hosts.seat(4), (0, 2));
        assert_eq!(Hosts::new(&[None::<u8>, None, None]).count(), 3);
    }

    #[test]
    fn connections_are_mutual_and_few() {
        let hosts = mixed();
        assert_eq!(hosts.connected(0), [1, 2, 4, 5]);
        assert_eq!(hosts.connected(3), [1]);
        assert_eq!(hosts.connected(5), [0, 1]);
        assert_eq!(Hosts::new(&[Some(1), Some(1)]).connected(0), [0_usize; 0]);
        for rank in 0..6 {
            assert!(hosts.connected(rank).iter().all(|other| hosts.connected(*other).contains(&rank)));
        }
    }

    #[test]
    fn parts_come_into_the_order_of_ranks_and_back() {
        let hosts = mixed();
        let (ordered, ends) = hosts.in_rank_order(b"00224411113555".to_vec(), &[2, 4, 2, 1, 2, 3]);
        assert_eq!((ordered.as_slice(), ends), (b"00111122344555".as_slice(), vec![2, 6, 8, 9, 11, 14]));
        let bytes = hosts.host_by_host(b"001122334455", 2);
        assert_eq!(bytes, b"002244113355");
        assert_eq!(hosts.in_rank_order(bytes, &[2; 6]).0, b"001122334455");
    }
}
