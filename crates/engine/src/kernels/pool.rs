//! Maximum and average over windows of images, and their gradients.
//!
//! The maximum remembers which position of the window won, in a byte; windows of more than [`MOST_TAPS`] positions
//! are looked through again for the gradient.

mod axis;
#[cfg(test)]
mod tests;

use crate::simd::simd;
use crate::threads::Threads;
use axis::Axis;
use std::ops::Range;

/// Windows of up to so many positions have an index.
pub(crate) const MOST_TAPS: usize = 255;
/// Numbers worth a task of their own.
const TASK: usize = 1 << 14;

/// The geometry of a pooling of `[n, h, w, c]` to `[n, oh, ow, c]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pool2d {
    pub(crate) n: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
    pub(crate) c: usize,
    pub(crate) kh: usize,
    pub(crate) kw: usize,
    pub(crate) stride: (usize, usize),
    pub(crate) dilation: (usize, usize),
    /// Above, to the left.
    pub(crate) pad: (usize, usize),
    /// Below, to the right: what counts as padding; windows may hang over further, which never counts.
    pub(crate) pad_after: (usize, usize),
    pub(crate) oh: usize,
    pub(crate) ow: usize,
}

impl Pool2d {
    fn axes(&self) -> (Axis, Axis) {
        let rows = Axis {
            input: self.h,
            output: self.oh,
            taps: self.kh,
            stride: self.stride.0,
            step: self.dilation.0,
            pad: self.pad.0,
            pad_after: self.pad_after.0,
        };
        let cols = Axis {
            input: self.w,
            output: self.ow,
            taps: self.kw,
            stride: self.stride.1,
            step: self.dilation.1,
            pad: self.pad.1,
            pad_after: self.pad_after.1,
        };
        (rows, cols)
    }

    /// Whether the gradient of the maximum can be taken from the index.
    pub(crate) fn has_index(&self) -> bool {
        self.kh * self.kw <= MOST_TAPS
    }
}

/// A window of the input that is partly or wholly there.
struct Window<'a> {
    x: &'a [f32],
    s: &'a Pool2d,
    image: usize,
    /// The position of the first tap; may lie outside.
    corner: (isize, isize),
    rows: Range<usize>,
    cols: Range<usize>,
}

impl Window<'_> {
    /// Calls `visit(tap, the channels c .. c + W at this tap)` for the taps that are there, in order.
    #[inline(always)]
    fn taps<const W: usize>(&self, c: usize, mut visit: impl FnMut(usize, &[f32; W])) {
        let s = self.s;
        for r in self.rows.clone() {
            let y = (self.image * s.h + r * s.dilation.0).wrapping_add_signed(self.corner.0);
            for q in self.cols.clone() {
                let x = (y * s.w + q * s.dilation.1).wrapping_add_signed(self.corner.1);
                let at = x * s.c + c;
                let values = self.x[at..at + W].try_into().expect("as long as asked");
                visit(r * s.kw + q, values);
            }
        }
    }

    /// The largest, or the last that is not a number, and which tap it was.
    #[inline(always)]
    fn max<const W: usize>(&self, c: usize) -> ([f32; W], [u32; W]) {
        let first = self.rows.start * self.s.kw + self.cols.start;
        let (mut best, mut index) = ([f32::NEG_INFINITY; W], [first as u32; W]);
        self.taps::<W>(c, |tap, values| {
            for i in 0..W {
                let wins = (values[i] > best[i]) | values[i].is_nan();
                best[i] = if wins { values[i] } else { best[i] };
                index[i] = if wins { tap as u32 } else { index[i] };
            }
        });
        (best, index)
    }
}

/// Runs `work` on the blocks of channels: as many as possible 16 wide, then 4, then single ones.
macro_rules! channel_blocks {
    ($c:expr, $work:ident $(, $args:expr)*) => {{
        let (c, mut at) = ($c, 0);
        while at + 16 <= c {
            $work::<16>(at $(, $args)*);
            at += 16;
        }
        while at + 4 <= c {
            $work::<4>(at $(, $args)*);
            at += 4;
        }
        while at < c {
            $work::<1>(at $(, $args)*);
            at += 1;
        }
    }};
}

