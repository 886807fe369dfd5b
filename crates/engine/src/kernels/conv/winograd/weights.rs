//! The gradient of the weights by the same method: the sums over all squares are taken of transformed inputs and
//! transformed gradients, at each of the 16 positions, and transformed back once in the end.

#![expect(
    unsafe_code,
    reason = "explicit vectors; every address is checked against the slices before the loop"
)]

use super::super::Conv2d;
use super::super::axis::Axis;
use super::super::micro::{self, Target};
use super::super::pack::{Panels, Vectors};
use super::super::window::Block;
use super::POSITIONS;
use super::transform::{self, load, spread, store};
use crate::simd;
use crate::threads::{Threads, scratch};
use pulp::{Simd, WithSimd};
use std::ops::{Range, RangeInclusive};

/// Tasks, and what their sums may take, in numbers: of one, so that they stay in the second cache, and of all.
const TASKS: usize = 8;
const SUMS: usize = 128 << 10;
const ROOM: usize = 1 << 21;
/// Transformed inputs and gradients of a block, in numbers; and its squares.
const BLOCK: usize = 192 << 10;
const SQUARES: RangeInclusive<usize> = 64..=160;

/// How the work is cut: each task has some of the filters and a part of the rows.
#[derive(Debug, Clone, Copy)]
struct Cut {
    filters: usize,
    ranges: usize,
    parts: usize,
    /// Rows of a block.
    lines: usize,
}

impl Cut {
    fn new(s: &Conv2d) -> Self {
        let all = (TASKS.min(ROOM / (POSITIONS * s.c * s.o))).max(1);
        let ranges = (POSITIONS * s.c * s.o).div_ceil(SUMS).max(TASKS / all);
        let filters = s.o.div_ceil(ranges).max(64).next_multiple_of(16).min(s.o);
        let ranges = s.o.div_ceil(filters);
        let squares = (BLOCK / POSITIONS / (s.c + filters)).clamp(*SQUARES.start(), *SQUARES.end());
        let lines = (squares * 2 / s.ow.div_ceil(2)).max(2).next_multiple_of(2);
        let parts = all.min(TASKS.div_ceil(ranges)).min((s.n * s.oh).div_ceil(lines));
        Self { filters, ranges, parts, lines }
    }
}

/// Whether this way is faster also for the gradient of the weights: if all sums can be kept near.
pub(in super::super) fn suits_gradient(s: &Conv2d) -> bool {
    POSITIONS * s.c * s.o <= 4 * SUMS
}

/// Computes the gradient of the weights.
pub(in super::super) fn gradient(threads: &Threads, s: &Conv2d, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    let cut = Cut::new(s);
    let size = POSITIONS * cut.filters * s.c;
    let blocks = (s.n * s.oh).div_ceil(cut.lines);
    scratch(cut.parts * cut.ranges * size, |sums| {
        threads.chunks(sums, size, |task, sums| {
            let (part, first) = (task / cut.ranges, task % cut.ranges * cut.filters);
            let filters = first..(first + cut.filters).min(s.o);
            let from = part * blocks / cut.parts;
            for block in from..(part + 1) * blocks / cut.parts {
                run_block(s, cut, block, filters.clone(), (x, dy), sums, block > from);
            }
        });
        let sums = &*sums;
        threads.chunks(dw, 16 * 9 * s.c, |i, dw| {
            simd::arch().dispatch(Back { c: s.c, cut, first: i * 16, sums, dw });
        });
    });
}

fn run_block(
    s: &Conv2d,
    cut: Cut,
    index: usize,
    filters: Range<usize>,
    (x, dy): (&[f32], &[f32]),
    sums: &mut [f32],
    add: bool,
) {
    let (rows, cols) = Axis::forward(s);
    let first = index * cut.lines;
    let end = (first + cut.lines).min(s.n * s.oh);
    let block = Block { rows, cols, c: s.c, out_c: s.o, first, end };
    let squares = block.squares();
    let panels = Vectors::here(3).panels(s.c);
    scratch(POSITIONS * squares * (s.c + filters.len()), |all| {
        let (inputs, gradients) = all.split_at_mut(POSITIONS * squares * s.c);
        let wide = panels.widest();
        simd::arch().dispatch(transform::Inputs { block: &block, input: x, squares, wide, inputs });
        simd::arch().dispatch(Gradients { block: &block, squares, filters: filters.clone(), dy, gradients });
        let count = filters.len();
        simd::arch().dispatch(Products { cut, squares, panels, count, inputs, gradients, sums, add });
    });
}

