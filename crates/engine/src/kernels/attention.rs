//! Attention: `softmax(q · kᵀ · scale + mask) · v` of every head by itself.
//!
//! Scores exist only for a block of queries at a time and stay in the L2 cache; backward recomputes them from the
//! log-sum-exp of each row. Heads may be columns of one matrix, so every operand has strides.

#![expect(unsafe_code, reason = "heads write columns of the same rows; that they are apart is checked first")]

mod layout;
mod rows;
mod small;
#[cfg(test)]
mod tests;

pub(crate) use layout::{HeadLayout, HeadView, Mask, Out, SharedOutput};

use crate::kernels::math::wide;
use crate::threads::{Threads, scratch};
use layout::apart;
use rows::{Outer, ScoreBlock};
use small::{Depth, LeftOperand, PAD, PANEL, Product, RightOperand, pack_panels, pack_rows};

/// The sizes of an attention over `n` samples of `heads` heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attention {
    pub(crate) n: usize,
    pub(crate) heads: usize,
    /// Queries.
    pub(crate) t: usize,
    /// Keys and values.
    pub(crate) s: usize,
    /// Elements of a query and of a key.
    pub(crate) d: usize,
    /// Elements of a value.
    pub(crate) e: usize,
    pub(crate) scale: f32,
    /// Query t sees keys 0 to t.
    pub(crate) causal: bool,
}

/// The operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) q: HeadView<'a>,
    pub(crate) k: HeadView<'a>,
    pub(crate) v: HeadView<'a>,
    pub(crate) mask: Option<Mask<'a>>,
}

/// What forward computed, for backward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Results<'a> {
    pub(crate) o: HeadView<'a>,
    /// The logarithm of the sum of exponentials of every row of scores: `[n, heads, t]`.
    pub(crate) lse: &'a [f32],
}

impl Attention {
    /// Writes `o`, and the logarithm of the sum of exponentials of every row of scores into `lse [n, heads, t]`.
    ///
    /// # Panics
    /// An operand ends before its last row, or rows of different heads of `o` overlap.
    pub(crate) fn forward(&self, threads: &Threads, operands: Operands<'_>, o: Out<'_>, lse: &mut [f32]) {
        let [o] = apart(self, [(o, self.t, self.e)]);
        let w = self.widths();
        threads.chunks(lse, self.t.max(1), |task, lse| {
            let number = (task / self.heads, task % self.heads);
            let head = AttentionHead::new(self, &operands, number);
            scratch(w.panels * PANEL * self.d + self.s * w.e + w.rows * (w.scores + w.e), |buffer| {
                let [keys, values, scores, out] =
                    cut(buffer, [w.panels * PANEL * self.d, self.s * w.e, w.rows * w.scores, w.rows * w.e]);
                pack_panels(head.k, head.strides[1], (self.s, self.d), keys);
                pack_rows(head.v, head.strides[2], (self.s, self.e), values, w.e);
                for first in (0..self.t).step_by(w.rows) {
                    let count = w.rows.min(self.t - first);
                    head.forward(first, (keys, values), (scores, out), &mut lse[first..first + count]);
                    // SAFETY: this is the only task of this head.
                    unsafe { o.write(number, first, &out[..count * w.e], w.e) };
                }
            });
        });
    }

