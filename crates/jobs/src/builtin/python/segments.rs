//! Memory that a node and a worker share: arguments are written once and results are sent from where they lie.
#![expect(unsafe_code, reason = "maps memory that another process writes or reads")]

use super::packets::send;
use super::protocol::{Control, POOLED, aligned};
use bytes::Bytes;
use memmap2::{Mmap, MmapMut};
use phalanx_shared::Segment;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The smallest segment; most of it is never touched.
const SMALLEST: usize = 1 << 20;

/// Memory of the node in which a worker finds the data of a call.
#[derive(Debug)]
pub(super) struct ArgumentSegment {
    pub(super) id: u32,
    /// The worker has mapped it.
    pub(super) known: bool,
    /// A call that has not been answered is in it, or the worker kept something of it.
    pub(super) busy: bool,
    file: OwnedFd,
    map: MmapMut,
}

impl ArgumentSegment {
    pub(super) fn new(id: u32, len: usize) -> io::Result<Self> {
        let len = len.checked_next_power_of_two().unwrap_or(len).max(SMALLEST);
        let file = memfd_create("phalanx-call", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        // Without this the worker could shorten it, and writing to it would end the node.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: the file cannot get shorter, and only this node writes to it; the worker reads what was written
        // before the message about it, and is told when it changes.
        let map = unsafe { MmapMut::map_mut(&file)? };
        Ok(Self { id, known: false, busy: false, file, map })
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Copies parts into it, each to an aligned place.
    pub(super) fn write<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) {
        let mut at = 0;
        for part in parts {
            self.map[at..at + part.len()].copy_from_slice(part);
            at = aligned(at + part.len());
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Segments that are not used any more.
#[derive(Debug)]
pub(super) struct FreedSegments {
    /// Those that the worker is told of with its next call.
    pub(super) list: Mutex<Vec<u32>>,
    /// To the worker, which gives large ones back to the system when it is told, at once.
    pub(super) socket: OwnedFd,
}

pub(super) type Freed = Arc<FreedSegments>;

/// Memory of a worker in which the node finds results. The worker must not write to it until it is told that it may; one
/// that does spoils its own results.
#[derive(Debug, Clone)]
pub(super) struct ResultSegment {
    id: u32,
    segment: Arc<Segment>,
}

impl ResultSegment {
    /// Maps what a worker sent. Large results are often the arguments of the next call, and never read here.
    ///
    /// # Errors
    /// It cannot be mapped, or could get shorter while it is.
    pub(super) fn map(id: u32, file: OwnedFd) -> io::Result<Self> {
        Ok(Self { id, segment: Segment::adopt_touching(file, POOLED)? })
    }

    pub(super) fn len(&self) -> usize {
        self.segment.len()
    }

    /// The first bytes of it. The segment is freed when the last reference to them is gone, here or in the process
    /// that asked for the call.
    pub(super) fn bytes(&self, len: usize, freed: &Freed) -> Option<Bytes> {
        self.segment.view(
            0,
            len,
            FreeAfter { id: self.id, is_large: self.len() > POOLED, freed: freed.clone() },
        )
    }
}

/// Frees a segment of a worker when it is dropped.
struct FreeAfter {
    id: u32,
    is_large: bool,
    freed: Freed,
}

impl Drop for FreeAfter {
    fn drop(&mut self) {
        let message = Control::Free(self.id).encode();
        let free = [IoSlice::new(&message)];
        // A worker that is gone has given all its memory back; one that is busy is told later.
        let is_told =
            self.is_large && matches!(send(self.freed.socket.as_fd(), &free, None, false), Ok(true));
        if !is_told {
            self.freed.list.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        }
    }
}

/// Maps a segment of the node, for a stand-in.
pub(super) fn map_arguments(file: OwnedFd) -> io::Result<Mmap> {
    // SAFETY: the node seals its segments, and does not write to one while a call in it is not answered.
    unsafe { Mmap::map(&File::from(file)) }
}
