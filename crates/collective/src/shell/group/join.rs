//! Joining over several hosts: ranks that have no more values.
//!
//! ```text
//!   within a host   a joined rank calls `join`, and the next call of the others differs from that. So all ranks of
//!                   the host exchange their calls, make the call of those that have not joined (the joined ranks
//!                   with zeros), and go on
//!   between hosts   when all ranks of a host have joined, its leader joins the other leaders, and the other ranks
//!                   of the host wait for it
//! ```
//! A rank that has not joined does no extra work until a rank of its own host has joined.

use super::buffer::Words;
use super::tiers::{Called, Within};
use super::{Group, Reach, system};
use crate::core::hosts::renumber;
use crate::core::joined::joining;
use crate::core::schedule::{self, Area};
use crate::core::traffic::program_bytes;
use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use crate::error::CollectiveError;
use crate::shell::links::Joining;
use crate::shell::shared::Gathered;
use phalanx_types::DType;
use std::cell::Cell;

/// Bytes of a number that ranks exchange.
const NUMBER: usize = size_of::<u64>();

impl Group {
    /// Declares that this rank has no more values. Until all ranks have joined it takes part with zeros in the sums and
    /// averages of the others by [`Group::all_reduce`], [`Group::all_reduce_buffer`] or [`Group::all_reduce_grouped`];
    /// an average is still over all ranks.
    ///
    /// Returns the rank that joined last. Among ranks that joined between the same two calls it is the highest.
    ///
    /// # Errors
    /// As [`Group::all_reduce`]; any other call of a rank that has not joined is a mismatch.
    pub fn join(&mut self) -> Result<usize, CollectiveError> {
        self.guard(|group| match (&mut group.shared, group.reach) {
            (_, Reach::Alone) => Ok(group.rank),
            (Some(shared), Reach::Host) => {
                let mut followed = Vec::new();
                let last = shared.join_each(|bytes| followed.push(bytes))?;
                for bytes in followed {
                    group.count(Kind::AllReduce, bytes);
                }
                Ok(last)
            }
            _ => group.join_hosts(),
        })
    }

    fn join_hosts(&mut self) -> Result<usize, CollectiveError> {
        let since = self.sequence;
        let (called, last) = loop {
            let called = Called::new(joining(self.sequence));
            let joined = self.attempt(&called, Kind::AllGather, NUMBER, |shared, mark| {
                shared.all_gather(&since.to_le_bytes(), DType::U8, mark)
            })?;
            match joined {
                Within::Alone => break (called, self.rank),
                Within::Done(all) => {
                    let last = self.last_here(&all);
                    break (called, last);
                }
                Within::Joined(signature) => self.follow(signature)?,
            }
        };
        let mut end = [0; 2 * NUMBER];
        if self.leads() {
            let (last, next) = self.join_leaders(last)?;
            end[..NUMBER].copy_from_slice(&(last as u64).to_le_bytes());
            end[NUMBER..].copy_from_slice(&next.to_le_bytes());
        }
        self.broadcast_within(&called, 0, &mut end)?;
        let (numbers, _) = end.as_chunks();
        let [last, next] = [0, 1].map(|index: usize| u64::from_le_bytes(numbers[index]));
        self.sequence = next;
        let known = usize::try_from(last).ok().filter(|last| *last < self.ranks);
        known.ok_or_else(|| system("join", format!("there is no rank {last} that could have joined last")))
    }

    /// The rank of this host that joined last, given when each of them joined.
    fn last_here(&self, all: &Gathered) -> usize {
        let members = self.hosts.members(self.hosts.seat(self.rank).0);
        let since = |place: usize| all.part(place).and_then(|bytes| bytes.first_chunk()).copied();
        let joined =
            members.iter().enumerate().map(|(place, rank)| (since(place).map(u64::from_le_bytes), *rank));
        joined.max().map_or(self.rank, |(_, rank)| rank)
    }

    /// Takes part with zeros in a call of other ranks of this host.
    fn follow(&mut self, signature: Signature) -> Result<(), CollectiveError> {
        self.sequence += 1;
        let Signature { dtype, reduction, count, .. } = signature;
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(dtype.size()));
        let room = bytes.ok_or_else(|| system("join", "a call is longer than memory"))?;
        let mut zeros = Words::try_zeros(room).map_err(|error| system("join", error))?;
        let reduction = reduction.unwrap_or(Reduction::Sum);
        self.all_reduce_hosts(&Called::new(signature), zeros.get_mut(), dtype, reduction)
    }

    /// Takes part with zeros in the calls of other hosts. Returns the rank that joined last and the number of the next
    /// call; `last` is the rank of this host that joined last.
    fn join_leaders(&mut self, last: usize) -> Result<(usize, u64), CollectiveError> {
        let Some(links) = &self.links else { return Ok((last, self.sequence + 1)) };
        let (seat, leaders) = (self.seat(), self.hosts.leaders());
        let sent = Cell::new(0);
        let program = |signature: &Signature, algorithm: Algorithm| {
            let mut program = schedule::all_reduce(algorithm, seat, signature.count as usize, Area::Output);
            sent.set(sent.get() + program_bytes(&program, signature.dtype.size()));
            renumber(&mut program, &leaders);
            program
        };
        let joining = Joining { sequence: self.sequence, ranks: self.ranks, last };
        let joined = links.with(|links| links.join(joining, program), || self.aborted());
        self.sent += sent.get();
        joined
    }
}
