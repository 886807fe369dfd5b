//! Products with a weight matrix: `y = x · wᵀ`, and its gradients.

use crate::kernels::few_rows;
use crate::kernels::gemm::{Mat, Size, parallel};
use crate::kernels::math::wide;
use crate::threads::Threads;

/// `x [rows, k]`, `w [o, k]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Linear {
    pub(crate) rows: usize,
    pub(crate) k: usize,
    pub(crate) o: usize,
    /// Forward reads the weights where they lie: for few rows, in programs that only infer.
    pub(crate) unpacked: bool,
}

/// Elements finished by one task.
const TASK: usize = 16 * 1024;

/// `finish` is called on finished rows: (first row, the rows).
pub(crate) fn forward(
    threads: &Threads,
    s: Linear,
    x: &[f32],
    w: &[f32],
    y: &mut [f32],
    finish: Option<impl Fn(usize, &mut [f32]) + Sync>,
) {
    let size = Size { m: s.rows, n: s.o, k: s.k };
    let (x, w) = (Mat::rows(x, s.k), Mat::transposed(w, s.k));
    if s.unpacked {
        few_rows::product(threads, size, x, w, y)
    } else {
        parallel(threads, size, x, w, y)
    }
    if let Some(finish) = finish {
        let rows = (TASK / s.o.max(1)).max(1);
        threads.chunks(&mut y[..s.rows * s.o], (rows * s.o).max(1), |i, y| finish(i * rows, y));
    }
}

pub(crate) fn grad_input(threads: &Threads, s: Linear, dy: &[f32], w: &[f32], dx: &mut [f32]) {
    let size = Size { m: s.rows, n: s.k, k: s.o };
    parallel(threads, size, Mat::rows(dy, s.o), Mat::rows(w, s.k), dx);
}

pub(crate) fn grad_weight(threads: &Threads, s: Linear, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    let size = Size { m: s.o, n: s.k, k: s.rows };
    parallel(threads, size, Mat::transposed(dy, s.o), Mat::rows(x, s.k), dw);
}

/// Adds one number to every column.
pub(crate) fn add_bias(bias: &[f32], rows: &mut [f32]) {
    wide!(add_rows, (bias, rows));
}

#[inline(always)]
fn add_rows((bias, rows): (&[f32], &mut [f32])) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (y, b) in row.iter_mut().zip(bias) {
            *y += b;
        }
    }
}
