//! Buffers in shared memory, which collectives reduce in place.
#![expect(unsafe_code, reason = "hands out slices of shared memory")]

use super::abort::Members;
use super::group::SharedGroup;
use super::segment::{PAGE, system};
use crate::error::CollectiveError;
use bytemuck::Pod;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A range in the memory of every rank of a group; this rank's copy of it can be read and written.
///
/// One thread may fill it while another makes calls with other buffers of the group.
pub struct SharedBuffer {
    members: Arc<Members>,
    rank: usize,
    offset: usize,
    bytes: usize,
    /// A call with it has failed, and other ranks may still be writing.
    failed: Option<CollectiveError>,
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, offset, bytes, .. } = self;
        f.debug_struct("SharedBuffer")
            .field("rank", rank)
            .field("offset", offset)
            .field("bytes", bytes)
            .finish()
    }
}

impl SharedBuffer {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// This rank's copy.
    ///
    /// # Errors
    /// A call with this buffer has failed, or it does not hold whole elements.
    pub fn slice<T: Pod>(&self) -> Result<&[T], CollectiveError> {
        self.check()?;
        // SAFETY: as in `slice_mut`; `&self` keeps a call and `slice_mut` away while the slice lives.
        let bytes = unsafe { self.members.segments[self.rank].read(self.offset, self.bytes) };
        bytemuck::try_cast_slice(bytes).map_err(|error| system("take a shared buffer as a slice", error))
    }

    /// This rank's copy, to change.
    ///
    /// # Errors
    /// As [`SharedBuffer::slice`].
    pub fn slice_mut<T: Pod>(&mut self) -> Result<&mut [T], CollectiveError> {
        self.check()?;
        // SAFETY: no other buffer of this rank has these bytes, and a buffer cannot be cloned. A peer touches them only
        // between the two steps of `all_reduce_shared`: it enters when this rank has arrived at the first step and
        // leaves before this rank gets past the second. That call has `&mut` of the buffer, so no slice lives
        // meanwhile. When it fails in between, the buffer is failed, and then `check` refuses.
        let bytes = unsafe { self.members.segments[self.rank].write(self.offset, self.bytes) };
        bytemuck::try_cast_slice_mut(bytes).map_err(|error| system("take a shared buffer as a slice", error))
    }

    fn check(&self) -> Result<(), CollectiveError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Records how a call with it ended.
    pub(super) fn after(&mut self, result: Result<(), CollectiveError>) -> Result<(), CollectiveError> {
        if let Err(error @ (CollectiveError::Aborted { .. } | CollectiveError::System { .. })) = &result {
            self.failed = Some(error.clone());
        }
        result
    }
}

impl SharedGroup {
    /// Takes `bytes` of the room for buffers. All ranks must make the same buffers in the same order. The room is freed
    /// when the group and all its buffers are dropped.
    ///
    /// # Errors
    /// There is not enough room left.
    pub fn buffer(&mut self, bytes: usize) -> Result<SharedBuffer, CollectiveError> {
        let align = if bytes >= PAGE { PAGE } else { 64 };
        let offset = self.allocated.next_multiple_of(align);
        let room = self.members.segments[self.rank].bytes();
        if offset > room || bytes > room - offset {
            let got = room.saturating_sub(offset);
            return Err(CollectiveError::Length { what: "a shared buffer", wanted: bytes, got });
        }
        self.allocated = offset + bytes;
        Ok(SharedBuffer { members: Arc::clone(&self.members), rank: self.rank, offset, bytes, failed: None })
    }

    /// The offset of a range of a buffer in every segment.
    pub(super) fn place_in(
        &self,
        buffer: &SharedBuffer,
        range: Range<usize>,
    ) -> Result<usize, CollectiveError> {
        self.check()?;
        buffer.check()?;
        let ours = Arc::ptr_eq(&buffer.members, &self.members);
        if !ours || range.start > range.end || range.end > buffer.bytes {
            return Err(CollectiveError::Length {
                what: "a range of a shared buffer of this group",
                wanted: range.end.max(range.start),
                got: if ours { buffer.bytes } else { 0 },
            });
        }
        Ok(buffer.offset + range.start)
    }
}
