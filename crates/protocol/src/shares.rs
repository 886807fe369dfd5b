//! Who takes which samples of a global batch.

use phalanx_types::BatchPart;
use std::ops::Range;

/// How many samples of each global batch every rank takes; together they take all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    /// By rank: where its samples end.
    ends: Vec<usize>,
}

impl Shares {
    /// As equal as possible; the first ranks take one more.
    ///
    /// # Panics
    /// There are no ranks.
    pub fn equal(batch: usize, ranks: usize) -> Self {
        Self::by_speed(batch, &vec![1.0; ranks])
    }

    /// In proportion to speeds. Every rank takes at least one sample while there are enough.
    ///
    /// # Panics
    /// There are no ranks.
    pub fn by_speed(batch: usize, speeds: &[f64]) -> Self {
        assert!(!speeds.is_empty(), "a batch for nobody");
        let usable = |speed: &f64| if speed.is_finite() && *speed > 0.0 { *speed } else { 0.0 };
        let speeds: Vec<f64> = speeds.iter().map(usable).collect();
        let total: f64 = speeds.iter().sum();
        let least = usize::from(batch >= speeds.len());
        let spread = batch - least * speeds.len();
        let part = |speed: f64| if total > 0.0 { speed / total } else { 1.0 / speeds.len() as f64 };
        let exact: Vec<f64> = speeds.iter().map(|s| part(*s) * batch as f64).collect();
        // What is beyond the first sample, rounded down; the largest remainders take what is left.
        let beyond: Vec<f64> = exact.iter().map(|e| (e - least as f64).max(0.0)).collect();
        let sum: f64 = beyond.iter().sum();
        let scaled: Vec<f64> =
            beyond.iter().map(|b| if sum > 0.0 { b / sum * spread as f64 } else { 0.0 }).collect();
        let mut counts: Vec<usize> = scaled.iter().map(|s| s.floor() as usize).collect();
        let mut order: Vec<usize> = (0..counts.len()).collect();
        let rest = |i: usize| scaled[i] - scaled[i].floor();
        order.sort_by(|a, b| rest(*b).total_cmp(&rest(*a)).then(a.cmp(b)));
        let left = spread.saturating_sub(counts.iter().sum());
        order.iter().cycle().take(left).for_each(|i| counts[*i] += 1);
        let mut end = 0;
        let ends = counts.iter().map(|count| {
            end += count + least;
            end
        });
        Self { ends: ends.collect() }
    }

    /// So many samples of a whole batch for each rank.
    pub fn from_counts(counts: impl Iterator<Item = usize>) -> Self {
        let mut end = 0;
        let ends = counts.map(|count| {
            end += count;
            end
        });
        Self { ends: ends.collect() }
    }

    /// As many shares as there are ranks, nothing for those that do not take part.
    pub fn among(self, takes_part: &[bool]) -> Self {
        let mut counts = (0..self.ranks()).map(|rank| self.count(rank));
        let mut end = 0;
        let ends = takes_part.iter().map(|takes| {
            end += if *takes { counts.next().unwrap_or(0) } else { 0 };
            end
        });
        Self { ends: ends.collect() }
    }

    pub fn ranks(&self) -> usize {
        self.ends.len()
    }

    /// Samples of a whole batch.
    pub fn batch(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// How many samples of a whole batch a rank takes.
    pub fn count(&self, rank: usize) -> usize {
        self.range(rank, self.batch()).len()
    }

    /// Which samples of a full batch a rank takes.
    pub fn part(&self, rank: usize) -> BatchPart {
        let start = rank.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        BatchPart { start, end: self.ends.get(rank).copied().unwrap_or(self.batch()) }
    }

    /// Which samples of a batch of `len` a rank takes: a shorter last batch is cut in the same proportion.
    pub fn range(&self, rank: usize, len: usize) -> Range<usize> {
        self.part(rank).range(len, self.batch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(shares: &Shares) -> Vec<usize> {
        (0..shares.ranks()).map(|rank| shares.count(rank)).collect()
    }

    #[test]
    fn speeds_decide_and_nobody_is_left_out() {
        assert_eq!(counts(&Shares::equal(64, 4)), [16; 4]);
        assert_eq!(counts(&Shares::equal(10, 4)), [3, 3, 2, 2]);
        assert_eq!(counts(&Shares::by_speed(65, &[4.0, 4.0, 4.0, 1.0])), [20, 20, 20, 5]);
        assert_eq!(counts(&Shares::by_speed(4, &[1000.0, 1.0, 1.0, 1.0])), [1; 4]);
        assert_eq!(counts(&Shares::by_speed(100, &[f64::NAN, 1.0, 0.0])), [1, 98, 1]);
        assert_eq!(counts(&Shares::by_speed(2, &[1.0; 3])), [1, 1, 0]);
        assert_eq!(counts(&Shares::by_speed(8, &[0.0; 2])), [4, 4]);
    }

    #[test]
    fn who_does_not_take_part_gets_nothing() {
        let shares = Shares::equal(64, 3).among(&[false, true, true, false, true]);
        assert_eq!(counts(&shares), [0, 22, 21, 0, 21]);
    }

    #[test]
    fn every_sample_of_every_batch_is_taken_once() {
        for ranks in 1..9 {
            let speeds: Vec<f64> = (0..ranks).map(|r| 1.0 + (r * 7 % 5) as f64).collect();
            for batch in [1, 3, 16, 64, 257] {
                let shares = Shares::by_speed(batch, &speeds);
                assert_eq!(shares.batch(), batch);
                for len in 0..=batch {
                    let mut next = 0;
                    for rank in 0..ranks {
                        let range = shares.range(rank, len);
                        assert_eq!(range.start, next, "{shares:?} {len}");
                        next = range.end;
                    }
                    assert_eq!(next, len);
                }
            }
        }
    }
}
