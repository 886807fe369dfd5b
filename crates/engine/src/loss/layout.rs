//! Which element of a target belongs to which element of an output.

use super::{LossError, Target};

/// How the elements of a target and an output correspond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Matching {
    /// One to one. The class axis, where there is one, is the last or the second.
    Same(ClassAxis),
    /// The target holds a class for every vector along the axis.
    Labels(ClassAxis),
}

/// The class axis of an output seen as `[outer, classes, inner]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassAxis {
    pub(crate) outer: usize,
    pub(crate) classes: usize,
    pub(crate) inner: usize,
}

impl ClassAxis {
    fn new(shape: &[usize], axis: usize) -> Self {
        Self {
            outer: shape[..axis].iter().product(),
            classes: shape[axis],
            inner: shape[axis + 1..].iter().product(),
        }
    }

    /// How many vectors of classes there are.
    pub(crate) fn positions(&self) -> usize {
        self.outer * self.inner
    }

    /// The elements of one outer index.
    pub(crate) fn row(&self) -> usize {
        self.classes * self.inner
    }
}

impl Matching {
    /// For losses and metrics of classes.
    pub(crate) fn of_classes(shape: &[usize], target: Target<'_>) -> Result<Self, LossError> {
        if shape == target.shape {
            // PyTorch: probabilities of an output [C] or [N, C, …] are along C.
            let axis = if shape.is_empty() {
                return Err(misfit(shape, target));
            } else {
                usize::from(shape.len() > 1)
            };
            return Ok(Self::Same(ClassAxis::new(shape, axis)));
        }
        let axis = class_axis(shape, target.shape).ok_or_else(|| misfit(shape, target))?;
        let axis = ClassAxis::new(shape, axis);
        check_labels(target, axis, shape)?;
        Ok(Self::Labels(axis))
    }

    /// For losses and metrics that compare numbers.
    pub(crate) fn of_values(shape: &[usize], target: Target<'_>) -> Result<Self, LossError> {
        let flat = ClassAxis { outer: shape.iter().product(), classes: 1, inner: 1 };
        let dense = |shape: &[usize]| shape.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        if shape == target.shape || dense(shape) == dense(target.shape) {
            return Ok(Self::Same(flat));
        }
        Self::of_classes(shape, target)
    }
}

/// The axis whose removal (or reduction to one) turns the output's shape into the target's: the last, or the second.
fn class_axis(shape: &[usize], target: &[usize]) -> Option<usize> {
    let last = shape.len().checked_sub(1)?;
    [last, 1].into_iter().filter(|axis| *axis <= last).find(|axis| {
        let removed = shape.iter().enumerate().filter(|(i, _)| i != axis).map(|(_, n)| *n);
        let one = shape.iter().enumerate().map(|(i, n)| if i == *axis { 1 } else { *n });
        removed.eq(target.iter().copied()) || one.eq(target.iter().copied())
    })
}

fn check_labels(target: Target<'_>, axis: ClassAxis, shape: &[usize]) -> Result<(), LossError> {
    let wrong = |label: &f32| !(*label >= 0.0 && *label < axis.classes as f32 && label.fract() == 0.0);
    match target.data.iter().position(wrong) {
        None => Ok(()),
        Some(at) => {
            let per_sample = (target.data.len() / shape[0].max(1)).max(1);
            Err(LossError::Label { sample: at / per_sample, label: target.data[at], classes: axis.classes })
        }
    }
}

fn misfit(shape: &[usize], target: Target<'_>) -> LossError {
    LossError::Shape { output: shape.to_vec(), target: target.shape.to_vec() }
}

pub(crate) fn check_size(what: &'static str, data: &[f32], shape: &[usize]) -> Result<(), LossError> {
    let wanted = shape.iter().product();
    if data.len() == wanted {
        return Ok(());
    }
    Err(LossError::Size { what, got: data.len(), wanted, shape: shape.to_vec() })
}
