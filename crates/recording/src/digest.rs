//! A digest that tells one list of decisions from another.

use crate::encode::append;
use serde::Serialize;

/// Odd numbers without a pattern, from the digits of the golden ratio, pi and e.
const MIX: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0x2437_0d12_1985_0a0b, 0xb7e1_5162_8aed_2a6b];

/// Gathers commands, in order. It finds differences between two runs of one program; it is no
/// protection against somebody who wants two lists to look alike.
#[derive(Debug)]
pub struct Digest<'a> {
    state: u64,
    scratch: &'a mut Vec<u8>,
}

impl<'a> Digest<'a> {
    pub(crate) fn new(scratch: &'a mut Vec<u8>) -> Self {
        Self { state: 0, scratch }
    }

    /// Takes in a command that is three numbers.
    #[inline]
    pub fn words(&mut self, a: u64, b: u64, c: u64) {
        // The three products do not wait for each other: a core that decides much is not slowed.
        let folded = a.wrapping_mul(MIX[0])
            ^ b.wrapping_mul(MIX[1]).rotate_left(21)
            ^ c.wrapping_mul(MIX[2]).rotate_left(42);
        self.state = (self.state.rotate_left(5) ^ folded).wrapping_mul(MIX[0]);
    }

    /// Takes in a command by its encoding.
    pub fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.scratch.clear();
        if append(value, self.scratch).is_err() {
            // Plain data always encodes. If that ever changes, the replay fails the same way.
            self.scratch.push(u8::MAX);
        }
        self.words(u64::MAX, self.scratch.len() as u64, u64::from(crc32fast::hash(self.scratch)));
    }

    pub(crate) fn end(self) -> u64 {
        self.state ^ (self.state >> 32)
    }
}
