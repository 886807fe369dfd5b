//! Collectives that move values, through the staging slots.

use super::calls::SharedCall;
use super::group::{SLOT_BYTES, SharedGroup};
use super::reduce_shared::{check, whole};
use super::segment::system;
use crate::core::words::{Kind, Reduction};
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::ops::Range;

/// The values of all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    /// The values, in rank order.
    pub bytes: Vec<u8>,
    /// The end offset of each rank's values.
    pub ends: Vec<usize>,
}

impl Gathered {
    /// The values of one rank.
    pub fn part(&self, rank: usize) -> Option<&[u8]> {
        let start = if rank == 0 { 0 } else { *self.ends.get(rank - 1)? };
        self.bytes.get(start..*self.ends.get(rank)?)
    }
}

impl SharedGroup {
    /// Every rank gets the root's values.
    pub fn broadcast(
        &mut self,
        root: usize,
        data: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let kind = Kind::Broadcast { root: self.check_root(root)? };
        let call = plain(kind, dtype, data.len(), name)?;
        for (round, range) in rounds(data.len(), SLOT_BYTES).enumerate() {
            let slot = self.slot();
            if self.rank == root {
                self.stage(0, &data[range.clone()]);
            }
            self.agree_or_step(round, &call, 0)?;
            if self.rank != root {
                self.staged(root, slot, &mut data[range]);
            }
        }
        Ok(())
    }

    /// Every rank gets the values of all ranks; ranks may contribute different amounts.
    pub fn all_gather(&mut self, mine: &[u8], dtype: DType, name: &str) -> Result<Gathered, CollectiveError> {
        let call = SharedCall { count: 0, ..plain(Kind::AllGather, dtype, mine.len(), name)? };
        self.gather_for(mine, &call, true)
    }

    /// The root gets the values of all ranks, the others nothing; ranks may contribute different amounts.
    pub fn gather(
        &mut self,
        root: usize,
        mine: &[u8],
        dtype: DType,
        name: &str,
    ) -> Result<Option<Gathered>, CollectiveError> {
        let kind = Kind::Gather { root: self.check_root(root)? };
        let call = SharedCall { count: 0, ..plain(kind, dtype, mine.len(), name)? };
        let gathered = self.gather_for(mine, &call, self.rank == root)?;
        Ok((self.rank == root).then_some(gathered))
    }

    fn gather_for(
        &mut self,
        mine: &[u8],
        call: &SharedCall<'_>,
        wanted: bool,
    ) -> Result<Gathered, CollectiveError> {
        let mut gathered = Gathered::default();
        let mut lengths = vec![mine.len()];
        let mut round = 0;
        loop {
            let slot = self.stage(0, &mine[round_of(round, SLOT_BYTES, mine.len())]);
            self.agree_or_step(round, call, mine.len())?;
            if round == 0 {
                lengths = self.lengths();
                if wanted {
                    gathered = room_for(&lengths).map_err(|error| self.give_up(error))?;
                }
            }
            if wanted {
                for (rank, length) in lengths.iter().enumerate() {
                    let range = round_of(round, SLOT_BYTES, *length);
                    let start = gathered.ends[rank] - length;
                    self.staged(rank, slot, &mut gathered.bytes[start + range.start..start + range.end]);
                }
            }
            round += 1;
            if lengths.iter().all(|length| length.div_ceil(SLOT_BYTES) <= round) {
                return Ok(gathered);
            }
        }
    }

    /// Every rank gets one part of the combination of `all`, which holds a part for every rank.
    pub fn reduce_scatter(
        &mut self,
        all: &[u8],
        mine: &mut [u8],
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        check(mine.len(), dtype, reduction)?;
        let call =
            SharedCall { reduction: Some(reduction), ..plain(Kind::ReduceScatter, dtype, mine.len(), name)? };
        self.check_parts("reduce-scatter", all.len(), mine.len())?;
        self.exchange(&call, Some(all), mine.len(), |group, offset, range| {
            group.combine_staged(offset, &mut mine[range], dtype, reduction);
        })
    }

