//! Losses that compare number by number.

use super::layout::{ClassAxis, Matching};
use super::{CheckedBatch, sum_blocks};
use crate::kernels::math::{exp, log, sigmoid, wide};
use crate::threads::scratch;

/// Elements to a task, about.
const BLOCK: usize = 16 * 1024;

/// Partial sums of a block: as many as the widest vectors have lanes, on every machine.
const LANES: usize = 16;

/// The loss of one number and its derivative.
pub(super) trait Pointwise: Copy + Sync {
    fn at(self, x: f32, target: f32) -> (f32, f32);
}

#[derive(Clone, Copy)]
pub(super) struct Square;

impl Pointwise for Square {
    #[inline(always)]
    fn at(self, x: f32, target: f32) -> (f32, f32) {
        let d = x - target;
        (d * d, 2.0 * d)
    }
}

#[derive(Clone, Copy)]
pub(super) struct L1Of;

impl Pointwise for L1Of {
    #[inline(always)]
    fn at(self, x: f32, target: f32) -> (f32, f32) {
        let d = x - target;
        (d.abs(), if d == 0.0 { 0.0 } else { 1f32.copysign(d) })
    }
}

#[derive(Clone, Copy)]
pub(super) struct HuberOf {
    pub(super) delta: f32,
}

impl Pointwise for HuberOf {
    #[inline(always)]
    fn at(self, x: f32, target: f32) -> (f32, f32) {
        let d = x - target;
        let far = self.delta * (d.abs() - 0.5 * self.delta);
        if d.abs() <= self.delta { (0.5 * d * d, d) } else { (far, self.delta.copysign(d)) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct BinaryProbability;

impl Pointwise for BinaryProbability {
    #[inline(always)]
    fn at(self, x: f32, target: f32) -> (f32, f32) {
        // PyTorch's bounds: a wrong certainty costs 100, not infinity.
        let bounded = |log: f32| if log < -100.0 { -100.0 } else { log };
        let loss = -(target * bounded(log(x)) + (1.0 - target) * bounded(log(1.0 - x)));
        let spread = (1.0 - x) * x;
        (loss, (x - target) / if spread < 1e-12 { 1e-12 } else { spread })
    }
}

#[derive(Clone, Copy)]
pub(super) struct BinaryLogits;

impl Pointwise for BinaryLogits {
    #[inline(always)]
    fn at(self, x: f32, target: f32) -> (f32, f32) {
        let e = exp(-x.abs());
        // log(1 + e), exact also where e vanishes in the sum.
        let u = 1.0 + e;
        let log1p = if u == 1.0 { e } else { log(u) * (e / (u - 1.0)) };
        let relu = if x > 0.0 { x } else { 0.0 };
        (relu - x * target + log1p, sigmoid(x) - target)
    }
}

pub(super) fn evaluate(
    rule: impl Pointwise,
    batch: CheckedBatch<'_>,
    matching: Matching,
    gradient: Option<&mut [f32]>,
) -> f64 {
    let len = batch.output.len();
    let scale = (f64::from(batch.weight) / len as f64) as f32;
    let sum = match matching {
        Matching::Same(_) => sum_blocks(batch.t, len, BLOCK, gradient, |range, gradient| {
            let (output, target) = (&batch.output[range.clone()], &batch.target[range]);
            block(rule, output, target, scale, gradient)
        }),
        Matching::Labels(axis) => {
            let rows = BLOCK.div_ceil(axis.row());
            sum_blocks(batch.t, len, rows * axis.row(), gradient, |range, gradient| {
                scratch(range.len(), |target| {
                    let first = range.start / axis.row();
                    one_hot(axis, &batch.target[first * axis.inner..], target);
                    block(rule, &batch.output[range], target, scale, gradient)
                })
            })
        }
    };
    sum / len as f64
}

/// Writes 1 at the class of every position and 0 elsewhere, as many rows as `out` holds.
fn one_hot(axis: ClassAxis, labels: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (row, labels) in out.chunks_exact_mut(axis.row()).zip(labels.chunks(axis.inner)) {
        for (i, label) in labels.iter().enumerate() {
            row[*label as usize * axis.inner + i] = 1.0;
        }
    }
}

fn block(
    rule: impl Pointwise,
    output: &[f32],
    target: &[f32],
    scale: f32,
    gradient: Option<&mut [f32]>,
) -> f64 {
    match gradient {
        Some(gradient) => wide!(with_gradient, (rule, output, target, scale, gradient)),
        None => wide!(loss_only, (rule, output, target)),
    }
}

#[inline(always)]
fn loss_only<P: Pointwise>((rule, output, target): (P, &[f32], &[f32])) -> f64 {
    let mut sums = [0f64; LANES];
    let (xs, x_rest) = output.as_chunks::<LANES>();
    let (ts, t_rest) = target.as_chunks::<LANES>();
    for (x, t) in xs.iter().zip(ts) {
        for l in 0..LANES {
            sums[l] += f64::from(rule.at(x[l], t[l]).0);
        }
    }
    for (l, (x, t)) in x_rest.iter().zip(t_rest).enumerate() {
        sums[l] += f64::from(rule.at(*x, *t).0);
    }
    sums.iter().sum()
}

#[inline(always)]
fn with_gradient<P: Pointwise>(
    (rule, output, target, scale, gradient): (P, &[f32], &[f32], f32, &mut [f32]),
) -> f64 {
    let mut sums = [0f64; LANES];
    let (xs, x_rest) = output.as_chunks::<LANES>();
    let (ts, t_rest) = target.as_chunks::<LANES>();
    let (gs, g_rest) = gradient.as_chunks_mut::<LANES>();
    for ((x, t), g) in xs.iter().zip(ts).zip(gs) {
        for l in 0..LANES {
            let (loss, slope) = rule.at(x[l], t[l]);
            sums[l] += f64::from(loss);
            g[l] = slope * scale;
        }
    }
    for (l, ((x, t), g)) in x_rest.iter().zip(t_rest).zip(g_rest).enumerate() {
        let (loss, slope) = rule.at(*x, *t);
        sums[l] += f64::from(loss);
        *g = slope * scale;
    }
    sums.iter().sum()
}
