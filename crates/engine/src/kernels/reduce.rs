//! Sums and extremes over some dims of a dense buffer, in an order that depends on the shape alone.

use crate::kernels::math::wide;
use crate::threads::{Threads, scratch};

/// What is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    Max,
    Min,
}

/// Dims in memory order, each kept or folded; results are multiplied by `scale`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reduction {
    pub(crate) dims: Vec<(usize, bool)>,
    pub(crate) fold: Fold,
    pub(crate) scale: f32,
    /// `outer × folded × inner` for each step, first the innermost fold.
    steps: Vec<(usize, usize, usize)>,
}

/// Rows of a column sum that are summed first: a fixed number, and more precise than one chain.
const ROWS: usize = 256;
/// Parts of a long sum for different threads.
const PARTS: usize = 8;

impl Reduction {
    pub(crate) fn new(dims: impl IntoIterator<Item = (usize, bool)>, fold: Fold, scale: f32) -> Self {
        let mut merged: Vec<(usize, bool)> = Vec::new();
        for (n, folded) in dims.into_iter().filter(|(n, _)| *n != 1) {
            match merged.last_mut() {
                Some((m, f)) if *f == folded => *m *= n,
                _ => merged.push((n, folded)),
            }
        }
        let steps = steps(merged.clone());
        Self { dims: merged, fold, scale, steps }
    }
}

fn steps(mut dims: Vec<(usize, bool)>) -> Vec<(usize, usize, usize)> {
    let product = |dims: &[(usize, bool)]| dims.iter().map(|(n, _)| n).product::<usize>();
    let mut steps = Vec::new();
    while let Some(i) = dims.iter().rposition(|(_, folded)| *folded) {
        steps.push((product(&dims[..i]), dims[i].0, product(&dims[i + 1..])));
        dims.remove(i);
    }
    steps
}

/// Folds `x` into `y`.
pub(crate) fn run(threads: &Threads, r: &Reduction, x: &[f32], y: &mut [f32]) {
    match r.steps.as_slice() {
        [] => y.iter_mut().zip(x).for_each(|(y, x)| *y = *x * r.scale),
        [step] => fold_step(threads, r.fold, *step, x, y),
        [first, rest @ ..] => scratch(first.0 * first.2, |a| {
            fold_step(threads, r.fold, *first, x, a);
            scratch(a.len(), |b| {
                let (mut from, mut to) = (a, b);
                for (i, step) in rest.iter().enumerate() {
                    if i + 1 == rest.len() {
                        fold_step(threads, r.fold, *step, from, y);
                    } else {
                        fold_step(threads, r.fold, *step, from, to);
                        std::mem::swap(&mut from, &mut to);
                    }
                }
            });
        }),
    }
    if r.scale != 1.0 && !r.steps.is_empty() {
        y.iter_mut().for_each(|v| *v *= r.scale);
    }
}

fn fold_step(
    threads: &Threads,
    fold: Fold,
    (outer, n, inner): (usize, usize, usize),
    x: &[f32],
    y: &mut [f32],
) {
    if n == 0 {
        y.fill(if fold == Fold::Sum { 0.0 } else { f32::NAN });
        return;
    }
    if inner == 1 {
        let rows = (16 * 1024 / n).max(1);
        threads.chunks(&mut y[..outer], rows, |i, y| {
            for (j, y) in y.iter_mut().enumerate() {
                let row = i * rows + j;
                *y = wide!(fold_row, (fold, &x[row * n..(row + 1) * n]));
            }
        });
    } else if outer == 1 && n * inner > 64 * 1024 {
        columns_in_parts(threads, fold, n, inner, x, y);
    } else {
        let slabs = (16 * 1024 / (n * inner)).max(1);
        threads.chunks(&mut y[..outer * inner], slabs * inner, |i, y| {
            for (j, y) in y.chunks_mut(inner).enumerate() {
                let from = (i * slabs + j) * n * inner;
                fold_columns(fold, &x[from..from + n * inner], inner, y);
            }
        });
    }
}

fn columns_in_parts(threads: &Threads, fold: Fold, n: usize, inner: usize, x: &[f32], y: &mut [f32]) {
    let rows = n.div_ceil(PARTS).max(1);
    scratch(n.div_ceil(rows) * inner, |parts| {
        threads.chunks(parts, inner, |i, part| {
            let to = ((i + 1) * rows).min(n);
            fold_columns(fold, &x[i * rows * inner..to * inner], inner, part);
        });
        fold_columns(fold, parts, inner, y);
    });
}

fn fold_columns(fold: Fold, x: &[f32], inner: usize, y: &mut [f32]) {
    if x.len() <= ROWS * inner {
        wide!(fold_block, (fold, x, y));
        return;
    }
    scratch(inner, |block| {
        for (i, rows) in x.chunks(ROWS * inner).enumerate() {
            if i == 0 {
                wide!(fold_block, (fold, rows, &mut *y));
            } else {
                wide!(fold_block, (fold, rows, &mut *block));
                wide!(combine, (fold, &*block, &mut *y));
            }
        }
    });
}

#[inline(always)]
fn pick(fold: Fold, a: f32, b: f32) -> f32 {
    match fold {
        Fold::Sum => a + b,
        Fold::Max => {
            if b > a || b.is_nan() {
                b
            } else {
                a
            }
        }
        Fold::Min => {
            if b < a || b.is_nan() {
                b
            } else {
                a
            }
        }
    }
}

#[inline(always)]
fn combine((fold, x, y): (Fold, &[f32], &mut [f32])) {
    match fold {
        Fold::Sum => {
            for (y, x) in y.iter_mut().zip(x) {
                *y += x;
            }
        }
        _ => {
            for (y, x) in y.iter_mut().zip(x) {
                *y = pick(fold, *y, *x);
            }
        }
    }
}

#[inline(always)]
fn fold_block((fold, x, y): (Fold, &[f32], &mut [f32])) {
    let inner = y.len();
    y.copy_from_slice(&x[..inner]);
    for row in x[inner..].chunks_exact(inner) {
        combine((fold, row, y));
    }
}

#[inline(always)]
fn fold_row((fold, x): (Fold, &[f32])) -> f32 {
    const LANES: usize = 16;
    let (chunks, rest) = x.as_chunks::<LANES>();
    let Some((first, more)) = chunks.split_first() else {
        return rest[1..].iter().fold(rest[0], |a, b| pick(fold, a, *b));
    };
    let mut lanes = *first;
    match fold {
        Fold::Sum => {
            for chunk in more {
                for l in 0..LANES {
                    lanes[l] += chunk[l];
                }
            }
        }
        _ => {
            for chunk in more {
                for l in 0..LANES {
                    lanes[l] = pick(fold, lanes[l], chunk[l]);
                }
            }
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = pick(fold, lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    rest.iter().fold(lanes[0], |a, b| pick(fold, a, *b))
}
