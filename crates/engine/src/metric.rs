//! Metrics: measures of quality besides the loss, summed over batches.

use crate::loss::layout::{ClassAxis, Matching, check_size};
use crate::loss::{Loss, LossError, Target};
use crate::named::named;
use crate::threads::Threads;
use serde::{Deserialize, Serialize};

/// A measure of the quality of outputs. Written as `"accuracy"` or as `{ name = "top_k", k = 5 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Metric {
    /// The fraction of positions whose largest output is the target class.
    Accuracy,
    /// The fraction of outputs on the same side of the threshold as the target (of one half).
    BinaryAccuracy {
        /// 0.5 for probabilities, 0 for logits.
        #[serde(default = "half")]
        threshold: f32,
    },
    /// The fraction of positions whose target class is among the `k` largest outputs.
    TopK {
        #[serde(default = "five")]
        k: usize,
    },
    /// The mean of absolute differences.
    Mae,
    /// The mean of squared differences.
    Mse,
    /// e to the power of the mean cross-entropy of the logits.
    Perplexity,
}

named!(Metric);

fn half() -> f32 {
    0.5
}

fn five() -> usize {
    5
}

/// A metric summed over batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSum {
    metric: Metric,
    sum: f64,
    count: u64,
}

impl Metric {
    /// Starts a sum.
    pub fn begin(self) -> MetricSum {
        MetricSum { metric: self, sum: 0.0, count: 0 }
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        match self {
            Self::Accuracy | Self::BinaryAccuracy { .. } | Self::TopK { .. } => true,
            Self::Mae | Self::Mse | Self::Perplexity => false,
        }
    }
}

impl MetricSum {
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Adds a batch; targets as in [`Loss::evaluate`].
    ///
    /// # Errors
    /// The shapes do not match, or a label is not one of the classes.
    pub fn add(
        &mut self,
        t: &Threads,
        output: &[f32],
        shape: &[usize],
        target: Target<'_>,
    ) -> Result<(), LossError> {
        check_size("the output", output, shape)?;
        check_size("the target", target.data, target.shape)?;
        if output.is_empty() {
            return Ok(());
        }
        let mean_of = |loss: Loss| loss.evaluate(t, output, shape, target, 1.0, None);
        let (sum, count) = match self.metric {
            Metric::Accuracy => in_top(1, output, shape, target)?,
            Metric::TopK { k } => in_top(k, output, shape, target)?,
            Metric::BinaryAccuracy { threshold } => binary(threshold, output, shape, target)?,
            Metric::Mae => (mean_of(Loss::L1)? * output.len() as f64, output.len()),
            Metric::Mse => (mean_of(Loss::Mse)? * output.len() as f64, output.len()),
            Metric::Perplexity => {
                let (Matching::Same(axis) | Matching::Labels(axis)) = Matching::of_classes(shape, target)?;
                let mean = mean_of(Loss::CrossEntropy { smoothing: 0.0 })?;
                (mean * axis.positions() as f64, axis.positions())
            }
        };
        self.sum += sum;
        self.count += count as u64;
        Ok(())
    }

    /// Adds a sum over other batches.
    pub fn merge(&mut self, other: &MetricSum) {
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The sum and the count, for sending; [`MetricSum::from_parts`] is the inverse.
    pub fn parts(&self) -> (f64, u64) {
        (self.sum, self.count)
    }

    pub fn from_parts(metric: Metric, (sum, count): (f64, u64)) -> Self {
        Self { metric, sum, count }
    }

    /// The metric over all batches so far; `None` before the first.
    pub fn value(&self) -> Option<f64> {
        let mean = (self.count > 0).then(|| self.sum / self.count as f64)?;
        Some(if self.metric == Metric::Perplexity { mean.exp() } else { mean })
    }
}

/// How many positions have the target class among the `k` largest outputs. Among equal outputs the first counts as
/// larger; NaN is larger than all, so that outputs of NaN are never correct by accident.
fn in_top(k: usize, output: &[f32], shape: &[usize], target: Target<'_>) -> Result<(f64, usize), LossError> {
    let matching = Matching::of_classes(shape, target)?;
    let (Matching::Same(axis) | Matching::Labels(axis)) = matching;
    let ClassAxis { classes, inner, .. } = axis;
    let right = (0..axis.positions()).filter(|position| {
        let first = position / inner * axis.row() + position % inner;
        let wanted = match matching {
            Matching::Labels(_) => target.data[*position] as usize,
            Matching::Same(_) => largest((0..classes).map(|c| target.data[first + c * inner])),
        };
        let value = output[first + wanted * inner];
        let above = |c: &usize| {
            let other = output[first + c * inner];
            other.is_nan() || other > value || (other == value && *c < wanted)
        };
        !value.is_nan() && (0..classes).filter(above).count() < k
    });
    Ok((right.count() as f64, axis.positions()))
}

fn largest(values: impl Iterator<Item = f32>) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, value) in values.enumerate() {
        if value > best.1 {
            best = (i, value);
        }
    }
    best.0
}

