//! Calls that move values over several hosts.

use super::tiers::{Called, MOVE};
use super::{Group, system};
use crate::core::hosts::part_of;
use crate::core::schedule;
use crate::core::schedule::Area;
use crate::core::words::Kind;
use crate::error::CollectiveError;
use crate::shell::shared::Gathered;

/// The bytes of a length.
const LENGTH: usize = size_of::<u64>();

impl Group {
    pub(super) fn broadcast_hosts(
        &mut self,
        called: &Called,
        root: usize,
        data: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let (root_host, root_place) = self.hosts.seat(root);
        let seat = self.seat();
        if seat.rank == root_host {
            self.broadcast_within(called, root_place, data)?;
        }
        if self.leads() {
            let kind = Kind::Broadcast { root: root_host as u32 };
            let algorithm = self.algorithm_between(kind, data.len());
            let program = schedule::broadcast(algorithm, seat, root_host, data.len());
            self.between(called, program, MOVE, &[], data)?;
        }
        if seat.rank != root_host {
            self.broadcast_within(called, 0, data)?;
        }
        Ok(())
    }

    pub(super) fn all_gather_hosts(
        &mut self,
        called: &Called,
        mine: &[u8],
    ) -> Result<Gathered, CollectiveError> {
        let Some(own) = self.gather_within(called, 0, mine)? else {
            let packed = self.all_gather_within(called, &[])?;
            return self.unpack(packed);
        };
        let counts: Vec<usize> = self.hosts.sizes().map(|size| size * LENGTH).collect();
        let mut lengths = vec![0; self.ranks * LENGTH];
        let algorithm = self.algorithm_between(Kind::AllGather, lengths.len());
        let program = schedule::all_gather(algorithm, self.seat(), &counts, Area::Input);
        self.between(called, program, MOVE, &lengths_of(&own), &mut lengths)?;
        let lengths = read_lengths(&lengths);
        let (counts, total) = self.totals(&lengths)?;
        let mut bytes = zeros(total)?;
        let algorithm = self.algorithm_between(Kind::AllGather, total);
        let program = schedule::all_gather(algorithm, self.seat(), &counts, Area::Input);
        self.between(called, program, MOVE, &own.bytes, &mut bytes)?;
        let gathered = self.in_rank_order(bytes, &lengths);
        if self.place().ranks > 1 {
            self.all_gather_within(called, &pack(&gathered))?;
        }
        Ok(gathered)
    }

    pub(super) fn gather_hosts(
        &mut self,
        called: &Called,
        root: usize,
        mine: &[u8],
    ) -> Result<Option<Gathered>, CollectiveError> {
        let (root_host, root_place) = self.hosts.seat(root);
        let seat = self.seat();
        let mut gathered = None;
        if let Some(own) = self.gather_within(called, 0, mine)? {
            let is_root = seat.rank == root_host;
            let counts: Vec<usize> = self.hosts.sizes().map(|size| size * LENGTH).collect();
            let mut lengths = vec![0; if is_root { self.ranks * LENGTH } else { 0 }];
            let program = schedule::gather(seat, root_host, &counts);
            self.between(called, program, MOVE, &lengths_of(&own), &mut lengths)?;
            let lengths = read_lengths(&lengths);
            let (mut counts, mut total) = (vec![0; seat.ranks], 0);
            counts[seat.rank] = own.bytes.len();
            if is_root {
                (counts, total) = self.totals(&lengths)?;
            }
            let mut bytes = zeros(total)?;
            let program = schedule::gather(seat, root_host, &counts);
            self.between(called, program, MOVE, &own.bytes, &mut bytes)?;
            gathered = is_root.then(|| self.in_rank_order(bytes, &lengths));
        }
        if root_place == 0 || seat.rank != root_host {
            return Ok(gathered);
        }
        let packed = gathered.as_ref().map(pack).unwrap_or_default();
        self.gather_within(called, root_place, &packed)?.map(|got| self.unpack(got)).transpose()
    }

    pub(super) fn scatter_hosts(
        &mut self,
        called: &Called,
        root: usize,
        all: Option<&[u8]>,
        mine: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let (root_host, root_place) = self.hosts.seat(root);
        let (seat, part) = (self.seat(), mine.len());
        let all = all.filter(|_| self.rank == root).map(|all| self.hosts.host_by_host(all, part));
        let mut all = all.unwrap_or_default();
        if root_place > 0
            && seat.rank == root_host
            && let Some(got) = self.gather_within(called, 0, &all)?
        {
            all = got.bytes;
        }
        let mut parts = vec![0; part * self.place().ranks];
        if self.leads() {
            let counts: Vec<usize> = self.hosts.sizes().map(|size| size * part).collect();
            let program = schedule::scatter(seat, root_host, &counts);
            self.between(called, program, MOVE, &all, &mut parts)?;
        }
        self.scatter_within(called, Some(&parts), mine)
    }

