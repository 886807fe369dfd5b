//! Segments of this process: taken, written once, read by any number of processes, and used again.
#![expect(unsafe_code, reason = "the one writer of a segment")]

use crate::ALIGN;
use crate::segment::Segment;
use crate::table;
use bytes::Bytes;
use phalanx_wire::bulk::SharedPlace;
use rustix::process::Resource;
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes kept for reuse.
const KEEP: usize = 256 << 20;
const KEEP_SEGMENTS: usize = 128;
/// The smallest segment.
const SMALLEST: usize = 64 << 10;
/// Each is a mapping, and Linux lets a process have 65,530 of them.
const MOST_SEGMENTS: u64 = 32 << 10;
/// Descriptors that a process has, when the system does not say.
const USUAL_FILES: u64 = 1024;

/// Segments that are not in use, the one used last at the end.
#[derive(Debug, Default)]
struct Free {
    segments: VecDeque<Arc<Segment>>,
    bytes: usize,
    /// The process that they belong to: after a fork the child must not write to them.
    pid: u32,
}

static FREE: Mutex<Free> = Mutex::new(Free { segments: VecDeque::new(), bytes: 0, pid: 0 });

fn free() -> MutexGuard<'static, Free> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if free.pid != pid {
        *free = Free { pid, ..Free::default() };
    }
    free
}

/// Memory that only this process has, until it is frozen.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    len: usize,
}

/// Takes a region for `len` bytes; what is in it is left from its last use.
///
/// # Errors
/// The system has no memory left to share, or too many files are open.
pub fn take(len: usize) -> io::Result<Region> {
    if let Some(region) = take_kept(len) {
        return Ok(region);
    }
    let need = size_class(len).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // Every segment is an open file. The other half is for sockets and files.
    let files = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(USUAL_FILES) / 2;
    if table::count() as u64 >= files.min(MOST_SEGMENTS) {
        return Err(io::Error::other("too many segments of shared memory"));
    }
    let segment = Segment::create(need)?;
    Ok(Region { memory: Memory { segment, pid: std::process::id() }, len })
}

/// Takes a region for `len` bytes if one is at hand that was used before: making one takes its time.
pub fn take_kept(len: usize) -> Option<Region> {
    let need = size_class(len)?;
    let mut free = free();
    // Not one much too large, which a short value would then keep occupied.
    let fits = |segment: &Arc<Segment>| segment.len() >= need && segment.len() / 2 <= need;
    let at = free.segments.iter().rposition(fits)?;
    let segment = free.segments.remove(at)?;
    free.bytes -= segment.len();
    Some(Region { memory: Memory { segment, pid: free.pid }, len })
}

/// Gives segments that are kept for reuse back to the system, the oldest first, until at most this many bytes are kept.
pub fn trim_kept(most: usize) {
    let mut dropped = Vec::new();
    let mut free = free();
    while free.bytes > most
        && let Some(oldest) = free.segments.pop_front()
    {
        free.bytes -= oldest.len();
        dropped.push(oldest);
    }
    // Unmapping takes its time, and must not keep others waiting.
    drop(free);
    drop(dropped);
}

