//! Depthwise convolutions: every channel by itself. Vectors run along the channels; sums stay in registers.
//!
//! As for other convolutions the gradient of the input is one convolution for each phase of the stride.

#![expect(
    unsafe_code,
    reason = "explicit vectors; every address is checked against the slices before the loop"
)]

mod weights;

use super::Conv2d;
use super::axis::ConvAxis;
use crate::simd;
use crate::threads::{Threads, scratch};
use pulp::{MemMask, Simd, WithSimd};
use std::ops::Range;
pub(super) use weights::gradient;

/// Output elements per task, few enough to stay in the L2 cache.
const TASK: usize = 1 << 15;
/// Output pixels side by side, computed at once.
const ABREAST: usize = 4;

/// Computes `y` from `x`, or with `back` the gradient of `x` from the gradient of `y`; both are called `input` and
/// `output`.
pub(super) fn convolve(
    threads: &Threads,
    s: &Conv2d,
    back: bool,
    input: &[f32],
    w: &[f32],
    output: &mut [f32],
    finish: impl Fn(usize, &mut [f32]) + Sync,
) {
    let c = s.c;
    let phases = if back { s.stride.0 * s.stride.1 } else { 1 };
    let axes = |phase: usize| if back { ConvAxis::backward(s, phase) } else { ConvAxis::forward(s) };
    let (h, wide) = if back { (s.h, s.w) } else { (s.oh, s.ow) };
    if output.is_empty() {
        return;
    }
    scratch(s.kh * s.kw * c, |packed| {
        turn(w, s.kh * s.kw, packed);
        let packed = &*packed;
        let rows = TASK.div_ceil(wide * c).next_multiple_of(if back { s.stride.0 } else { 1 });
        threads.chunks(output, rows * wide * c, |i, output| {
            let first = i * rows;
            for phase in 0..phases {
                let (rows, cols) = axes(phase);
                let job = DepthwisePhase { rows, cols, c, kw: s.kw, input, packed };
                simd::arch().dispatch(OutputRows { job, first, output, h });
            }
            finish(first * wide, output);
        });
    });
}

/// Transposes weights from `[channel][tap]` to `[tap][channel]`.
fn turn(w: &[f32], taps: usize, packed: &mut [f32]) {
    let c = w.len() / taps.max(1);
    for (tap, packed) in packed.chunks_exact_mut(c.max(1)).enumerate() {
        packed.iter_mut().zip(w.iter().skip(tap).step_by(taps)).for_each(|(to, from)| *to = *from);
    }
}

/// One phase of a convolution.
#[derive(Clone, Copy)]
struct DepthwisePhase<'a> {
    rows: ConvAxis,
    cols: ConvAxis,
    c: usize,
    /// Taps of a row of the packed weights.
    kw: usize,
    input: &'a [f32],
    packed: &'a [f32],
}

/// Some rows of the output.
struct OutputRows<'a> {
    job: DepthwisePhase<'a>,
    first: usize,
    /// Rows of an output image.
    h: usize,
    output: &'a mut [f32],
}

impl WithSimd for OutputRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { job, first, h, output } = self;
        let DepthwisePhase { rows, cols, c, .. } = job;
        for (i, line) in output.chunks_exact_mut(cols.output * c).enumerate() {
            let (image, y) = ((first + i) / h, (first + i) % h);
            if y % rows.out_step != rows.out_first {
                continue;
            }
            let mut line = OutputRow { job, image, y: y / rows.out_step, line };
            match (cols.taps, cols.stride, cols.step) {
                (2, 1, 1) => line.inner(simd, ColumnShape { taps: 2, stride: 1, step: 1 }),
                (3, 1, 1) => line.inner(simd, ColumnShape { taps: 3, stride: 1, step: 1 }),
                (3, 2, 1) => line.inner(simd, ColumnShape { taps: 3, stride: 2, step: 1 }),
                (5, 1, 1) => line.inner(simd, ColumnShape { taps: 5, stride: 1, step: 1 }),
                (5, 2, 1) => line.inner(simd, ColumnShape { taps: 5, stride: 2, step: 1 }),
                (taps, stride, step) => line.inner(simd, ColumnShape { taps, stride, step }),
            }
            line.rest(simd);
        }
    }
}

/// The geometry of the columns as constants where code is specialised for them.
#[derive(Clone, Copy)]
struct ColumnShape {
    taps: usize,
    stride: usize,
    step: usize,
}

/// One row of the output.
struct OutputRow<'a> {
    job: DepthwisePhase<'a>,
    image: usize,
    /// Index along the axis.
    y: usize,
    line: &'a mut [f32],
}

impl OutputRow<'_> {
    #[inline(always)]
    fn strip(&mut self) -> Strip<'_> {
        let DepthwisePhase { rows, cols, c, .. } = self.job;
        let valid = rows.valid(self.y);
        let pitch = cols.input * c;
        let top = (self.y * rows.stride) as isize + rows.first + (valid.start * rows.step) as isize;
        let row = (self.image * rows.input).wrapping_add_signed(top);
        let input = if valid.is_empty() { &[][..] } else { &self.job.input[row * pitch..] };
        Strip { job: &self.job, input, down: rows.step * pitch, valid, line: self.line }
    }

    /// The pixels that are computed several at a time.
    fn abreast(&self) -> Range<usize> {
        let inner = self.job.cols.inner();
        inner.start..inner.start + inner.len() / ABREAST * ABREAST
    }

    #[inline(always)]
    fn inner<S: Simd>(&mut self, simd: S, shape: ColumnShape) {
        let abreast = self.abreast();
        let mut strip = self.strip();
        for x in abreast.step_by(ABREAST) {
            strip.run::<S, ABREAST>(simd, shape, x, 0..shape.taps);
        }
    }

    /// The pixels at the edges and the remainder.
    #[inline(always)]
    fn rest<S: Simd>(&mut self, simd: S) {
        let abreast = self.abreast();
        let cols = self.job.cols;
        let shape = ColumnShape { taps: cols.taps, stride: cols.stride, step: cols.step };
        let mut strip = self.strip();
        for x in (0..abreast.start).chain(abreast.end..cols.count()) {
            strip.run::<S, 1>(simd, shape, x, cols.valid(x));
        }
    }
}

