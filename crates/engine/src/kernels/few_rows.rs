//! Products of few rows with a matrix, as inference has them: the matrix is read where it lies.
//!
//! A general product packs the matrix first, which for few rows takes longer than the product itself. Every number of
//! the result is one sum, whose order follows from the inner dimension alone. So a row has the same bits whichever
//! other rows are computed beside it, and however the columns are divided among threads.

use crate::kernels::gemm::{Mat, Size};
use crate::simd::arch;
use crate::threads::{Threads, scratch};
use pulp::{Simd, WithSimd};

/// More rows than this are worth packing the matrix.
pub(crate) const MOST_ROWS: usize = 64;

/// Multiplications per task.
const TASK: usize = 1 << 20;

/// Columns of a task are a multiple of this.
const COLUMNS: usize = 64;

/// Computes `c = a · b`; rows of `a`, and rows or columns of `b`, have their elements side by side. Rows of `c` follow
/// each other.
///
/// # Panics
/// An operand or the result is too small, or an operand has another layout.
pub(crate) fn product(threads: &Threads, size: Size, a: Mat<'_>, b: Mat<'_>, c: &mut [f32]) {
    let Size { m, n, k } = size;
    assert!(a.col == 1 && is_supported(b), "rows of the first operand, rows or columns of the second");
    assert!(a.reaches(m, k) && b.reaches(k, n), "an operand is smaller than the product needs");
    let c = &mut c[..m * n];
    if m == 0 || n == 0 {
        return;
    }
    let tasks = m * n * k / TASK;
    if threads.count() == 1 || tasks < 2 {
        return arch().dispatch(FewRows { size, a, b, c });
    }
    let cols = n.div_ceil(tasks).next_multiple_of(COLUMNS);
    let part = |first: usize, c: &mut [f32]| {
        let b = Mat { data: &b.data[first * b.col..], ..b };
        arch().dispatch(FewRows { size: Size { m, n: c.len() / m, k }, a, b, c });
    };
    if m == 1 {
        return threads.chunks(c, cols, |i, c| part(i * cols, c));
    }
    // The columns of a task lie together until all are done.
    scratch(m * n, |parts| {
        threads.chunks(parts, m * cols, |i, c| part(i * cols, c));
        for (i, part) in parts.chunks(m * cols).enumerate() {
            let width = part.len() / m;
            for (row, part) in c.chunks_exact_mut(n).zip(part.chunks_exact(width)) {
                row[i * cols..][..width].copy_from_slice(part);
            }
        }
    });
}

/// Whether a second operand has its rows or its columns side by side.
pub(crate) fn is_supported(b: Mat<'_>) -> bool {
    b.col == 1 || b.row == 1
}

struct FewRows<'a> {
    size: Size,
    a: Mat<'a>,
    b: Mat<'a>,
    c: &'a mut [f32],
}

impl WithSimd for FewRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // Tiles as large as there are registers for; the sums do not depend on it.
        match (self.b.row == 1, S::REGISTER_COUNT >= 32) {
            // One row waits for memory: more columns at once are more requests to it.
            (true, true) if self.size.m == 1 => self.dots::<S, 8>(simd),
            (true, true) => self.dots::<S, 4>(simd),
            (true, false) => self.dots::<S, 2>(simd),
            (false, true) => self.axpys::<S, 4>(simd),
            (false, false) => self.axpys::<S, 2>(simd),
        }
    }
}

