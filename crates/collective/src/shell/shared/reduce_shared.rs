//! All-reduce of buffers in shared memory, without copies.
#![expect(unsafe_code, reason = "combines shared memory")]

use super::abort::Members;
use super::buffers::SharedBuffer;
use super::calls::SharedCall;
use super::group::SharedGroup;
use crate::core::numbers;
use crate::core::words::{Kind, Reduction};
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Up to this many bytes every rank combines everything by itself: one step instead of two.
pub(super) const SMALL: usize = 16 << 10;
/// Parts are cut at cache lines.
const LINE: usize = 64;
/// Bytes read, combined and written while they stay in the L1 cache.
const BLOCK: usize = 16 << 10;
/// Bytes claimed at a time.
const PIECE: usize = 256 << 10;

impl SharedGroup {
    /// Combines a range of bytes of a buffer over all ranks; every rank's copy gets the result.
    ///
    /// # Errors
    /// The group is over, ranks make different calls, or the range is not whole elements.
    pub fn all_reduce_shared(
        &mut self,
        buffer: &mut SharedBuffer,
        range: Range<usize>,
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let result = self.reduce_in(buffer, range, dtype, reduction, name);
        buffer.after(result)
    }

    fn reduce_in(
        &mut self,
        buffer: &SharedBuffer,
        range: Range<usize>,
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let offset = self.place_in(buffer, range.clone())?;
        let length = range.len();
        check(length, dtype, reduction)?;
        if !offset.is_multiple_of(dtype.size()) {
            let wanted = range.start.next_multiple_of(dtype.size());
            return Err(CollectiveError::Length { what: "the start of a range", wanted, got: range.start });
        }
        let call = SharedCall { place: offset, ..SharedCall::all_reduce(length, dtype, reduction, name) };
        if length <= SMALL {
            let members = std::sync::Arc::clone(&self.members);
            // SAFETY: as in `SharedBuffer::slice_mut`; a small call touches only staging slots of other ranks.
            let own = unsafe { members.segments[self.rank].write(offset, length) };
            return self.all_reduce_small(own, &call);
        }
        self.agree(&call, 0)?;
        self.reduce_parts(offset, length, dtype, reduction);
        self.step()
    }

    /// Combines this rank's part and pieces that other ranks have not begun, between the two steps of a call.
    pub(super) fn reduce_parts(&mut self, offset: usize, length: usize, dtype: DType, reduction: Reduction) {
        let (members, joined) = (&*self.members, self.joined.as_slice());
        let work = |range: Range<usize>| {
            for start in range.clone().step_by(BLOCK) {
                let length = BLOCK.min(range.end - start);
                // SAFETY: all ranks have arrived with this call and none passes the next step before all have done
                // their parts, so only the rank that owns the part, or that claimed the piece, touches these bytes of
                // any segment.
                unsafe {
                    if joined.is_empty() {
                        reduce_block(members, offset + start, length, dtype, reduction);
                    } else {
                        reduce_block_of_some(members, joined, offset + start, length, dtype, reduction);
                    }
                }
            }
        };
        if length < 2 * PIECE {
            return work(part(length, self.rank, self.ranks));
        }
        // First this rank's part, then pieces that others have not begun. Which rank combines a piece does not change
        // its bits.
        for owner in (self.rank..self.ranks).chain(0..self.rank) {
            let part = part(length, owner, self.ranks);
            let pieces = part.len().div_ceil(PIECE) as u64;
            let next = &members.segments[owner].header().claims.next;
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed).wrapping_sub(self.claimed[owner]);
                if piece >= pieces {
                    break;
                }
                let start = part.start + piece as usize * PIECE;
                work(start..part.end.min(start + PIECE));
            }
            // Every rank makes one claim beyond the last piece before it stops.
            self.claimed[owner] = self.claimed[owner].wrapping_add(pieces + self.ranks as u64);
        }
    }
}

/// The part of `length` bytes that `rank` combines.
pub(super) fn part(length: usize, rank: usize, ranks: usize) -> Range<usize> {
    let lines = length.div_ceil(LINE);
    let cut = |rank: usize| (lines * rank / ranks * LINE).min(length);
    cut(rank)..cut(rank + 1)
}

