//! The gradient of the weights: for each channel and tap, the sum over all pixels.

use super::super::Conv2d;
use super::super::axis::ConvAxis;
use super::super::weights::AddUp;
use super::{ColumnShape, load};
use crate::simd;
use crate::threads::{Threads, scratch};
use pulp::{MemMask, Simd, WithSimd};

/// Elements of input and output in a block of rows, which is read once for every vector of channels.
const BLOCK: usize = 48 << 10;
/// Output elements per task.
const TASK: usize = 1 << 16;
const PARTS: usize = 8;
/// Pixels side by side, each with sums of its own.
const ABREAST: usize = 4;

/// Computes the gradient of the weights.
pub(in super::super) fn gradient(threads: &Threads, s: &Conv2d, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    if dy.is_empty() || dw.is_empty() {
        dw.fill(0.0);
        return;
    }
    let (rows, cols) = ConvAxis::forward(s);
    let taps = s.kh * s.kw;
    let size = taps * s.c;
    let lines = s.n * s.oh;
    let parts = (dy.len() / TASK).clamp(1, PARTS).min(lines);
    let per_block = (BLOCK / ((s.ow + s.stride.0 * s.w) * s.c)).max(1);
    scratch((parts + 1) * size, |all| {
        let (total, sums) = all.split_at_mut(size);
        threads.chunks(sums, size, |part, sums| {
            sums.fill(0.0);
            let (from, to) = (part * lines / parts, (part + 1) * lines / parts);
            for first in (from..to).step_by(per_block) {
                let end = (first + per_block).min(to);
                simd::arch().dispatch(RowBlock { s, rows, cols, x, dy, first, end, sums });
            }
        });
        simd::arch().dispatch(AddUp { parts: sums, each: size, total });
        for (c, dw) in dw.chunks_exact_mut(taps).enumerate() {
            dw.iter_mut().zip(total.iter().skip(c).step_by(s.c)).for_each(|(to, from)| *to = *from);
        }
    });
}

/// Some rows of the output, and the sums `[tap][channel]` they are added to.
struct RowBlock<'a> {
    s: &'a Conv2d,
    rows: ConvAxis,
    cols: ConvAxis,
    x: &'a [f32],
    dy: &'a [f32],
    first: usize,
    end: usize,
    sums: &'a mut [f32],
}

impl WithSimd for RowBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let c = self.s.c;
        let lanes = S::F32_LANES;
        if c < lanes {
            self.vector::<S, false>(simd, 0, simd.mask_between_m32s(0, c as u32));
            return;
        }
        for lane in (0..c).step_by(lanes) {
            // The last vector overlaps channels that are done; these are not added again.
            let first = lane.min(c - lanes);
            self.vector::<S, true>(simd, first, simd.mask_between_m32s((lane - first) as u32, lanes as u32));
        }
    }
}

impl RowBlock<'_> {
    #[inline(always)]
    fn vector<S: Simd, const WHOLE: bool>(&mut self, simd: S, lane: usize, rest: MemMask<S::m32s>) {
        for r in 0..self.s.kh {
            match (self.s.kw, self.s.stride.1, self.s.dilation.1) {
                (3, 1, 1) => self.row_of_taps::<S, 3, WHOLE>(simd, 1, r, 0, lane, rest),
                (3, 2, 1) => self.row_of_taps::<S, 3, WHOLE>(simd, 2, r, 0, lane, rest),
                (5, 1, 1) => self.row_of_taps::<S, 5, WHOLE>(simd, 1, r, 0, lane, rest),
                (5, 2, 1) => self.row_of_taps::<S, 5, WHOLE>(simd, 2, r, 0, lane, rest),
                (kw, stride, _) => {
                    (0..kw).for_each(|q| self.row_of_taps::<S, 1, WHOLE>(simd, stride, r, q, lane, rest));
                }
            }
        }
    }

    /// Adds to the sums of `K` taps of row `r` of the window, from tap `q` on, for one vector of channels.
    #[inline(always)]
    fn row_of_taps<S: Simd, const K: usize, const WHOLE: bool>(
        &mut self,
        simd: S,
        stride: usize,
        r: usize,
        q: usize,
        lane: usize,
        rest: MemMask<S::m32s>,
    ) {
        let Conv2d { c, h, w, oh, ow, kw, .. } = *self.s;
        // The same axis, restricted to these taps.
        let first = self.cols.first + (q * self.cols.step) as isize;
        let cols = ConvAxis { first, taps: K, ..self.cols };
        let inner = cols.inner();
        let shape = ColumnShape { taps: K, stride, step: 1 };
        let mut sums = [[simd.splat_f32s(0.0); ABREAST]; K];
        for line in self.first..self.end {
            let (image, i) = (line / oh, line % oh);
            let row = (i * self.rows.stride + r * self.rows.step).wrapping_add_signed(self.rows.first);
            if row >= h {
                continue;
            }
            let x = &self.x[(image * h + row) * w * c..][..w * c];
            let dy = &self.dy[line * ow * c..][..ow * c];
            let lines = Lines { x, dy, c, lane, first };
            for at in (0..inner.start).chain(inner.end..ow) {
                let valid = cols.valid(at);
                for (k, sums) in sums.iter_mut().enumerate() {
                    if valid.contains(&k) {
                        let from = (at * stride + k * cols.step).wrapping_add_signed(first);
                        sums[0] = lines.product::<S, WHOLE>(simd, from, at, sums[0], rest);
                    }
                }
            }
            lines.abreast::<S, K, WHOLE>(simd, shape, inner.clone(), &mut sums, rest);
        }
        for (k, sums) in sums.into_iter().enumerate() {
            let sum = sums.into_iter().reduce(|a, b| simd.add_f32s(a, b)).expect("some sums");
            let to = &mut self.sums[(r * kw + q + k) * c + lane..][..S::F32_LANES.min(c - lane)];
            // SAFETY: `to` holds the vector, or as much of it as there are channels.
            unsafe {
                let before = simd.mask_load_ptr_f32s(rest, to.as_ptr());
                simd.mask_store_ptr_f32s(rest, to.as_mut_ptr(), simd.add_f32s(before, sum));
            }
        }
    }
}