impl FewRows<'_> {
    /// Columns of `b` are side by side: sums of products of rows with columns, vectors along the inner dimension.
    #[inline(always)]
    fn dots<S: Simd, const N: usize>(&mut self, simd: S) {
        let n = self.size.n;
        let whole = n / N * N;
        for j in (0..whole).step_by(N) {
            self.dots_of_columns::<S, N>(simd, j);
        }
        for j in whole..n {
            self.dots_of_columns::<S, 1>(simd, j);
        }
    }

    #[inline(always)]
    fn dots_of_columns<S: Simd, const N: usize>(&mut self, simd: S, j: usize) {
        let (m, mut i) = (self.size.m, 0);
        while i + 4 <= m {
            self.dots_tile::<S, 4, N>(simd, i, j);
            i += 4;
        }
        if i + 2 <= m {
            self.dots_tile::<S, 2, N>(simd, i, j);
            i += 2;
        }
        if i < m {
            self.dots_tile::<S, 1, N>(simd, i, j);
        }
    }

    #[inline(always)]
    fn dots_tile<S: Simd, const M: usize, const N: usize>(&mut self, simd: S, i: usize, j: usize) {
        let Size { n, k, .. } = self.size;
        let steps = k / S::F32_LANES;
        let row = |at: usize| &self.a.data[at * self.a.row..][..k];
        let column = |at: usize| &self.b.data[at * self.b.col..][..k];
        let rows: [(&[S::f32s], &[f32]); M] = std::array::from_fn(|r| S::as_simd_f32s(row(i + r)));
        let columns: [(&[S::f32s], &[f32]); N] = std::array::from_fn(|v| S::as_simd_f32s(column(j + v)));
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        let wholes = (rows.map(|(whole, _)| &whole[..steps]), columns.map(|(whole, _)| &whole[..steps]));
        for l in 0..steps {
            let right: [S::f32s; N] = std::array::from_fn(|v| wholes.1[v][l]);
            for (sums, whole) in sums.iter_mut().zip(wholes.0) {
                let left = whole[l];
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = simd.mul_add_e_f32s(left, right, *sum);
                }
            }
        }
        if !k.is_multiple_of(S::F32_LANES) {
            let right: [S::f32s; N] = std::array::from_fn(|v| simd.partial_load_f32s(columns[v].1));
            for (sums, (_, rest)) in sums.iter_mut().zip(rows) {
                let left = simd.partial_load_f32s(rest);
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = simd.mul_add_e_f32s(left, right, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            let c = &mut self.c[(i + r) * n + j..][..N];
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = simd.reduce_sum_f32s(sum);
            }
        }
    }

    /// Rows of `b` are side by side: multiples of these rows are added up, vectors along the columns.
    #[inline(always)]
    fn axpys<S: Simd, const N: usize>(&mut self, simd: S) {
        let (n, wide) = (self.size.n, N * S::F32_LANES);
        let mut j = 0;
        while j + wide <= n {
            self.axpys_of_columns::<S, N>(simd, j, wide);
            j += wide;
        }
        while j < n {
            let lanes = S::F32_LANES.min(n - j);
            self.axpys_of_columns::<S, 1>(simd, j, lanes);
            j += lanes;
        }
    }

    #[inline(always)]
    fn axpys_of_columns<S: Simd, const N: usize>(&mut self, simd: S, j: usize, lanes: usize) {
        let (m, mut i) = (self.size.m, 0);
        while i + 4 <= m {
            self.axpys_tile::<S, 4, N>(simd, (i, j), lanes);
            i += 4;
        }
        if i + 2 <= m {
            self.axpys_tile::<S, 2, N>(simd, (i, j), lanes);
            i += 2;
        }
        if i < m {
            self.axpys_tile::<S, 1, N>(simd, (i, j), lanes);
        }
    }

    /// `lanes` numbers from column `j` on: `N` whole vectors, or a part of one.
    #[inline(always)]
    fn axpys_tile<S: Simd, const M: usize, const N: usize>(
        &mut self,
        simd: S,
        (i, j): (usize, usize),
        lanes: usize,
    ) {
        let Size { n, k, .. } = self.size;
        let rows: [&[f32]; M] = std::array::from_fn(|r| &self.a.data[(i + r) * self.a.row..][..k]);
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        for l in 0..k {
            let right: [S::f32s; N] = loaded(simd, &self.b.data[l * self.b.row + j..][..lanes]);
            for (sums, row) in sums.iter_mut().zip(rows) {
                let left = simd.splat_f32s(row[l]);
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = simd.mul_add_e_f32s(left, right, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            let c = &mut self.c[(i + r) * n + j..][..lanes];
            for (c, sum) in c.chunks_mut(S::F32_LANES).zip(sums) {
                simd.partial_store_f32s(c, sum);
            }
        }
    }
}

/// `N` whole vectors, or one that is filled up with zeros.
#[inline(always)]
fn loaded<S: Simd, const N: usize>(simd: S, from: &[f32]) -> [S::f32s; N] {
    let (whole, rest) = S::as_simd_f32s(from);
    if whole.len() == N { std::array::from_fn(|v| whole[v]) } else { [simd.partial_load_f32s(rest); N] }
}

#[cfg(test)]
mod tests;