/// Combines the same bytes of all segments, in the order of ranks, and writes the result to all.
///
/// # Safety
/// No other code may touch these bytes of any segment meanwhile.
unsafe fn reduce_block(members: &Members, offset: usize, length: usize, dtype: DType, reduction: Reduction) {
    // SAFETY: the caller vouches for these bytes.
    let result = unsafe { members.segments[0].write(offset, length) };
    // SAFETY: as above; of rank 0's segment nothing is read.
    unsafe { combine_others(members, offset, None, result, dtype, reduction) };
    for segment in &members.segments[1..] {
        // SAFETY: as above; the slices that were read are gone.
        unsafe { segment.write(offset, length) }.copy_from_slice(result);
    }
}

/// As [`reduce_block`], with zeros for the joined ranks; their segments are not touched.
///
/// # Safety
/// No other code may touch these bytes of the segments of the other ranks meanwhile.
unsafe fn reduce_block_of_some(
    members: &Members,
    joined: &[bool],
    offset: usize,
    length: usize,
    dtype: DType,
    reduction: Reduction,
) {
    static ZEROS: [u64; BLOCK / 8] = [0; BLOCK / 8];
    let of = |rank: usize| {
        if joined[rank] {
            return &bytemuck::cast_slice(&ZEROS)[..length];
        }
        // SAFETY: the caller vouches for these bytes.
        unsafe { members.segments[rank].read(offset, length) }
    };
    let mut result = [0_u64; BLOCK / 8];
    let result = &mut bytemuck::cast_slice_mut(&mut result)[..length];
    result.copy_from_slice(of(0));
    let others: Vec<&[u8]> = (1..joined.len()).map(of).collect();
    numbers::combine_all(dtype, reduction, result, &others);
    for (segment, _) in members.segments.iter().zip(joined).filter(|(_, joined)| !**joined) {
        // SAFETY: as above; the slices that were read are gone.
        unsafe { segment.write(offset, length) }.copy_from_slice(result);
    }
}

/// Combines the values of ranks 1.. at `offset`, in rank order, into `first`, which holds rank 0's. `own` replaces the
/// values of the rank it names.
///
/// # Safety
/// No rank may write these bytes of segments 1.. meanwhile, except the segment of the rank that `own` names.
pub(super) unsafe fn combine_others(
    members: &Members,
    offset: usize,
    own: Option<(usize, &[u8])>,
    first: &mut [u8],
    dtype: DType,
    reduction: Reduction,
) {
    const FEW: usize = 15;
    let length = first.len();
    let of = |rank: usize| match own {
        Some((own, values)) if own == rank => values,
        // SAFETY: the caller vouches for these bytes.
        _ => unsafe { members.segments[rank].read(offset, length) },
    };
    let others = members.segments.len() - 1;
    if others <= FEW {
        let mut slices: [&[u8]; FEW] = [&[]; FEW];
        for (index, slice) in slices[..others].iter_mut().enumerate() {
            *slice = of(index + 1);
        }
        numbers::combine_all(dtype, reduction, first, &slices[..others]);
    } else {
        let slices: Vec<&[u8]> = (1..=others).map(of).collect();
        numbers::combine_all(dtype, reduction, first, &slices);
    }
}

/// Checks that this many bytes can be reduced element by element.
pub(super) fn check(length: usize, dtype: DType, reduction: Reduction) -> Result<(), CollectiveError> {
    if reduction == Reduction::Adasum || !numbers::supports(dtype, reduction) {
        return Err(CollectiveError::DType { what: "a reduction in shared memory", dtype });
    }
    whole(length, dtype)
}

/// Checks that the bytes are whole elements.
pub(super) fn whole(length: usize, dtype: DType) -> Result<(), CollectiveError> {
    if length.is_multiple_of(dtype.size()) {
        return Ok(());
    }
    let wanted = length.next_multiple_of(dtype.size());
    Err(CollectiveError::Length { what: "a tensor in bytes", wanted, got: length })
}

impl<'a> SharedCall<'a> {
    pub(super) fn all_reduce(
        length: usize,
        dtype: DType,
        reduction: Reduction,
        name: &'a str,
    ) -> SharedCall<'a> {
        let count = length / dtype.size();
        SharedCall { kind: Kind::AllReduce, reduction: Some(reduction), dtype, count, name, place: 0 }
    }
}
