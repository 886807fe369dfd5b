//! Matrix products with the `gemm` crate: only its `f32` part, since the other types would only lengthen the build.

#![expect(unsafe_code, reason = "gemm takes pointers and strides; they are checked here against the slices")]

use crate::threads::Threads;
use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

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

    pub(crate) fn reaches(&self, rows: usize, cols: usize) -> bool {
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
    unsafe { raw(size, a, b, c.as_mut_ptr(), stride, add) };
}

/// Computes `c = a · b` on all threads, divided by the shape alone: into blocks of columns, since packing `a` again for
/// each costs less than packing `b` again for every block of rows. Tall and narrow products, and products whose `a` is
/// transposed and so expensive to pack, are divided into rows.
pub(crate) fn parallel(threads: &Threads, size: Size, a: Mat<'_>, b: Mat<'_>, c: &mut [f32]) {
    let Size { m, n, k } = size;
    let tasks = (m * n * k / TASK).max(1);
    let turned = a.row == 1 && a.col != 1;
    if n < 256 && m >= 512 || turned && m >= 2 * n {
        let rows = m.div_ceil(tasks).max(128).next_multiple_of(16);
        return threads.chunks(&mut c[..m * n], (rows * n).max(1), |i, block| {
            let a = Mat { data: &a.data[i * rows * a.row..], ..a };
            product(Size { m: block.len() / n, n, k }, a, b, block, n, false);
        });
    }
    let cols = n.div_ceil(tasks).max((n / 8).clamp(64, 128)).next_multiple_of(16).min(n.max(1));
    let whole = Whole { data: c.as_mut_ptr(), len: c.len() };
    threads.each(n.div_ceil(cols), |j| {
        let first = j * cols;
        let b = Mat { data: &b.data[first * b.col..], ..b };
        // SAFETY: tasks write different columns, and the caller's borrow of `c` lasts until all are done.
        unsafe { whole.columns(Size { m, n: cols.min(n - first), k }, first, n, a, b) };
    });
}

/// Multiplications per task.
const TASK: usize = 32 << 20;

/// A result whose columns different threads write.
struct Whole {
    data: *mut f32,
    len: usize,
}

// SAFETY: used only through `columns`, whose callers write disjoint columns.
unsafe impl Sync for Whole {}

impl Whole {
    /// Computes the columns from `first` on; rows are `stride` apart.
    ///
    /// # Safety
    /// No other thread may touch these columns at the same time.
    unsafe fn columns(&self, size: Size, first: usize, stride: usize, a: Mat<'_>, b: Mat<'_>) {
        let Size { m, n, k } = size;
        if m == 0 || n == 0 {
            return;
        }
        assert!(a.reaches(m, k) && b.reaches(k, n), "an operand is smaller than the product needs");
        assert!(
            first + n <= stride && (m - 1) * stride + first + n <= self.len,
            "the result is smaller than the product"
        );
        // SAFETY: within the slices, as checked above; no other thread uses these columns, as the caller promises.
        unsafe { raw(size, a, b, self.data.add(first), stride, false) };
    }
}

/// # Safety
/// All elements that the sizes and strides reach must exist, and no other thread may use the elements of `c`.
unsafe fn raw(size: Size, a: Mat<'_>, b: Mat<'_>, c: *mut f32, stride: usize, add: bool) {
    let keep = if add { 1.0 } else { 0.0 };
    let (a_col, a_row, b_col, b_row) = (a.col as isize, a.row as isize, b.col as isize, b.row as isize);
    let (a, b) = (a.data.as_ptr(), b.data.as_ptr());
    let (m, n, k) = (size.m, size.n, size.k);
    let (stride, none) = (stride as isize, Parallelism::None);
    // The kernel wants columns side by side, so it computes the transpose: cᵀ = bᵀ · aᵀ.
    // SAFETY: the caller's promise.
    unsafe {
        let gemm = get_gemm_fn();
        gemm(
            n, m, k, c, stride, 1, add, b, b_row, b_col, a, a_row, a_col, keep, 1.0, false, false, false,
            none,
        );
    }
}