/// Calls `visit(window, its place in the rows)` for the outputs of some rows, counted through all images.
#[inline(always)]
fn windows(s: &Pool2d, x: &[f32], first: usize, count: usize, mut visit: impl FnMut(Window<'_>, usize)) {
    let (rows, cols) = s.axes();
    for line in first..first + count {
        let (image, i) = (line / s.oh, line % s.oh);
        for j in 0..s.ow {
            let corner = (rows.corner(i), cols.corner(j));
            let window = Window { x, s, image, corner, rows: rows.valid(i), cols: cols.valid(j) };
            visit(window, (line - first) * s.ow + j);
        }
    }
}

/// How many rows make a task, by the shape alone.
fn rows_per_task(wide: usize, c: usize) -> usize {
    TASK.div_ceil((wide * c).max(1))
}

#[inline(always)]
fn max_block<const W: usize>(at: usize, window: &Window<'_>, y: &mut [f32], index: Option<&mut [u8]>) {
    let (best, tap) = window.max::<W>(at);
    y[at..at + W].copy_from_slice(&best);
    if let Some(index) = index {
        index[at..at + W].iter_mut().zip(tap).for_each(|(to, tap)| *to = tap as u8);
    }
}

/// The largest number of each window; `index` says which of the window's positions it has, counted along its rows.
/// Of equals the first wins, and what is not a number wins over all.
///
/// # Panics
/// There is an index, and the window is too large for it: see [`Pool2d::has_index`].
pub(crate) fn max_forward(threads: &Threads, s: &Pool2d, x: &[f32], y: &mut [f32], index: Option<&mut [u8]>) {
    let rows = rows_per_task(s.ow, s.c);
    let chunk = (rows * s.ow * s.c).max(1);
    let Some(index) = index else {
        threads.chunks(y, chunk, |i, y| {
            let count = y.len() / (s.ow * s.c);
            simd(|| {
                windows(s, x, i * rows, count, |window, at| {
                    let y = &mut y[at * s.c..][..s.c];
                    channel_blocks!(s.c, max_block, &window, y, None);
                });
            });
        });
        return;
    };
    assert!(s.has_index(), "a window too large for its index");
    threads.chunks2((y, chunk), (index, chunk), |i, y, index| {
        let count = y.len() / (s.ow * s.c);
        simd(|| {
            windows(s, x, i * rows, count, |window, at| {
                let (y, index) = (&mut y[at * s.c..][..s.c], &mut index[at * s.c..][..s.c]);
                channel_blocks!(s.c, max_block, &window, y, Some(&mut *index));
            });
        });
    });
}

/// Calls `visit(tap, output pixel, input pixel in these rows)` for each meeting of a window with some rows of the
/// input, in an order that depends on the shape alone.
#[inline(always)]
fn meetings(s: &Pool2d, first: usize, count: usize, mut visit: impl FnMut(usize, usize, usize)) {
    let (rows, cols) = s.axes();
    for line in first..first + count {
        let (image, y) = (line / s.h, line % s.h);
        for r in 0..s.kh {
            let Some(i) = rows.looking(y, r) else { continue };
            for j in 0..s.ow {
                let corner = cols.corner(j);
                for q in cols.valid(j) {
                    let x = (q * s.dilation.1).wrapping_add_signed(corner);
                    visit(r * s.kw + q, (image * s.oh + i) * s.ow + j, (line - first) * s.w + x);
                }
            }
        }
    }
}

/// Gives each output's gradient to the input that won.
pub(crate) fn max_backward(threads: &Threads, s: &Pool2d, dy: &[f32], index: &[u8], dx: &mut [f32]) {
    let rows = rows_per_task(s.w, s.c);
    threads.chunks(dx, (rows * s.w * s.c).max(1), |i, dx| {
        dx.fill(0.0);
        let count = dx.len() / (s.w * s.c);
        simd(|| {
            meetings(s, i * rows, count, |tap, from, to| {
                let (dy, index) = (&dy[from * s.c..][..s.c], &index[from * s.c..][..s.c]);
                let dx = &mut dx[to * s.c..][..s.c];
                for ((dx, dy), index) in dx.iter_mut().zip(dy).zip(index) {
                    *dx += if *index == tap as u8 { *dy } else { 0.0 };
                }
            });
        });
    });
}

/// As [`max_backward`], for windows too large for an index: finds the winners again.
pub(crate) fn max_backward_from(threads: &Threads, s: &Pool2d, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    threads.chunks(dx, (s.h * s.w * s.c).max(1), |image, dx| {
        dx.fill(0.0);
        simd(|| {
            windows(s, x, image * s.oh, s.oh, |window, at| {
                let dy = &dy[(image * s.oh * s.ow + at) * s.c..][..s.c];
                if !window.rows.is_empty() && !window.cols.is_empty() {
                    channel_blocks!(s.c, give_block, &window, dy, dx);
                }
            });
        });
    });
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

/// By how much an output's sum is multiplied.
#[inline(always)]
fn share(rows: &Axis, cols: &Axis, i: usize, j: usize, count_padding: bool) -> f32 {
    let count = if count_padding {
        rows.counted(i) * cols.counted(j)
    } else {
        rows.valid(i).len() * cols.valid(j).len()
    };
    if count == 0 { 0.0 } else { 1.0 / count as f32 }
}

#[inline(always)]
fn average_block<const W: usize>(at: usize, window: &Window<'_>, y: &mut [f32], share: f32) {
    let mut sums = [0.0; W];
    window.taps::<W>(at, |_, values| {
        for i in 0..W {
            sums[i] += values[i];
        }
    });
    y[at..at + W].iter_mut().zip(sums).for_each(|(y, sum)| *y = sum * share);
}

/// The average of each window; with `count_padding` the padding counts as zeros, else only what is there counts.
pub(crate) fn average_forward(threads: &Threads, s: &Pool2d, count_padding: bool, x: &[f32], y: &mut [f32]) {
    let (down, across) = s.axes();
    let rows = rows_per_task(s.ow, s.c);
    threads.chunks(y, (rows * s.ow * s.c).max(1), |i, y| {
        let count = y.len() / (s.ow * s.c);
        simd(|| {
            windows(s, x, i * rows, count, |window, at| {
                let line = (i * rows + at / s.ow) % s.oh;
                let share = share(&down, &across, line, at % s.ow, count_padding);
                let y = &mut y[at * s.c..][..s.c];
                channel_blocks!(s.c, average_block, &window, y, share);
            });
        });
    });
}

/// Gives each output's gradient to the inputs of its window in equal shares.
pub(crate) fn average_backward(threads: &Threads, s: &Pool2d, count_padding: bool, dy: &[f32], dx: &mut [f32]) {
    let (down, across) = s.axes();
    let rows = rows_per_task(s.w, s.c);
    threads.chunks(dx, (rows * s.w * s.c).max(1), |i, dx| {
        dx.fill(0.0);
        let count = dx.len() / (s.w * s.c);
        simd(|| {
            meetings(s, i * rows, count, |_, from, to| {
                let share = share(&down, &across, from / s.ow % s.oh, from % s.ow, count_padding);
                let dy = &dy[from * s.c..][..s.c];
                dx[to * s.c..][..s.c].iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * share);
            });
        });
    });
}