/// Filters that stand beside each other: a vector, or the rows of a tile if those are more.
const fn abreast<S: Simd>() -> usize {
    let rows = if S::REGISTER_COUNT >= 32 { 8 } else { 4 };
    if S::F32_LANES > rows { S::F32_LANES } else { rows }
}

/// Transforms the gradients of some filters: `[position][filters / abreast][square][abreast]`.
struct Gradients<'a> {
    block: &'a Block,
    squares: usize,
    filters: Range<usize>,
    dy: &'a [f32],
    gradients: &'a mut [f32],
}

impl WithSimd for Gradients<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { block, squares, filters, dy, gradients } = self;
        let (w, o, lanes) = (block.cols.output, block.out_c, S::F32_LANES);
        let (apart, beside) = (gradients.len() / POSITIONS, abreast::<S>());
        assert!(filters.len().is_multiple_of(beside) && apart == squares * filters.len(), "whole vectors");
        let mut square = 0;
        for span in block.spans() {
            for y in (span.from..span.to).step_by(2) {
                let line = (span.image * block.rows.output + y) * w;
                for x in (0..w).step_by(2) {
                    let (down, across) = ((span.to - y).min(2), (w - x).min(2));
                    let from = &dy[(line + x) * o..][..((down - 1) * w + across) * o];
                    for lane in (0..filters.len()).step_by(lanes) {
                        // SAFETY: the pixels that are there have all filters.
                        let out = unsafe {
                            let from = from.as_ptr().add(filters.start + lane);
                            let zero = simd.splat_f32s(0.0);
                            let a = load::<S>(from);
                            let b = if across > 1 { load::<S>(from.add(o)) } else { zero };
                            let c = if down > 1 { load::<S>(from.add(w * o)) } else { zero };
                            let d =
                                if down > 1 && across > 1 { load::<S>(from.add((w + 1) * o)) } else { zero };
                            gradient_square(simd, [[a, b], [c, d]])
                        };
                        let place = (lane / beside * squares + square) * beside + lane % beside;
                        let to = &mut gradients[place..][..(POSITIONS - 1) * apart + lanes];
                        // SAFETY: `to` has a vector at every position.
                        unsafe { spread(to.as_mut_ptr(), apart, simd, out) };
                    }
                    square += 1;
                }
            }
        }
    }
}

/// The transform of a square of 2 × 2 gradients.
#[inline(always)]
fn gradient_square<S: Simd>(simd: S, [[a, b], [c, d]]: [[S::f32s; 2]; 2]) -> [[S::f32s; 4]; 4] {
    let (left, right) = (gradient_line(simd, a, c), gradient_line(simd, b, d));
    [
        gradient_line(simd, left[0], right[0]),
        gradient_line(simd, left[1], right[1]),
        gradient_line(simd, left[2], right[2]),
        gradient_line(simd, left[3], right[3]),
    ]
}

#[inline(always)]
fn gradient_line<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> [S::f32s; 4] {
    [a, simd.add_f32s(a, b), simd.sub_f32s(a, b), simd.neg_f32s(b)]
}

/// Adds the products of a block to the sums `[position][filter][channel]`.
struct Products<'a> {
    cut: Cut,
    squares: usize,
    panels: Panels,
    /// Filters.
    count: usize,
    inputs: &'a [f32],
    gradients: &'a [f32],
    sums: &'a mut [f32],
    add: bool,
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 8>(simd) } else { self.run::<S, 4>(simd) }
    }
}