    /// Writes the gradients of `q`, `k` and `v`, given that of `o`.
    ///
    /// # Panics
    /// As [`Attention::forward`].
    pub(crate) fn backward(
        &self,
        threads: &Threads,
        operands: Operands<'_>,
        results: Results<'_>,
        d_o: HeadView<'_>,
        [dq, dk, dv]: [Out<'_>; 3],
    ) {
        let sizes = [(dq, self.t, self.d), (dk, self.s, self.d), (dv, self.s, self.e)];
        let [dq, dk, dv] = apart(self, sizes);
        let w = self.widths();
        let sizes = self.backward_sizes(w);
        threads.each(self.n * self.heads, |task| {
            let number = (task / self.heads, task % self.heads);
            let head = AttentionHead::new(self, &operands, number);
            let lse = &results.lse[task * self.t..][..self.t];
            let strides = [results.o.layout.row, d_o.layout.row];
            let outer = Outer { o: results.o.head(number), d_o: d_o.head(number), strides, e: self.e, lse };
            scratch(sizes.iter().sum(), |buffer| {
                let [turned_k, turned_v, k, block, dk_sum, dv_sum] = cut(buffer, sizes);
                pack_panels(head.k, head.strides[1], (self.s, self.d), turned_k);
                pack_panels(head.v, head.strides[2], (self.s, self.e), turned_v);
                pack_rows(head.k, head.strides[1], (self.s, self.d), k, w.d);
                dk_sum.fill(0.0);
                dv_sum.fill(0.0);
                for first in (0..self.t).step_by(w.rows) {
                    let count = w.rows.min(self.t - first);
                    let packed = [&*turned_k, &*turned_v, &*k];
                    let dq_block = head.backward(outer, first, packed, block, [&mut *dk_sum, &mut *dv_sum]);
                    // SAFETY: this is the only task of this head.
                    unsafe { dq.write(number, first, &dq_block[..count * w.d], w.d) };
                }
                // SAFETY: as above.
                unsafe { dk.write(number, 0, dk_sum, w.d) };
                // SAFETY: as above.
                unsafe { dv.write(number, 0, dv_sum, w.e) };
            });
        });
    }

    fn widths(&self) -> Widths {
        let panels = self.s.div_ceil(PANEL);
        Widths {
            panels,
            // More than the panels need, so that rows do not all map to the same cache lines.
            scores: panels * PANEL + PAD,
            d: self.d.next_multiple_of(PAD),
            e: self.e.next_multiple_of(PAD),
            // The scores of a block fill at most half of the L2 cache.
            rows: (32 * 1024 / self.s.max(1)).clamp(16, 64).min(self.t.max(1)),
        }
    }

    /// Of keys and values in panels, keys in rows, a block's buffers, and the sums of both gradients.
    fn backward_sizes(&self, w: Widths) -> [usize; 6] {
        let (panels, block) = (w.panels * PANEL, w.rows * (2 * w.scores + 2 * w.d + w.e));
        [panels * self.d, panels * self.e, self.s * w.d, block, self.s * w.d, self.s * w.e]
    }
}

/// Sizes of buffers.
#[derive(Debug, Clone, Copy)]
struct Widths {
    /// Of keys.
    panels: usize,
    /// Distance of rows of scores.
    scores: usize,
    /// `d` and `e` padded.
    d: usize,
    e: usize,
    /// Queries of a block.
    rows: usize,
}

/// Cuts a buffer into parts of these sizes.
fn cut<const N: usize>(mut buffer: &mut [f32], sizes: [usize; N]) -> [&mut [f32]; N] {
    sizes.map(|size| {
        let (part, rest) = std::mem::take(&mut buffer).split_at_mut(size);
        buffer = rest;
        part
    })
}

/// One head of one sample.
#[derive(Clone, Copy)]
struct AttentionHead<'a> {
    sizes: &'a Attention,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// The distances of rows of each.
    strides: [usize; 3],
    mask: Option<(&'a [f32], usize, usize)>,
}

impl<'a> AttentionHead<'a> {
    fn new(sizes: &'a Attention, operands: &Operands<'a>, number: (usize, usize)) -> Self {
        let Operands { q, k, v, mask } = operands;
        let mask = mask.map(|m| (&m.data[number.0 * m.batch + number.1 * m.head..], m.row, m.col));
        let strides = [q.layout.row, k.layout.row, v.layout.row];
        Self { sizes, q: q.head(number), k: k.head(number), v: v.head(number), strides, mask }
    }

