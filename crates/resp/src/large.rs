use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A bulk string of so many bytes or more is read into a buffer of its own.
pub const LARGE: usize = 32 << 10;

/// So much is reserved ahead of the bytes that have arrived.
pub const AHEAD: usize = 64 << 20;

/// A large bulk string that is on its way in.
#[derive(Debug)]
pub struct LargeBulk {
    data: Vec<u8>,
    len: usize,
}

impl LargeBulk {
    pub(crate) fn new(len: usize) -> Self {
        Self { data: Vec::new(), len }
    }

    /// How many bytes have not arrived.
    pub fn missing(&self) -> usize {
        self.len.saturating_sub(self.data.len())
    }

    /// The room for the next bytes: a socket is read straight into it.
    pub fn room(&mut self) -> Limit<&mut Vec<u8>> {
        let missing = self.missing();
        if self.data.len() == self.data.capacity() {
            // Exactly: a vector that doubles would reserve more than is allowed, or leave a part unused.
            self.data.reserve_exact(missing.min(AHEAD));
        }
        let spare = self.data.capacity() - self.data.len();
        (&mut self.data).limit(missing.min(spare))
    }

    /// Takes the bytes that arrived together with what came before.
    pub(crate) fn take_from(&mut self, input: &mut BytesMut) {
        while self.missing() > 0 && !input.is_empty() {
            let mut room = self.room();
            let n = room.remaining_mut().min(input.len());
            room.put_slice(input.get(..n).unwrap_or_default());
            input.advance(n);
        }
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.data).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_arrived() {
        let mut bulk = LargeBulk::new(1 << 40);
        let mut input = BytesMut::from(&[7u8; 100][..]);
        bulk.take_from(&mut input);
        assert_eq!((bulk.missing(), input.len()), ((1 << 40) - 100, 0));
        assert!(bulk.data.capacity() <= AHEAD);
    }

    #[test]
    fn a_whole_bulk_has_no_unused_memory() {
        let mut bulk = LargeBulk::new(LARGE);
        let mut input = BytesMut::from(&vec![7u8; LARGE + 2][..]);
        bulk.take_from(&mut input);
        assert_eq!((bulk.missing(), input.len(), bulk.data.capacity()), (0, 2, LARGE));
    }
}
