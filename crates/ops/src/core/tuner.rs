//! Finds the bucket size that moves the most bytes per second, by trying sizes in the first steps.

use phalanx_types::Time;
use std::time::Duration;

/// Sizes are tried in this order.
const CANDIDATES: [usize; 5] = [16 << 20, 1 << 20, 4 << 20, 8 << 20, 2 << 20];
/// Batches after a change that are not measured.
const WARM_UP: u32 = 5;
/// Each size is measured for at least this many batches and this long.
const BATCHES: u32 = 20;
const WINDOW: Duration = Duration::from_millis(100);

/// What one size achieved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TunedSample {
    /// The most bytes that are fused.
    pub bucket_bytes: usize,
    /// Bytes per second with it.
    pub bytes_per_sec: f64,
    /// Whether it is the size that stays.
    pub chosen: bool,
}

/// Tries one size after the other, then stays with the best.
#[derive(Debug)]
pub(crate) struct BucketTuner {
    samples: Vec<TunedSample>,
    candidates: Vec<usize>,
    batches: u32,
    bytes: u64,
    since: Time,
    done: bool,
}

impl BucketTuner {
    /// Sizes above `most` are not tried: the buffer for fused tensors has no more room.
    pub(crate) fn new(most: usize) -> Self {
        let candidates: Vec<usize> = CANDIDATES.into_iter().filter(|size| *size <= most).collect();
        let done = candidates.len() < 2;
        Self { samples: Vec::new(), candidates, batches: 0, bytes: 0, since: Time::ZERO, done }
    }

    /// The size to use now; `None` if there is nothing to choose from.
    pub(crate) fn bucket_bytes(&self) -> Option<usize> {
        if self.done {
            let chosen = self.samples.iter().find(|sample| sample.chosen);
            return chosen.map(|sample| sample.bucket_bytes);
        }
        self.candidates.get(self.samples.len()).copied()
    }

    /// Notes a batch that was computed. Gives what a size achieved when its measurement ends.
    pub(crate) fn on_batch(&mut self, now: Time, bytes: usize) -> Option<TunedSample> {
        if self.done {
            return None;
        }
        self.batches += 1;
        if self.batches <= WARM_UP {
            (self.bytes, self.since) = (0, now);
            return None;
        }
        self.bytes += bytes as u64;
        let window = now.since(self.since);
        if self.batches < WARM_UP + BATCHES || window < WINDOW {
            return None;
        }
        let bucket_bytes = self.bucket_bytes()?;
        let bytes_per_sec = self.bytes as f64 / window.as_secs_f64();
        self.samples.push(TunedSample { bucket_bytes, bytes_per_sec, chosen: false });
        self.batches = 0;
        if self.samples.len() < self.candidates.len() {
            return self.samples.last().copied();
        }
        self.done = true;
        let best = self.samples.iter_mut().max_by(|a, b| a.bytes_per_sec.total_cmp(&b.bytes_per_sec))?;
        best.chosen = true;
        Some(*best)
    }

    /// What every size achieved so far.
    pub(crate) fn samples(&self) -> &[TunedSample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the tuner where a batch of size `b` takes `cost(b)` microseconds per mebibyte.
    fn tuned(cost: impl Fn(usize) -> u64) -> usize {
        let mut tuner = BucketTuner::new(16 << 20);
        let mut now = Time::ZERO;
        while !tuner.done {
            let size = tuner.bucket_bytes().unwrap();
            now += Duration::from_micros(cost(size) * (size >> 20) as u64);
            tuner.on_batch(now, size);
        }
        assert_eq!(tuner.samples().len(), 5);
        assert_eq!(tuner.on_batch(now, 1), None);
        tuner.bucket_bytes().unwrap()
    }

    #[test]
    fn the_fastest_size_stays() {
        assert_eq!(tuned(|size| if size == 4 << 20 { 500 } else { 900 }), 4 << 20);
        assert_eq!(tuned(|size| 1000 + (64 << 20) / size as u64), 16 << 20);
        assert_eq!(tuned(|size| size as u64 >> 10), 1 << 20);
    }

    #[test]
    fn without_a_choice_nothing_is_tried() {
        let tuner = BucketTuner::new(1 << 20);
        assert_eq!(tuner.bucket_bytes(), None);
    }
}
