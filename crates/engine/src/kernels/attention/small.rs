//! Products of matrices that fit the cache: no packing; operands are copied to buffers whose rows are padded with zeros
//! to whole vectors.

use crate::simd::arch;
use pulp::{Simd, WithSimd};

/// Rows are padded to a multiple of this, on every machine.
pub(super) const PAD: usize = 16;

/// Columns of a panel.
pub(super) const PANEL: usize = 64;

/// Rows of the result that are computed together.
const ROWS: usize = 4;

/// Steps along the inner dimension after which the result goes back to memory, so that a panel stays in cache.
const DEPTH: usize = 128;

/// Which part of the inner dimension row `i` of the result needs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Depth {
    All(usize),
    /// Up to `first + i`.
    UpTo {
        first: usize,
        k: usize,
    },
    /// From `i - first` on.
    From {
        first: usize,
        k: usize,
    },
}

impl Depth {
    /// For `rows` rows from `i` on.
    #[inline(always)]
    fn range(self, i: usize, rows: usize) -> (usize, usize) {
        match self {
            Self::All(k) => (0, k),
            Self::UpTo { first, k } => (0, k.min(first + i + rows)),
            Self::From { first, k } => (i.saturating_sub(first).min(k), k),
        }
    }

    fn end(self) -> usize {
        let (Self::All(k) | Self::UpTo { k, .. } | Self::From { k, .. }) = self;
        k
    }
}

/// The left operand: element (i, l) at `i · row + l · col`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeftOperand<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) col: usize,
}

/// The right operand: element (l, j) at `j / 64 · panel + l · row + j % 64`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RightOperand<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) panel: usize,
}

impl<'a> RightOperand<'a> {
    /// Rows one after another, `row` apart.
    pub(super) fn rows(data: &'a [f32], row: usize) -> Self {
        Self { data, row, panel: PANEL }
    }

    /// Panels one after another, each of `k` rows.
    pub(super) fn panels(data: &'a [f32], k: usize) -> Self {
        Self { data, row: PANEL, panel: k * PANEL }
    }
}

/// `c = a · b`, or `c += a · b`: `m` rows that are `row` apart, of `n` columns, a multiple of [`PAD`].
pub(super) struct Product<'a> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) depth: Depth,
    pub(super) a: LeftOperand<'a>,
    pub(super) b: RightOperand<'a>,
    pub(super) c: &'a mut [f32],
    pub(super) row: usize,
    pub(super) add: bool,
}