    /// Every rank gets its part of the root's values; `all` matters only on the root and holds a part for every rank.
    pub fn scatter(
        &mut self,
        root: usize,
        all: Option<&[u8]>,
        mine: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let call = plain(Kind::Scatter { root: self.check_root(root)? }, dtype, mine.len(), name)?;
        let all = all.filter(|_| self.rank == root);
        if self.rank == root {
            self.check_parts("scatter", all.map_or(0, <[u8]>::len), mine.len())?;
        }
        self.exchange(&call, all, mine.len(), |group, offset, range| {
            group.staged(root, offset, &mut mine[range]);
        })
    }

    /// Sends part `r` of `send` to rank `r`, and receives as part `r` what rank `r` sends.
    pub fn all_to_all(
        &mut self,
        send: &[u8],
        receive: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let part = send.len() / self.ranks;
        self.check_parts("all-to-all", send.len(), part)?;
        self.check_parts("all-to-all", receive.len(), part)?;
        let call = plain(Kind::AllToAll, dtype, part, name)?;
        self.exchange(&call, Some(send), part, |group, offset, range| {
            for rank in 0..group.ranks {
                let start = rank * part;
                group.staged(rank, offset, &mut receive[start + range.start..start + range.end]);
            }
        })
    }

    /// Stages the same range of every rank's part of `all`, range after range, and calls `take` with the offset of this
    /// rank's part in every slot.
    fn exchange(
        &mut self,
        call: &SharedCall<'_>,
        all: Option<&[u8]>,
        part: usize,
        mut take: impl FnMut(&SharedGroup, usize, Range<usize>),
    ) -> Result<(), CollectiveError> {
        let most = SLOT_BYTES / self.ranks / 64 * 64;
        for (round, range) in rounds(part, most).enumerate() {
            let slot = self.slot();
            if let Some(all) = all {
                for rank in 0..self.ranks {
                    let start = rank * part;
                    self.stage(rank * most, &all[start + range.start..start + range.end]);
                }
            }
            self.agree_or_step(round, call, 0)?;
            take(self, slot + self.rank * most, range);
        }
        Ok(())
    }

    pub(super) fn agree_or_step(
        &mut self,
        round: usize,
        call: &SharedCall<'_>,
        length: usize,
    ) -> Result<(), CollectiveError> {
        if round == 0 { self.agree(call, length) } else { self.step() }
    }

    fn check_parts(&self, what: &'static str, all: usize, part: usize) -> Result<(), CollectiveError> {
        let wanted = part.saturating_mul(self.ranks);
        if all == wanted { Ok(()) } else { Err(CollectiveError::Length { what, wanted, got: all }) }
    }
}

fn plain<'a>(
    kind: Kind,
    dtype: DType,
    length: usize,
    name: &'a str,
) -> Result<SharedCall<'a>, CollectiveError> {
    whole(length, dtype)?;
    Ok(SharedCall { kind, reduction: None, dtype, count: length / dtype.size(), name, place: 0 })
}

/// The ranges of `length` bytes that are transferred one after the other: at least one, which may be empty.
pub(super) fn rounds(length: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length.div_ceil(most).max(1)).map(move |round| round_of(round, most, length))
}

fn round_of(round: usize, most: usize, length: usize) -> Range<usize> {
    length.min(round.saturating_mul(most))..length.min((round + 1).saturating_mul(most))
}

/// Allocates memory for the values of all ranks; their lengths came from peers.
fn room_for(lengths: &[usize]) -> Result<Gathered, CollectiveError> {
    let mut ends = Vec::with_capacity(lengths.len());
    let mut end = 0_usize;
    for length in lengths {
        end = end.checked_add(*length).ok_or_else(|| system("gather", "the values are too long"))?;
        ends.push(end);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(end).map_err(|error| system("gather", error))?;
    bytes.resize(end, 0);
    Ok(Gathered { bytes, ends })
}
