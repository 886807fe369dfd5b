//! Which positions of a pass belong to which reader.

use crate::error::DataError;

/// The part of a pass that one of several readers takes.
///
/// Shards of one division are disjoint and cover the pass. Equal shards are interleaved, so the batches of all readers
/// together form the batch that one reader would have had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    start: usize,
    step: usize,
    len: usize,
}

impl Shard {
    /// Shard `index` of `count` equal ones of a pass over `len` samples; sizes differ by at most one.
    ///
    /// # Errors
    /// There is no shard of that number.
    pub fn new(len: usize, index: usize, count: usize) -> Result<Self, DataError> {
        if index >= count {
            return Err(DataError::NoSuchShard { index, count });
        }
        Ok(Self { start: index, step: count, len: len.saturating_sub(index).div_ceil(count) })
    }

    /// A shard that is the whole pass.
    pub fn whole(len: usize) -> Self {
        Self { start: 0, step: 1, len }
    }

    /// Contiguous shards in proportion to `weights`, each within one sample of its exact size.
    ///
    /// # Errors
    /// The weights are not finite, or negative, or all zero.
    pub fn weighted(len: usize, weights: &[f64]) -> Result<Vec<Self>, DataError> {
        let total: f64 = weights.iter().sum();
        if !weights.iter().all(|w| w.is_finite() && *w >= 0.0) || !total.is_finite() || total <= 0.0 {
            return Err(DataError::Weights { weights: weights.to_vec() });
        }
        let exact: Vec<f64> = weights.iter().map(|w| w / total * len as f64).collect();
        let mut sizes: Vec<usize> = exact.iter().map(|part| *part as usize).collect();
        // The shards with the largest rounding loss get one more sample; among equals the first.
        let mut by_loss: Vec<usize> = (0..weights.len()).filter(|i| weights[*i] > 0.0).collect();
        by_loss.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
        let mut left = len.saturating_sub(sizes.iter().sum());
        while left > 0 {
            for i in by_loss.iter().take(left) {
                sizes[*i] += 1;
            }
            left = left.saturating_sub(by_loss.len());
        }
        let mut start = 0;
        let mut rest = len;
        Ok(sizes
            .into_iter()
            .map(|size| {
                let shard = Self { start, step: 1, len: size.min(rest) };
                start += shard.len;
                rest -= shard.len;
                shard
            })
            .collect())
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The position in the pass of the `k`-th sample of this shard.
    ///
    /// # Panics
    /// `k` is not below the length.
    pub fn get(&self, k: usize) -> usize {
        assert!(k < self.len, "sample {k} of a shard of {}", self.len);
        self.start + k * self.step
    }

    /// One more than the last position; at most the number of samples.
    pub(crate) fn end(&self) -> usize {
        self.len.checked_sub(1).map_or(0, |last| self.get(last) + 1)
    }
}
