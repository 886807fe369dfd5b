//! The gradients of pooling: computed for every input position from the windows that cover it.

use super::window::{Window, channel_blocks, meetings, windows};
use super::{AverageScale, Pool2d, rows_per_task};
use crate::simd;
use crate::threads::Threads;
use pulp::{Simd, WithSimd};

/// Adds each output's gradient to its maximal input.
pub(crate) fn max_backward(threads: &Threads, s: &Pool2d, dy: &[f32], index: &[u8], dx: &mut [f32]) {
    let rows = rows_per_task(s.n * s.h, s.w, s.c);
    threads.chunks(dx, (rows * s.w * s.c).max(1), |i, dx| {
        simd::arch().dispatch(MaxGradRows { s, dy, index, first: i * rows, dx });
    });
}

/// Some rows of the input, counted through all images.
struct MaxGradRows<'a> {
    s: &'a Pool2d,
    dy: &'a [f32],
    index: &'a [u8],
    first: usize,
    dx: &'a mut [f32],
}

impl WithSimd for MaxGradRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { s, dy, index, first, dx } = self;
        dx.fill(0.0);
        meetings(s, first, dx.len() / (s.w * s.c), |tap, from, to| {
            let (dy, index) = (&dy[from * s.c..][..s.c], &index[from * s.c..][..s.c]);
            let dx = &mut dx[to * s.c..][..s.c];
            for ((dx, dy), index) in dx.iter_mut().zip(dy).zip(index) {
                *dx += if *index == tap as u8 { *dy } else { 0.0 };
            }
        });
    }
}

/// As [`max_backward`], for windows too large for an index: searches for the maxima again.
pub(crate) fn max_backward_from(threads: &Threads, s: &Pool2d, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    threads.chunks(dx, (s.h * s.w * s.c).max(1), |image, dx| {
        simd::arch().dispatch(MaxAgain { s, x, dy, image, dx });
    });
}

/// One image.
struct MaxAgain<'a> {
    s: &'a Pool2d,
    x: &'a [f32],
    dy: &'a [f32],
    image: usize,
    dx: &'a mut [f32],
}

impl WithSimd for MaxAgain<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { s, x, dy, image, dx } = self;
        dx.fill(0.0);
        windows(s, x, image * s.oh, s.oh, |window, at| {
            let dy = &dy[(image * s.oh * s.ow + at) * s.c..][..s.c];
            if !window.rows.is_empty() && !window.cols.is_empty() {
                channel_blocks!(s.c, give_block, &window, dy, dx);
            }
        });
    }
}

#[inline(always)]
fn give_block<const W: usize>(at: usize, window: &Window<'_>, dy: &[f32], dx: &mut [f32]) {
    let s = window.s;
    let (_, index) = window.max::<W>(at);
    for (i, tap) in index.into_iter().enumerate() {
        let (r, q) = (tap as usize / s.kw, tap as usize % s.kw);
        let y = (r * s.dilation.0).wrapping_add_signed(window.corner.0);
        let x = (q * s.dilation.1).wrapping_add_signed(window.corner.1);
        dx[(y * s.w + x) * s.c + at + i] += dy[at + i];
    }
}

/// Distributes each output's gradient equally over the inputs of its window.
pub(crate) fn average_backward(
    threads: &Threads,
    s: &Pool2d,
    count_padding: bool,
    dy: &[f32],
    dx: &mut [f32],
) {
    let rows = rows_per_task(s.n * s.h, s.w, s.c);
    let shares = AverageScale::new(s, count_padding);
    threads.chunks(dx, (rows * s.w * s.c).max(1), |i, dx| {
        simd::arch().dispatch(AverageGradRows { s, shares, dy, first: i * rows, dx });
    });
}

/// Some rows of the input, counted through all images.
struct AverageGradRows<'a> {
    s: &'a Pool2d,
    shares: AverageScale,
    dy: &'a [f32],
    first: usize,
    dx: &'a mut [f32],
}

impl WithSimd for AverageGradRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { s, shares, dy, first, dx } = self;
        dx.fill(0.0);
        meetings(s, first, dx.len() / (s.w * s.c), |_, from, to| {
            let share = shares.of(from);
            let dy = &dy[from * s.c..][..s.c];
            dx[to * s.c..][..s.c].iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * share);
        });
    }
}
