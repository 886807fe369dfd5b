//! Matrix products, on the `gemm` crate.

#![expect(unsafe_code, reason = "gemm takes pointers and strides; they are checked here against the slices")]

use crate::threads::Threads;
use gemm::Parallelism;

/// A matrix in a slice: the element (i, j) stands at `i * row + j * col`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mat<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) row: usize,
    pub(crate) col: usize,
}

impl<'a> Mat<'a> {
    /// Rows one after another, `stride` apart.
    pub(crate) fn rows(data: &'a [f32], stride: usize) -> Self {
        Self { data, row: stride, col: 1 }
    }

    /// The transpose of the matrix whose rows are `stride` apart.
    pub(crate) fn transposed(data: &'a [f32], stride: usize) -> Self {
        Self { data, row: 1, col: stride }
    }

    fn reaches(&self, rows: usize, cols: usize) -> bool {
        rows == 0 || cols == 0 || (rows - 1) * self.row + (cols - 1) * self.col < self.data.len()
    }
}

/// The size of a product: `[m × k] · [k × n]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// `c = a · b`, or `c += a · b`, on the calling thread; rows of `c` are `stride` apart.
pub(crate) fn product(size: Size, a: Mat<'_>, b: Mat<'_>, c: &mut [f32], stride: usize, add: bool) {
    let Size { m, n, k } = size;
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.reaches(m, k) && b.reaches(k, n), "an operand is smaller than the product needs");
    assert!(n <= stride && (m - 1) * stride + n <= c.len(), "the result is smaller than the product");
    // SAFETY: all elements that are read and written lie within the slices, as checked above.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            stride as isize,
            add,
            a.data.as_ptr(),
            a.col as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.col as isize,
            b.row as isize,
            if add { 1.0 } else { 0.0 },
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// `c = a · b` by all threads, cut into blocks of rows by the shape alone.
/// `finish` is called on every block of rows as soon as it is there: (first row, the rows).
pub(crate) fn parallel(
    threads: &Threads,
    size: Size,
    a: Mat<'_>,
    b: Mat<'_>,
    c: &mut [f32],
    finish: impl Fn(usize, &mut [f32]) + Sync,
) {
    let Size { m, n, k } = size;
    let rows = rows_per_task(m, n, k);
    threads.chunks(&mut c[..m * n], (rows * n).max(1), |i, block| {
        let first = i * rows;
        let here = Size { m: block.len() / n, n, k };
        let a = Mat { data: &a.data[(first * a.row).min(a.data.len())..], ..a };
        product(here, a, b, block, n, false);
        finish(first, block);
    });
}

/// Blocks large enough that packing `b` again for each costs little, and enough of them for several threads.
fn rows_per_task(m: usize, n: usize, k: usize) -> usize {
    const ENOUGH_WORK: usize = 1 << 21;
    let by_work = ENOUGH_WORK.div_ceil((n * k).max(1));
    by_work.max(m.div_ceil(8)).next_multiple_of(16).min(m.max(1))
}
