//! Bytes from one process to another of the same host, through memory that both map.
//!
//! ```text
//!   a pair:  | header | header | bytes up | bytes down |     up: to the leader, down: from it
//! ```
//! One process writes a ring and one reads it. A reader that is about to sleep says so in the header; the writer then
//! rings the doorbell, a byte on the stream between the two.
#![expect(unsafe_code, reason = "maps memory that another process writes")]

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The bytes of one ring.
const CAPACITY: usize = 64 << 10;
const HEADERS: usize = 4096;
const WHOLE: usize = HEADERS + 2 * CAPACITY;

/// Counters that two processes change; each has a cache line.
#[repr(C, align(64))]
struct Header {
    /// Bytes written so far.
    written: Line<AtomicU64>,
    /// Bytes read so far.
    read: Line<AtomicU64>,
    /// 1 while the reader sleeps, or is about to.
    asleep: Line<AtomicU32>,
}

#[repr(C, align(64))]
struct Line<T>(T);

/// Where another process finds a pair of rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingAddress {
    pid: u32,
    fd: i32,
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    /// Kept open by the process that made it, for the other to open.
    _file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to the process and lives until the drop. Headers are atomic; bytes are only reached through
// `Writer` and `Reader`, of which there is one each per ring.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn map(file: impl AsFd, keep: Option<OwnedFd>) -> io::Result<Self> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory; the file cannot shrink.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), WHOLE, flags, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, _file: keep })
    }

    fn header(&self, down: bool) -> &Header {
        let offset = if down { size_of::<Header>() } else { 0 };
        // SAFETY: two headers fit before `HEADERS`, the mapping is aligned to pages and lives as long as `self`; every
        // bit pattern is a valid header and all fields are atomic.
        unsafe { self.base.add(offset).cast::<Header>().as_ref() }
    }

    /// The address of the bytes of a ring from `place` on, and how many there are up to its end.
    fn bytes(&self, down: bool, place: u64) -> (NonNull<u8>, usize) {
        let place = (place % CAPACITY as u64) as usize;
        let offset = HEADERS + usize::from(down) * CAPACITY + place;
        // SAFETY: within the mapping, since `place` is below the capacity.
        (unsafe { self.base.add(offset) }, CAPACITY - place)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping and nothing points into it any more.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), WHOLE) } {
            tracing::debug!(%error, "could not unmap a ring");
        }
    }
}

/// One process's end of a pair of rings.
#[derive(Debug)]
pub(super) struct RingEnd {
    mapping: Arc<Mapping>,
    /// Whether this end is the leader's, which writes down and reads up.
    leader: bool,
}

impl RingEnd {
    /// Makes a pair, for a rank that is not the leader.
    pub(super) fn create() -> io::Result<(Self, RingAddress)> {
        let file = rustix::fs::memfd_create("phalanx-ops", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, WHOLE as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let address = RingAddress { pid: std::process::id(), fd: file.as_raw_fd() };
        let again = file.try_clone()?;
        let mapping = Arc::new(Mapping::map(&again, Some(file))?);
        Ok((Self { mapping, leader: false }, address))
    }

    /// Opens the pair of another rank, for the leader.
    pub(super) fn open(address: RingAddress) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", address.pid, address.fd);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path.as_str(), flags, Mode::empty())?;
        // Only a memfd has seals: of anything else this is an error.
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let size = rustix::fs::fstat(&file)?.st_size;
        if !sealed || size != WHOLE as i64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no ring"));
        }
        Ok(Self { mapping: Arc::new(Mapping::map(&file, None)?), leader: true })
    }

    /// Writes as many bytes as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let header = self.mapping.header(self.leader);
        let written = header.written.0.load(Ordering::Relaxed);
        let used = written.wrapping_sub(header.read.0.load(Ordering::Acquire));
        let room = (CAPACITY as u64).saturating_sub(used) as usize;
        let length = bytes.len().min(room);
        let mut done = 0;
        while done < length {
            let (to, most) = self.mapping.bytes(self.leader, written + done as u64);
            let part = most.min(length - done);
            // SAFETY: the bytes are within the ring, and the reader does not read them before `written` counts them.
            unsafe { std::ptr::copy_nonoverlapping(bytes[done..].as_ptr(), to.as_ptr(), part) };
            done += part;
        }
        header.written.0.store(written + length as u64, Ordering::SeqCst);
        length
    }

    /// Whether the other end sleeps although there is something to read. The caller then rings the doorbell.
    pub(super) fn must_ring(&self) -> bool {
        let header = self.mapping.header(self.leader);
        let unread = header.written.0.load(Ordering::Relaxed) != header.read.0.load(Ordering::Acquire);
        let asleep = &header.asleep.0;
        unread && asleep.load(Ordering::SeqCst) == 1 && asleep.swap(0, Ordering::SeqCst) == 1
    }

    /// Whether there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        let header = self.mapping.header(!self.leader);
        header.written.0.load(Ordering::SeqCst) != header.read.0.load(Ordering::Relaxed)
    }

    /// Appends all there is.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let header = self.mapping.header(!self.leader);
        let read = header.read.0.load(Ordering::Relaxed);
        let available = header.written.0.load(Ordering::Acquire).wrapping_sub(read);
        if available > CAPACITY as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a ring holds more than it can"));
        }
        let length = available as usize;
        let mut done = 0;
        while done < length {
            let (from, most) = self.mapping.bytes(!self.leader, read + done as u64);
            let part = most.min(length - done);
            // SAFETY: the bytes are within the ring, and the writer does not write them before `read` counts them. A
            // writer that breaks this rule changes bytes that are decoded with care.
            into.extend_from_slice(unsafe { std::slice::from_raw_parts(from.as_ptr(), part) });
            done += part;
        }
        header.read.0.store(read + length as u64, Ordering::Release);
        Ok(())
    }

    /// Says whether this end is about to sleep.
    pub(super) fn set_asleep(&self, asleep: bool) {
        self.mapping.header(!self.leader).asleep.0.store(u32::from(asleep), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_around_the_end() {
        let (mut follower, address) = RingEnd::create().unwrap();
        let mut leader = RingEnd::open(address).unwrap();
        let mut next = 0_u32;
        let mut expected = 0_u32;
        for round in 1..40_usize {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                next += 1;
                next as u8
            })
            .take(round * 777 % 50_000)
            .collect();
            assert_eq!(follower.write(&bytes), bytes.len());
            let mut got = Vec::new();
            leader.read(&mut got).unwrap();
            for byte in got {
                expected += 1;
                assert_eq!(byte, expected as u8);
            }
        }
        assert_eq!(next, expected);
        assert!(!leader.is_readable());
    }

    #[test]
    fn a_full_ring_takes_no_more_and_a_sleeper_is_woken_once() {
        let (mut follower, address) = RingEnd::create().unwrap();
        let mut leader = RingEnd::open(address).unwrap();
        assert_eq!(leader.write(&vec![1; CAPACITY + 5]), CAPACITY);
        assert_eq!(leader.write(&[1]), 0);
        assert!(!leader.must_ring());
        follower.set_asleep(true);
        assert!(leader.must_ring());
        assert!(!leader.must_ring());
        let mut got = Vec::new();
        follower.read(&mut got).unwrap();
        assert_eq!(got.len(), CAPACITY);
        follower.set_asleep(true);
        assert!(!leader.must_ring(), "everything was read");
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let address = RingAddress { pid: std::process::id(), fd: file.as_raw_fd() };
        assert!(RingEnd::open(address).is_err());
    }
}
