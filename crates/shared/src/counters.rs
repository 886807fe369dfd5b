//! Numbers that one process counts up and others read where they lie, without asking.
#![expect(unsafe_code, reason = "reads and writes numbers that lie in shared memory")]

use crate::segment::{Mapping, Token, map_shared, new_file, open_file, sealed_len};
use phalanx_wire::bulk::SharedPlace;
use rustix::fs::OFlags;
use rustix::mm::{Advice, ProtFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

const SIZE: usize = size_of::<AtomicU64>();

/// Numbers that only this process changes. Every number begins with 0.
pub struct Counters {
    mapping: Mapping,
    file: OwnedFd,
    token: Token,
    pid: u32,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The numbers in a mapping.
fn numbers(mapping: &Mapping) -> &[AtomicU64] {
    // SAFETY: a mapping begins at a page and has `len` bytes, so these are aligned numbers within it. It lives as long
    // as the reference and stays backed by its file, which cannot shrink. Every process uses them only as atomics.
    unsafe { std::slice::from_raw_parts(mapping.base().cast(), mapping.len() / SIZE) }
}

impl Counters {
    /// Makes numbers that other processes can find.
    ///
    /// # Errors
    /// The system has no memory left to share, or too many files are open.
    pub fn create(count: usize) -> io::Result<Self> {
        let len = count.checked_mul(SIZE).filter(|len| *len > 0);
        let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let (file, token) = new_file(len)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = map_shared(file.as_fd(), len, protection, Advice::LinuxPopulateWrite)?;
        Ok(Self { mapping, file, token, pid: std::process::id() })
    }

    /// How another process of this host finds them.
    pub fn place(&self) -> SharedPlace {
        SharedPlace {
            pid: self.pid,
            fd: self.file.as_raw_fd().unsigned_abs(),
            token: self.token.0,
            offset: 0,
            len: self.mapping.len() as u64,
        }
    }

    /// Counts one number up. What was written before is seen by a process that sees the new number.
    pub fn count_up(&self, at: usize) {
        if let Some(number) = numbers(&self.mapping).get(at) {
            number.fetch_add(1, Ordering::Release);
        }
    }
}

/// Numbers that another process counts up.
pub struct CounterView {
    mapping: Mapping,
}

impl fmt::Debug for CounterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterView").field("count", &self.len()).finish()
    }
}

impl CounterView {
    /// Maps the numbers of a place that a process of this host named.
    ///
    /// # Errors
    /// There are none, or this process may not map them.
    pub fn open(place: &SharedPlace) -> io::Result<Self> {
        let file = open_file(place, OFlags::RDONLY)?;
        let len = sealed_len(&file)?;
        Ok(Self { mapping: map_shared(file.as_fd(), len, ProtFlags::READ, Advice::LinuxPopulateRead)? })
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.mapping.len() / SIZE
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number as it is now.
    pub fn get(&self, at: usize) -> Option<u64> {
        // Memory that is mapped for reading bears only relaxed loads; the fence orders what follows.
        let number = numbers(&self.mapping).get(at)?.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mapping_sees_what_is_counted() {
        let counters = Counters::create(1000).unwrap();
        let view = CounterView::open(&counters.place()).unwrap();
        assert_eq!((view.len(), view.get(0), view.get(999), view.get(1000)), (1000, Some(0), Some(0), None));
        counters.count_up(999);
        counters.count_up(1000);
        assert_eq!((view.get(998), view.get(999)), (Some(0), Some(1)));
        // They stay as they are when their owner is gone.
        let place = counters.place();
        drop(counters);
        assert_eq!(view.get(999), Some(1));
        assert!(CounterView::open(&place).is_err());
    }
}
