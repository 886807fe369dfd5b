//! Moving elements: permutations, slices, padding, concatenation, gather.

use crate::threads::Threads;

/// A view of a buffer: element `i…` is at `offset + Σ i · stride`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strided {
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

impl Strided {
    /// Merges neighbouring axes that are contiguous, so that loops are few and long.
    pub(crate) fn new(offset: usize, shape: &[usize], strides: &[usize]) -> Self {
        let mut view = Self { offset, shape: Vec::new(), strides: Vec::new() };
        for (n, s) in shape.iter().zip(strides).filter(|(n, _)| **n != 1) {
            match (view.shape.last_mut(), view.strides.last_mut()) {
                (Some(m), Some(t)) if *t == s * n => {
                    *m *= n;
                    *t = *s;
                }
                _ => {
                    view.shape.push(*n);
                    view.strides.push(*s);
                }
            }
        }
        view
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Where row `row` (all axes but the last) begins.
    fn row(&self, row: usize) -> usize {
        self.index(row, self.shape.len().saturating_sub(1))
    }

    /// Where the element `index` of the first `axes` axes begins.
    fn index(&self, index: usize, axes: usize) -> usize {
        let mut rest = index;
        let mut offset = self.offset;
        for d in (0..axes).rev() {
            offset += rest % self.shape[d] * self.strides[d];
            rest /= self.shape[d];
        }
        offset
    }

    /// Length and stride of the last axis.
    fn inner(&self) -> (usize, usize) {
        (self.shape.last().copied().unwrap_or(1), self.strides.last().copied().unwrap_or(1))
    }
}

const TASK: usize = 16 * 1024;

/// Copies the elements of the view to a dense buffer.
pub(crate) fn copy(threads: &Threads, view: &Strided, x: &[f32], y: &mut [f32]) {
    if let [.., rows, cols] = *view.shape
        && let [.., 1, _] = *view.strides
        && rows > 1
    {
        return transpose(threads, view, rows * cols, x, y);
    }
    let (inner, stride) = view.inner();
    let rows = (TASK / inner.max(1)).max(1);
    let n = view.len();
    threads.chunks(&mut y[..n], rows * inner.max(1), |i, y| {
        for (j, y) in y.chunks_mut(inner).enumerate() {
            let from = view.row(i * rows + j);
            match stride {
                1 => y.copy_from_slice(&x[from..from + y.len()]),
                _ => y.iter_mut().enumerate().for_each(|(k, y)| *y = x[from + k * stride]),
            }
        }
    });
}

/// Matrices whose columns lie side by side in `x`, turned in small squares.
fn transpose(threads: &Threads, view: &Strided, matrix: usize, x: &[f32], y: &mut [f32]) {
    const SIDE: usize = 16;
    let d = view.shape.len();
    let (rows, cols, col) = (view.shape[d - 2], view.shape[d - 1], view.strides[d - 1]);
    let per_task = (TASK / matrix).max(1);
    let n = view.len();
    threads.chunks(&mut y[..n], per_task * matrix, |i, y| {
        for (j, y) in y.chunks_mut(matrix).enumerate() {
            let from = view.index(i * per_task + j, d - 2);
            for r0 in (0..rows).step_by(SIDE) {
                for c0 in (0..cols).step_by(SIDE) {
                    for r in r0..(r0 + SIDE).min(rows) {
                        for c in c0..(c0 + SIDE).min(cols) {
                            y[r * cols + c] = x[from + r + c * col];
                        }
                    }
                }
            }
        }
    });
}

/// The adjoint of [`copy`]: adds each element to its source position; everything else is zero. Runs on one thread,
/// because elements of a view may share a position.
pub(crate) fn copy_back(view: &Strided, dy: &[f32], dx: &mut [f32]) {
    dx.fill(0.0);
    let (inner, stride) = view.inner();
    for (row, dy) in dy[..view.len()].chunks(inner.max(1)).enumerate() {
        let to = view.row(row);
        match stride {
            1 => dx[to..to + dy.len()].iter_mut().zip(dy).for_each(|(x, y)| *x += y),
            _ => dy.iter().enumerate().for_each(|(k, y)| dx[to + k * stride] += y),
        }
    }
}

/// Each axis of the result maps to elements of the input's axis; `NOTHING` gives the fill value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Remap {
    pub(crate) from: Vec<usize>,
    pub(crate) axes: Vec<Vec<u32>>,
    pub(crate) fill: f32,
}

pub(crate) const NOTHING: u32 = u32::MAX;

impl Remap {
    pub(crate) fn out_len(&self) -> usize {
        self.axes.iter().map(Vec::len).product()
    }