/// Some pixels of a row, side by side.
struct Strip<'a> {
    job: &'a DepthwisePhase<'a>,
    /// From the first row of the window that is inside the input.
    input: &'a [f32],
    down: usize,
    valid: Range<usize>,
    line: &'a mut [f32],
}

/// Pointers to the first channel of the strip.
struct StripPointers {
    x: *const f32,
    w: *const f32,
    y: *mut f32,
    w_down: isize,
    y_ahead: usize,
}

impl Strip<'_> {
    /// Computes `N` pixels from output `at` on, with the taps `taps` of each row.
    #[inline(always)]
    fn run<S: Simd, const N: usize>(&mut self, simd: S, shape: ColumnShape, at: usize, taps: Range<usize>) {
        let DepthwisePhase { rows, cols, c, kw, packed, .. } = *self.job;
        let to = (cols.out_first + at * cols.out_step) * c;
        let y_ahead = cols.out_step * c;
        assert!(to + (N - 1) * y_ahead + c <= self.line.len(), "a strip leaves its line");
        if self.valid.is_empty() || taps.is_empty() {
            (0..N).for_each(|j| self.line[to + j * y_ahead..][..c].fill(0.0));
            return;
        }
        let left = (at * shape.stride + taps.start * shape.step).wrapping_add_signed(cols.first);
        let right = left + (N - 1) * shape.stride + (taps.len() - 1) * shape.step;
        let reach = (self.valid.len() - 1) * self.down + right * c + c;
        assert!(right < cols.input && reach <= self.input.len(), "a strip leaves the input");
        let kernel = |r: usize, q: usize| rows.kernel(r) * kw + cols.kernel(q);
        let corner = kernel(self.valid.start, taps.start);
        let far = kernel(self.valid.end - 1, taps.end - 1);
        assert!((corner.max(far) + 1) * c <= packed.len(), "a strip leaves the weights");
        let place = StripPointers {
            x: self.input[left * c..].as_ptr(),
            w: packed[corner * c..].as_ptr(),
            y: self.line[to..].as_mut_ptr(),
            w_down: rows.kernel_step * (kw * c) as isize,
            y_ahead,
        };
        let lanes = S::F32_LANES;
        // SAFETY: for `c` channels from the pointers on, all rows, taps and pixels are within the slices, as checked
        // above.
        unsafe {
            if c < lanes {
                let few = simd.mask_between_m32s(0, c as u32);
                self.vector::<S, N, false>(simd, shape, taps.len(), &place, 0, few);
                return;
            }
            let all = simd.mask_between_m32s(0, lanes as u32);
            // The last vector may recompute some channels.
            for lane in (0..c).step_by(lanes) {
                self.vector::<S, N, true>(simd, shape, taps.len(), &place, lane.min(c - lanes), all);
            }
        }
    }

    /// # Safety
    /// The window of every pixel, its weights and its output are there for the channels of this vector.
    #[inline(always)]
    unsafe fn vector<S: Simd, const N: usize, const WHOLE: bool>(
        &self,
        simd: S,
        shape: ColumnShape,
        taps: usize,
        place: &StripPointers,
        lane: usize,
        rest: MemMask<S::m32s>,
    ) {
        let c = self.job.c;
        let w_ahead = self.job.cols.kernel_step * c as isize;
        let mut sums = [simd.splat_f32s(0.0); N];
        let (mut x, mut w) = (place.x.wrapping_add(lane), place.w.wrapping_add(lane));
        for _ in 0..self.valid.len() {
            for q in 0..taps {
                // SAFETY: the caller's promise.
                unsafe {
                    let weight = load::<S, WHOLE>(simd, w.wrapping_offset(q as isize * w_ahead), rest);
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let from = x.wrapping_add((j * shape.stride + q * shape.step) * c);
                        *sum = simd.mul_add_e_f32s(load::<S, WHOLE>(simd, from, rest), weight, *sum);
                    }
                }
            }
            x = x.wrapping_add(self.down);
            w = w.wrapping_offset(place.w_down);
        }
        for (j, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { store::<S, WHOLE>(simd, place.y.wrapping_add(lane + j * place.y_ahead), sum, rest) };
        }
    }
}

/// # Safety
/// There is a vector at `from`; unless it is `WHOLE`, as far as `rest` says.
#[inline(always)]
unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, from: *const f32, rest: MemMask<S::m32s>) -> S::f32s {
    // SAFETY: the caller's promise.
    unsafe {
        if WHOLE { from.cast::<S::f32s>().read_unaligned() } else { simd.mask_load_ptr_f32s(rest, from) }
    }
}

/// # Safety
/// As for [`load`].
#[inline(always)]
unsafe fn store<S: Simd, const WHOLE: bool>(simd: S, to: *mut f32, v: S::f32s, rest: MemMask<S::m32s>) {
    // SAFETY: the caller's promise.
    unsafe {
        if WHOLE {
            to.cast::<S::f32s>().write_unaligned(v);
        } else {
            simd.mask_store_ptr_f32s(rest, to, v);
        }
    }
}
