//! A seeded permutation that needs no memory per element.
//!
//! A Feistel network permutes the smallest power of two that holds all positions. A result beyond the end is
//! permuted again until it is inside (cycle walking); less than two rounds are needed on average. Every position is
//! computed alone, so a trainer can begin anywhere in a pass of any size at once.

use phalanx_types::Seed;

/// Measured by the tests below: fewer rounds, or fewer bits for short passes, favour some orders.
const ROUNDS: usize = 12;
const LEAST_BITS: u32 = 6;

/// A permutation of `0..len`, decided by a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    /// Bits of the left half; the right half has as many or one more.
    left_bits: u32,
    right_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..len` that this seed decides.
    pub fn new(seed: Seed, len: u64) -> Self {
        let bits = (u64::BITS - len.saturating_sub(1).leading_zeros()).max(LEAST_BITS);
        let left_bits = bits / 2;
        let mut state = seed.0;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Self { len, left_bits, right_bits: bits - left_bits, keys }
    }

    /// How many positions there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no position.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `position`, or `None` beyond the end.
    pub fn get(&self, position: u64) -> Option<u64> {
        if position >= self.len {
            return None;
        }
        let mut element = self.permute(position);
        // Ends: the walk follows the cycle of `position`, which comes back inside at the latest with itself.
        while element >= self.len {
            element = self.permute(element);
        }
        Some(element)
    }

    /// One application of the network on the power of two.
    fn permute(&self, value: u64) -> u64 {
        let (mut left_bits, mut right_bits) = (self.left_bits, self.right_bits);
        let mut left = value >> right_bits;
        let mut right = value & ones(right_bits);
        for key in self.keys {
            let mixed = left ^ (mix(right ^ key) & ones(left_bits));
            (left, right) = (right, mixed);
            (left_bits, right_bits) = (right_bits, left_bits);
        }
        (left << right_bits) | right
    }
}

/// The finaliser of SplitMix64.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// As many ones as there are bits; a half never has more than 32.
fn ones(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(seed: u64, len: u64) -> Vec<u64> {
        let permutation = Permutation::new(Seed(seed), len);
        (0..len).map(|position| permutation.get(position).unwrap()).collect()
    }

    #[test]
    fn every_element_comes_once() {
        for len in (0..70).chain([255, 256, 257, 1000, 4097, 65_537]) {
            let mut seen = all(len + 3, len);
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..len), "{len}");
        }
    }

    #[test]
    fn nothing_lies_beyond_the_end() {
        let permutation = Permutation::new(Seed(1), 10);
        assert_eq!((permutation.get(10), permutation.get(u64::MAX)), (None, None));
        assert_eq!(Permutation::new(Seed(1), 0).get(0), None);
    }

    #[test]
    fn the_largest_stream_is_permuted_too() {
        let permutation = Permutation::new(Seed(9), u64::MAX);
        assert!(permutation.get(0).unwrap() < u64::MAX);
        assert_ne!(permutation.get(0), permutation.get(u64::MAX - 1));
    }

    /// A change of this order would change every run that is resumed.
    #[test]
    fn the_order_never_changes() {
        assert_eq!(all(7, 10), GOLDEN);
    }

    const GOLDEN: [u64; 10] = [6, 2, 0, 4, 1, 3, 7, 8, 5, 9];

    /// Pearson's correlation of the position with the element that stands there.
    fn correlation(order: &[u64]) -> f64 {
        let n = order.len() as f64;
        let mean = (n - 1.0) / 2.0;
        let product =
            |(position, element): (usize, &u64)| (position as f64 - mean) * (*element as f64 - mean);
        let covariance: f64 = order.iter().enumerate().map(product).sum();
        covariance / (n * (n * n - 1.0) / 12.0)
    }

    #[test]
    fn the_position_says_nothing_about_the_arrival() {
        // The correlation of a random permutation has a standard deviation of 1 / sqrt(n - 1).
        for len in [100, 1_000, 10_000, 50_000] {
            let seeds = 40;
            let bound = 1.0 / (len as f64 - 1.0).sqrt();
            let scores: Vec<f64> = (0..seeds).map(|seed| correlation(&all(seed, len)) / bound).collect();
            let worst = scores.iter().fold(0.0, |worst: f64, score| worst.max(score.abs()));
            let spread = (scores.iter().map(|s| s * s).sum::<f64>() / seeds as f64).sqrt();
            println!("{len}: worst correlation {worst:.2} deviations, spread {spread:.2}");
            assert!(worst < 4.0, "{len}: {worst}");
            assert!((0.6..1.4).contains(&spread), "{len}: {spread}");
        }
    }

    #[test]
    fn every_element_is_as_likely_at_every_position() {
        // Chi-square of (position, element) over many seeds.
        for len in [2u64, 3, 4, 5, 8, 16, 64, 1000] {
            let (cells, seeds) = (len.min(16), 20_000);
            let mut counts = vec![0u64; (cells * cells) as usize];
            let mut drawn = 0u64;
            for seed in 0..seeds {
                let permutation = Permutation::new(Seed(seed).derive("chi"), len);
                let positions = (0..len).step_by((len / cells) as usize).take(cells as usize);
                for (row, position) in (0..).zip(positions) {
                    let element = permutation.get(position).unwrap();
                    counts[(row * cells + element * cells / len) as usize] += 1;
                    drawn += 1;
                }
            }
            // Cells of a column differ by at most one element in size: weigh them exactly.
            let width =
                |column: u64| (0..len).filter(|e| e * cells / len == column).count() as f64 / len as f64;
            let row_total = drawn as f64 / cells as f64;
            let chi: f64 = (0..cells * cells)
                .map(|cell| {
                    let expected = row_total * width(cell % cells);
                    (counts[cell as usize] as f64 - expected).powi(2) / expected
                })
                .sum();
            // Rows of whole permutations depend on each other, which stretches chi-square by n / (n - 1); rows that
            // are far apart in a long one do not.
            let whole = len == cells;
            let chi = if whole { chi * (cells - 1) as f64 / cells as f64 } else { chi };
            let freedom = ((cells - 1) * if whole { cells - 1 } else { cells }) as f64;
            let deviations = (chi - freedom) / (2.0 * freedom).sqrt();
            println!(
                "{len}: chi-square {chi:.0} for {freedom} degrees of freedom: {deviations:.2} deviations"
            );
            assert!(deviations.abs() < 4.5, "{len}: {deviations}");
        }
    }

    #[test]
    fn every_order_of_a_short_pass_is_as_likely() {
        let seeds = 48_000;
        let mut counts = std::collections::BTreeMap::<Vec<u64>, u32>::new();
        for seed in 0..seeds {
            *counts.entry(all(Seed(seed).derive("orders").0, 4)).or_default() += 1;
        }
        let expected = seeds as f64 / 24.0;
        let chi: f64 = counts.values().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        println!("chi-square {chi:.0} for 23 degrees of freedom");
        assert_eq!(counts.len(), 24);
        assert!((4.0..60.0).contains(&chi), "{chi}");
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        let order = all(5, 10_000);
        let close = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 10).count();
        // About 20 in 10,000 by chance.
        assert!(close < 60, "{close} of 10,000");
    }
}
