//! A uniform sample of bounded size of everything that has arrived (algorithm R).
//!
//! What is in it is a function of the seed and of how many samples have arrived: sample i draws its slot from
//! (seed, i) alone.

use crate::permutation::mix;
use phalanx_types::Seed;
use serde::{Deserialize, Serialize};

/// The samples in a reservoir, by slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservoir {
    seed: u64,
    capacity: u64,
    /// The first sample that was offered to it.
    base: u64,
    offered: u64,
    slots: Vec<u64>,
}

impl Reservoir {
    /// An empty reservoir, to which samples are offered from `base` on.
    pub fn new(seed: Seed, capacity: u64, base: u64) -> Self {
        Self { seed: seed.derive("reservoir").0, capacity, base, offered: 0, slots: Vec::new() }
    }

    /// The reservoir when all samples below `horizon` have arrived.
    pub fn at(seed: Seed, capacity: u64, base: u64, horizon: u64) -> Self {
        let mut reservoir = Self::new(seed, capacity, base);
        reservoir.offer_until(horizon, |_, _| {});
        reservoir
    }

    /// Offers the samples below `horizon` that were not offered yet. `change` is told each sample that comes in, and
    /// the one that leaves for it.
    pub fn offer_until(&mut self, horizon: u64, mut change: impl FnMut(u64, Option<u64>)) {
        while self.base + self.offered < horizon {
            let sample = self.base + self.offered;
            self.offered += 1;
            if (self.slots.len() as u64) < self.capacity {
                self.slots.push(sample);
                change(sample, None);
                continue;
            }
            let draw = mix(self.seed ^ mix(self.offered.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            // The high half of the product is uniform below `offered`, up to 2^-64 * offered.
            let slot = ((u128::from(draw) * u128::from(self.offered)) >> 64) as u64;
            let place = usize::try_from(slot).ok().and_then(|slot| self.slots.get_mut(slot));
            if let Some(place) = place {
                let left = std::mem::replace(place, sample);
                change(sample, Some(left));
            }
        }
    }

    /// The samples by slot.
    pub fn slots(&self) -> &[u64] {
        &self.slots
    }

    /// How many samples have arrived for it: those below this number were offered.
    pub fn horizon(&self) -> u64 {
        self.base + self.offered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_follows_from_seed_and_horizon_alone() {
        let mut grown = Reservoir::new(Seed(5), 20, 0);
        for horizon in [3, 19, 20, 21, 100, 1000] {
            grown.offer_until(horizon, |_, _| {});
            assert_eq!(grown, Reservoir::at(Seed(5), 20, 0, horizon));
            assert_eq!(grown.slots().len() as u64, horizon.min(20));
        }
        assert_ne!(grown.slots(), Reservoir::at(Seed(6), 20, 0, 1000).slots());
    }

    #[test]
    fn every_sample_is_as_likely_to_stay() {
        let (capacity, horizon, seeds) = (10u64, 50u64, 20_000);
        let mut counts = vec![0u32; horizon as usize];
        for seed in 0..seeds {
            for sample in Reservoir::at(Seed(seed), capacity, 0, horizon).slots() {
                counts[*sample as usize] += 1;
            }
        }
        let expected = (seeds * capacity / horizon) as f64;
        let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        // 49 degrees of freedom; without replacement the spread is 0.8 of that.
        println!("chi-square {chi:.1}");
        assert!((10.0..85.0).contains(&chi), "{chi}: {counts:?}");
    }

    #[test]
    fn changes_tell_what_came_and_what_left() {
        let mut reservoir = Reservoir::new(Seed(1), 4, 100);
        let mut held = std::collections::BTreeSet::new();
        reservoir.offer_until(300, |came, left| {
            assert!(held.insert(came));
            assert!(left.is_none_or(|left| held.remove(&left)));
        });
        assert!(reservoir.slots().iter().all(|sample| held.contains(sample)));
        assert_eq!((held.len(), reservoir.horizon()), (4, 300));
    }
}
