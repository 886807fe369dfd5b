//! 3 × 3 convolutions of stride 1 by Winograd's method: squares of 2 × 2 outputs from squares of 4 × 4 inputs.
//!
//! Inputs, weights and outputs are transformed such that a square takes 16 multiplications for each pair of channels
//! instead of 36. Each of the 16 positions of a square is a matrix product of its own, over all squares of a block:
//!
//! ```text
//! input ── squares × channels, 16 times ──┐
//!                                          ├─ 16 products ── squares × channels, 16 times ── output
//! weights ─ channels × channels, 16 times ─┘
//! ```
//!
//! The gradient of the input is a convolution of the same kind with the weights turned around.

mod transform;

use super::Conv2d;
use super::axis::ConvAxis;
use super::micro::{self, Stretch, TileTarget, Walk};
use super::pack::{Matrix, Panel, Vectors};
use super::window::ImageBlock;
use crate::simd;
use crate::threads::{Threads, scratch};
use pulp::{Simd, WithSimd};

/// Positions of a square.
const POSITIONS: usize = 16;
/// Transformed inputs of a block, in elements, to stay in the L2 cache; and its squares.
const BLOCK: usize = 160 << 10;
const SQUARES: std::ops::RangeInclusive<usize> = 64..=160;
/// The most elements of transformed weights that are kept.
const WEIGHTS: usize = 5 << 18;
/// Depth of a product whose weights stay in the L1 cache.
const DEPTH: usize = 128;

/// Whether this method is possible and faster.
pub(super) fn suits(s: &Conv2d) -> bool {
    let plain = (s.kh, s.kw, s.stride, s.dilation, s.groups) == (3, 3, (1, 1), (1, 1), 1);
    let whole = s.c.is_multiple_of(16) && s.o.is_multiple_of(16) && s.pad.0 <= 2 && s.pad.1 <= 2;
    if !plain || !whole || s.c * s.o < 1024 || POSITIONS * s.c * s.o > WEIGHTS {
        return false;
    }
    // In both directions.
    let wasted = |h: usize, w: usize| h.next_multiple_of(2) * w.next_multiple_of(2) * 10 > h * w * 14;
    !wasted(s.oh, s.ow) && !wasted(s.h, s.w)
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
    let (rows, cols) = if back { ConvAxis::backward(s, 0) } else { ConvAxis::forward(s) };
    let (from, to) = if back { (s.o, s.c) } else { (s.c, s.o) };
    let matrix = Matrix { rows, cols, from, to, back };
    let vectors = Vectors::here(4);
    if output.is_empty() {
        return;
    }
    scratch(POSITIONS * from * to, |weights| {
        scratch(matrix.room(s, vectors), |packed| {
            matrix.pack(threads, s, w, packed, vectors);
            let wide = vectors.panels(to).widest();
            let packed = &*packed;
            threads.chunks(weights, POSITIONS * from * wide, |i, weights| {
                let first = i * wide;
                let packed = &packed[first * 9 * from..][..weights.len() / POSITIONS * 9];
                simd::arch().dispatch(transform::TransformWeights { packed, depth: from, weights });
            });
        });
        let weights = &*weights;
        let squares = (BLOCK / POSITIONS / from).clamp(*SQUARES.start(), *SQUARES.end());
        let lines = (squares * 2 / cols.output.div_ceil(2)).max(2).next_multiple_of(2);
        threads.chunks(output, lines * cols.output * to, |i, output| {
            let first = i * lines;
            let end = first + output.len() / (cols.output * to);
            let block = ImageBlock { rows, cols, c: from, out_c: to, first, end };
            run_block(&block, vectors, input, weights, output);
            finish(first * cols.output, output);
        });
    });
}

fn run_block(block: &ImageBlock, vectors: Vectors, input: &[f32], weights: &[f32], output: &mut [f32]) {
    let squares: usize = block.squares();
    let wide = vectors.panels(block.out_c).widest();
    scratch(POSITIONS * squares * (block.c + wide) + 2 * squares, |all| {
        let (inputs, rest) = all.split_at_mut(POSITIONS * squares * block.c);
        let (products, tables) = rest.split_at_mut(POSITIONS * squares * wide);
        let (sources, targets) = bytemuck::cast_slice_mut::<f32, u32>(tables).split_at_mut(squares);
        sources.iter_mut().enumerate().for_each(|(i, at)| *at = (i * block.c) as u32);
        simd::arch().dispatch(transform::Inputs { block, input, squares, inputs });
        for panel in vectors.panels(block.out_c).iter() {
            let wide = panel.vectors * vectors.lanes;
            targets.iter_mut().enumerate().for_each(|(i, at)| *at = (i * wide) as u32);
            let products = &mut products[..POSITIONS * squares * wide];
            let weights = &weights[panel.first * POSITIONS * block.c..][..POSITIONS * block.c * wide];
            simd::arch().dispatch(Products {
                inputs,
                sources,
                targets,
                depth: block.c,
                panel,
                weights,
                products,
            });
            simd::arch().dispatch(transform::TransformOutputs { block, panel, products, output });
        }
    });
}

impl ImageBlock {
    /// How many squares cover the block.
    fn squares(&self) -> usize {
        let across = self.cols.output.div_ceil(2);
        self.spans().map(|span| (span.to - span.from).div_ceil(2) * across).sum()
    }
}

/// The products of all positions, for one panel of the output's channels.
struct Products<'a> {
    inputs: &'a [f32],
    /// Where the squares begin on either side.
    sources: &'a [u32],
    targets: &'a [u32],
    depth: usize,
    panel: Panel,
    weights: &'a [f32],
    products: &'a mut [f32],
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match (self.panel.vectors, S::REGISTER_COUNT >= 32) {
            (1, _) => self.run::<S, 8, 1>(simd),
            (2, true) => self.run::<S, 8, 2>(simd),
            (3, true) => self.run::<S, 8, 3>(simd),
            (_, true) => self.run::<S, 6, 4>(simd),
            (2, false) => self.run::<S, 6, 2>(simd),
            (_, false) => self.run::<S, 4, 3>(simd),
        }
    }
}

impl Products<'_> {
    #[inline(always)]
    fn run<S: Simd, const MR: usize, const NV: usize>(self, simd: S) {
        let wide = NV * S::F32_LANES;
        let (depth, squares) = (self.depth, self.sources.len());
        let inputs = self.inputs.chunks_exact(squares * depth);
        let products = self.products.chunks_exact_mut(squares * wide);
        for ((inputs, weights), c) in inputs.zip(self.weights.chunks_exact(depth * wide)).zip(products) {
            for from in (0..depth).step_by(DEPTH) {
                let stretch = [Stretch { from, len: DEPTH.min(depth - from) }];
                let walk = Walk::new(&stretch);
                for (rows, to) in self.sources.chunks(MR).zip(self.targets.chunks(MR)) {
                    let target = TileTarget { c: &mut *c, rows: to, lanes: wide, add: from > 0 };
                    micro::tile::<S, MR, NV>(simd, &walk, (inputs, rows), &weights[from * wide..], target);
                }
            }
        }
    }
}
