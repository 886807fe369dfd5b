//! Softmax and its logarithm, along rows.

use crate::kernels::math::{dot, exp, exp_row, largest, log, sum, wide};
use crate::threads::Threads;

/// Elements to a task, about.
const BLOCK: usize = 16 * 1024;

fn rows(d: usize) -> usize {
    BLOCK.div_ceil(d.max(1)) * d.max(1)
}

/// Subtracted from a row before the exponential. A row of minus infinities stays unchanged.
#[inline(always)]
fn shift(x: &[f32]) -> f32 {
    let max = largest(x);
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Every row of `d` elements becomes probabilities.
pub(crate) fn softmax_forward(t: &Threads, d: usize, x: &[f32], y: &mut [f32]) {
    t.chunks(y, rows(d), |i, y| wide!(softmax, (d, &x[i * rows(d)..][..y.len()], y)));
}

#[inline(always)]
fn softmax((d, x, y): (usize, &[f32], &mut [f32])) {
    for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
        let factor = 1.0 / exp_row(x, shift(x), y);
        y.iter_mut().for_each(|y| *y *= factor);
    }
}

/// The gradient of a row is `y · (dy - Σ dy · y)`.
pub(crate) fn softmax_backward(t: &Threads, d: usize, (y, dy): (&[f32], &[f32]), dx: &mut [f32]) {
    t.chunks(dx, rows(d), |i, dx| {
        let range = i * rows(d)..i * rows(d) + dx.len();
        wide!(softmax_gradient, (d, &y[range.clone()], &dy[range], dx));
    });
}

#[inline(always)]
fn softmax_gradient((d, y, dy, dx): (usize, &[f32], &[f32], &mut [f32])) {
    for ((y, dy), dx) in y.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d)) {
        let along = dot(y, dy);
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = y * (dy - along);
        }
    }
}

/// Every row of `d` elements becomes logarithms of probabilities.
pub(crate) fn log_softmax_forward(t: &Threads, d: usize, x: &[f32], y: &mut [f32]) {
    t.chunks(y, rows(d), |i, y| wide!(log_softmax, (d, &x[i * rows(d)..][..y.len()], y)));
}

#[inline(always)]
fn log_softmax((d, x, y): (usize, &[f32], &mut [f32])) {
    for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
        let shift = shift(x);
        let total = log(exp_row(x, shift, y));
        for (y, x) in y.iter_mut().zip(x) {
            *y = x - shift - total;
        }
    }
}

/// The gradient of a row is `dy - e^y · Σ dy`.
pub(crate) fn log_softmax_backward(t: &Threads, d: usize, (y, dy): (&[f32], &[f32]), dx: &mut [f32]) {
    t.chunks(dx, rows(d), |i, dx| {
        let range = i * rows(d)..i * rows(d) + dx.len();
        wide!(log_softmax_gradient, (d, &y[range.clone()], &dy[range], dx));
    });
}

#[inline(always)]
fn log_softmax_gradient((d, y, dy, dx): (usize, &[f32], &[f32], &mut [f32])) {
    for ((y, dy), dx) in y.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d)) {
        let total = sum(dy);
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = dy - exp(*y) * total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::math::testing::{bits, close, double, noise, slopes, slopes_agree};

    fn reference(d: usize, x: &[f64], logarithm: bool) -> Vec<f64> {
        let row = |x: &[f64]| -> Vec<f64> {
            let total = x.iter().map(|x| x.exp()).sum::<f64>();
            x.iter().map(|x| if logarithm { x - total.ln() } else { x.exp() / total }).collect()
        };
        x.chunks(d).flat_map(row).collect()
    }

    #[test]
    fn rows_become_probabilities_and_gradients_follow() {
        for (rows, d) in [(1, 1), (3, 7), (50, 100), (2, 30_000), (700, 33)] {
            let x: Vec<f32> = noise(rows * d, 1).iter().map(|x| 6.0 * x).collect();
            let dy = noise(rows * d, 2);
            for logarithm in [false, true] {
                let run = |threads: usize| {
                    let t = Threads::new(threads);
                    let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
                    if logarithm {
                        log_softmax_forward(&t, d, &x, &mut y);
                        log_softmax_backward(&t, d, (&y, &dy), &mut dx);
                    } else {
                        softmax_forward(&t, d, &x, &mut y);
                        softmax_backward(&t, d, (&y, &dy), &mut dx);
                    }
                    (y, dx)
                };
                let (y, dx) = run(2);
                let what = format!("{rows} x {d}");
                close(&y, &reference(d, &double(&x), logarithm), 1e-6, &what);
                let loss = |x: &[f64]| -> f64 {
                    reference(d, x, logarithm).iter().zip(&dy).map(|(y, g)| y * f64::from(*g)).sum()
                };
                if d > 1 {
                    slopes_agree(&dx, &slopes(&x, loss), 2e-5, &what);
                }
                for threads in [1, 3] {
                    let other = run(threads);
                    assert!(bits(&other.0) == bits(&y) && bits(&other.1) == bits(&dx), "{what}");
                }
            }
        }
    }

    #[test]
    fn masked_elements_have_no_probability() {
        let x = [1000.0, f32::NEG_INFINITY, 1000.0];
        let mut y = [0.0; 3];
        softmax_forward(&Threads::new(1), 3, &x, &mut y);
        assert_eq!(y, [0.5, 0.0, 0.5]);
    }
}
