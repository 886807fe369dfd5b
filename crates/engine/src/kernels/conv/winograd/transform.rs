//! The transforms: sums and differences of whole vectors of channels.

#![expect(
    unsafe_code,
    reason = "explicit vectors; every address is checked against the slices before the loop"
)]

use super::super::pack::Panel;
use super::super::window::ImageBlock;
use super::POSITIONS;
use pulp::{Simd, WithSimd};

/// A square of 4 × 4 vectors.
type Square<V> = [[V; 4]; 4];

/// # Safety
/// There is a vector at `from`.
#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32) -> S::f32s {
    // SAFETY: the caller's promise.
    unsafe { from.cast::<S::f32s>().read_unaligned() }
}

/// # Safety
/// There is room for a vector at `to`.
#[inline(always)]
unsafe fn store<S: Simd>(to: *mut f32, vector: S::f32s) {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<S::f32s>().write_unaligned(vector) }
}

/// Transforms the inputs of a block to `[position][square][channel]`.
pub(super) struct Inputs<'a> {
    pub(super) block: &'a ImageBlock,
    pub(super) input: &'a [f32],
    pub(super) squares: usize,
    pub(super) inputs: &'a mut [f32],
}

impl WithSimd for Inputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { block, input, squares, inputs } = self;
        let (rows, cols, c) = (block.rows, block.cols, block.c);
        let (h, w) = (rows.input, cols.input);
        let apart = inputs.len() / POSITIONS;
        let whole = c.is_multiple_of(S::F32_LANES);
        assert!(whole && apart == squares * c && squares == block.squares(), "whole vectors of channels");
        let mut at = 0;
        for span in block.spans() {
            let image = &input[span.image * h * w * c..][..h * w * c];
            for y in (span.from..span.to).step_by(2) {
                for x in (0..cols.output).step_by(2) {
                    let corner = (y as isize + rows.first, x as isize + cols.first);
                    let square = InputSquare { image, h, w, c, corner };
                    let to = &mut inputs[at..][..(POSITIONS - 1) * apart + c];
                    for lane in (0..c).step_by(S::F32_LANES) {
                        // SAFETY: the lanes are within the channels; `to` has them at every position.
                        unsafe {
                            let out = square.transform(simd, lane);
                            spread(to.as_mut_ptr().add(lane), apart, simd, out);
                        }
                    }
                    at += c;
                }
            }
        }
    }
}

/// Writes the vectors of a square `apart` from each other.
///
/// # Safety
/// There is room for all of them.
#[inline(always)]
unsafe fn spread<S: Simd>(to: *mut f32, apart: usize, _: S, square: Square<S::f32s>) {
    for (i, row) in square.into_iter().enumerate() {
        for (j, vector) in row.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { store::<S>(to.add((4 * i + j) * apart), vector) };
        }
    }
}

/// A square of the input; parts of it may lie outside.
struct InputSquare<'a> {
    image: &'a [f32],
    h: usize,
    w: usize,
    c: usize,
    corner: (isize, isize),
}

impl InputSquare<'_> {
    /// One vector of channels of the square, transformed.
    ///
    /// # Safety
    /// There is a vector of channels from `lane` on.
    #[inline(always)]
    unsafe fn transform<S: Simd>(&self, simd: S, lane: usize) -> Square<S::f32s> {
        let (y, x) = self.corner;
        let inside = y >= 0 && x >= 0 && y + 4 <= self.h as isize && x + 4 <= self.w as isize;
        let mut d = [[simd.splat_f32s(0.0); 4]; 4];
        for (i, row) in d.iter_mut().enumerate() {
            for (j, vector) in row.iter_mut().enumerate() {
                let (y, x) = ((y + i as isize) as usize, (x + j as isize) as usize);
                if inside || y < self.h && x < self.w {
                    // SAFETY: the pixel is within the image, and the caller's promise.
                    *vector = unsafe { load::<S>(self.image.as_ptr().add((y * self.w + x) * self.c + lane)) };
                }
            }
        }
        let [a, b, c, d] = d;
        let [p, q, r, s] =
            [input_line(simd, a), input_line(simd, b), input_line(simd, c), input_line(simd, d)];
        turned([
            input_line(simd, [p[0], q[0], r[0], s[0]]),
            input_line(simd, [p[1], q[1], r[1], s[1]]),
            input_line(simd, [p[2], q[2], r[2], s[2]]),
            input_line(simd, [p[3], q[3], r[3], s[3]]),
        ])
    }
}

/// One dimension of the inputs' transform.
#[inline(always)]
fn input_line<S: Simd>(simd: S, [a, b, c, d]: [S::f32s; 4]) -> [S::f32s; 4] {
    [simd.sub_f32s(a, c), simd.add_f32s(b, c), simd.sub_f32s(c, b), simd.sub_f32s(b, d)]
}

/// Columns to rows.
#[inline(always)]
fn turned<V: Copy>([p, q, r, s]: Square<V>) -> Square<V> {
    [[p[0], q[0], r[0], s[0]], [p[1], q[1], r[1], s[1]], [p[2], q[2], r[2], s[2]], [p[3], q[3], r[3], s[3]]]
}

/// Transforms one panel of packed weights, `[tap][channel][column]`, to `[position][channel][column]`.
pub(super) struct TransformWeights<'a> {
    pub(super) packed: &'a [f32],
    /// Channels.
    pub(super) depth: usize,
    pub(super) weights: &'a mut [f32],
}

