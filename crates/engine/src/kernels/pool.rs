//! Maximum and average pooling, and their gradients.
//!
//! The maximum stores the index of the maximal position of the window in a byte; windows of more than [`MOST_TAPS`]
//! positions are searched again for the gradient.

mod axis;
mod grad;
#[cfg(test)]
mod tests;
mod window;

use crate::simd;
use crate::threads::{Threads, per_task};
use axis::PoolAxis;
pub(crate) use grad::{average_backward, max_backward, max_backward_from};
use pulp::{Simd, WithSimd};
use window::{Window, channel_blocks, windows};

/// Windows of up to this many positions have an index.
pub(crate) const MOST_TAPS: usize = 255;
/// The least and most elements of a task.
const TASK: (usize, usize) = (2 << 10, 16 << 10);

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
    /// Below, to the right: what counts as padding. Windows may extend further, which never counts.
    pub(crate) pad_after: (usize, usize),
    pub(crate) oh: usize,
    pub(crate) ow: usize,
}

impl Pool2d {
    fn axes(&self) -> (PoolAxis, PoolAxis) {
        let rows = PoolAxis {
            input: self.h,
            output: self.oh,
            taps: self.kh,
            stride: self.stride.0,
            step: self.dilation.0,
            pad: self.pad.0,
            pad_after: self.pad_after.0,
        };
        let cols = PoolAxis {
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

    /// Whether the gradient of the maximum can use the index.
    pub(crate) fn has_index(&self) -> bool {
        self.kh * self.kw <= MOST_TAPS
    }
}

/// How many rows make a task, by the shape alone.
fn rows_per_task(rows: usize, wide: usize, c: usize) -> usize {
    per_task(rows * wide * c, TASK.0, TASK.1).div_ceil((wide * c).max(1))
}

/// The maximum of each window; `index` gets its position in the window, in row order. Among equals the first wins; NaN
/// wins over all numbers.
///
/// # Panics
/// There is an index, and the window is too large for it: see [`Pool2d::has_index`].
pub(crate) fn max_forward(threads: &Threads, s: &Pool2d, x: &[f32], y: &mut [f32], index: Option<&mut [u8]>) {
    let rows = rows_per_task(s.n * s.oh, s.ow, s.c);
    let chunk = (rows * s.ow * s.c).max(1);
    let Some(index) = index else {
        threads.chunks(y, chunk, |i, y| {
            simd::arch().dispatch(MaxRows { s, x, first: i * rows, y, index: None });
        });
        return;
    };
    assert!(s.has_index(), "a window too large for its index");
    threads.chunks2((y, chunk), (index, chunk), |i, y, index| {
        simd::arch().dispatch(MaxRows { s, x, first: i * rows, y, index: Some(index) });
    });
}

/// The maxima of some rows, counted through all images.
struct MaxRows<'a> {
    s: &'a Pool2d,
    x: &'a [f32],
    first: usize,
    y: &'a mut [f32],
    index: Option<&'a mut [u8]>,
}

impl WithSimd for MaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { s, x, first, y, mut index } = self;
        let count = y.len() / (s.ow * s.c);
        windows(s, x, first, count, |window, at| {
            let y = &mut y[at * s.c..][..s.c];
            match &mut index {
                Some(index) => {
                    let index = &mut index[at * s.c..][..s.c];
                    channel_blocks!(s.c, max_block, &window, y, Some(&mut *index));
                }
                None => channel_blocks!(s.c, max_block, &window, y, None),
            }
        });
    }
}

#[inline(always)]
fn max_block<const W: usize>(at: usize, window: &Window<'_>, y: &mut [f32], index: Option<&mut [u8]>) {
    let (best, tap) = window.max::<W>(at);
    y[at..at + W].copy_from_slice(&best);
    if let Some(index) = index {
        index[at..at + W].iter_mut().zip(tap).for_each(|(to, tap)| *to = tap as u8);
    }
}

/// The factor that turns sums into averages.
#[derive(Clone, Copy)]
struct AverageScale {
    rows: PoolAxis,
    cols: PoolAxis,
    count_padding: bool,
    /// The common factor if all windows are inside the input.
    same: Option<f32>,
}

impl AverageScale {
    fn new(s: &Pool2d, count_padding: bool) -> Self {
        let (rows, cols) = s.axes();
        let same = (rows.whole() && cols.whole()).then(|| 1.0 / (s.kh * s.kw) as f32);
        Self { rows, cols, count_padding, same }
    }

    /// For output pixel `at`, counted through all images.
    #[inline(always)]
    fn of(&self, at: usize) -> f32 {
        self.same.unwrap_or_else(|| {
            let (i, j) = (at / self.cols.output % self.rows.output, at % self.cols.output);
            let count = if self.count_padding {
                self.rows.counted(i) * self.cols.counted(j)
            } else {
                self.rows.valid(i).len() * self.cols.valid(j).len()
            };
            if count == 0 { 0.0 } else { 1.0 / count as f32 }
        })
    }
}

/// The average of each window; with `count_padding` the padding counts as zeros, otherwise only the input counts.
pub(crate) fn average_forward(threads: &Threads, s: &Pool2d, count_padding: bool, x: &[f32], y: &mut [f32]) {
    let rows = rows_per_task(s.n * s.oh, s.ow, s.c);
    let shares = AverageScale::new(s, count_padding);
    threads.chunks(y, (rows * s.ow * s.c).max(1), |i, y| {
        simd::arch().dispatch(AverageRows { s, shares, x, first: i * rows, y });
    });
}

/// The averages of some rows, counted through all images.
struct AverageRows<'a> {
    s: &'a Pool2d,
    shares: AverageScale,
    x: &'a [f32],
    first: usize,
    y: &'a mut [f32],
}

impl WithSimd for AverageRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { s, shares, x, first, y } = self;
        windows(s, x, first, y.len() / (s.ow * s.c), |window, at| {
            let share = shares.of(first * s.ow + at);
            let y = &mut y[at * s.c..][..s.c];
            channel_blocks!(s.c, average_block, &window, y, share);
        });
    }
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