/// A row of the input and a row of the output.
struct Lines<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    c: usize,
    lane: usize,
    first: isize,
}

impl Lines<'_> {
    /// `sum` and the product of the input at pixel `from` with the output at pixel `at`.
    #[inline(always)]
    fn product<S: Simd, const WHOLE: bool>(
        &self,
        simd: S,
        from: usize,
        at: usize,
        sum: S::f32s,
        rest: MemMask<S::m32s>,
    ) -> S::f32s {
        let Self { x, dy, c, lane, .. } = *self;
        assert!((from + 1) * c <= x.len() && (at + 1) * c <= dy.len(), "a pixel beyond its row");
        // SAFETY: the pixels are there, and the vector is within their channels.
        unsafe {
            let x = load::<S, WHOLE>(simd, x.as_ptr().add(from * c + lane), rest);
            simd.mul_add_e_f32s(x, load::<S, WHOLE>(simd, dy.as_ptr().add(at * c + lane), rest), sum)
        }
    }

    /// Adds the products of the pixels `inner`, whose taps are all inside the input.
    #[inline(always)]
    fn abreast<S: Simd, const K: usize, const WHOLE: bool>(
        &self,
        simd: S,
        shape: ColumnShape,
        inner: std::ops::Range<usize>,
        sums: &mut [[S::f32s; ABREAST]; K],
        rest: MemMask<S::m32s>,
    ) {
        let Self { x, dy, c, lane, first } = *self;
        if inner.is_empty() {
            return;
        }
        let left = (inner.start * shape.stride).wrapping_add_signed(first);
        let right = left + (inner.len() - 1) * shape.stride + (K - 1) * shape.step;
        assert!((right + 1) * c <= x.len() && inner.end * c <= dy.len(), "a pixel beyond its row");
        let mut x = x[left * c..].as_ptr().wrapping_add(lane);
        let mut dy = dy[inner.start * c..].as_ptr().wrapping_add(lane);
        for _ in 0..inner.len() / ABREAST {
            for j in 0..ABREAST {
                let (x, dy) = (x.wrapping_add(j * shape.stride * c), dy.wrapping_add(j * c));
                // SAFETY: the pixels of `inner` and their taps are within the rows.
                unsafe { pixel::<S, K, WHOLE>(simd, (x, shape.step * c), dy, sums, j, rest) };
            }
            x = x.wrapping_add(ABREAST * shape.stride * c);
            dy = dy.wrapping_add(ABREAST * c);
        }
        for _ in 0..inner.len() % ABREAST {
            // SAFETY: as above.
            unsafe { pixel::<S, K, WHOLE>(simd, (x, shape.step * c), dy, sums, 0, rest) };
            x = x.wrapping_add(shape.stride * c);
            dy = dy.wrapping_add(c);
        }
    }
}

/// Adds the products of one pixel of the output with its taps, `ahead` from each other.
///
/// # Safety
/// The pixel and its taps are there.
#[inline(always)]
unsafe fn pixel<S: Simd, const K: usize, const WHOLE: bool>(
    simd: S,
    (x, ahead): (*const f32, usize),
    dy: *const f32,
    sums: &mut [[S::f32s; ABREAST]; K],
    j: usize,
    rest: MemMask<S::m32s>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let dy = load::<S, WHOLE>(simd, dy, rest);
        for (k, sums) in sums.iter_mut().enumerate() {
            let x = load::<S, WHOLE>(simd, x.wrapping_add(k * ahead), rest);
            sums[j] = simd.mul_add_e_f32s(x, dy, sums[j]);
        }
    }
}
