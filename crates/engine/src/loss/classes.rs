//! Losses over classes: cross-entropy of logits, negative log-likelihood of log-probabilities.

use super::layout::{ClassAxis, Matching};
use super::{CheckedBatch, sum_blocks};
use crate::kernels::math::{exp_row, largest, sum, wide};
use crate::threads::scratch;

/// Elements to a task, about.
const BLOCK: usize = 16 * 1024;

/// The target of one vector of classes.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Label(usize),
    Probabilities(&'a [f32]),
}

#[derive(Clone, Copy)]
struct Rule {
    smoothing: f32,
    scale: f32,
}

pub(super) fn cross_entropy(
    batch: CheckedBatch<'_>,
    matching: Matching,
    smoothing: f32,
    gradient: Option<&mut [f32]>,
) -> f64 {
    let axis = axis(matching);
    let positions = axis.positions() as f64;
    let rule = Rule { smoothing, scale: (f64::from(batch.weight) / positions) as f32 };
    let labels = matches!(matching, Matching::Labels(_));
    let block = BLOCK.div_ceil(axis.row()) * axis.row();
    let sum = sum_blocks(batch.t, batch.output.len(), block, gradient, |range, mut gradient| {
        let mut sum = 0.0;
        for (i, x) in batch.output[range.clone()].chunks_exact(axis.row()).enumerate() {
            let outer = range.start / axis.row() + i;
            let part = if labels { axis.inner } else { axis.row() };
            let target = &batch.target[outer * part..][..part];
            let gradient = gradient.as_deref_mut().map(|g| &mut g[i * axis.row()..][..axis.row()]);
            sum += if axis.inner == 1 {
                contiguous(rule, x, target, labels, gradient)
            } else {
                strided(rule, axis, x, target, labels, gradient)
            };
        }
        sum
    });
    sum / positions
}

fn axis(matching: Matching) -> ClassAxis {
    let (Matching::Same(axis) | Matching::Labels(axis)) = matching;
    axis
}

fn contiguous(rule: Rule, x: &[f32], target: &[f32], labels: bool, gradient: Option<&mut [f32]>) -> f64 {
    let wanted = if labels { Wanted::Label(target[0] as usize) } else { Wanted::Probabilities(target) };
    match gradient {
        Some(gradient) => wide!(row, (rule, x, wanted, gradient)),
        None => scratch(x.len(), |unused| wide!(row, (rule, x, wanted, unused))),
    }
}

/// The vectors of one `[classes, inner]`, each gathered first.
fn strided(
    rule: Rule,
    axis: ClassAxis,
    x: &[f32],
    target: &[f32],
    labels: bool,
    mut gradient: Option<&mut [f32]>,
) -> f64 {
    let ClassAxis { classes, inner, .. } = axis;
    let mut sum = 0.0;
    scratch(3 * classes, |buffer| {
        let (logits, rest) = buffer.split_at_mut(classes);
        let (probabilities, slopes) = rest.split_at_mut(classes);
        for i in 0..inner {
            (0..classes).for_each(|c| logits[c] = x[c * inner + i]);
            let wanted = if labels {
                Wanted::Label(target[i] as usize)
            } else {
                (0..classes).for_each(|c| probabilities[c] = target[c * inner + i]);
                Wanted::Probabilities(probabilities)
            };
            sum += wide!(row, (rule, &*logits, wanted, &mut *slopes));
            if let Some(gradient) = gradient.as_deref_mut() {
                (0..classes).for_each(|c| gradient[c * inner + i] = slopes[c]);
            }
        }
    });
    sum
}

/// The loss of one vector of logits, and its gradient into `gradient`.
#[inline(always)]
fn row((rule, x, wanted, gradient): (Rule, &[f32], Wanted<'_>, &mut [f32])) -> f64 {
    let Rule { smoothing, scale } = rule;
    let max = largest(x);
    // If all are minus infinity, the differences must be minus infinity too, not NaN.
    let max = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let total = f64::from(exp_row(x, max, gradient));
    let log_total = f64::from(max) + total.ln();
    let kept = 1.0 - smoothing;
    let share = smoothing / x.len() as f32;
    match wanted {
        Wanted::Label(label) => {
            let factor = scale * (1.0 / total) as f32;
            let everywhere = scale * share;
            for g in gradient.iter_mut() {
                *g = *g * factor - everywhere;
            }
            gradient[label] -= scale * kept;
            let loss = log_total - f64::from(x[label]);
            if smoothing == 0.0 {
                return loss;
            }
            let mean = f64::from(sum(x)) / x.len() as f64;
            f64::from(kept) * loss + f64::from(smoothing) * (log_total - mean)
        }
        Wanted::Probabilities(p) => {
            let mass = sum(p) * kept + smoothing;
            let factor = scale * mass * (1.0 / total) as f32;
            let mut loss = 0.0;
            for ((g, x), p) in gradient.iter_mut().zip(x).zip(p) {
                let p = p * kept + share;
                *g = *g * factor - p * scale;
                loss += f64::from(p) * (log_total - f64::from(*x));
            }
            loss
        }
    }
}

pub(super) fn nll(batch: CheckedBatch<'_>, matching: Matching, mut gradient: Option<&mut [f32]>) -> f64 {
    let axis = axis(matching);
    let positions = axis.positions() as f64;
    let scale = (f64::from(batch.weight) / positions) as f32;
    let mut sum = 0.0;
    match matching {
        Matching::Labels(ClassAxis { inner, .. }) => {
            if let Some(gradient) = gradient.as_deref_mut() {
                gradient.fill(0.0);
            }
            for (i, label) in batch.target.iter().enumerate() {
                let at = i / inner * axis.row() + *label as usize * inner + i % inner;
                sum -= f64::from(batch.output[at]);
                if let Some(gradient) = gradient.as_deref_mut() {
                    gradient[at] = -scale;
                }
            }
        }
        Matching::Same(_) => {
            sum -= batch
                .output
                .iter()
                .zip(batch.target)
                .map(|(x, p)| f64::from(*x) * f64::from(*p))
                .sum::<f64>();
            if let Some(gradient) = gradient {
                gradient.iter_mut().zip(batch.target).for_each(|(g, p)| *g = -scale * p);
            }
        }
    }
    sum / positions
}
