use super::super::lock;
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// The most bytes kept for reuse; writing into fresh pages is several times slower than into used ones.
const KEEP: usize = 64 << 20;
/// Shorter buffers are left to the allocator.
const WORTH_KEEPING: usize = 64 << 10;

/// Receive buffers that come back when the last user of their bytes is gone.
#[derive(Debug, Default, Clone)]
pub(crate) struct BufferPool(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    /// An empty buffer, with capacity for `len` bytes if a fitting one is available.
    pub(super) fn take(&self, len: u64) -> Vec<u8> {
        let mut free = lock(&self.0);
        // Not one many times too large, which a small blob would then keep occupied.
        let fits = |b: &Vec<u8>| b.capacity() as u64 >= len && b.capacity() as u64 / 4 <= len;
        let best = free.buffers.iter().enumerate().filter(|(_, b)| fits(b));
        let Some(index) = best.min_by_key(|(_, b)| b.capacity()).map(|(i, _)| i) else { return Vec::new() };
        let buffer = free.buffers.swap_remove(index);
        free.bytes -= buffer.capacity();
        buffer
    }

    /// Bytes that return their buffer to the pool when dropped.
    pub(super) fn seal(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Pooled { buffer, pool: self.clone() })
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut free = lock(&self.0);
        let capacity = buffer.capacity();
        if capacity >= WORTH_KEEPING && free.bytes + capacity <= KEEP {
            free.bytes += capacity;
            free.buffers.push(buffer);
        }
    }
}

struct Pooled {
    buffer: Vec<u8>,
    pool: BufferPool,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_bytes_are_dropped() {
        let pool = BufferPool::default();
        let mut buffer = pool.take(1 << 20);
        assert_eq!(buffer.capacity(), 0);
        buffer.resize(1 << 20, 7);
        let address = buffer.as_ptr();
        let bytes = pool.seal(buffer);
        let part = bytes.slice(..10);
        drop(bytes);
        assert_eq!(pool.take(1 << 20).capacity(), 0);
        drop(part);
        let again = pool.take(1 << 20);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        assert_eq!(pool.take(10).capacity(), 0);
    }
}
