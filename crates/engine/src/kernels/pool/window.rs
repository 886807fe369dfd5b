//! Windows of the input, and the loops over them.

use super::Pool2d;
use std::ops::Range;

/// A window of the input, which may be partly or wholly outside.
pub(super) struct Window<'a> {
    x: &'a [f32],
    pub(super) s: &'a Pool2d,
    image: usize,
    /// The position of the first tap; may lie outside.
    pub(super) corner: (isize, isize),
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
}

impl Window<'_> {
    /// Calls `visit(tap, the channels c .. c + W at this tap)` for the taps inside the input, in order.
    #[inline(always)]
    pub(super) fn taps<const W: usize>(&self, c: usize, mut visit: impl FnMut(usize, &[f32; W])) {
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

    /// The maximum, or the last NaN, and its tap.
    #[inline(always)]
    pub(super) fn max<const W: usize>(&self, c: usize) -> ([f32; W], [u32; W]) {
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
pub(super) fn windows(
    s: &Pool2d,
    x: &[f32],
    first: usize,
    count: usize,
    mut visit: impl FnMut(Window<'_>, usize),
) {
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

/// Calls `visit(tap, output pixel, input pixel in these rows)` for each pair of a window and a row of the input that it
/// covers, in an order that depends on the shape alone.
#[inline(always)]
pub(super) fn meetings(s: &Pool2d, first: usize, count: usize, mut visit: impl FnMut(usize, usize, usize)) {
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

pub(super) use channel_blocks;
