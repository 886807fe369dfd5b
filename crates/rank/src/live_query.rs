//! Live queries: samples that a client sends while the model is trained.

use super::worker::Report;
use bytes::Bytes;
use phalanx_engine::Pass;
use phalanx_wire::train::AskRef;
use phalanx_wire::train_reason::QueryRefusal;
use std::ops::Range;

/// Nothing is learned from these samples, and nothing is random.
pub(super) const PASS: Pass = Pass { training: false, seed: 0 };

/// A question: what does the model make of these samples?
#[derive(Debug)]
pub(super) struct LiveQuery {
    pub(super) number: u64,
    pub(super) samples: usize,
    /// How many are computed at once.
    pub(super) batch: usize,
    x: Bytes,
}

impl LiveQuery {
    pub(super) fn new(ask: &AskRef, x: Bytes) -> Self {
        Self { number: ask.number, samples: ask.samples as usize, batch: ask.batch as usize, x }
    }

    /// Whether each of its samples has this number of values.
    pub(super) fn has(&self, values: usize) -> bool {
        self.samples > 0 && self.samples.checked_mul(4 * values) == Some(self.x.len())
    }

    /// The values of some of its samples.
    pub(super) fn values(&self, of: Range<usize>) -> Vec<f32> {
        let size = self.x.len() / self.samples.max(1);
        let (values, _rest) = self.x[of.start * size..of.end * size].as_chunks::<4>();
        values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    pub(super) fn refuse(&self, refusal: QueryRefusal) -> Report {
        Report::NotComputed { number: self.number, refusal }
    }
}

/// Cuts samples into batches.
pub(super) fn batches(samples: usize, batch: usize) -> impl Iterator<Item = Range<usize>> {
    let batch = batch.max(1);
    (0..samples).step_by(batch).map(move |first| first..(first + batch).min(samples))
}

/// What the model makes of samples.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Of all outputs together.
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

impl Answer {
    /// Adds the outputs of the next samples.
    pub(super) fn add(&mut self, output: &[f32], shape: &[usize]) {
        let before = self.shape.first().copied().unwrap_or(0);
        self.shape = shape.iter().map(|size| *size as u64).collect();
        if let Some(first) = self.shape.first_mut() {
            *first += before;
        }
        self.bytes.extend_from_slice(bytemuck::cast_slice(output));
    }

    /// The report of the answer, computed after `step` steps.
    pub(super) fn into_report(self, number: u64, step: u64) -> Report {
        Report::Computed { number, step, shape: self.shape, bytes: Bytes::from(self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_wire::bulk::BlobId;

    #[test]
    fn samples_are_cut_into_batches_and_outputs_put_together() {
        let cut: Vec<Range<usize>> = batches(5, 2).collect();
        assert_eq!(cut, [0..2, 2..4, 4..5]);
        assert_eq!(batches(3, 0).count(), 3);
        let values: Vec<u8> = (0..10).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let ask = AskRef { number: 1, samples: 5, batch: 2, bytes: 40, blob: BlobId(1) };
        let ask = LiveQuery::new(&ask, values.into());
        assert!(ask.has(2) && !ask.has(3));
        assert_eq!(ask.values(2..4), [4.0, 5.0, 6.0, 7.0]);
        let mut answer = Answer::default();
        answer.add(&[1.0, 2.0], &[2, 1]);
        answer.add(&[3.0], &[1, 1]);
        assert_eq!((answer.shape, answer.bytes.len()), (vec![3, 1], 12));
    }
}
