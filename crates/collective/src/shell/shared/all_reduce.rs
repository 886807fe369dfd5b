//! All-reduce and reduce of private memory, through the staging slots.
#![expect(unsafe_code, reason = "copies to and from shared memory")]

use super::calls::SharedCall;
use super::group::{SLOT_BYTES, SharedGroup};
use super::reduce_shared::{SMALL, check, combine_others, part};
use crate::core::words::{Kind, Reduction};
use crate::error::CollectiveError;
use phalanx_types::DType;

/// Bytes copied in, combined and copied out while they stay in the caches.
const BLOCK: usize = 256 << 10;
/// Bytes combined while they stay in the L1 cache.
const CHUNK: usize = 16 << 10;

impl SharedGroup {
    /// Combines `data` over all ranks; every rank gets the result in `data`.
    pub fn all_reduce(
        &mut self,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        check(data.len(), dtype, reduction)?;
        let call = SharedCall::all_reduce(data.len(), dtype, reduction, name);
        if data.len() <= SMALL {
            self.all_reduce_small(data, &call)
        } else {
            self.reduce_staged(data, &call, true)
        }
    }

    /// Combines `data` over all ranks into the root's `data`; that of the other ranks is unchanged.
    pub fn reduce(
        &mut self,
        root: usize,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        check(data.len(), dtype, reduction)?;
        let kind = Kind::Reduce { root: self.check_root(root)? };
        let call = SharedCall { kind, ..SharedCall::all_reduce(data.len(), dtype, reduction, name) };
        self.reduce_staged(data, &call, self.rank == root)
    }

    /// Every rank combines everything: one step.
    pub(super) fn all_reduce_small(
        &mut self,
        data: &mut [u8],
        call: &SharedCall<'_>,
    ) -> Result<(), CollectiveError> {
        let slot = self.stage(0, data);
        self.agree(call, 0)?;
        let reduction = call.reduction.unwrap_or(Reduction::Sum);
        self.combine_staged(slot, data, call.dtype, reduction);
        Ok(())
    }

    /// Writes `data` into this rank's slot for the next step, at `offset`. Returns where the slot begins.
    pub(super) fn stage(&self, offset: usize, data: &[u8]) -> usize {
        let slot = self.slot();
        // SAFETY: all ranks have read what stood in this slot, three steps ago, before they arrived at the last step
        // (see the module), and will read it again only when this rank has arrived at the next.
        unsafe { self.members.segments[self.rank].write(slot + offset, data.len()) }.copy_from_slice(data);
        slot
    }

    /// Reads what `rank` has staged for the last step or, if the call leaves it in place that long, the step before.
    pub(super) fn staged(&self, rank: usize, offset: usize, into: &mut [u8]) {
        // SAFETY: all ranks have arrived at the last step and write this slot again only when this rank has arrived
        // at the next (see the module).
        into.copy_from_slice(unsafe { self.members.segments[rank].read(offset, into.len()) });
    }

    /// Combines what all ranks have staged at `offset` for the last step into `data`.
    pub(super) fn combine_staged(&self, offset: usize, data: &mut [u8], dtype: DType, reduction: Reduction) {
        if data.as_ptr().align_offset(dtype.size()) != 0 {
            let mut aligned = vec![0_u64; data.len().div_ceil(8)];
            let aligned = &mut bytemuck::cast_slice_mut(&mut aligned)[..data.len()];
            self.combine_staged(offset, aligned, dtype, reduction);
            return data.copy_from_slice(aligned);
        }
        self.staged(0, offset, data);
        // SAFETY: as in `staged`.
        unsafe { combine_others(&self.members, offset, None, data, dtype, reduction) };
    }

    /// Bytes staged in one step of a long call.
    pub(super) fn block_bytes(&self) -> usize {
        if self.crowded { SLOT_BYTES } else { BLOCK }
    }