fn binary(
    threshold: f32,
    output: &[f32],
    shape: &[usize],
    target: Target<'_>,
) -> Result<(f64, usize), LossError> {
    let right = match Matching::of_values(shape, target)? {
        Matching::Same(_) => {
            let same = |(x, t): &(&f32, &f32)| !x.is_nan() && (**x > threshold) == (**t > 0.5);
            output.iter().zip(target.data).filter(same).count()
        }
        Matching::Labels(axis) => {
            let same = |(i, x): &(usize, &f32)| {
                let (outer, class, inner) = (i / axis.row(), i % axis.row() / axis.inner, i % axis.inner);
                !x.is_nan()
                    && (**x > threshold) == (target.data[outer * axis.inner + inner] as usize == class)
            };
            output.iter().enumerate().filter(same).count()
        }
    };
    Ok((right as f64, output.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(metric: Metric, output: &[f32], shape: &[usize], target: &[f32], target_shape: &[usize]) -> f64 {
        let mut sum = metric.begin();
        let target = Target { data: target, shape: target_shape };
        sum.add(&Threads::new(1), output, shape, target).expect("fits");
        sum.value().expect("a batch was added")
    }

    #[test]
    fn of_equal_outputs_the_first_counts() {
        let output = [1.0, 1.0, 0.0, 0.0, 2.0, 2.0];
        assert_eq!(of(Metric::Accuracy, &output, &[2, 3], &[0.0, 1.0], &[2]), 1.0);
        assert_eq!(of(Metric::Accuracy, &output, &[2, 3], &[1.0, 2.0], &[2]), 0.0);
        assert_eq!(of(Metric::TopK { k: 2 }, &output, &[2, 3], &[1.0, 2.0], &[2]), 1.0);
    }

    #[test]
    fn nan_is_never_right() {
        assert_eq!(of(Metric::Accuracy, &[f32::NAN, 1.0], &[1, 2], &[1.0], &[1]), 0.0);
        assert_eq!(of(Metric::Accuracy, &[f32::NAN, f32::NAN], &[1, 2], &[0.0], &[1]), 0.0);
    }

    #[test]
    fn classes_stand_on_the_last_or_the_second_axis() {
        // [1, 2, 3]: two classes at three positions.
        let output = [1.0, 0.0, 5.0, 0.0, 1.0, 6.0];
        assert_eq!(of(Metric::Accuracy, &output, &[1, 2, 3], &[0.0, 1.0, 0.0], &[1, 3]), 2.0 / 3.0);
        assert_eq!(of(Metric::Accuracy, &output, &[2, 3], &[0.0, 0.0, 1.0, 0.0, 0.0, 1.0], &[2, 3]), 1.0);
    }

    #[test]
    fn sums_of_parts_are_the_metric_of_the_whole() {
        let t = Threads::new(1);
        let (mut a, mut b) = (Metric::Mae.begin(), Metric::Mae.begin());
        assert_eq!(a.value(), None);
        a.add(&t, &[1.0, 2.0], &[2], Target { data: &[0.0, 0.0], shape: &[2] }).expect("fits");
        b.add(&t, &[6.0], &[1], Target { data: &[0.0], shape: &[1] }).expect("fits");
        a.merge(&b);
        assert_eq!(a.value(), Some(3.0));
        assert_eq!(MetricSum::from_parts(Metric::Mae, a.parts()), a);
    }

    #[test]
    fn a_uniform_guess_has_the_perplexity_of_the_number_of_classes() {
        let value = of(Metric::Perplexity, &[0.5; 8], &[2, 4], &[3.0, 0.0], &[2]);
        assert!((value - 4.0).abs() < 1e-6);
        let value =
            of(Metric::BinaryAccuracy { threshold: 0.5 }, &[0.1, 0.9, 0.6], &[3, 1], &[0.0, 1.0, 0.0], &[3]);
        assert!((value - 2.0 / 3.0).abs() < 1e-12);
    }
}
