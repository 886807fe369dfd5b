//! Convolutions of images, and their gradients.

mod axis;
mod depthwise;
mod direct;
mod micro;
mod narrow;
mod pack;
#[cfg(test)]
mod tests;
mod weights;
mod window;
mod winograd;

use crate::threads::Threads;

/// The geometry of a convolution of `[n, h, w, c]` to `[n, oh, ow, o]` with weights `[o, kh, kw, c / groups]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conv2d {
    pub(crate) n: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
    pub(crate) c: usize,
    pub(crate) o: usize,
    pub(crate) kh: usize,
    pub(crate) kw: usize,
    pub(crate) stride: (usize, usize),
    pub(crate) dilation: (usize, usize),
    /// Above and to the left; below and to the right it follows from the output's size.
    pub(crate) pad: (usize, usize),
    pub(crate) oh: usize,
    pub(crate) ow: usize,
    pub(crate) groups: usize,
}

impl Conv2d {
    /// Every channel is convolved by itself.
    fn depthwise(&self) -> bool {
        self.groups == self.c && self.groups == self.o && self.c > 1
    }
}

/// Computes `y`. `finish` is called on every block of finished rows while it is in cache: (first pixel, `[pixels × o]`).
pub(crate) fn forward(
    threads: &Threads,
    s: &Conv2d,
    x: &[f32],
    w: &[f32],
    y: &mut [f32],
    finish: impl Fn(usize, &mut [f32]) + Sync,
) {
    if s.depthwise() {
        depthwise::convolve(threads, s, false, x, w, y, finish);
    } else if narrow::suits(s, false) {
        narrow::convolve(threads, s, false, x, w, y, finish);
    } else if winograd::suits(s) {
        winograd::convolve(threads, s, false, x, w, y, finish);
    } else {
        direct::convolve(threads, s, false, x, w, y, finish);
    }
}

/// Computes the gradient of `x`; zero at positions that no window covers.
pub(crate) fn grad_input(threads: &Threads, s: &Conv2d, dy: &[f32], w: &[f32], dx: &mut [f32]) {
    if s.depthwise() {
        depthwise::convolve(threads, s, true, dy, w, dx, |_, _| {});
    } else if narrow::suits(s, true) {
        narrow::convolve(threads, s, true, dy, w, dx, |_, _| {});
    } else if winograd::suits(s) {
        winograd::convolve(threads, s, true, dy, w, dx, |_, _| {});
    } else {
        direct::convolve(threads, s, true, dy, w, dx, |_, _| {});
    }
}

/// Computes the gradient of the weights.
pub(crate) fn grad_weight(threads: &Threads, s: &Conv2d, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    if s.depthwise() {
        depthwise::gradient(threads, s, x, dy, dw);
    } else {
        // Not by Winograd's method, though it would be faster: it turns exact zeros into tiny numbers, and an optimizer
        // that divides by the size of the gradient (Adam) would then move the weights of dead units.
        weights::gradient(threads, s, x, dy, dw);
    }
}