    fn reduce_staged(
        &mut self,
        data: &mut [u8],
        call: &SharedCall<'_>,
        wanted: bool,
    ) -> Result<(), CollectiveError> {
        if data.as_ptr().align_offset(call.dtype.size()) != 0 {
            let mut aligned = vec![0_u64; data.len().div_ceil(8)];
            let aligned = &mut bytemuck::cast_slice_mut(&mut aligned)[..data.len()];
            aligned.copy_from_slice(data);
            self.reduce_staged(aligned, call, wanted)?;
            data.copy_from_slice(aligned);
            return Ok(());
        }
        self.stage_block(&data[..data.len().min(self.block_bytes())]);
        self.agree(call, 0)?;
        self.reduce_blocks(data, data.len(), call, wanted)
    }

    /// Pipelines the blocks, three at a time: one is copied in, the block before it is combined (each rank combines a
    /// part), and the block before that is copied out. Each block takes one step. The first block has been copied in
    /// already.
    ///
    /// If `data` is shorter than `whole`, it is one block that is used for all blocks; then `wanted` must be false.
    pub(super) fn reduce_blocks(
        &mut self,
        data: &mut [u8],
        whole: usize,
        call: &SharedCall<'_>,
        wanted: bool,
    ) -> Result<(), CollectiveError> {
        let block = self.block_bytes();
        let blocks = whole.div_ceil(block).max(1);
        let apart = data.len() == whole;
        let bounds = |index: usize| {
            let length = block.min(whole - index * block);
            let start = if apart { index * block } else { 0 };
            start..start + length
        };
        for index in 1..blocks + 2 {
            if index <= blocks {
                self.reduce_own_part(&mut data[bounds(index - 1)], call, wanted);
            }
            if index >= 2 && wanted {
                let done = &mut data[bounds(index - 2)];
                for rank in self.others() {
                    let part = part(done.len(), rank, self.ranks);
                    self.staged(rank, self.slot_back(2) + part.start, &mut done[part]);
                }
            }
            if index < blocks {
                self.stage_block(&data[bounds(index)]);
            }
            if index <= blocks {
                self.step()?;
            }
        }
        Ok(())
    }

    /// Stages only what other ranks combine. The result goes where this rank's own part would be in its slot.
    fn stage_block(&self, block: &[u8]) {
        for rank in self.others() {
            let part = part(block.len(), rank, self.ranks);
            self.stage(part.start, &block[part]);
        }
    }

    /// Combines this rank's part of the block that was staged for the last step: in its slot and, if `wanted`, in
    /// `data` too.
    fn reduce_own_part(&self, data: &mut [u8], call: &SharedCall<'_>, wanted: bool) {
        let part = part(data.len(), self.rank, self.ranks);
        let reduction = call.reduction.unwrap_or(Reduction::Sum);
        for start in part.clone().step_by(CHUNK) {
            let range = start..part.end.min(start + CHUNK);
            let offset = self.slot_back(1) + start;
            // SAFETY: no rank reads this part of this rank's slot before this rank arrives at the next step, and no
            // other rank ever writes it.
            let result = unsafe { self.members.segments[self.rank].write(offset, range.len()) };
            if self.rank == 0 {
                result.copy_from_slice(&data[range.clone()]);
            } else {
                self.staged(0, offset, result);
            }
            let own = (self.rank > 0).then_some((self.rank, &data[range.clone()]));
            // SAFETY: as in `staged`; the own slot is not read.
            unsafe { combine_others(&self.members, offset, own, result, call.dtype, reduction) };
            if wanted {
                data[range].copy_from_slice(result);
            }
        }
    }

    /// The other ranks, the next one first, so that not all read from the same rank at the same time.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        (self.rank + 1..self.ranks).chain(0..self.rank)
    }

    pub(super) fn check_root(&self, root: usize) -> Result<u32, CollectiveError> {
        // There are never more ranks than the segment has lines for.
        if root < self.ranks {
            Ok(root as u32)
        } else {
            Err(CollectiveError::NoRank { rank: root, ranks: self.ranks })
        }
    }
}