    /// Where in the input each row of the result comes from; `None`: nowhere.
    fn row(&self, row: usize) -> Option<usize> {
        let (mut rest, mut offset, mut stride) = (row, 0, self.from.last().copied().unwrap_or(1));
        for d in (0..self.axes.len().saturating_sub(1)).rev() {
            let axis = &self.axes[d];
            let index = axis[rest % axis.len()];
            if index == NOTHING {
                return None;
            }
            offset += index as usize * stride;
            rest /= axis.len();
            stride *= self.from[d];
        }
        Some(offset)
    }
}

pub(crate) fn remap(threads: &Threads, r: &Remap, x: &[f32], y: &mut [f32]) {
    let Some(inner) = r.axes.last() else {
        y.copy_from_slice(x);
        return;
    };
    let rows = (TASK / inner.len().max(1)).max(1);
    threads.chunks(y, rows * inner.len().max(1), |i, y| {
        for (j, y) in y.chunks_mut(inner.len()).enumerate() {
            match r.row(i * rows + j) {
                None => y.fill(r.fill),
                Some(from) => {
                    for (y, index) in y.iter_mut().zip(inner) {
                        *y = if *index == NOTHING { r.fill } else { x[from + *index as usize] };
                    }
                }
            }
        }
    });
}

/// The adjoint of [`remap`]. Runs on one thread, because edge elements occur more than once.
pub(crate) fn remap_back(r: &Remap, dy: &[f32], dx: &mut [f32]) {
    dx.fill(0.0);
    let Some(inner) = r.axes.last() else {
        dx.copy_from_slice(dy);
        return;
    };
    for (row, dy) in dy.chunks(inner.len().max(1)).enumerate() {
        if let Some(to) = r.row(row) {
            for (dy, index) in dy.iter().zip(inner) {
                if *index != NOTHING {
                    dx[to + *index as usize] += dy;
                }
            }
        }
    }
}

/// Joins parts along an axis: `outer` rows, each of one run of every part.
pub(crate) fn concat(threads: &Threads, outer: usize, parts: &[&[f32]], lens: &[usize], y: &mut [f32]) {
    let row: usize = lens.iter().sum();
    let rows = (TASK / row.max(1)).max(1);
    threads.chunks(&mut y[..outer * row], rows * row.max(1), |i, y| {
        for (j, y) in y.chunks_mut(row).enumerate() {
            let (mut at, r) = (0, i * rows + j);
            for (part, n) in parts.iter().zip(lens) {
                y[at..at + n].copy_from_slice(&part[r * n..(r + 1) * n]);
                at += n;
            }
        }
    });
}

/// Sizes of a lookup: `data[outer][size][inner]`, `count` indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup {
    pub(crate) outer: usize,
    pub(crate) size: usize,
    pub(crate) inner: usize,
    pub(crate) count: usize,
}

/// An index counted from the front; negative ones count from the end. An index out of range, a fraction or NaN is an
/// error.
fn index(value: f32, size: usize) -> Result<usize, i64> {
    let i = value as i64;
    let from_front = if i < 0 { i + size as i64 } else { i };
    let whole = value.fract() == 0.0;
    usize::try_from(from_front).ok().filter(|f| *f < size && whole).ok_or(i)
}

pub(crate) fn gather(
    threads: &Threads,
    l: Lookup,
    data: &[f32],
    indices: &[f32],
    y: &mut [f32],
) -> Result<(), i64> {
    indices[..l.count].iter().try_for_each(|i| index(*i, l.size).map(|_| ()))?;
    let rows = (TASK / l.inner.max(1)).max(1);
    threads.chunks(&mut y[..l.outer * l.count * l.inner], rows * l.inner.max(1), |i, y| {
        for (j, y) in y.chunks_mut(l.inner).enumerate() {
            let (outer, which) = ((i * rows + j) / l.count, (i * rows + j) % l.count);
            if let Ok(k) = index(indices[which], l.size) {
                let from = (outer * l.size + k) * l.inner;
                y.copy_from_slice(&data[from..from + l.inner]);
            }
        }
    });
    Ok(())
}

/// The adjoint of [`gather`], in the order of the indices; threads share the columns.
pub(crate) fn gather_back(threads: &Threads, l: Lookup, indices: &[f32], dy: &[f32], d_data: &mut [f32]) {
    let block = l.size * l.inner;
    threads.chunks(&mut d_data[..l.outer * block], block.max(1), |outer, d_data| {
        d_data.fill(0.0);
        for (which, i) in indices[..l.count].iter().enumerate() {
            if let Ok(k) = index(*i, l.size) {
                let from = (outer * l.count + which) * l.inner;
                let row = &mut d_data[k * l.inner..(k + 1) * l.inner];
                row.iter_mut().zip(&dy[from..from + l.inner]).for_each(|(d, y)| *d += y);
            }
        }
    });
}
