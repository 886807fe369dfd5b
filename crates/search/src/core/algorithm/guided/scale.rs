//! From measured values to values that a model can learn, and back.

/// An objective's values between its best (0) and its worst (1) so far; lower is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    least: f64,
    range: f64,
}

impl Scale {
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let range = values.fold(f64::NEG_INFINITY, f64::max) - least;
        if range > 0.0 && range.is_finite() { Self { least, range } } else { Self { least, range: 1.0 } }
    }

    pub(super) fn apply(&self, value: f64) -> f64 {
        (value - self.least) / self.range
    }
}

/// Draws together what is worse than the median, logarithmically, so that a few hopeless results do not decide what the
/// model learns; then to mean 0 and variance 1. Better values keep their distances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Squash {
    median: f64,
    /// From the median to the 5 % quantile; 0: nothing is squashed.
    reach: f64,
    mean: f64,
    deviation: f64,
}

impl Squash {
    pub(super) fn of(scaled: &[f64]) -> Self {
        let mut sorted = scaled.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 0.5);
        let reach = (median - quantile(&sorted, 0.05)).max(0.0);
        let mut squash = Self { median, reach, mean: 0.0, deviation: 1.0 };
        let squashed: Vec<f64> = scaled.iter().map(|&value| squash.squash(value)).collect();
        let count = squashed.len().max(1) as f64;
        squash.mean = squashed.iter().sum::<f64>() / count;
        let variance = squashed.iter().map(|value| (value - squash.mean).powi(2)).sum::<f64>() / count;
        if variance > 1e-24 {
            squash.deviation = variance.sqrt();
        }
        squash
    }

    fn squash(&self, value: f64) -> f64 {
        let beyond = value - self.median;
        if beyond <= 0.0 || self.reach <= 1e-9 {
            return value;
        }
        self.median + self.reach * libm::log1p(beyond / self.reach)
    }

    pub(super) fn apply(&self, scaled: f64) -> f64 {
        (self.squash(scaled) - self.mean) / self.deviation
    }

    pub(super) fn undo(&self, standard: f64) -> f64 {
        let squashed = standard * self.deviation + self.mean;
        let beyond = squashed - self.median;
        if beyond <= 0.0 || self.reach <= 1e-9 {
            return squashed;
        }
        self.median + self.reach * libm::expm1((beyond / self.reach).min(100.0))
    }
}

/// Between the two nearest of sorted values; 0 of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * sorted.len().saturating_sub(1) as f64;
    let value = |index: usize| sorted.get(index).copied();
    let low = value(at.floor() as usize).unwrap_or(0.0);
    let high = value(at.ceil() as usize).unwrap_or(low);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squashing_keeps_order_and_is_undone() {
        let values: Vec<f64> = (0..101).map(|i| f64::from(i * i) / 10_000.0).collect();
        let squash = Squash::of(&values);
        assert_eq!((squash.median, squash.reach), (0.25, 0.2475));
        let standard: Vec<f64> = values.iter().map(|&value| squash.apply(value)).collect();
        assert!(standard.is_sorted());
        for (value, standard) in values.iter().zip(&standard) {
            assert!((squash.undo(*standard) - value).abs() < 1e-12);
        }
        let mean = standard.iter().sum::<f64>() / 101.0;
        let variance = standard.iter().map(|v| v * v).sum::<f64>() / 101.0;
        assert!(mean.abs() < 1e-12 && (variance - 1.0).abs() < 1e-12);
        // The worst is three times as far from the median as the best, and less so afterwards.
        let far = |values: &[f64]| (values[100] - values[50]) / (values[50] - values[0]);
        assert!(far(&values) > 2.9 && far(&standard) < 1.5);
    }

    #[test]
    fn equal_values_stay_finite() {
        let scale = Scale::of([3.0, 3.0].into_iter());
        assert_eq!(scale.apply(3.0), 0.0);
        let squash = Squash::of(&[0.0; 5]);
        assert_eq!(squash.apply(0.0), 0.0);
        assert_eq!(squash.undo(0.5), 0.5);
        let mostly = Squash::of(&[0.0, 0.0, 0.0, 0.0, 1.0]);
        assert!((mostly.undo(mostly.apply(1.0)) - 1.0).abs() < 1e-12);
    }
}
