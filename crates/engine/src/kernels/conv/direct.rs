//! Convolution without unfolding the image (im2col): tiles read the rows of the windows in place.
//!
//! Used for the output and for the gradient of the input. The latter is, for each phase of the stride, again a
//! convolution: of the output's gradient with part of the weights, reversed.

use super::Conv2d;
use super::axis::ConvAxis;
use super::micro::{self, Stretch, TileTarget, Walk};
use super::pack::{Matrix, Panel, Vectors};
use super::window::ImageBlock;
use crate::simd;
use crate::threads::{Threads, per_task, scratch};
use pulp::{Simd, WithSimd};

/// Packed weights that fit the L1 cache, in elements.
const NEAR: usize = 8 << 10;
/// Size of a block of output rows with its input, to fit the L2 cache, in elements.
const BLOCK: usize = 128 << 10;
/// Multiplications per task.
const WORK: (usize, usize) = (1 << 18, 1 << 21);
/// Pixels for which it pays to copy the weights closer: from the L2 cache, from memory.
const PIXELS: usize = 64;
const MORE_PIXELS: usize = 128;
/// Packed weights that fit the L2 cache, in elements.
const SECOND: usize = 128 << 10;
/// Larger packed weights are not kept: each task packs them as it goes.
const FAR: usize = 1 << 20;
/// The most stretches of a walk.
const STRETCHES: usize = 64;

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
    let vectors = Vectors::here(4);
    let phases = if back { s.stride.0 * s.stride.1 } else { 1 };
    let matrix = |phase: usize| -> Matrix {
        let (rows, cols) = if back { ConvAxis::backward(s, phase) } else { ConvAxis::forward(s) };
        let (c, o) = (s.c / s.groups, s.o / s.groups);
        let (from, to) = if back { (o, c) } else { (c, o) };
        Matrix { rows, cols, from, to, back }
    };
    let (h, wide, to_c) = if back { (s.h, s.w, s.c) } else { (s.oh, s.ow, s.o) };
    if output.is_empty() {
        return;
    }
    let room: usize = (0..phases).map(|phase| matrix(phase).room(s, vectors)).sum();
    let kept = room <= FAR || s.groups > 1;
    scratch(if kept { room } else { 0 }, |packed| {
        let mut rest = &mut *packed;
        for phase in 0..if kept { phases } else { 0 } {
            let (here, next) = rest.split_at_mut(matrix(phase).room(s, vectors));
            matrix(phase).pack(threads, s, w, here, vectors);
            rest = next;
        }
        let packed = &*packed;
        let rows = rows_per_task(s, back, room);
        let total = s.n * h;
        threads.chunks(output, rows * wide * to_c, |i, output| {
            let first = i * rows;
            let mut packed = packed;
            for phase in 0..phases {
                let matrix = matrix(phase);
                let weights = if kept {
                    let (here, next) = packed.split_at(matrix.room(s, vectors));
                    packed = next;
                    WeightData::Packed(here)
                } else {
                    WeightData::Plain(w)
                };
                let from_c = if back { s.o } else { s.c };
                let end = (first + rows).min(total);
                let block =
                    ImageBlock { rows: matrix.rows, cols: matrix.cols, c: from_c, out_c: to_c, first, end };
                run_block(s, &block, &matrix, vectors, input, weights, output);
            }
            finish(first * wide, output);
        });
    });
}

/// Depends on the shape alone: enough work and pixels for a task, no more than the cache holds.
fn rows_per_task(s: &Conv2d, back: bool, weights: usize) -> usize {
    let work = s.ow * s.o * (s.c / s.groups) * s.kh * s.kw;
    let numbers = s.ow * s.o + s.stride.0 * s.w * s.c;
    let pixels = if weights > SECOND { MORE_PIXELS } else { PIXELS };
    let task = per_task(s.n * s.oh * work, WORK.0, WORK.1);
    let rows = task.div_ceil(work.max(1)).max(pixels.div_ceil(s.ow.max(1)));
    let rows = rows.min((BLOCK / numbers.max(1)).max(1));
    if back { rows * s.stride.0 } else { rows }
}

