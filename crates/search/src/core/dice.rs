//! Random choices that a seed repeats.

use phalanx_types::Seed;

/// A generator of random numbers. A decision gets its own, from the search's seed and the number of the decision, so
/// that it does not depend on how many numbers earlier decisions drew.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: Seed) -> Self {
        Self(seed.0)
    }

    /// The dice of one numbered decision.
    pub fn of(seed: Seed, purpose: &str, number: u64) -> Self {
        Self::new(Seed(seed.derive(purpose).0.wrapping_add(number)).derive("number"))
    }

    /// SplitMix64.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform over `0..end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The high half of the product: its bias is under 2⁻³² for the sizes that occur here.
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }

    /// Uniform over `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of them; `None` of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for end in (1..of.len()).rev() {
            of.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_repeat() {
        let mut counts = [0_u32; 7];
        let mut dice = Dice::new(Seed(1));
        (0..70_000).for_each(|_| counts[dice.below(7)] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        let of = |number| Dice::of(Seed(1), "ask", number).draw();
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        let mean = (0..10_000).map(|_| dice.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn a_shuffle_keeps_all_and_every_order_occurs() {
        let mut dice = Dice::new(Seed(2));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut cards = [0, 1, 2];
            dice.shuffle(&mut cards);
            seen.insert(cards);
        }
        assert_eq!(seen.len(), 6);
        assert_eq!(dice.pick::<u8>(&[]), None);
    }
}
