use phalanx_types::Seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::ops::Range;
use std::time::Duration;

/// The random choices of one purpose.
#[derive(Debug)]
pub(crate) struct Dice(Pcg64);

impl Dice {
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        Self(Pcg64::seed_from_u64(Seed(seed).derive(purpose).0))
    }

    /// True `n` times out of `of`.
    pub(crate) fn chance(&mut self, n: u32, of: u32) -> bool {
        self.0.random_ratio(n, of)
    }

    pub(crate) fn number(&mut self, range: Range<u64>) -> u64 {
        self.0.random_range(range)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.0.random_range(0..len)
    }

    pub(crate) fn micros(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.number(range))
    }

    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }
}
