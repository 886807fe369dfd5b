//! Losses and their gradients with respect to a model's output, as PyTorch computes them with `reduction="mean"`.

mod classes;
pub(crate) mod layout;
mod objective;
mod pointwise;
#[cfg(test)]
mod tests;

pub use objective::{LossBatch, LossFunction, Objective, OwnLoss};

use crate::named::{from_word, named};
use crate::threads::{Threads, scratch};
use layout::Matching;
use phalanx_types::Class;
use pointwise::{BinaryLogits, BinaryProbability, HuberOf, L1Of, Pointwise, Square};
use serde::{Deserialize, Serialize};

/// How far an output is from its target. Written as `"mse"` or as `{ name = "huber", delta = 0.5 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// The mean of squared differences.
    Mse,
    /// The mean of absolute differences.
    L1,
    /// Squared up to `delta`, absolute beyond.
    Huber {
        #[serde(default = "one")]
        delta: f32,
    },
    /// Cross-entropy of logits; targets are classes or probabilities.
    CrossEntropy {
        /// The part of the probability that is spread over all classes.
        #[serde(default)]
        smoothing: f32,
    },
    /// Binary cross-entropy of probabilities.
    Bce,
    /// Binary cross-entropy of logits.
    BceWithLogits,
    /// Negative log-likelihood of log-probabilities; targets are classes or probabilities.
    Nll,
}

named!(Loss);

fn one() -> f32 {
    1.0
}

/// The targets of a batch. Classes are whole numbers, held as `f32` too.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub data: &'a [f32],
    pub shape: &'a [usize],
}

/// A target does not match an output.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    #[error("a target of shape {target:?} does not fit an output of shape {output:?}")]
    Shape { output: Vec<usize>, target: Vec<usize> },
    #[error("{what} has {got} elements, its shape {shape:?} says {wanted}")]
    Size { what: &'static str, got: usize, wanted: usize, shape: Vec<usize> },
    #[error("the label of sample {sample} is {label}, there are classes 0 to {}", classes.saturating_sub(1))]
    Label { sample: usize, label: f32, classes: usize },
    #[error("the batch is empty")]
    Empty,
    #[error("the loss `{name}` is a function that this process does not have")]
    Elsewhere { name: String },
}

impl LossError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

impl Loss {
    /// The loss of this name with its default settings: `mse`, `l1`, `huber`, `cross_entropy`, `bce`,
    /// `bce_with_logits`, `nll`.
    pub fn parse(name: &str) -> Option<Self> {
        from_word(name)
    }

    /// Returns the mean loss of a batch. If `gradient` is given, writes the gradient with respect to the output times
    /// `weight`.
    ///
    /// Cross-entropy and nll take classes in the shape of the output without its last dimension, or without its second
    /// (PyTorch's `[N, C, …]`), and probabilities in the shape of the output. The other losses compare number by
    /// number; for classes they compare with a one-hot vector.
    ///
    /// # Errors
    /// The shapes do not match, or a label is not one of the classes.
    pub fn evaluate(
        &self,
        t: &Threads,
        output: &[f32],
        shape: &[usize],
        target: Target<'_>,
        weight: f32,
        gradient: Option<&mut [f32]>,
    ) -> Result<f64, LossError> {
        layout::check_size("the output", output, shape)?;
        layout::check_size("the target", target.data, target.shape)?;
        if let Some(gradient) = gradient.as_deref() {
            layout::check_size("the gradient", gradient, shape)?;
        }
        if output.is_empty() {
            return Err(LossError::Empty);
        }
        let batch = CheckedBatch { t, output, target: target.data, weight };
        match *self {
            Loss::CrossEntropy { smoothing } => {
                let matching = Matching::of_classes(shape, target)?;
                Ok(classes::cross_entropy(batch, matching, smoothing, gradient))
            }
            Loss::Nll => Ok(classes::nll(batch, Matching::of_classes(shape, target)?, gradient)),
            Loss::Mse => Ok(pointwise(Square, batch, Matching::of_values(shape, target)?, gradient)),
            Loss::L1 => Ok(pointwise(L1Of, batch, Matching::of_values(shape, target)?, gradient)),
            Loss::Huber { delta } => {
                Ok(pointwise(HuberOf { delta }, batch, Matching::of_values(shape, target)?, gradient))
            }
            Loss::Bce => {
                Ok(pointwise(BinaryProbability, batch, Matching::of_values(shape, target)?, gradient))
            }
            Loss::BceWithLogits => {
                Ok(pointwise(BinaryLogits, batch, Matching::of_values(shape, target)?, gradient))
            }
        }
    }
}

/// The checked arguments of every loss.
#[derive(Debug, Clone, Copy)]
struct CheckedBatch<'a> {
    t: &'a Threads,
    output: &'a [f32],
    target: &'a [f32],
    weight: f32,
}

fn pointwise(
    rule: impl Pointwise,
    batch: CheckedBatch<'_>,
    matching: Matching,
    gradient: Option<&mut [f32]>,
) -> f64 {
    pointwise::evaluate(rule, batch, matching, gradient)
}

/// Runs `task` on every block of `block` elements of the output with its part of the gradient, if there is one, and
/// adds the results in block order.
fn sum_blocks(
    t: &Threads,
    len: usize,
    block: usize,
    gradient: Option<&mut [f32]>,
    task: impl Fn(std::ops::Range<usize>, Option<&mut [f32]>) -> f64 + Sync,
) -> f64 {
    let range = |i: usize| i * block..((i + 1) * block).min(len);
    scratch(2 * len.div_ceil(block), |sums| {
        let sums: &mut [f64] = bytemuck::cast_slice_mut(sums);
        match gradient {
            Some(gradient) => t.chunks2((&mut *sums, 1), (gradient, block), |i, sum, gradient| {
                sum[0] = task(range(i), Some(gradient));
            }),
            None => t.chunks(&mut *sums, 1, |i, sum| sum[0] = task(range(i), None)),
        }
        sums.iter().sum()
    })
}