impl Product<'_> {
    /// # Panics
    /// An operand or the result ends before its last element, or `n` is not whole vectors.
    pub(super) fn run(self) {
        if self.m > 0 && self.n > 0 {
            self.check();
            arch().dispatch(self);
        }
    }

    fn check(&self) {
        let last = |count: usize, stride: usize| count.saturating_sub(1) * stride;
        let (k, panels) = (self.depth.end(), self.n.div_ceil(PANEL));
        assert!(self.n.is_multiple_of(PAD), "columns are not whole vectors");
        assert!(last(self.m, self.row) + self.n <= self.c.len() && self.n <= self.row, "result");
        assert!(k == 0 || last(self.m, self.a.row) + last(k, self.a.col) < self.a.data.len(), "left operand");
        for panel in 0..panels {
            let width = PANEL.min(self.n - panel * PANEL);
            let end = panel * self.b.panel + last(k, self.b.row) + width;
            assert!(k == 0 || end <= self.b.data.len(), "right operand");
        }
    }
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // As many vectors side by side as there are registers for, with four rows of results.
        if S::F32_LANES == 16 {
            self.panels::<S, 4>(simd);
        } else if S::F32_LANES == 8 {
            self.panels::<S, 2>(simd);
        } else if S::F32_LANES == 4 {
            self.panels::<S, 4>(simd);
        } else {
            self.panels::<S, 1>(simd);
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn panels<S: Simd, const N: usize>(&mut self, simd: S) {
        // Also when the inner dimension is empty: then the result is zero.
        for from in (0..self.depth.end().max(1)).step_by(DEPTH) {
            let mut j = 0;
            while j + N * S::F32_LANES <= self.n {
                self.column::<S, N>(simd, j, from);
                j += N * S::F32_LANES;
            }
            while j < self.n {
                self.column::<S, 1>(simd, j, from);
                j += S::F32_LANES;
            }
        }
    }

    /// All rows of `N` vectors of columns from `j` on.
    #[inline(always)]
    fn column<S: Simd, const N: usize>(&mut self, simd: S, j: usize, from: usize) {
        let mut i = 0;
        while i + ROWS <= self.m {
            self.tile::<S, ROWS, N>(simd, (i, j), from);
            i += ROWS;
        }
        while i < self.m {
            self.tile::<S, 1, N>(simd, (i, j), from);
            i += 1;
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const M: usize, const N: usize>(
        &mut self,
        simd: S,
        (i, j): (usize, usize),
        from: usize,
    ) {
        let (begin, end) = self.depth.range(i, M);
        let (begin, end) = (begin.max(from), end.min(from + DEPTH));
        let add = self.add || from > 0;
        if begin >= end && add {
            return;
        }
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        // SAFETY: rows i to i + M and columns j to j + N vectors of the result exist, and so do all elements of the
        // operands for `begin..end`, as `check` has found; vectors are as wide as `S` says and need no alignment.
        unsafe {
            let mut a = self.a.data.as_ptr().wrapping_add(i * self.a.row + begin * self.a.col);
            let mut b =
                self.b.data.as_ptr().wrapping_add(j / PANEL * self.b.panel + j % PANEL + begin * self.b.row);
            for _ in begin..end {
                let right: [S::f32s; N] =
                    std::array::from_fn(|v| b.add(v * S::F32_LANES).cast::<S::f32s>().read_unaligned());
                for (r, sums) in sums.iter_mut().enumerate() {
                    let left = simd.splat_f32s(*a.add(r * self.a.row));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = simd.mul_add_e_f32s(left, right, *sum);
                    }
                }
                a = a.wrapping_add(self.a.col);
                b = b.wrapping_add(self.b.row);
            }
            for (r, sums) in sums.iter().enumerate() {
                let c = self.c.as_mut_ptr().add((i + r) * self.row + j);
                for (v, sum) in sums.iter().enumerate() {
                    let c = c.add(v * S::F32_LANES).cast::<S::f32s>();
                    let sum = if add { simd.add_f32s(c.read_unaligned(), *sum) } else { *sum };
                    c.write_unaligned(sum);
                }
            }
        }
    }
}

/// Copies `count` rows of `width` elements, `stride` apart, into rows that are `row` apart and padded with zeros.
pub(super) fn pack_rows(
    x: &[f32],
    stride: usize,
    (count, width): (usize, usize),
    out: &mut [f32],
    row: usize,
) {
    for (r, out) in out.chunks_exact_mut(row).take(count).enumerate() {
        let (values, rest) = out.split_at_mut(width);
        values.copy_from_slice(&x[r * stride..][..width]);
        rest.fill(0.0);
    }
}

/// Turns `count` rows of `width` elements into panels of `width` rows: columns are the rows, padded with zeros.
pub(super) fn pack_panels(x: &[f32], stride: usize, (count, width): (usize, usize), out: &mut [f32]) {
    for (p, panel) in out.chunks_exact_mut((width * PANEL).max(1)).enumerate() {
        for first in (0..PANEL).step_by(PAD) {
            let column = p * PANEL + first;
            if column + PAD <= count {
                let rows: [&[f32]; PAD] = std::array::from_fn(|r| &x[(column + r) * stride..][..width]);
                for l in 0..width {
                    let out = &mut panel[l * PANEL + first..][..PAD];
                    for r in 0..PAD {
                        out[r] = rows[r][l];
                    }
                }
            } else {
                for l in 0..width {
                    for r in 0..PAD {
                        let there = column + r < count;
                        panel[l * PANEL + first + r] = if there { x[(column + r) * stride + l] } else { 0.0 };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::math::testing::{close, noise};

    /// The product of rows, by whatever runs it.
    fn check(m: usize, n: usize, k: usize, run: impl Fn(Product<'_>)) {
        let (a, b, start) = (noise(m * k, 1), noise(n * k, 2), noise(m * n, 3));
        for (depth, add) in [
            (Depth::All(k), false),
            (Depth::UpTo { first: 3, k }, false),
            (Depth::From { first: 2, k }, true),
        ] {
            let mut c = start.clone();
            let left = LeftOperand { data: &a, row: k, col: 1 };
            run(Product { m, n, depth, a: left, b: RightOperand::rows(&b, n), c: &mut c, row: n, add });
            let wanted = (0..m * n).map(|at| {
                let (i, j) = (at / n, at % n);
                // Rows that are computed together see what the last, or the first, of them sees.
                let (first, together) =
                    if i / ROWS * ROWS + ROWS <= m { (i / ROWS * ROWS, ROWS) } else { (i, 1) };
                let (begin, end) = depth.range(first, together);
                let sum: f64 = (begin..end).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum();
                sum + if add { f64::from(start[at]) } else { 0.0 }
            });
            close(&c, &wanted.collect::<Vec<_>>(), 1e-6, &format!("{m} x {n} x {k} {depth:?}"));
        }
    }

    #[test]
    fn products_are_right_with_every_kind_of_vector() {
        for (m, n, k) in [(1, 16, 1), (7, 80, 5), (9, 144, 300), (4, 64, 0), (8, 48, 128)] {
            check(m, n, k, |product| product.run());
            check(m, n, k, |product| {
                product.check();
                Simd::vectorize(pulp::Scalar::new(), product);
            });
            #[cfg(target_arch = "x86_64")]
            if let Some(v3) = pulp::x86::V3::try_new() {
                check(m, n, k, |product| {
                    product.check();
                    Simd::vectorize(v3, product);
                });
            }
        }
    }
}
