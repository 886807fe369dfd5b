//! Columns of the unfolded windows, a few at a time.

#![expect(
    unsafe_code,
    reason = "explicit vectors; every address is checked against the slices before the loop"
)]

use super::super::Conv2d;
use super::super::axis::ConvAxis;
use super::super::pack::Panel;
use pulp::Simd;
use std::ops::Range;

/// The windows of some pixels, in the channels of one group.
pub(super) struct Columns<'a> {
    pub(super) s: &'a Conv2d,
    pub(super) x: &'a [f32],
    pub(super) rows: ConvAxis,
    pub(super) cols: ConvAxis,
    pub(super) group: usize,
    /// Output pixels, counted through all images.
    pub(super) pixels: Range<usize>,
}

/// Weights of a filter that read neighbouring elements of a row.
struct Piece {
    /// Which row of the window.
    row: usize,
    /// Offset of the elements from the window's first pixel.
    from: usize,
    /// Offset in the panel.
    to: usize,
    len: usize,
}

impl Columns<'_> {
    /// How many neighbouring weights read neighbouring elements, and how many such runs a row of the window has.
    #[inline(always)]
    fn runs(&self) -> (usize, usize) {
        let (s, c) = (self.s, self.s.c / self.s.groups);
        if s.kw == 1 || s.dilation.1 == 1 && s.groups == 1 { (s.kw * c, 1) } else { (c, s.kw) }
    }

    /// Packs the columns of `panel` as `[pixel][column]`; unused columns of the last vector are left as they are.
    #[inline(always)]
    pub(super) fn pack<S: Simd>(&self, panel: Panel, out: &mut [f32]) {
        let s = self.s;
        let wide = panel.vectors * S::F32_LANES;
        let out = &mut out[..self.pixels.len() * wide];
        let (run, runs) = self.runs();
        let mut at = panel.first;
        while at < panel.first + panel.columns {
            let (index, within) = (at / run, at % run);
            let len = (run - within).min(panel.first + panel.columns - at);
            let tap = index % runs * s.dilation.1 * s.c;
            let from = tap + self.group * (s.c / s.groups) + within;
            self.pack_piece::<S>(&Piece { row: index / runs, from, to: at - panel.first, len }, wide, out);
            at += len;
        }
    }

    #[inline(always)]
    fn pack_piece<S: Simd>(&self, piece: &Piece, wide: usize, out: &mut [f32]) {
        let s = self.s;
        let line = s.w * s.c;
        let mut pixel = self.pixels.start;
        let mut lines = out;
        while pixel < self.pixels.end {
            let (output_line, first) = (pixel / s.ow, pixel % s.ow);
            let end = s.ow.min(first + self.pixels.end - pixel);
            let (here, next) = lines.split_at_mut((end - first) * wide);
            lines = next;
            pixel += end - first;
            let (image, i) = (output_line / s.oh, output_line % s.oh);
            let row = (i * s.stride.0 + piece.row * s.dilation.0).wrapping_add_signed(self.rows.first);
            if row >= s.h {
                here.chunks_exact_mut(wide).for_each(|out| clear(&mut out[piece.to..][..piece.len]));
                continue;
            }
            let x = &self.x[(image * s.h + row) * line..][..line];
            self.pack_line::<S>(piece, x, first..end, here, wide);
        }
    }

    /// A piece of the windows of neighbouring pixels of one row.
    #[inline(always)]
    fn pack_line<S: Simd>(
        &self,
        piece: &Piece,
        x: &[f32],
        pixels: Range<usize>,
        out: &mut [f32],
        wide: usize,
    ) {
        let ahead = self.cols.stride * self.s.c;
        let left = self.cols.first * self.s.c as isize + piece.from as isize;
        // The pixels whose piece lies within the row.
        let from = if left < 0 { left.unsigned_abs().div_ceil(ahead) } else { 0 };
        let room = x.len() as isize - left - piece.len as isize + 1;
        let to = room.max(0).unsigned_abs().div_ceil(ahead);
        let from = from.clamp(pixels.start, pixels.end);
        let to = to.clamp(from, pixels.end);
        for j in (pixels.start..from).chain(to..pixels.end) {
            let out = &mut out[(j - pixels.start) * wide + piece.to..][..piece.len];
            clear(out);
            let start = left + (j * ahead) as isize;
            let skip = (-start).max(0).unsigned_abs().min(piece.len);
            let have = x.len().saturating_sub(start.max(0).unsigned_abs()).min(piece.len - skip);
            if have > 0 {
                let x = &x[start.max(0).unsigned_abs()..][..have];
                // SAFETY: both slices are that long.
                unsafe { copy::<S>(x.as_ptr(), out[skip..][..have].as_mut_ptr(), have) };
            }
        }
        if from == to {
            return;
        }
        let start = (from * ahead).wrapping_add_signed(left);
        let x = &x[start..][..(to - from - 1) * ahead + piece.len];
        let out = &mut out[(from - pixels.start) * wide + piece.to..][..(to - from - 1) * wide + piece.len];
        let (mut x, mut out) = (x.as_ptr(), out.as_mut_ptr());
        for _ in from..to {
            // SAFETY: both slices were cut to the pieces of `to - from` pixels.
            unsafe { copy::<S>(x, out, piece.len) };
            x = x.wrapping_add(ahead);
            out = out.wrapping_add(wide);
        }
    }
}

/// Copies `len` elements: so few that a call to `memcpy` would take longer than the copy.
///
/// # Safety
/// They are there on both sides.
#[inline(always)]
unsafe fn copy<S: Simd>(from: *const f32, to: *mut f32, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if len >= S::F32_LANES {
            pieces::<S::f32s>(from, to, len);
        } else if len >= 8 {
            pieces::<[f32; 8]>(from, to, len);
        } else if len >= 4 {
            pieces::<[f32; 4]>(from, to, len);
        } else {
            (0..len).for_each(|i| *to.add(i) = *from.add(i));
        }
    }
}

/// Copies `len` elements as pieces of the size of `T`; the last two may overlap.
///
/// # Safety
/// They are there on both sides, and at least one piece of them.
#[inline(always)]
unsafe fn pieces<T: Copy>(from: *const f32, to: *mut f32, len: usize) {
    let each = size_of::<T>() / size_of::<f32>();
    let mut at = 0;
    // SAFETY: the caller's promise; `at` is always at least a piece from the end.
    unsafe {
        while at + each < len {
            to.add(at).cast::<T>().write_unaligned(from.add(at).cast::<T>().read_unaligned());
            at += each;
        }
        let at = len - each;
        to.add(at).cast::<T>().write_unaligned(from.add(at).cast::<T>().read_unaligned());
    }
}

/// Sets a few elements to zero; a call to `memset` would take longer.
#[inline(always)]
fn clear(out: &mut [f32]) {
    let mut fours = out.chunks_exact_mut(4);
    fours.by_ref().for_each(|four| *<&mut [f32; 4]>::try_from(four).expect("four") = [0.0; 4]);
    fours.into_remainder().iter_mut().for_each(|v| *v = 0.0);
}