    /// The number of queries in the block from `first` on, and the keys they see.
    fn block(&self, first: usize) -> (usize, ScoreBlock<'a>) {
        let Attention { t, s, scale, causal, .. } = *self.sizes;
        let w = self.sizes.widths();
        let count = w.rows.min(t - first);
        let keys = if causal { s.min(first + count) } else { s };
        (count, ScoreBlock { first, keys, row: w.scores, scale, causal, mask: self.mask })
    }

    /// Which part of the keys a query of the block needs.
    fn depth(&self, block: &ScoreBlock<'_>) -> Depth {
        let (first, k) = (block.first, block.keys);
        if self.sizes.causal { Depth::UpTo { first, k } } else { Depth::All(k) }
    }

    fn forward(
        &self,
        first: usize,
        (keys, values): (&[f32], &[f32]),
        (scores, out): (&mut [f32], &mut [f32]),
        lse: &mut [f32],
    ) {
        let w = self.sizes.widths();
        let (m, block) = self.block(first);
        let q = LeftOperand { data: &self.q[first * self.strides[0]..], row: self.strides[0], col: 1 };
        let (k, n) = (RightOperand::panels(keys, self.sizes.d), block.keys.next_multiple_of(PANEL));
        let depth = Depth::All(self.sizes.d);
        Product { m, n, depth, a: q, b: k, c: &mut *scores, row: w.scores, add: false }.run();
        wide!(rows::probabilities, (block, &mut *scores, lse));
        let (p, v) = (LeftOperand { data: scores, row: w.scores, col: 1 }, RightOperand::rows(values, w.e));
        Product { m, n: w.e, depth: self.depth(&block), a: p, b: v, c: out, row: w.e, add: false }.run();
    }

    /// Computes `dq` of the queries from `first` on, and adds their contributions to `dk` and `dv`.
    fn backward<'b>(
        &self,
        outer: Outer<'_>,
        first: usize,
        [turned_k, turned_v, k]: [&[f32]; 3],
        buffer: &'b mut [f32],
        [dk, dv]: [&mut [f32]; 2],
    ) -> &'b [f32] {
        let (Attention { d, e, causal, .. }, w) = (*self.sizes, self.sizes.widths());
        let (m, block) = self.block(first);
        let parts = [w.rows * w.scores, w.rows * w.scores, w.rows * w.d, w.rows * w.e, w.rows * w.d];
        let [p, dp, q, d_o, dq] = cut(buffer, parts);
        pack_rows(&self.q[first * self.strides[0]..], self.strides[0], (m, d), q, w.d);
        pack_rows(&outer.d_o[first * outer.strides[1]..], outer.strides[1], (m, e), d_o, w.e);
        let n = block.keys.next_multiple_of(PANEL);
        let (a, b) = (LeftOperand { data: q, row: w.d, col: 1 }, RightOperand::panels(turned_k, d));
        Product { m, n, depth: Depth::All(d), a, b, c: &mut *p, row: w.scores, add: false }.run();
        let (a, b) = (LeftOperand { data: d_o, row: w.e, col: 1 }, RightOperand::panels(turned_v, e));
        Product { m, n, depth: Depth::All(e), a, b, c: &mut *dp, row: w.scores, add: false }.run();
        wide!(rows::score_gradients, (block, outer, &mut *p, &mut *dp, m));
        // Key j is seen by the queries from j on.
        let depth = if causal { Depth::From { first, k: m } } else { Depth::All(m) };
        let (a, b) = (LeftOperand { data: p, row: 1, col: w.scores }, RightOperand::rows(d_o, w.e));
        Product { m: block.keys, n: w.e, depth, a, b, c: dv, row: w.e, add: true }.run();
        let (a, b) = (LeftOperand { data: dp, row: 1, col: w.scores }, RightOperand::rows(q, w.d));
        Product { m: block.keys, n: w.d, depth, a, b, c: dk, row: w.d, add: true }.run();
        let (a, b) = (LeftOperand { data: dp, row: w.scores, col: 1 }, RightOperand::rows(k, w.d));
        Product { m, n: w.d, depth: self.depth(&block), a, b, c: &mut *dq, row: w.d, add: false }.run();
        dq
    }
}
