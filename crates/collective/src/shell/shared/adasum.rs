//! Adasum: the first rank of each pair blends both vectors, level by level, and everybody copies rank 0's.
//!
//! The products are of whole vectors in one fixed order, so that the result has the bits that one rank alone would
//! compute.
#![expect(unsafe_code, reason = "blends shared memory")]

use super::calls::Call;
use super::exchange::rounds;
use super::group::{SLOT_BYTES, SharedGroup};
use crate::core::adasum::{blend, dots, pairs};
use crate::error::CollectiveError;
use phalanx_types::DType;

impl SharedGroup {
    /// Of private memory, through the staging slots.
    pub(super) fn adasum(&mut self, data: &mut [u8], call: &Call<'_>) -> Result<(), CollectiveError> {
        if data.as_ptr().align_offset(call.dtype.size()) != 0 {
            let mut aligned = vec![0_u64; data.len().div_ceil(8)];
            let aligned = &mut bytemuck::cast_slice_mut(&mut aligned)[..data.len()];
            aligned.copy_from_slice(data);
            self.adasum(aligned, call)?;
            data.copy_from_slice(aligned);
            return Ok(());
        }
        let mut other: Vec<u64> = Vec::new();
        let mut round = 0;
        for level in pairs(self.ranks) {
            let gives = level.iter().any(|(_, second)| *second == self.rank);
            let second = level.iter().find(|(first, _)| *first == self.rank).map(|(_, second)| *second);
            if second.is_some() {
                other.resize(data.len().div_ceil(8), 0);
            }
            let other: &mut [u8] = bytemuck::cast_slice_mut(&mut other);
            for range in rounds(data.len(), SLOT_BYTES) {
                let slot = self.slot();
                if gives {
                    self.stage(0, &data[range.clone()]);
                }
                self.agree_or_step(round, call, 0)?;
                if let Some(second) = second {
                    self.staged(second, slot, &mut other[range]);
                }
                round += 1;
            }
            if second.is_some() {
                combine(call.dtype, data, &other[..data.len()]);
            }
        }
        for range in rounds(data.len(), SLOT_BYTES) {
            let slot = self.slot();
            if self.rank == 0 {
                self.stage(0, &data[range.clone()]);
            }
            self.agree_or_step(round, call, 0)?;
            if self.rank != 0 {
                self.staged(0, slot, &mut data[range]);
            }
            round += 1;
        }
        Ok(())
    }

    /// Of buffers, where they stand: `offset` is the same in every segment.
    pub(super) fn adasum_shared(
        &mut self,
        offset: usize,
        length: usize,
        call: &Call<'_>,
    ) -> Result<(), CollectiveError> {
        self.agree(call, 0)?;
        for level in pairs(self.ranks) {
            if let Some((_, second)) = level.iter().find(|(first, _)| *first == self.rank) {
                let segments = &self.members.segments;
                // SAFETY: all ranks have arrived with this call. In each level nobody but this rank touches its own
                // bytes and those of the second rank, who does nothing more before the last level.
                let (own, other) = unsafe {
                    (segments[self.rank].write(offset, length), segments[*second].read(offset, length))
                };
                combine(call.dtype, own, other);
            }
            self.step()?;
        }
        if self.rank != 0 {
            let segments = &self.members.segments;
            // SAFETY: all levels are done, so rank 0's bytes are only read until all have passed the next step, and
            // nobody else touches the own ones.
            let (own, result) =
                unsafe { (segments[self.rank].write(offset, length), segments[0].read(offset, length)) };
            own.copy_from_slice(result);
        }
        self.step()
    }
}

fn combine(dtype: DType, into: &mut [u8], other: &[u8]) {
    let dots = dots(dtype, into, other);
    blend(dtype, into, other, dots);
}
