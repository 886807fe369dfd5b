//! Convolutions to very few channels, which would leave most of a vector empty.
//!
//! The products of every input pixel with all taps of all output channels are one matrix product, whose columns fill
//! the vectors; each output then gathers its taps from the pixels around it.

use super::Conv2d;
use super::axis::ConvAxis;
use crate::kernels::gemm::{self, Mat, Size};
use crate::threads::{Threads, scratch};
use std::ops::Range;

/// The most channels for which this method is used.
const FEW: usize = 4;
/// Multiplications per task.
const WORK: usize = 1 << 20;
/// Products of a block, in elements, to stay in the L2 cache.
const BLOCK: usize = 96 << 10;

/// Whether this method is faster.
pub(super) fn suits(s: &Conv2d, back: bool) -> bool {
    let (from, to) = if back { (s.o, s.c) } else { (s.c, s.o) };
    let used = back || s.stride == (1, 1);
    used && s.groups == 1 && to <= FEW && from >= 8 && s.kh * s.kw >= 4
}

/// The arguments, the same for all blocks.
struct NarrowConv<'a> {
    s: &'a Conv2d,
    back: bool,
    input: &'a [f32],
    /// `[channel][tap][output channel]`
    weights: &'a [f32],
    from: usize,
    to: usize,
}

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
    if output.is_empty() {
        return;
    }
    let (from, to) = if back { (s.o, s.c) } else { (s.c, s.o) };
    let (high, wide, source_wide) = if back { (s.h, s.w, s.ow) } else { (s.oh, s.ow, s.w) };
    let (taps, columns) = (s.kh * s.kw, s.kh * s.kw * to);
    scratch(from * columns, |weights| {
        for (i, weight) in weights.iter_mut().enumerate() {
            let (c, tap, o) = (i / columns, i / to % taps, i % to);
            *weight = if back { w[(c * taps + tap) * to + o] } else { w[(o * taps + tap) * from + c] };
        }
        let job = NarrowConv { s, back, input, weights, from, to };
        let stride = if back { s.stride.0 } else { 1 };
        let source_lines = (WORK / (source_wide * from * columns).max(1)).max(4 * s.kh);
        let source_lines = source_lines.min(BLOCK / (source_wide * columns).max(1)).max(1);
        let lines = source_lines * stride;
        threads.chunks(output, lines * wide * to, |i, output| {
            let (first, end) = (i * lines, i * lines + output.len() / (wide * to));
            let mut rest = &mut *output;
            for image in first / high..end.div_ceil(high) {
                let rows = first.max(image * high) - image * high..end.min((image + 1) * high) - image * high;
                let (here, next) = rest.split_at_mut(rows.len() * wide * to);
                job.run(image, rows, here);
                rest = next;
            }
            finish(first * wide, output);
        });
    });
}

impl NarrowConv<'_> {
    fn axes(&self, phase: usize) -> (ConvAxis, ConvAxis) {
        if self.back { ConvAxis::backward(self.s, phase) } else { ConvAxis::forward(self.s) }
    }

    /// Some rows of one image.
    fn run(&self, image: usize, lines: Range<usize>, output: &mut [f32]) {
        output.fill(0.0);
        let phases = if self.back { self.s.stride.0 * self.s.stride.1 } else { 1 };
        let sources = (0..phases).map(|phase| self.sources(phase, &lines));
        let Some(sources) =
            sources.filter(|s| !s.is_empty()).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        else {
            return;
        };
        let (rows, cols) = self.axes(0);
        let columns = self.weights.len() / self.from;
        let pixels = sources.len() * cols.input;
        let first = (image * rows.input + sources.start) * cols.input;
        scratch(pixels * columns, |products| {
            let size = Size { m: pixels, n: columns, k: self.from };
            let input = &self.input[first * self.from..][..pixels * self.from];
            let weights = Mat::rows(self.weights, columns);
            gemm::product(size, Mat::rows(input, self.from), weights, products, columns, false);
            for phase in 0..phases {
                self.gather(phase, &lines, &sources, products, output);
            }
        });
    }

    /// The rows of the input that some rows of the output cover.
    fn sources(&self, phase: usize, lines: &Range<usize>) -> Range<usize> {
        let (rows, _) = self.axes(phase);
        let (from, to) = (rows.before(lines.start), rows.before(lines.end));
        if from >= to || rows.taps == 0 {
            return 0..0;
        }
        let begin = (from * rows.stride) as isize + rows.first;
        let clamp = |at: isize| at.clamp(0, rows.input as isize).unsigned_abs();
        clamp(begin)..clamp(begin + rows.span(to - from) as isize)
    }

    /// Adds the taps of one phase to the rows `lines`.
    fn gather(
        &self,
        phase: usize,
        lines: &Range<usize>,
        sources: &Range<usize>,
        products: &[f32],
        output: &mut [f32],
    ) {
        let (rows, cols) = self.axes(phase);
        let columns = self.weights.len() / self.from;
        let line = cols.input * columns;
        for i in rows.before(lines.start)..rows.before(lines.end) {
            let y = rows.out_first + i * rows.out_step - lines.start;
            let output = &mut output[y * cols.output * self.to..][..cols.output * self.to];
            for r in rows.valid(i) {
                let source = (i * rows.stride + r * rows.step).wrapping_add_signed(rows.first);
                let products = &products[(source - sources.start) * line..][..line];
                for q in 0..cols.taps {
                    let tap = (rows.kernel(r) * self.s.kw + cols.kernel(q)) * self.to;
                    match self.to {
                        1 => gather_tap::<1>(&cols, q, &products[tap..], columns, output),
                        2 => gather_tap::<2>(&cols, q, &products[tap..], columns, output),
                        3 => gather_tap::<3>(&cols, q, &products[tap..], columns, output),
                        _ => gather_tap::<4>(&cols, q, &products[tap..], columns, output),
                    }
                }
            }
        }
    }
}

/// Adds one tap of a row of `N` channels.
#[inline(always)]
fn gather_tap<const N: usize>(
    cols: &ConvAxis,
    q: usize,
    products: &[f32],
    columns: usize,
    output: &mut [f32],
) {
    let tap = ConvAxis { first: cols.first + (q * cols.step) as isize, taps: 1, ..*cols };
    let inner = tap.inner();
    if inner.is_empty() {
        return;
    }
    let from = (inner.start * tap.stride).wrapping_add_signed(tap.first) * columns;
    let to = (cols.out_first + inner.start * cols.out_step) * N;
    let products = products[from..].chunks(tap.stride * columns);
    for (output, products) in output[to..].chunks_mut(cols.out_step * N).zip(products).take(inner.len()) {
        for n in 0..N {
            output[n] += products[n];
        }
    }
}
