//! Layer norm: every row by itself.

use crate::kernels::math::{dot, sum, wide};
use crate::threads::{Threads, scratch};

/// Elements to a task, about.
const BLOCK: usize = 16 * 1024;

/// Rows whose weight gradients are added before they go to a longer sum.
const FLUSH: usize = 32;

/// A normalisation of rows of `d` elements; their number is that of the statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerNorm<'a> {
    pub(crate) d: usize,
    /// 1 if not given.
    pub(crate) weight: Option<&'a [f32]>,
    /// 0 if not given.
    pub(crate) bias: Option<&'a [f32]>,
}

impl LayerNorm<'_> {
    fn rows_per_task(&self) -> usize {
        BLOCK.div_ceil(self.d.max(1))
    }

    /// Fewer tasks in backward: each has sums as wide as a row.
    fn rows_per_sum(&self, rows: usize) -> usize {
        rows.div_ceil(32).max(self.rows_per_task())
    }
}

/// Normalises every row of `x` into `y`; gives back mean and `1 / sqrt(variance + eps)` of every row.
pub(crate) fn layer_norm_forward(
    t: &Threads,
    norm: LayerNorm<'_>,
    x: &[f32],
    eps: f32,
    y: &mut [f32],
    (mean, inv_std): (&mut [f32], &mut [f32]),
) {
    let rows = norm.rows_per_task();
    t.chunks3((y, rows * norm.d), (mean, rows), (inv_std, rows), |task, y, mean, inv_std| {
        let x = &x[task * rows * norm.d..][..y.len()];
        wide!(forward, (norm, x, eps, y, mean, inv_std));
    });
}

type ForwardArguments<'a> = (LayerNorm<'a>, &'a [f32], f32, &'a mut [f32], &'a mut [f32], &'a mut [f32]);

#[inline(always)]
fn forward((norm, x, eps, y, mean, inv_std): ForwardArguments<'_>) {
    let d = norm.d;
    for (r, (x, y)) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)).enumerate() {
        let m = sum(x) / d as f32;
        for (y, x) in y.iter_mut().zip(x) {
            *y = x - m;
        }
        let inv = 1.0 / (dot(y, y) / d as f32 + eps).sqrt();
        match (norm.weight, norm.bias) {
            (Some(weight), Some(bias)) => {
                for ((y, w), b) in y.iter_mut().zip(weight).zip(bias) {
                    *y = *y * inv * w + b;
                }
            }
            (Some(weight), None) => y.iter_mut().zip(weight).for_each(|(y, w)| *y = *y * inv * w),
            (None, Some(bias)) => y.iter_mut().zip(bias).for_each(|(y, b)| *y = *y * inv + b),
            (None, None) => y.iter_mut().for_each(|y| *y *= inv),
        }
        (mean[r], inv_std[r]) = (m, inv);
    }
}

/// The gradients, given that of the result.
pub(crate) fn layer_norm_backward(
    t: &Threads,
    norm: LayerNorm<'_>,
    (x, dy): (&[f32], &[f32]),
    (mean, inv_std): (&[f32], &[f32]),
    dx: &mut [f32],
    (dweight, dbias): (Option<&mut [f32]>, Option<&mut [f32]>),
) {
    let d = norm.d;
    let rows = norm.rows_per_sum(mean.len());
    let tasks = mean.len().div_ceil(rows);
    scratch(2 * d * tasks, |sums| {
        t.chunks2((dx, rows * d), (&mut *sums, 2 * d), |task, dx, sums| {
            let elements = task * rows * d..task * rows * d + dx.len();
            let statistics = task * rows..task * rows + dx.len() / d;
            let (x, dy) = (&x[elements.clone()], &dy[elements]);
            let (mean, inv_std) = (&mean[statistics.clone()], &inv_std[statistics]);
            scratch(3 * d, |buffer| wide!(backward, (norm, (x, dy), (mean, inv_std), dx, sums, buffer)));
        });
        for (which, out) in [dweight, dbias].into_iter().enumerate() {
            let Some(out) = out else { continue };
            out.fill(0.0);
            for part in sums.chunks_exact(2 * d) {
                out.iter_mut().zip(&part[which * d..]).for_each(|(out, part)| *out += part);
            }
        }
    });
}

type BackwardArguments<'a> = (
    LayerNorm<'a>,
    (&'a [f32], &'a [f32]),
    (&'a [f32], &'a [f32]),
    &'a mut [f32],
    &'a mut [f32],
    &'a mut [f32],
);

/// Writes `dx` and the sums of both learned gradients over these rows.
#[inline(always)]
fn backward((norm, (x, dy), (mean, inv_std), dx, sums, buffer): BackwardArguments<'_>) {
    let d = norm.d;
    let (weight, short) = buffer.split_at_mut(d);
    match norm.weight {
        Some(given) => weight.copy_from_slice(given),
        None => weight.fill(1.0),
    }
    sums.fill(0.0);
    let many = FLUSH * d;
    for (block, ((x, dy), dx)) in x.chunks(many).zip(dy.chunks(many)).zip(dx.chunks_mut(many)).enumerate() {
        short.fill(0.0);
        let (dweight, dbias) = short.split_at_mut(d);
        for (r, ((x, dy), dx)) in
            x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d)).enumerate()
        {
            let row = block * FLUSH + r;
            backward_row((x, dy), (mean[row], inv_std[row]), weight, dx, (&mut *dweight, &mut *dbias));
        }
        sums.iter_mut().zip(&*short).for_each(|(sum, short)| *sum += short);
    }
}

#[inline(always)]
fn backward_row(
    (x, dy): (&[f32], &[f32]),
    (mean, inv_std): (f32, f32),
    weight: &[f32],
    dx: &mut [f32],
    (dweight, dbias): (&mut [f32], &mut [f32]),
) {
    let d = weight.len();
    let (x, dy, dx) = (&x[..d], &dy[..d], &mut dx[..d]);
    let (dweight, dbias) = (&mut dweight[..d], &mut dbias[..d]);
    for j in 0..d {
        let normal = (x[j] - mean) * inv_std;
        dweight[j] += dy[j] * normal;
        dbias[j] += dy[j];
        dx[j] = dy[j] * weight[j];
    }
    let direct = sum(dx) / d as f32;
    let along = dot_centered(dx, x, mean) * (inv_std / d as f32);
    for j in 0..d {
        let normal = (x[j] - mean) * inv_std;
        dx[j] = (dx[j] - direct - normal * along) * inv_std;
    }
}

/// The sum of `a · (x - mean)`, in sixteen parts.
#[inline(always)]
fn dot_centered(a: &[f32], x: &[f32], mean: f32) -> f32 {
    let ((chunks, a_rest), (xs, x_rest)) = (a.as_chunks::<16>(), x.as_chunks::<16>());
    let mut parts = [0f32; 16];
    for (a, x) in chunks.iter().zip(xs) {
        for l in 0..16 {
            parts[l] += a[l] * (x[l] - mean);
        }
    }
    sum(&parts) + a_rest.iter().zip(x_rest).map(|(a, x)| a * (x - mean)).sum::<f32>()
}
