//! One rank's memory segment, mapped by all ranks of the host.
#![expect(unsafe_code, reason = "maps memory and hands out what stands in it")]

use super::header::Header;
use crate::error::CollectiveError;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

pub(super) const PAGE: usize = 4096;
/// The bytes before the staging slots.
pub(super) const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(PAGE);

/// How peers open a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentAddress {
    pub pid: u32,
    pub fd: i32,
    pub bytes: u64,
    /// Also in the segment itself: the descriptor's number may have been given to another file since.
    pub token: u64,
}

/// Memory that other processes map too. The kernel frees it when the last of them is gone, however they end.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    /// Kept open by the owner, for the peers to open.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives until the drop. Through `&Segment` safe code
// reaches only the header, whose fields are atomic; every access to the rest justifies itself.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment of `bytes` after the header, every page of it touched.
    pub(super) fn create(bytes: usize) -> Result<(Segment, SegmentAddress), CollectiveError> {
        let too_large = CollectiveError::System {
            what: "make a shared segment",
            problem: format!("{bytes} bytes are too many"),
        };
        let bytes = bytes.checked_add(HEADER_BYTES + PAGE - 1).ok_or(too_large)? / PAGE * PAGE;
        let file = rustix::fs::memfd_create("phalanx", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|e| system("make a shared segment", e))?;
        // Reserves the memory too: an error now is better than a signal when a page is touched.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)
            .map_err(|e| system("reserve a shared segment", e))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|e| system("seal a shared segment", e))?;
        let mut token = [0; 8];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| system("draw a token", e))?;
        let token = u64::from_ne_bytes(token);
        let address = SegmentAddress {
            pid: rustix::process::getpid().as_raw_nonzero().get().unsigned_abs(),
            fd: file.as_raw_fd(),
            bytes: bytes as u64,
            token,
        };
        let mut segment = Segment::map(&file, bytes)?;
        segment.file = Some(file);
        segment.header().identity.token.store(token, Ordering::Release);
        Ok((segment, address))
    }

    /// Maps the segment of a peer, which must be of `bytes`.
    pub(super) fn open(address: &SegmentAddress, bytes: usize) -> Result<Segment, CollectiveError> {
        let wrong = |problem: &str| CollectiveError::System {
            what: "map a peer's segment",
            problem: problem.to_owned(),
        };
        let path = format!("/proc/{}/fd/{}", address.pid, address.fd);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path.as_str(), flags, Mode::empty())
            .map_err(|e| system("open a peer's segment", e))?;
        // Only a memfd has seals; for any other file this is an error.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|e| system("map a peer's segment", e))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(wrong("it can shrink"));
        }
        let size = rustix::fs::fstat(&file).map_err(|e| system("map a peer's segment", e))?.st_size;
        if usize::try_from(size) != Ok(bytes) || address.bytes != bytes as u64 {
            return Err(wrong("it has another size than the own one"));
        }
        let segment = Segment::map(&file, bytes)?;
        if segment.header().identity.token.load(Ordering::Acquire) != address.token {
            return Err(wrong("it has another token"));
        }
        Ok(segment)
    }

    fn map(file: impl AsFd, bytes: usize) -> Result<Segment, CollectiveError> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory. The file cannot shrink
        // (sealed), so the mapping stays backed.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }
        .map_err(|e| system("map a segment", e))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| CollectiveError::System {
            what: "map a segment",
            problem: "the kernel gave no address".to_owned(),
        })?;
        let segment = Segment { base, bytes, file: None };
        for advice in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite] {
            // SAFETY: the range is the whole mapping made above; neither advice changes its contents. Both only make
            // it faster, so a kernel that refuses does no harm.
            let advised = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, advice) };
            if let Err(error) = advised {
                tracing::debug!(?advice, %error, "the kernel refused advice about shared memory");
            }
        }
        Ok(segment)
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header (`create` and `open` see to it: both sizes include one), is
        // aligned to pages, and lives as long as `self`. Every bit pattern is a valid header, and all fields are
        // atomic, so that other processes may write at any time.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// `length` bytes from `offset`, to read.
    ///
    /// # Safety
    /// No code may write them while the reference lives.
    pub(super) unsafe fn read(&self, offset: usize, length: usize) -> &[u8] {
        // SAFETY: within the mapping, as `at` checks, which lives as long as `self`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.at(offset, length), length) }
    }

    /// `length` bytes from `offset`, to write.
    ///
    /// # Safety
    /// No other code may read or write them while the reference lives.
    #[expect(clippy::mut_from_ref, reason = "the caller vouches that there is no other reference")]
    pub(super) unsafe fn write(&self, offset: usize, length: usize) -> &mut [u8] {
        // SAFETY: within the mapping, as `at` checks, which lives as long as `self`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, length), length) }
    }

    /// The address of `length` bytes from `offset`.
    ///
    /// # Panics
    /// Panics if they are not within the segment, behind its header: offsets come from this rank's calls, never from a
    /// peer.
    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(
            offset >= HEADER_BYTES && end.is_some_and(|end| end <= self.bytes),
            "offsets stay in the segment"
        );
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, no other code unmaps it, and every pointer into it borrows `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "could not unmap a segment");
        }
    }
}

pub(super) fn system(what: &'static str, error: impl std::fmt::Display) -> CollectiveError {
    CollectiveError::System { what, problem: error.to_string() }
}