/// The weights, packed or not.
#[derive(Clone, Copy)]
enum WeightData<'a> {
    Packed(&'a [f32]),
    Plain(&'a [f32]),
}

fn run_block(
    s: &Conv2d,
    block: &ImageBlock,
    matrix: &Matrix,
    vectors: Vectors,
    input: &[f32],
    weights: WeightData<'_>,
    output: &mut [f32],
) {
    let (pixels, room) = (block.pixels(), block.room());
    scratch(room + 2 * pixels + 2 * NEAR, |all| {
        let (window, rest) = all.split_at_mut(room);
        let (tables, near) = rest.split_at_mut(2 * pixels);
        let (source, target) = bytemuck::cast_slice_mut::<f32, u32>(tables).split_at_mut(pixels);
        block.pixels_into(source, target);
        if matrix.depth() == 0 {
            for at in target {
                output[*at as usize..][..block.out_c].fill(0.0);
            }
            return;
        }
        let input = if block.copies() {
            block.copy(input, window);
            &*window
        } else {
            &input[block.base()..]
        };
        let pitch = block.pitch();
        simd::arch().dispatch(BlockRun {
            s,
            block,
            matrix,
            vectors,
            pitch,
            input,
            source,
            target,
            weights,
            near,
            output,
        });
    });
}

/// All pixels of a block by all columns of the weights.
struct BlockRun<'a> {
    s: &'a Conv2d,
    block: &'a ImageBlock,
    matrix: &'a Matrix,
    vectors: Vectors,
    pitch: usize,
    input: &'a [f32],
    source: &'a [u32],
    target: &'a [u32],
    weights: WeightData<'a>,
    /// Scratch for weights that are packed on demand.
    near: &'a mut [f32],
    output: &'a mut [f32],
}

impl WithSimd for BlockRun<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for group in 0..self.s.groups {
            for panel in self.vectors.panels(self.matrix.to).iter() {
                match (panel.vectors, S::REGISTER_COUNT >= 32) {
                    (1, _) => self.panel::<S, 8, 1>(simd, group, panel),
                    (2, true) => self.panel::<S, 8, 2>(simd, group, panel),
                    (3, true) => self.panel::<S, 8, 3>(simd, group, panel),
                    (_, true) => self.panel::<S, 6, 4>(simd, group, panel),
                    (2, false) => self.panel::<S, 6, 2>(simd, group, panel),
                    (_, false) => self.panel::<S, 4, 3>(simd, group, panel),
                }
            }
        }
    }
}

impl BlockRun<'_> {
    #[inline(always)]
    fn panel<S: Simd, const MR: usize, const NV: usize>(&mut self, simd: S, group: usize, panel: Panel) {
        let wide = NV * S::F32_LANES;
        let depth = self.matrix.depth();
        let near = (NEAR / wide).max(16);
        // Equal parts, so that the last is not a stub.
        let part = depth.div_ceil(depth.div_ceil(near));
        let mut stretches = [Stretch::default(); STRETCHES];
        let input = &self.input[(group * self.matrix.from).min(self.input.len())..];
        let output = &mut self.output[group * self.matrix.to + panel.first..];
        let mut done = 0;
        while done < depth {
            let (count, steps) = self.matrix.stretches(self.block, self.pitch, done, part, &mut stretches);
            let walk = Walk::new(&stretches[..count]);
            let packed = match self.weights {
                WeightData::Packed(all) => {
                    let columns = self.vectors.panels(self.matrix.to).padded();
                    &all[(group * columns + panel.first) * depth + done * wide..]
                }
                WeightData::Plain(w) => {
                    let near = &mut self.near[..steps * wide];
                    self.matrix.pack_part(self.s, group, w, panel, done..done + steps, near);
                    &*near
                }
            };
            for (rows, to) in self.source.chunks(MR).zip(self.target.chunks(MR)) {
                let target = TileTarget { c: &mut *output, rows: to, lanes: panel.columns, add: done > 0 };
                micro::tile::<S, MR, NV>(simd, &walk, (input, rows), packed, target);
            }
            done += steps;
        }
    }
}

impl Matrix {
    /// The next stretches of the walk through the windows, from depth `done` on: about `part` steps in all.
    /// Returns how many stretches and how many steps.
    #[inline(always)]
    fn stretches(
        &self,
        block: &ImageBlock,
        pitch: usize,
        done: usize,
        part: usize,
        out: &mut [Stretch; STRETCHES],
    ) -> (usize, usize) {
        // Neighbouring taps of all channels are one run.
        let joined = self.cols.step == 1 && block.c == self.from || self.cols.taps == 1;
        let (run, runs) = if joined { (self.cols.taps * self.from, 1) } else { (self.from, self.cols.taps) };
        let limit = (done + part).min(self.depth());
        let mut at = done;
        let mut count = 0;
        while at < limit && count < STRETCHES {
            let (tap, within) = (at / run, at % run);
            let (row, col) = (tap / runs, tap % runs);
            let a = row * self.rows.step * pitch + col * self.cols.step * block.c + within;
            let len = (run - within).min(limit - at);
            out[count] = Stretch { from: a, len };
            at += len;
            count += 1;
        }
        (count, at - done)
    }
}