impl Products<'_> {
    #[inline(always)]
    fn run<S: Simd, const MR: usize>(self, simd: S) {
        let (squares, c, beside) = (self.squares, self.panels.n, abreast::<S>());
        let inputs = self.inputs.chunks_exact(squares * c);
        let gradients = self.gradients.chunks_exact(squares * self.count);
        let sums = self.sums.chunks_exact_mut(self.cut.filters * c);
        for ((inputs, gradients), sums) in inputs.zip(gradients).zip(sums) {
            for panel in self.panels.iter() {
                let wide = panel.vectors * S::F32_LANES;
                let inputs = &inputs[panel.first * squares..][..squares * wide];
                for first in (0..self.count).step_by(MR) {
                    let rows = &gradients[first / beside * squares * beside + first % beside..];
                    let to: [u32; MR] = std::array::from_fn(|i| ((first + i) * c + panel.first) as u32);
                    let target = Target { c: &mut *sums, rows: &to, lanes: panel.columns, add: self.add };
                    match panel.vectors {
                        1 => micro::packed_tile::<S, MR, 1>(simd, (rows, beside), inputs, target),
                        2 => micro::packed_tile::<S, MR, 2>(simd, (rows, beside), inputs, target),
                        _ => micro::packed_tile::<S, MR, 3>(simd, (rows, beside), inputs, target),
                    }
                }
            }
        }
    }
}

/// Adds up the sums of the parts for some filters and transforms them back.
struct Back<'a> {
    c: usize,
    cut: Cut,
    first: usize,
    sums: &'a [f32],
    dw: &'a mut [f32],
}

impl WithSimd for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { c, cut, first, sums, dw } = self;
        let apart = cut.filters * c;
        let size = POSITIONS * apart;
        assert!(c.is_multiple_of(S::F32_LANES), "whole vectors of channels");
        for (i, dw) in dw.chunks_exact_mut(9 * c).enumerate() {
            let (range, filter) = ((first + i) / cut.filters, (first + i) % cut.filters);
            for lane in (0..c).step_by(S::F32_LANES) {
                let mut total = [[simd.splat_f32s(0.0); 4]; 4];
                for part in sums.chunks_exact(cut.ranges * size) {
                    let part = &part[range * size + filter * c..][..(POSITIONS - 1) * apart + c];
                    for (i, row) in total.iter_mut().enumerate() {
                        for (j, total) in row.iter_mut().enumerate() {
                            // SAFETY: `part` has `c` numbers at every position.
                            let v = unsafe { load::<S>(part.as_ptr().add((4 * i + j) * apart + lane)) };
                            *total = simd.add_f32s(*total, v);
                        }
                    }
                }
                let out = back_square(simd, total);
                for (i, row) in out.into_iter().enumerate() {
                    for (j, vector) in row.into_iter().enumerate() {
                        // SAFETY: `dw` has nine times `c` numbers.
                        unsafe { store::<S>(dw.as_mut_ptr().add((3 * i + j) * c + lane), vector) };
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn back_square<S: Simd>(simd: S, [p, q, r, s]: [[S::f32s; 4]; 4]) -> [[S::f32s; 3]; 3] {
    let [a, b, c, d] = [back_line(simd, p), back_line(simd, q), back_line(simd, r), back_line(simd, s)];
    let left = back_line(simd, [a[0], b[0], c[0], d[0]]);
    let middle = back_line(simd, [a[1], b[1], c[1], d[1]]);
    let right = back_line(simd, [a[2], b[2], c[2], d[2]]);
    [[left[0], middle[0], right[0]], [left[1], middle[1], right[1]], [left[2], middle[2], right[2]]]
}

#[inline(always)]
fn back_line<S: Simd>(simd: S, [a, b, c, d]: [S::f32s; 4]) -> [S::f32s; 3] {
    let half = simd.splat_f32s(0.5);
    let sum = simd.mul_f32s(half, simd.add_f32s(b, c));
    [simd.add_f32s(a, sum), simd.mul_f32s(half, simd.sub_f32s(b, c)), simd.add_f32s(sum, d)]
}
