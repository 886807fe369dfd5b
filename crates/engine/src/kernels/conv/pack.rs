//! Packing weights in the order in which tiles read them.

use super::Conv2d;
use super::axis::ConvAxis;
use crate::simd;
use crate::threads::Threads;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The vector width of this machine, and the greatest tile width in vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vectors {
    pub(super) lanes: usize,
    pub(super) most: usize,
}

impl Vectors {
    /// Tiles up to `most` vectors wide, or 3 where there are few registers.
    pub(super) fn here(most: usize) -> Self {
        struct DetectVectors(usize);
        impl WithSimd for DetectVectors {
            type Output = Vectors;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> Vectors {
                Vectors { lanes: S::F32_LANES, most: if S::REGISTER_COUNT >= 32 { self.0 } else { 3 } }
            }
        }
        simd::arch().dispatch(DetectVectors(most))
    }

    /// Cuts `n` columns into panels of equally many vectors; the last may be narrower.
    pub(super) fn panels(self, n: usize) -> Panels {
        let vectors = n.div_ceil(self.lanes);
        let count = vectors.div_ceil(self.most).max(1);
        Panels { n, vectors, each: vectors.div_ceil(count), lanes: self.lanes }
    }
}

/// Columns of a product in panels as wide as a tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panels {
    pub(super) n: usize,
    vectors: usize,
    each: usize,
    lanes: usize,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel {
    pub(super) vectors: usize,
    /// Its first column and number of columns; the last vector may be partly used.
    pub(super) first: usize,
    pub(super) columns: usize,
}

impl Panels {
    pub(super) fn iter(self) -> impl Iterator<Item = Panel> {
        (0..self.vectors).step_by(self.each.max(1)).map(move |v| {
            let vectors = self.each.min(self.vectors - v);
            let first = v * self.lanes;
            Panel { vectors, first, columns: (vectors * self.lanes).min(self.n - first) }
        })
    }

    /// The columns of the widest panel, including unused ones of the last vector.
    pub(super) fn widest(self) -> usize {
        self.each * self.lanes
    }

    /// The number of columns, including unused ones of the last vector.
    pub(super) fn padded(self) -> usize {
        self.vectors * self.lanes
    }
}

/// The matrix `[rows × cols × from channels] × to channels` of one group of one phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    pub(super) rows: ConvAxis,
    pub(super) cols: ConvAxis,
    /// Channels of a group on either side.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Input and output channels of the weights are swapped.
    pub(super) back: bool,
}

impl Matrix {
    pub(super) fn depth(&self) -> usize {
        self.rows.taps * self.cols.taps * self.from
    }

    /// Elements of the packed weights of all groups.
    pub(super) fn room(&self, s: &Conv2d, vectors: Vectors) -> usize {
        self.depth() * vectors.panels(self.to).padded() * s.groups
    }

    /// Packs the weights of all groups, panel after panel, each as `[depth][columns]`.
    pub(super) fn pack(
        &self,
        threads: &Threads,
        s: &Conv2d,
        w: &[f32],
        packed: &mut [f32],
        vectors: Vectors,
    ) {
        let panels = vectors.panels(self.to);
        let (depth, columns) = (self.depth(), panels.padded());
        if depth * columns == 0 {
            return;
        }
        if s.groups == 1 && packed.len() > 1 << 16 {
            threads.chunks(packed, depth * panels.widest(), |i, packed| {
                let panel = panels.iter().nth(i).expect("as many chunks as panels");
                self.pack_part(s, 0, w, panel, 0..depth, packed);
            });
            return;
        }
        for (group, mut packed) in packed.chunks_mut(depth * columns).enumerate() {
            for panel in panels.iter() {
                let (here, rest) = packed.split_at_mut(depth * panel.vectors * panels.lanes);
                self.pack_part(s, group, w, panel, 0..depth, here);
                packed = rest;
            }
        }
    }

    /// Packs some rows of one panel.
    pub(super) fn pack_part(
        &self,
        s: &Conv2d,
        group: usize,
        w: &[f32],
        panel: Panel,
        depth: Range<usize>,
        packed: &mut [f32],
    ) {
        simd::arch().dispatch(PanelRows { matrix: self, s, group, w, panel, depth, packed });
    }
}

/// Some rows of one panel, to be packed.
struct PanelRows<'a> {
    matrix: &'a Matrix,
    s: &'a Conv2d,
    group: usize,
    w: &'a [f32],
    panel: Panel,
    depth: Range<usize>,
    packed: &'a mut [f32],
}

impl WithSimd for PanelRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { matrix, s, group, w, panel, depth, packed } = self;
        let (inputs, outputs) = (s.c / s.groups, s.o / s.groups);
        let filter = s.kh * s.kw * inputs;
        let wide = packed.len() / depth.len();
        let mut rest = packed;
        let mut at = depth.start;
        while at < depth.end {
            let (tap, within) = (at / matrix.from, at % matrix.from);
            let count = (matrix.from - within).min(depth.end - at);
            let (here, next) = rest.split_at_mut(count * wide);
            (rest, at) = (next, at + count);
            let (r, q) = (tap / matrix.cols.taps, tap % matrix.cols.taps);
            let tap = matrix.rows.kernel(r) * s.kw + matrix.cols.kernel(q);
            let w = &w[group * outputs * filter + tap * inputs..];
            if matrix.back {
                for (c, packed) in here.chunks_exact_mut(wide).enumerate() {
                    let from = (within + c) * filter + panel.first;
                    packed[..panel.columns].copy_from_slice(&w[from..][..panel.columns]);
                    packed[panel.columns..].fill(0.0);
                }
            } else {
                transpose(&w[panel.first * filter + within..], filter, panel.columns, here, wide);
            }
        }
    }
}

/// Turns `columns` rows, `stride` apart, into columns of `to`, whose rows are `wide`; other columns become zero.
#[inline(always)]
fn transpose(from: &[f32], stride: usize, columns: usize, to: &mut [f32], wide: usize) {
    let rows = to.len() / wide;
    let (whole_rows, whole_columns) = (rows / EDGE * EDGE, columns / EDGE * EDGE);
    // A cache line of every column at a time.
    for first in (0..whole_rows).step_by(16) {
        for column in (0..whole_columns).step_by(EDGE) {
            for row in (first..whole_rows.min(first + 16)).step_by(EDGE) {
                square(&from[column * stride + row..], stride, &mut to[row * wide + column..], wide);
            }
        }
    }
    for row in 0..rows {
        let done = if row < whole_rows { whole_columns } else { 0 };
        let to = &mut to[row * wide..][..wide];
        (done..columns).for_each(|column| to[column] = from[column * stride + row]);
        (columns..wide).for_each(|column| to[column] = 0.0);
    }
}

/// The edge of the squares that are turned at once.
const EDGE: usize = 4;

#[inline(always)]
fn square(from: &[f32], stride: usize, to: &mut [f32], wide: usize) {
    let line = |i: usize| -> [f32; EDGE] { from[i * stride..][..EDGE].try_into().expect("as long as asked") };
    let [a, b, c, d] = [line(0), line(1), line(2), line(3)];
    for i in 0..EDGE {
        to[i * wide..][..EDGE].copy_from_slice(&[a[i], b[i], c[i], d[i]]);
    }
}
