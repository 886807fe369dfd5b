//! The objective of training: a loss of this crate, or a function of the user's own.

use super::layout::check_size;
use super::{Loss, LossError, Target};
use crate::clip::scale;
use crate::threads::Threads;
use std::fmt;
use std::sync::Arc;

/// One batch, as a loss function gets it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LossBatch<'a> {
    /// The model's output, row-major.
    pub output: &'a [f32],
    /// The shape of the output; its first dimension is the batch.
    pub shape: &'a [usize],
    /// The labels of the batch.
    pub target: Target<'a>,
}

/// A loss of the user's own: gives the mean loss of a batch and writes its gradient with respect to every element of
/// the output into memory of the output's size.
///
/// Closures are loss functions. This one is the mean of squared differences:
///
/// ```
/// use phalanx_engine::{LossBatch, OwnLoss};
///
/// let squares = |batch: &LossBatch<'_>, gradient: &mut [f32]| {
///     let n = batch.output.len() as f32;
///     let mut loss = 0.0;
///     for ((out, want), gradient) in batch.output.iter().zip(batch.target.data).zip(gradient) {
///         *gradient = 2.0 * (out - want) / n;
///         loss += f64::from((out - want).powi(2));
///     }
///     loss / f64::from(n)
/// };
/// let loss = OwnLoss::new("squares", squares);
/// assert_eq!(loss.name(), "squares");
/// ```
pub trait LossFunction: Send + Sync {
    /// The mean loss of a batch; every element of `gradient` is written.
    fn evaluate(&self, batch: &LossBatch<'_>, gradient: &mut [f32]) -> f64;
}

impl<F: Fn(&LossBatch<'_>, &mut [f32]) -> f64 + Send + Sync> LossFunction for F {
    fn evaluate(&self, batch: &LossBatch<'_>, gradient: &mut [f32]) -> f64 {
        self(batch, gradient)
    }
}

/// A loss function with a name, by which run files and messages mean it. Clones share the function.
#[derive(Clone)]
pub struct OwnLoss {
    name: Arc<str>,
    /// None for a loss that only other processes have.
    function: Option<Arc<dyn LossFunction>>,
}

impl OwnLoss {
    /// Names a loss function.
    pub fn new(name: &str, function: impl LossFunction + 'static) -> Self {
        Self { name: name.into(), function: Some(Arc::new(function)) }
    }

    /// A loss that this process does not have: a driver of a run, or a node without the last stage, only names it.
    pub fn elsewhere(name: &str) -> Self {
        Self { name: name.into(), function: None }
    }

    /// The name in run files and messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this process has the function.
    pub fn is_here(&self) -> bool {
        self.function.is_some()
    }
}

impl fmt::Debug for OwnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnLoss").field(&self.name).finish()
    }
}

/// The function that training minimises.
#[derive(Debug, Clone)]
pub enum Objective {
    /// A loss with a name in run files.
    Named(Loss),
    /// A function of the user's own; only processes that were given it have it.
    Own(OwnLoss),
}

impl From<Loss> for Objective {
    fn from(loss: Loss) -> Self {
        Self::Named(loss)
    }
}

impl From<OwnLoss> for Objective {
    fn from(loss: OwnLoss) -> Self {
        Self::Own(loss)
    }
}

impl Objective {
    /// The loss with a name in run files, if it is one.
    pub fn named(&self) -> Option<Loss> {
        match self {
            Self::Named(loss) => Some(*loss),
            Self::Own(_) => None,
        }
    }

    /// Returns the mean loss of a batch. If `gradient` is given, writes the gradient with respect to the output times
    /// `weight`.
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
        match self {
            Self::Named(loss) => loss.evaluate(t, output, shape, target, weight, gradient),
            Self::Own(own) => {
                check_size("the output", output, shape)?;
                check_size("the target", target.data, target.shape)?;
                if output.is_empty() {
                    return Err(LossError::Empty);
                }
                let elsewhere = || LossError::Elsewhere { name: own.name.to_string() };
                let function = own.function.as_ref().ok_or_else(elsewhere)?;
                let batch = LossBatch { output, shape, target };
                let Some(gradient) = gradient else {
                    return Ok(function.evaluate(&batch, &mut vec![0.0; output.len()]));
                };
                check_size("the gradient", gradient, shape)?;
                let loss = function.evaluate(&batch, gradient);
                if weight != 1.0 {
                    scale(t, gradient, weight);
                }
                Ok(loss)
            }
        }
    }
}
