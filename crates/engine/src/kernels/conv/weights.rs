//! The gradient of the weights: the product of the output's gradient and the windows, summed over all pixels.
//!
//! For each block of pixels the gradients and a few columns of the windows are packed in the order in which tiles read
//! them; the windows are never unfolded as a whole.
//!
//! A task has some of the filters and a part of the pixels. The sums over parts are added at the end, in order.

mod columns;

use super::Conv2d;
use super::axis::ConvAxis;
use super::micro::{self, TileTarget};
use super::pack::{Panel, Panels, Vectors};
use crate::simd;
use crate::threads::{Threads, scratch};
use columns::Columns;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Pixels of a block: enough to pay for loading and storing a tile, few enough to stay in the L1 cache.
const PIXELS: usize = 160;
/// Multiplications per task.
const WORK: usize = 1 << 18;
/// The most tasks, and the most elements of their partial sums.
const TASKS: usize = 8;
const ROOM: usize = 1 << 20;
/// Filters of a task: with fewer, packing the windows does not pay; more do not stay in cache.
const FILTERS: Range<usize> = 48..256;

/// Computes the gradient of the weights.
pub(super) fn gradient(threads: &Threads, s: &Conv2d, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    let (size, pixels) = (dw.len(), s.n * s.oh * s.ow);
    if size == 0 || pixels == 0 {
        dw.fill(0.0);
        return;
    }
    let filter = size / s.o;
    let tasks = (pixels * size / WORK).clamp(1, TASKS);
    let parts = tasks.min(ROOM / size).clamp(1, pixels.div_ceil(PIXELS));
    // Filters of different groups read different windows.
    let filters = if s.groups > 1 {
        s.o / s.groups
    } else {
        let each = s.o.div_ceil(tasks.div_ceil(parts)).clamp(FILTERS.start, FILTERS.end);
        s.o.div_ceil(s.o.div_ceil(each)).next_multiple_of(8)
    };
    let ranges = s.o.div_ceil(filters);
    let job = WeightGradient {
        s,
        x,
        dy,
        rows: ConvAxis::forward(s).0,
        cols: ConvAxis::forward(s).1,
        vectors: Vectors::here(3),
    };
    let task = |i: usize, sums: &mut [f32]| {
        let (part, first) = (i / ranges, i % ranges * filters);
        let pixels = part * pixels / parts..(part + 1) * pixels / parts;
        job.run(first..(first + filters).min(s.o), pixels, sums);
    };
    if parts == 1 {
        threads.chunks(dw, filters * filter, task);
        return;
    }
    let padded = ranges * filters * filter;
    scratch(parts * padded, |sums| {
        threads.chunks(sums, filters * filter, task);
        simd::arch().dispatch(AddUp { parts: sums, each: padded, total: dw });
    });
}

/// The sum of parts of `each` numbers, of which the first ones are used.
pub(super) struct AddUp<'a> {
    pub(super) parts: &'a [f32],
    pub(super) each: usize,
    pub(super) total: &'a mut [f32],
}

impl WithSimd for AddUp<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { parts, each, total } = self;
        total.copy_from_slice(&parts[..total.len()]);
        for part in parts.chunks_exact(each).skip(1) {
            total.iter_mut().zip(part).for_each(|(sum, v)| *sum += v);
        }
    }
}

/// The arguments, the same for all tasks.
struct WeightGradient<'a> {
    s: &'a Conv2d,
    x: &'a [f32],
    dy: &'a [f32],
    rows: ConvAxis,
    cols: ConvAxis,
    vectors: Vectors,
}

impl WeightGradient<'_> {
    /// Sums over some pixels for some filters of one group.
    fn run(&self, filters: Range<usize>, pixels: Range<usize>, sums: &mut [f32]) {
        let s = self.s;
        let group = filters.start / (s.o / s.groups);
        let depth = s.kh * s.kw * (s.c / s.groups);
        let panels = self.vectors.panels(depth);
        let most = PIXELS.min(pixels.len());
        scratch(most * (filters.len().next_multiple_of(8) + panels.widest()), |room| {
            for first in pixels.clone().step_by(most) {
                let columns = Columns {
                    s,
                    x: self.x,
                    rows: self.rows,
                    cols: self.cols,
                    group,
                    pixels: first..(first + most).min(pixels.end),
                };
                let add = first > pixels.start;
                simd::arch().dispatch(FilterBlock {
                    job: self,
                    columns,
                    panels,
                    filters: filters.clone(),
                    room,
                    sums,
                    add,
                });
            }
        });
    }
}

/// Some filters of a group, by a block of pixels.
struct FilterBlock<'a> {
    job: &'a WeightGradient<'a>,
    columns: Columns<'a>,
    panels: Panels,
    filters: Range<usize>,
    room: &'a mut [f32],
    sums: &'a mut [f32],
    add: bool,
}

impl WithSimd for FilterBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 8>(simd) } else { self.run::<S, 4>(simd) }
    }
}

impl FilterBlock<'_> {
    #[inline(always)]
    fn run<S: Simd, const MR: usize>(self, simd: S) {
        let Self { job, columns, panels, filters, room, sums, add } = self;
        let count = columns.pixels.len();
        let (rows, window) = room.split_at_mut(count * filters.len().next_multiple_of(MR));
        pack_rows::<MR>(&job.dy[columns.pixels.start * job.s.o..], job.s.o, &filters, count, rows);
        for panel in panels.iter() {
            columns.pack::<S>(panel, window);
            let tiles = Tiles { rows, window, filters: filters.len(), count, panel, filter: panels.n, add };
            match panel.vectors {
                1 => tiles.run::<S, MR, 1>(simd, sums),
                2 => tiles.run::<S, MR, 2>(simd, sums),
                _ => tiles.run::<S, MR, 3>(simd, sums),
            }
        }
    }
}

/// Packs the gradients of some filters for tiles of `MR` rows: `[tile][pixel][row]`.
#[inline(always)]
fn pack_rows<const MR: usize>(dy: &[f32], o: usize, filters: &Range<usize>, count: usize, rows: &mut [f32]) {
    for (tile, rows) in rows.chunks_exact_mut(count * MR).enumerate() {
        let first = filters.start + tile * MR;
        let here = MR.min(filters.end - first);
        for (rows, dy) in rows.chunks_exact_mut(MR).zip(dy.chunks(o)) {
            if here == MR {
                rows.copy_from_slice(&dy[first..first + MR]);
            } else {
                rows[..here].copy_from_slice(&dy[first..first + here]);
                rows[here..].fill(0.0);
            }
        }
    }
}

/// The tiles of one panel.
struct Tiles<'a> {
    rows: &'a [f32],
    window: &'a [f32],
    filters: usize,
    /// Pixels.
    count: usize,
    panel: Panel,
    /// Weights of a filter.
    filter: usize,
    add: bool,
}

impl Tiles<'_> {
    #[inline(always)]
    fn run<S: Simd, const MR: usize, const NV: usize>(&self, simd: S, sums: &mut [f32]) {
        let window = &self.window[..self.count * NV * S::F32_LANES];
        for (tile, rows) in self.rows.chunks_exact(self.count * MR).enumerate() {
            let first = tile * MR;
            let here = MR.min(self.filters - first);
            let to: [u32; MR] =
                std::array::from_fn(|i| ((first + i) * self.filter + self.panel.first) as u32);
            let target =
                TileTarget { c: &mut *sums, rows: &to[..here], lanes: self.panel.columns, add: self.add };
            micro::packed_tile::<S, MR, NV>(simd, (rows, MR), window, target);
        }
    }
}