/// Lets this process have as many files open as its user may: every large value that is shared is one.
pub fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Copies values into one region, each to an aligned place.
///
/// # Errors
/// As [`take`].
pub fn copy_together(values: &[&[u8]]) -> io::Result<Vec<Bytes>> {
    let mut ends = Vec::with_capacity(values.len());
    let mut end = 0usize;
    for value in values {
        let start = end.next_multiple_of(ALIGN);
        end = start.checked_add(value.len()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        ends.push((start, end));
    }
    let mut region = take(end)?;
    for (value, (start, end)) in values.iter().zip(&ends) {
        if let Some(slot) = region.get_mut(*start..*end) {
            slot.copy_from_slice(value);
        }
    }
    let all = region.freeze();
    Ok(ends.into_iter().map(|(start, end)| all.slice(start..end)).collect())
}

/// Lengths are rounded up to one of eight steps between powers of two, so that segments fit again.
fn size_class(len: usize) -> Option<usize> {
    let len = len.max(SMALLEST);
    let step = (1usize << len.ilog2()) / 8;
    len.checked_next_multiple_of(step).filter(|len| *len <= isize::MAX.unsigned_abs())
}

impl Region {
    /// How another process finds it, to fill it.
    pub fn place(&self) -> SharedPlace {
        self.memory.segment.place(0, self.len)
    }

    /// Gives up writing: from now on it may be read, also by other processes.
    pub fn freeze(self) -> Bytes {
        let len = self.len;
        Bytes::from_owner(self.memory).slice(..len)
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.segment.bytes().get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `take` gives a segment that is in use nowhere else: a new one, or one whose last `Bytes` were
        // dropped and that was not retired. `self` is borrowed for as long as the reference lives.
        let all = unsafe { self.memory.segment.bytes_mut() };
        all.get_mut(..self.len).unwrap_or_default()
    }
}

/// A segment in use; it is free again when this is dropped.
#[derive(Debug)]
struct Memory {
    segment: Arc<Segment>,
    pid: u32,
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self.segment.bytes()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.segment.is_retired() {
            return;
        }
        let mut free = free();
        let len = self.segment.len();
        if free.pid != self.pid || len > KEEP {
            return;
        }
        free.bytes += len;
        free.segments.push_back(self.segment.clone());
        let mut dropped = Vec::new();
        while (free.bytes > KEEP || free.segments.len() > KEEP_SEGMENTS)
            && let Some(oldest) = free.segments.pop_front()
        {
            free.bytes -= oldest.len();
            dropped.push(oldest);
        }
        // Unmapping takes its time, and must not keep others waiting.
        drop(free);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{locate, retire};

    fn address(bytes: &Bytes) -> usize {
        bytes.as_ptr().addr()
    }

    #[test]
    fn a_segment_is_used_again_when_its_last_bytes_are_gone() {
        let mut region = take(3_000_000).unwrap();
        region.fill(7);
        let bytes = region.freeze();
        assert_eq!(bytes.len(), 3_000_000);
        let (first, part) = (address(&bytes), bytes.slice(10..20));
        drop(bytes);
        let other = take(3_000_000).unwrap().freeze();
        assert_ne!(address(&other), first, "a part of it is still in use");
        assert_eq!(&part[..], [7; 10]);
        drop(part);
        assert_eq!(address(&take(2_999_000).unwrap().freeze()), first);
    }

    #[test]
    fn kept_segments_are_given_back() {
        let token = |bytes: &Bytes| locate(bytes).unwrap().segment.token();
        let bytes = take(7_000_000).unwrap().freeze();
        let gone = token(&bytes);
        drop(bytes);
        trim_kept(0);
        assert!(crate::known(gone).is_none());
    }

    #[test]
    fn a_retired_segment_is_not_used_again() {
        let bytes = take(5_000_000).unwrap().freeze();
        let token = locate(&bytes).unwrap().segment.token();
        retire(&bytes[100..200]);
        drop(bytes);
        assert!(crate::known(token).is_none());
    }

    #[test]
    fn the_guard_of_a_retired_view_never_says_that_its_memory_is_free() {
        struct Tell(std::sync::Arc<std::sync::atomic::AtomicUsize>);
        impl Drop for Tell {
            fn drop(&mut self) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let region = take(6_000_000).unwrap().freeze();
        let segment = locate(&region).unwrap().segment;
        let view = |segment: &Arc<Segment>| segment.view(10, 20, Tell(told.clone())).unwrap();
        drop(view(&segment));
        assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), 1);
        let lent = view(&segment);
        retire(&lent);
        drop(lent);
        assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn values_are_copied_to_aligned_places_of_one_segment() {
        let values: [&[u8]; 4] = [b"one", &[], &[5; 1000], b"four"];
        let copies = copy_together(&values).unwrap();
        assert_eq!(copies, values);
        assert!(copies.iter().filter(|c| !c.is_empty()).all(|c| address(c).is_multiple_of(ALIGN)));
        let tokens: Vec<_> = [0, 2, 3].map(|i| locate(&copies[i]).unwrap().segment.token()).into();
        assert_eq!(tokens, vec![tokens[0]; 3]);
    }

    #[test]
    fn size_classes_waste_an_eighth_at_most() {
        for len in [1, 65_536, 65_537, 1_000_000, 16_000_000, (16 << 20) + 1, usize::MAX / 4] {
            let class = size_class(len).unwrap();
            assert!(class >= len && (class - len) as u64 <= (len as u64 / 8).max(SMALLEST as u64), "{len}");
        }
        assert_eq!(size_class(usize::MAX), None);
    }

    #[test]
    fn bytes_outside_of_segments_are_not_located() {
        let region = take(100_000).unwrap().freeze();
        assert!(locate(&vec![0; 100_000]).is_none());
        assert!(locate(&[]).is_none());
        let located = locate(&region[5_000..6_000]).unwrap();
        assert_eq!((located.offset, located.len), (5_000, 1_000));
    }
}
