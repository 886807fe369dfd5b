use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// A bulk string of so many bytes or more is read into a buffer of its own.
pub const LARGE: usize = 32 << 10;

/// So much is reserved ahead of the bytes that have arrived.
pub const AHEAD: usize = 64 << 20;

/// Memory that the caller of a parser has at hand for a large bulk string.
pub trait BulkMemory: fmt::Debug + Send {
    /// All of it.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// The string, when all of it has arrived.
    fn freeze(self: Box<Self>) -> Bytes;
}

/// A large bulk string that is on its way in.
#[derive(Debug)]
pub struct LargeBulk {
    /// What has arrived, if no memory was given.
    data: Vec<u8>,
    given: Option<Given>,
    len: usize,
}

#[derive(Debug)]
struct Given {
    memory: Box<dyn BulkMemory>,
    filled: usize,
}

impl LargeBulk {
    pub(crate) fn new(len: usize) -> Self {
        Self { data: Vec::new(), given: None, len }
    }

    /// Has the string read into this memory, if that is as long and nothing has arrived yet.
    pub(crate) fn give(&mut self, mut memory: Box<dyn BulkMemory>) {
        if self.missing() == self.len && memory.bytes_mut().len() == self.len {
            self.given = Some(Given { memory, filled: 0 });
        }
    }

    /// How many bytes have not arrived.
    pub fn missing(&self) -> usize {
        let arrived = self.given.as_ref().map_or(self.data.len(), |given| given.filled);
        self.len.saturating_sub(arrived)
    }

    /// The rest of the memory that was given, to read a socket into; [`Self::arrived`] says how much came.
    pub fn given_room(&mut self) -> Option<&mut [u8]> {
        let given = self.given.as_mut()?;
        given.memory.bytes_mut().get_mut(given.filled..)
    }

    /// This many bytes are in the memory that was given.
    pub fn arrived(&mut self, n: usize) {
        let missing = self.missing();
        if let Some(given) = &mut self.given {
            given.filled += n.min(missing);
        }
    }

    /// The room for the next bytes when no memory was given: a socket is read straight into it.
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
        if let Some(room) = self.given_room() {
            let n = room.len().min(input.len());
            if let (Some(to), Some(from)) = (room.get_mut(..n), input.get(..n)) {
                to.copy_from_slice(from);
            }
            input.advance(n);
            self.arrived(n);
        }
        while self.missing() > 0 && !input.is_empty() {
            let mut room = self.room();
            let n = room.remaining_mut().min(input.len());
            room.put_slice(input.get(..n).unwrap_or_default());
            input.advance(n);
        }
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        match self.given.take() {
            Some(given) => given.memory.freeze(),
            None => std::mem::take(&mut self.data).into(),
        }
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

    #[derive(Debug)]
    struct Owned(Vec<u8>);

    impl BulkMemory for Owned {
        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }

        fn freeze(self: Box<Self>) -> Bytes {
            self.0.into()
        }
    }

    #[test]
    fn memory_that_is_given_is_filled() {
        let mut bulk = LargeBulk::new(100);
        bulk.give(Box::new(Owned(vec![0; 99])));
        assert!(bulk.given_room().is_none(), "it is too short");
        bulk.give(Box::new(Owned(vec![0; 100])));
        let mut input = BytesMut::from(&[1u8; 40][..]);
        bulk.take_from(&mut input);
        assert_eq!((bulk.missing(), input.len()), (60, 0));
        bulk.given_room().unwrap()[..59].fill(2);
        bulk.arrived(59);
        bulk.take_from(&mut BytesMut::from("34"));
        assert_eq!(bulk.missing(), 0);
        assert_eq!(bulk.finish(), [&[1; 40][..], &[2; 59], b"3"].concat());
    }

    #[test]
    fn a_whole_bulk_has_no_unused_memory() {
        let mut bulk = LargeBulk::new(LARGE);
        let mut input = BytesMut::from(&vec![7u8; LARGE + 2][..]);
        bulk.take_from(&mut input);
        assert_eq!((bulk.missing(), input.len(), bulk.data.capacity()), (0, 2, LARGE));
    }
}
