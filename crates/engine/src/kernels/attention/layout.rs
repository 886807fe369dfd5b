//! The layout of heads in buffers: heads may be side by side in one buffer and are written by different threads.

use super::Attention;
use std::marker::PhantomData;
use std::slice;

/// Row `r` of head `h` of sample `n` begins at `offset + n·batch + h·head + r·row`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadLayout {
    pub(crate) offset: usize,
    pub(crate) batch: usize,
    pub(crate) head: usize,
    pub(crate) row: usize,
}

/// Heads that are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadView<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) layout: HeadLayout,
}

/// Heads that are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<'a> {
    pub(crate) data: SharedOutput<'a>,
    pub(crate) layout: HeadLayout,
}

/// What is added to the scores; a stride of 0 repeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) batch: usize,
    pub(crate) head: usize,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

/// A buffer that several outputs may share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedOutput<'a> {
    data: *mut f32,
    len: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is written only through `write_rows`, whose callers write disjoint elements.
unsafe impl Sync for SharedOutput<'_> {}
// SAFETY: as above.
unsafe impl Send for SharedOutput<'_> {}

impl<'a> SharedOutput<'a> {
    pub(crate) fn new(data: &'a mut [f32]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), borrowed: PhantomData }
    }
}

impl HeadLayout {
    pub(super) fn at(&self, (sample, head): (usize, usize)) -> usize {
        self.offset + sample * self.batch + head * self.head
    }
}

impl<'a> HeadView<'a> {
    /// From the first row of a head on.
    pub(super) fn head(&self, number: (usize, usize)) -> &'a [f32] {
        &self.data[self.layout.at(number).min(self.data.len())..]
    }
}

/// An output of known size whose heads were checked to be disjoint.
#[derive(Clone, Copy)]
pub(super) struct OutputRows<'a> {
    out: Out<'a>,
    rows: usize,
    width: usize,
}

impl OutputRows<'_> {
    /// Writes rows of one head, from row `first` on; rows of `values` are `stride` apart.
    ///
    /// # Safety
    /// No other thread writes this head at the same time.
    pub(super) unsafe fn write(&self, number: (usize, usize), first: usize, values: &[f32], stride: usize) {
        let Out { data, layout } = self.out;
        for (r, values) in values.chunks_exact(stride.max(1)).enumerate() {
            let values = &values[..self.width];
            let at = layout.at(number) + (first + r) * layout.row;
            assert!(at <= data.len && values.len() <= data.len - at, "a row ends beyond its buffer");
            // SAFETY: within the buffer, as checked; no other thread writes there, as the caller promises.
            let out = unsafe { slice::from_raw_parts_mut(data.data.add(at), values.len()) };
            out.copy_from_slice(values);
        }
    }

    /// All rows of all heads, from the first element to the last.
    fn span(&self, sizes: &Attention) -> std::ops::Range<usize> {
        let HeadLayout { offset, batch, head, row } = self.out.layout;
        let end = reach(sizes.n, batch, reach(sizes.heads, head, reach(self.rows, row, self.width)));
        offset..offset + end
    }
}

fn reach(count: usize, stride: usize, inner: usize) -> usize {
    count.saturating_sub(1) * stride + inner
}

/// Checks that no element belongs to two heads, of one output or of two.
///
/// # Panics
/// One does.
pub(super) fn apart<'a, const N: usize>(
    sizes: &Attention,
    outs: [(Out<'a>, usize, usize); N],
) -> [OutputRows<'a>; N] {
    let fits = |count: usize, stride: usize, inner: usize| count <= 1 || inner <= stride;
    let outs = outs.map(|(out, rows, width)| OutputRows { out, rows, width });
    for (i, a) in outs.iter().enumerate() {
        let HeadLayout { batch, head, row, .. } = a.out.layout;
        let (line, block) = (reach(sizes.heads, head, a.width), reach(a.rows, row, a.width));
        let columns = fits(sizes.heads, head, a.width) && fits(a.rows, row, line);
        let blocks = fits(a.rows, row, a.width) && fits(sizes.heads, head, block);
        let sample = if columns { reach(a.rows, row, line) } else { reach(sizes.heads, head, block) };
        assert!((columns || blocks) && fits(sizes.n, batch, sample), "rows of different heads overlap");
        for b in &outs[..i] {
            let (one, other) = (a.span(sizes), b.span(sizes));
            let elsewhere = !std::ptr::eq(a.out.data.data, b.out.data.data)
                || one.end <= other.start
                || other.end <= one.start;
            assert!(elsewhere || side_by_side(sizes.heads, a, b), "outputs overlap");
        }
    }
    outs
}

/// Whether both are columns of the same rows, one after the other.
fn side_by_side(heads: usize, a: &OutputRows<'_>, b: &OutputRows<'_>) -> bool {
    let (a, b) = if a.out.layout.offset <= b.out.layout.offset { (a, b) } else { (b, a) };
    let line = |rows: &OutputRows<'_>| reach(heads, rows.out.layout.head, rows.width);
    let gap = b.out.layout.offset - a.out.layout.offset;
    let alike = HeadLayout { offset: 0, ..a.out.layout } == HeadLayout { offset: 0, ..b.out.layout };
    alike && gap >= line(a) && gap + line(b) <= a.out.layout.row
}
