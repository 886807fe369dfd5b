//! Which input positions an output position covers, along one dimension.

use super::Conv2d;
use std::ops::Range;

/// One dimension of a convolution, or of one phase of its gradient.
///
/// The output positions `out_first + i × out_step` look at the input positions `i × stride + first + t × step`, with
/// the weights `kernel_first + t × kernel_step`, for all `t` below `taps`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConvAxis {
    pub(super) input: usize,
    pub(super) stride: usize,
    pub(super) first: isize,
    pub(super) step: usize,
    pub(super) taps: usize,
    pub(super) output: usize,
    pub(super) out_first: usize,
    pub(super) out_step: usize,
    pub(super) kernel_first: usize,
    pub(super) kernel_step: isize,
}

/// One dimension of a convolution's geometry.
#[derive(Debug, Clone, Copy)]
struct Dimension {
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
}

impl Dimension {
    fn forward(self) -> ConvAxis {
        ConvAxis {
            input: self.input,
            stride: self.stride,
            first: -(self.pad as isize),
            step: self.dilation,
            taps: self.kernel,
            output: self.output,
            out_first: 0,
            out_step: 1,
            kernel_first: 0,
            kernel_step: 1,
        }
    }

    /// The gradient of the input at the positions `phase`, `phase + stride`, …: the positions that the same weights
    /// touch. Those weights are evenly spaced, and so are the outputs.
    fn backward(self, phase: usize) -> ConvAxis {
        let Self { stride, dilation, .. } = self;
        let common = gcd(stride, dilation);
        let apart = stride / common;
        let shifted = (phase + self.pad) as isize;
        let output_of = |k: usize| shifted - (k * dilation) as isize;
        let found = (0..apart.min(self.kernel)).find(|k| output_of(*k).rem_euclid(stride as isize) == 0);
        let taps = found.map_or(0, |k| (self.kernel - 1 - k) / apart + 1);
        let last = found.map_or(0, |k| k + (taps - 1) * apart);
        ConvAxis {
            input: self.output,
            stride: 1,
            first: output_of(last).div_euclid(stride as isize),
            step: dilation / common,
            taps,
            output: self.input,
            out_first: phase,
            out_step: stride,
            kernel_first: last,
            kernel_step: -(apart as isize),
        }
    }
}

impl ConvAxis {
    /// The rows and columns of a convolution.
    pub(super) fn forward(s: &Conv2d) -> (Self, Self) {
        let (rows, cols) = dimensions(s);
        (rows.forward(), cols.forward())
    }

    /// The rows and columns of one phase of the gradient of its input; there are as many as the product of strides.
    pub(super) fn backward(s: &Conv2d, phase: usize) -> (Self, Self) {
        let (rows, cols) = dimensions(s);
        (rows.backward(phase / s.stride.1), cols.backward(phase % s.stride.1))
    }

    /// How many output positions there are.
    pub(super) fn count(&self) -> usize {
        self.before(self.output)
    }

    /// How many of them are before output position `end`.
    pub(super) fn before(&self, end: usize) -> usize {
        end.saturating_sub(self.out_first).div_ceil(self.out_step)
    }

    /// How many input positions `count` neighbouring outputs span.
    pub(super) fn span(&self, count: usize) -> usize {
        if count == 0 || self.taps == 0 {
            0
        } else {
            (count - 1) * self.stride + (self.taps - 1) * self.step + 1
        }
    }

    /// Whether some output covers positions outside the input.
    pub(super) fn overhangs(&self) -> bool {
        self.first < 0 || self.first as usize + self.span(self.count()) > self.input
    }

    /// The taps of output `i` that are inside the input.
    #[inline(always)]
    pub(super) fn valid(&self, i: usize) -> Range<usize> {
        let at = (i * self.stride) as isize + self.first;
        let from = if at < 0 { at.unsigned_abs().div_ceil(self.step) } else { 0 };
        let to = (self.input as isize - at).max(0).unsigned_abs().div_ceil(self.step);
        from.min(self.taps)..to.min(self.taps).max(from.min(self.taps))
    }

    /// The outputs whose taps are all inside the input.
    pub(super) fn inner(&self) -> Range<usize> {
        let count = self.count();
        let reach = ((self.taps.max(1) - 1) * self.step) as isize + self.first;
        let from = if self.first < 0 { self.first.unsigned_abs().div_ceil(self.stride) } else { 0 };
        let to = (self.input as isize - reach).max(0).unsigned_abs().div_ceil(self.stride);
        from.min(count)..to.min(count).max(from.min(count))
    }

    /// The weight's index of tap `t`.
    pub(super) fn kernel(&self, t: usize) -> usize {
        self.kernel_first.wrapping_add_signed(t as isize * self.kernel_step)
    }
}

fn dimensions(s: &Conv2d) -> (Dimension, Dimension) {
    let rows = Dimension {
        input: s.h,
        output: s.oh,
        kernel: s.kh,
        stride: s.stride.0,
        dilation: s.dilation.0,
        pad: s.pad.0,
    };
    let cols = Dimension {
        input: s.w,
        output: s.ow,
        kernel: s.kw,
        stride: s.stride.1,
        dilation: s.dilation.1,
        pad: s.pad.1,
    };
    (rows, cols)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