    /// Leaders exchange what the ranks of their hosts send. A message between hosts holds, for each sender in order,
    /// its parts for each receiver in order.
    pub(super) fn all_to_all_hosts(
        &mut self,
        called: &Called,
        send: &[u8],
        receive: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let part = send.len() / self.ranks;
        let own_ranks = self.place().ranks;
        let mut parts = vec![0; if self.leads() { own_ranks * send.len() } else { 0 }];
        if let Some(own) = self.gather_within(called, 0, send)? {
            let mut given = Vec::with_capacity(own.bytes.len());
            for host in 0..self.hosts.count() {
                for sender in own.bytes.chunks(send.len().max(1)) {
                    for receiver in self.hosts.members(host) {
                        given.extend_from_slice(&sender[part_of(part, *receiver)]);
                    }
                }
            }
            let counts: Vec<usize> = self.hosts.sizes().map(|size| size * own_ranks * part).collect();
            let mut got = vec![0; given.len()];
            let program = schedule::all_to_all(self.seat(), &counts, &counts);
            self.between(called, program, MOVE, &given, &mut got)?;
            // The received bytes are ordered by host, then sender, then receiver on this host.
            let pieces = self.hosts.by_host().zip(got.chunks(part.max(1) * own_ranks));
            for (sender, piece) in pieces {
                for place in 0..own_ranks {
                    let start = place * send.len() + sender * part;
                    parts[start..start + part].copy_from_slice(&piece[part_of(part, place)]);
                }
            }
        }
        self.scatter_within(called, Some(&parts), receive)
    }

    pub(super) fn barrier_hosts(&mut self, called: &Called) -> Result<(), CollectiveError> {
        self.barrier_within(called)?;
        if self.leads() {
            self.between(called, schedule::barrier(self.seat()), MOVE, &[], &mut [])?;
        }
        self.barrier_within(called)
    }

    /// The bytes of each host and of all hosts; `lengths` is by rank, in host order.
    fn totals(&self, lengths: &[usize]) -> Result<(Vec<usize>, usize), CollectiveError> {
        let sum =
            |lengths: &[usize]| lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
        let mut rest = lengths;
        let mut totals = Vec::with_capacity(self.hosts.count());
        for size in self.hosts.sizes() {
            let (own, more) = rest.split_at(size);
            totals.push(sum(own).ok_or_else(|| system("gather", "the values are too long"))?);
            rest = more;
        }
        let total = sum(&totals).ok_or_else(|| system("gather", "the values are too long"))?;
        Ok((totals, total))
    }

    /// Both arguments are in host order.
    fn in_rank_order(&self, bytes: Vec<u8>, lengths: &[usize]) -> Gathered {
        let mut of_ranks = vec![0; self.ranks];
        for (rank, length) in self.hosts.by_host().zip(lengths) {
            of_ranks[rank] = *length;
        }
        let (bytes, ends) = self.hosts.in_rank_order(bytes, &of_ranks);
        Gathered { bytes, ends }
    }

    /// Unpacks what the leader has packed; the other ranks of the host gave nothing.
    fn unpack(&self, packed: Gathered) -> Result<Gathered, CollectiveError> {
        let mut bytes = packed.bytes;
        let start = self.ranks * LENGTH;
        let wrong = || system("gather", "the leader of this host sent what is no gathering");
        let ends = read_lengths(bytes.get(..start).ok_or_else(wrong)?);
        bytes.drain(..start);
        if !ends.is_sorted() || ends.last() != Some(&bytes.len()) {
            return Err(wrong());
        }
        Ok(Gathered { bytes, ends })
    }
}

/// The ends of the parts, then the bytes.
fn pack(gathered: &Gathered) -> Vec<u8> {
    let mut packed = Vec::with_capacity(gathered.ends.len() * LENGTH + gathered.bytes.len());
    packed.extend(gathered.ends.iter().flat_map(|end| (*end as u64).to_le_bytes()));
    packed.extend_from_slice(&gathered.bytes);
    packed
}

fn lengths_of(gathered: &Gathered) -> Vec<u8> {
    let starts = std::iter::once(0).chain(gathered.ends.iter().copied());
    let lengths = gathered.ends.iter().zip(starts).map(|(end, start)| (end - start) as u64);
    lengths.flat_map(u64::to_le_bytes).collect()
}

fn read_lengths(bytes: &[u8]) -> Vec<usize> {
    let length = |word: &[u8; LENGTH]| usize::try_from(u64::from_le_bytes(*word)).unwrap_or(usize::MAX);
    bytes.as_chunks().0.iter().map(length).collect()
}

/// Allocates a length that came from peers: fails instead of aborting the process.
fn zeros(bytes: usize) -> Result<Vec<u8>, CollectiveError> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|error| system("gather", error))?;
    room.resize(bytes, 0);
    Ok(room)
}