impl WithSimd for TransformWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { packed, depth, weights } = self;
        let apart = weights.len() / POSITIONS;
        assert!(apart.is_multiple_of(depth * S::F32_LANES), "whole vectors of columns");
        assert_eq!(packed.len(), 9 * apart, "nine taps");
        for at in (0..apart).step_by(S::F32_LANES) {
            // SAFETY: every tap and position has `apart` numbers, and those are whole vectors.
            unsafe {
                let from = packed.as_ptr().add(at);
                let p = weight_line(simd, tap::<S>(from, apart, 0));
                let q = weight_line(simd, tap::<S>(from, apart, 3));
                let r = weight_line(simd, tap::<S>(from, apart, 6));
                let out = turned([
                    weight_line(simd, [p[0], q[0], r[0]]),
                    weight_line(simd, [p[1], q[1], r[1]]),
                    weight_line(simd, [p[2], q[2], r[2]]),
                    weight_line(simd, [p[3], q[3], r[3]]),
                ]);
                spread(weights.as_mut_ptr().add(at), apart, simd, out);
            }
        }
    }
}

/// Three taps from `first` on.
///
/// # Safety
/// They are there, `apart` from each other.
#[inline(always)]
unsafe fn tap<S: Simd>(from: *const f32, apart: usize, first: usize) -> [S::f32s; 3] {
    // SAFETY: the caller's promise.
    unsafe {
        let from = from.add(first * apart);
        [load::<S>(from), load::<S>(from.add(apart)), load::<S>(from.add(2 * apart))]
    }
}

/// One dimension of the weights' transform.
#[inline(always)]
fn weight_line<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> [S::f32s; 4] {
    let half = simd.splat_f32s(0.5);
    let (outer, inner) = (simd.mul_f32s(half, simd.add_f32s(a, c)), simd.mul_f32s(half, b));
    [a, simd.add_f32s(outer, inner), simd.sub_f32s(outer, inner), c]
}

/// Transforms the products of one panel, `[position][square][column]`, to the outputs of the block.
pub(super) struct TransformOutputs<'a> {
    pub(super) block: &'a ImageBlock,
    pub(super) panel: Panel,
    pub(super) products: &'a [f32],
    pub(super) output: &'a mut [f32],
}

impl WithSimd for TransformOutputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { block, panel, products, output } = self;
        let (w, c) = (block.cols.output, block.out_c);
        let wide = panel.vectors * S::F32_LANES;
        let apart = products.len() / POSITIONS;
        let mut at = 0;
        for span in block.spans() {
            for y in (span.from..span.to).step_by(2) {
                let line = (span.image * block.rows.output + y - block.first) * w;
                for x in (0..w).step_by(2) {
                    let from = &products[at..][..(POSITIONS - 1) * apart + wide];
                    let (down, across) = ((span.to - y).min(2), (w - x).min(2));
                    let to = (line + x) * c + panel.first;
                    let reach = ((down - 1) * w + across - 1) * c + wide;
                    let to = &mut output[to..][..reach];
                    for lane in (0..wide).step_by(S::F32_LANES) {
                        // SAFETY: all positions have the lanes of this square; `to` has the pixels that are there.
                        unsafe {
                            let [[a, b], [e, f]] = square(simd, from.as_ptr().add(lane), apart);
                            let to = to.as_mut_ptr().add(lane);
                            store::<S>(to, a);
                            if across > 1 {
                                store::<S>(to.add(c), b);
                            }
                            if down > 1 {
                                store::<S>(to.add(w * c), e);
                            }
                            if down > 1 && across > 1 {
                                store::<S>(to.add((w + 1) * c), f);
                            }
                        }
                    }
                    at += wide;
                }
            }
        }
    }
}

/// The 2 × 2 outputs of a square whose products stand `apart` from each other.
///
/// # Safety
/// All of them are there.
#[inline(always)]
unsafe fn square<S: Simd>(simd: S, from: *const f32, apart: usize) -> [[S::f32s; 2]; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let p = output_line(simd, four::<S>(from, apart, 0));
        let q = output_line(simd, four::<S>(from, apart, 4));
        let r = output_line(simd, four::<S>(from, apart, 8));
        let s = output_line(simd, four::<S>(from, apart, 12));
        let left = output_line(simd, [p[0], q[0], r[0], s[0]]);
        let right = output_line(simd, [p[1], q[1], r[1], s[1]]);
        [[left[0], right[0]], [left[1], right[1]]]
    }
}

/// Four products from `first` on.
///
/// # Safety
/// They are there, `apart` from each other.
#[inline(always)]
unsafe fn four<S: Simd>(from: *const f32, apart: usize, first: usize) -> [S::f32s; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let from = from.add(first * apart);
        [
            load::<S>(from),
            load::<S>(from.add(apart)),
            load::<S>(from.add(2 * apart)),
            load::<S>(from.add(3 * apart)),
        ]
    }
}

/// One dimension of the outputs' transform.
#[inline(always)]
fn output_line<S: Simd>(simd: S, [a, b, c, d]: [S::f32s; 4]) -> [S::f32s; 2] {
    [simd.add_f32s(simd.add_f32s(a, b), c), simd.sub_f32s(simd.sub_f32s(b, c), d)]
}
