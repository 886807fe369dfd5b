//! Stacks of matrix products over strided operands.

use crate::kernels::few_rows;
use crate::kernels::gemm::{Mat, Size, parallel, product};
use crate::threads::Threads;

/// The layout of a stack of matrices: offset, strides of the leading dims, of rows and of columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) offset: usize,
    /// One per leading dim; 0 where one matrix is used for all.
    pub(crate) lead: Vec<usize>,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

/// `c[i] = a[i] · b[i]` over the leading dims. Results are summed over the leading dims where `c` has stride 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatMul {
    pub(crate) lead: Vec<usize>,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Stack,
    pub(crate) b: Stack,
    /// Its matrices lie one after another, rows or columns side by side.
    pub(crate) c: Stack,
    /// A single product reads its second operand where it lies: for few rows, in programs that only infer.
    pub(crate) unpacked: bool,
}

impl Stack {
    fn at(&self, index: &[usize]) -> usize {
        self.offset + index.iter().zip(&self.lead).map(|(i, s)| i * s).sum::<usize>()
    }
}

impl MatMul {
    /// The transposed product, `cᵀ = bᵀ · aᵀ`, so that the result's columns are contiguous.
    fn turned(&self) -> Self {
        let turn = |s: &Stack| Stack { row: s.col, col: s.row, ..s.clone() };
        let (m, n) = (self.n, self.m);
        Self { m, n, a: turn(&self.b), b: turn(&self.a), c: turn(&self.c), ..self.clone() }
    }

    fn multi_index(&self, mut i: usize, out: &mut [usize]) {
        for d in (0..self.lead.len()).rev() {
            out[d] = i % self.lead[d];
            i /= self.lead[d];
        }
    }
}

/// The most leading dims; deeper stacks are refused when the graph is lowered.
pub(crate) const LEAD: usize = 6;

pub(crate) fn run(threads: &Threads, spec: &MatMul, a: &[f32], b: &[f32], c: &mut [f32]) {
    if spec.c.col != 1 && spec.c.row == 1 && spec.n > 1 {
        return run(threads, &spec.turned(), b, a, c);
    }
    let count: usize = spec.lead.iter().product();
    let sums = spec.lead.iter().zip(&spec.c.lead).any(|(n, s)| *n > 1 && *s == 0);
    let stride = spec.c.row.max(spec.n);
    let whole = (spec.m.max(1) - 1) * stride + spec.n;
    let one = |i: usize, c: &mut [f32], add: bool| {
        let mut index = [0; LEAD];
        spec.multi_index(i, &mut index);
        let (a, b) = (&a[spec.a.at(&index)..], &b[spec.b.at(&index)..]);
        let a = Mat { data: a, row: spec.a.row, col: spec.a.col };
        let b = Mat { data: b, row: spec.b.row, col: spec.b.col };
        product(Size { m: spec.m, n: spec.n, k: spec.k }, a, b, c, stride, add);
    };
    // Runs on one thread where results are shared, or are not contiguous in the order of the stack.
    let in_order = {
        let mut expected = whole;
        spec.lead.iter().zip(&spec.c.lead).rev().all(|(n, s)| {
            let fits = *n == 1 || *s == expected;
            expected *= n;
            fits
        })
    };
    if sums || !in_order {
        c.fill(0.0);
        for i in 0..count {
            let mut index = [0; LEAD];
            spec.multi_index(i, &mut index);
            let at = spec.c.at(&index);
            one(i, &mut c[at..at + whole], sums);
        }
    } else if count == 1 && stride == spec.n {
        rows(threads, spec, a, b, &mut c[..whole]);
    } else {
        threads.chunks(&mut c[..count * whole], whole, |i, c| one(i, c, false));
    }
}

fn rows(threads: &Threads, spec: &MatMul, a: &[f32], b: &[f32], c: &mut [f32]) {
    let a = Mat { data: &a[spec.a.offset..], row: spec.a.row, col: spec.a.col };
    let b = Mat { data: &b[spec.b.offset..], row: spec.b.row, col: spec.b.col };
    let size = Size { m: spec.m, n: spec.n, k: spec.k };
    if spec.unpacked && a.col == 1 && few_rows::is_supported(b) {
        few_rows::product(threads, size, a, b, c);
    } else {
        parallel(threads, size, a, b, c);
    }
}
