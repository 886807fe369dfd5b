//! Where a reader stands, and which samples that means.
//!
//! All that a trainer needs to go on in the middle of a pass, bit for bit: the order of a pass is a function of
//! (seed, pass, horizon), and step k has the positions `k * batch .. (k + 1) * batch` of it, however many trainers
//! share them.

use crate::permutation::{Permutation, mix};
use crate::settings::{PartialBatch, ReadMode, ReaderSettings};
use phalanx_types::Seed;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where a reader stands: a checkpoint of a run has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The seed of the reader.
    pub seed: Seed,
    /// The number of the pass, from 0; in mode `once` the number of the window.
    pub pass: u64,
    /// The first sample of the pass, by order of arrival: 0 except in mode `once`.
    pub base: u64,
    /// The number of samples that had arrived when the pass was sealed; it has no later ones.
    pub horizon: u64,
    /// How many steps of the pass are committed.
    pub step: u64,
}

impl Cursor {
    /// The same reader at another step of the pass.
    #[must_use]
    pub fn at(self, step: u64) -> Self {
        Self { step, ..self }
    }

    /// The pass with its batches.
    pub fn pass(&self, settings: &ReaderSettings) -> PassOrder {
        PassOrder::new(self, settings)
    }
}

/// The order of one pass and its batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassOrder {
    base: u64,
    batch: u64,
    steps: u64,
    permutation: Permutation,
}

impl PassOrder {
    fn new(cursor: &Cursor, settings: &ReaderSettings) -> Self {
        let span = cursor.horizon.saturating_sub(cursor.base);
        let (len, most) = match settings.mode {
            ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Once { .. } => (span, None),
            ReadMode::Reservoir { capacity, steps, .. } => (span.min(capacity), steps),
        };
        let batch = settings.batch.max(1);
        let steps = match settings.partial {
            PartialBatch::Keep => len.div_ceil(batch),
            PartialBatch::Drop => len / batch,
        };
        let seed = cursor.seed.derive("stream order").0;
        let seed = mix(seed ^ cursor.pass.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let seed = mix(seed ^ cursor.horizon.wrapping_mul(0xa076_1d64_78bd_642f));
        Self {
            base: cursor.base,
            batch,
            steps: most.map_or(steps, |most| steps.min(most)),
            permutation: Permutation::new(Seed(seed), len),
        }
    }

    /// How many samples the pass has; in mode `reservoir`, how many slots.
    pub fn len(&self) -> u64 {
        self.permutation.len()
    }

    /// Whether the pass has no sample.
    pub fn is_empty(&self) -> bool {
        self.permutation.is_empty()
    }

    /// How many steps the pass has.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The positions of the global batch of a step; empty beyond the last step.
    pub fn positions(&self, step: u64) -> Range<u64> {
        if step >= self.steps {
            return self.len()..self.len();
        }
        // No overflow: a step below `steps` begins inside the pass.
        let start = step * self.batch;
        start..start.saturating_add(self.batch).min(self.len())
    }

    /// The positions of a step that one of `ranks` trainers takes. All trainers together take every position once.
    pub fn share(&self, step: u64, rank: u32, ranks: u32) -> Range<u64> {
        let all = self.positions(step);
        let (len, ranks) = (all.end - all.start, u64::from(ranks.max(1)));
        // A batch has at most 2^24 samples: the products fit.
        let at = |rank: u64| all.start + (len * rank.min(ranks)).div_ceil(ranks);
        at(u64::from(rank))..at(u64::from(rank) + 1)
    }

    /// The sample at a position, by order of arrival; in mode `reservoir`, the slot. `None` beyond the end.
    pub fn sample(&self, position: u64) -> Option<u64> {
        self.permutation.get(position).map(|element| self.base + element)
    }

    /// The element of the permutation at a position, without the base: the slot of a reservoir.
    pub(crate) fn slot(&self, position: u64) -> Option<u64> {
        self.permutation.get(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(batch: u64) -> ReaderSettings {
        ReaderSettings::new(ReadMode::Grow { min_samples: 1, new_samples: 0 }, Seed(3), batch)
    }

    fn cursor(pass: u64, horizon: u64) -> Cursor {
        Cursor { seed: Seed(3), pass, base: 0, horizon, step: 0 }
    }

    #[test]
    fn a_pass_has_every_sample_once_and_the_rule_decides_on_the_rest() {
        let keep = cursor(0, 103).pass(&settings(10));
        assert_eq!((keep.steps(), keep.positions(10)), (11, 100..103));
        let mut samples: Vec<u64> =
            (0..keep.steps()).flat_map(|k| keep.positions(k)).filter_map(|p| keep.sample(p)).collect();
        samples.sort_unstable();
        assert!(samples.into_iter().eq(0..103));
        let dropping = ReaderSettings { partial: PartialBatch::Drop, ..settings(10) };
        let dropped = cursor(0, 103).pass(&dropping);
        assert_eq!((dropped.steps(), dropped.positions(9), dropped.positions(10)), (10, 90..100, 103..103));
    }

    #[test]
    fn any_number_of_trainers_share_the_same_global_batches() {
        let pass = cursor(2, 1003).pass(&settings(37));
        for step in 0..pass.steps() {
            let whole: Vec<u64> = pass.positions(step).filter_map(|p| pass.sample(p)).collect();
            for ranks in [1, 2, 4, 16, 50] {
                let shared = (0..ranks).flat_map(|rank| pass.share(step, rank, ranks));
                let shared: Vec<u64> = shared.filter_map(|p| pass.sample(p)).collect();
                assert_eq!(shared, whole, "{ranks} trainers, step {step}");
            }
        }
    }

    #[test]
    fn seed_pass_and_horizon_decide_the_order() {
        let order = |cursor: Cursor| {
            let pass = cursor.pass(&settings(1));
            (0..50).map(|p| pass.sample(p)).collect::<Vec<_>>()
        };
        let first = order(cursor(0, 100));
        assert_eq!(first, order(cursor(0, 100).at(7)));
        assert_ne!(first, order(cursor(1, 100)));
        assert_ne!(first, order(cursor(0, 101)));
        assert_ne!(first, order(Cursor { seed: Seed(4), ..cursor(0, 100) }));
    }

    #[test]
    fn impossible_cursors_are_empty_passes() {
        let pass = Cursor { base: 9, horizon: 3, ..cursor(0, 0) }.pass(&settings(4));
        assert_eq!((pass.steps(), pass.positions(0), pass.sample(0)), (0, 0..0, None));
        let huge = cursor(0, u64::MAX).pass(&settings(1));
        assert_eq!(huge.positions(u64::MAX - 1), u64::MAX - 1..u64::MAX);
    }
}
