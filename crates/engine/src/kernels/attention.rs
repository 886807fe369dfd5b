//! Attention: `softmax(q · kᵀ · scale + mask) · v` of every head by itself.
//!
//! Scores exist only for a block of queries at a time and stay in the second cache; backward computes them again
//! from the logarithm of each row's sum. Heads may be columns of one matrix, so every operand comes with strides.

#![expect(unsafe_code, reason = "heads write columns of the same rows; that they are apart is checked first")]

mod places;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use places::{Mask, Out, Place, Shared, View};

use crate::kernels::gemm::{Mat, Size, product};
use crate::kernels::math::wide;
use crate::threads::{Threads, scratch};
use places::apart;
use rows::{Block, Outer};

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
    pub(crate) q: View<'a>,
    pub(crate) k: View<'a>,
    pub(crate) v: View<'a>,
    pub(crate) mask: Option<Mask<'a>>,
}

/// What forward computed, for backward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Results<'a> {
    pub(crate) o: View<'a>,
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
        let rows = self.queries_per_block();
        threads.chunks(lse, self.t.max(1), |task, lse| {
            let number = (task / self.heads, task % self.heads);
            let head = Head::new(self, &operands, number);
            scratch(rows * (self.s + self.e), |buffer| {
                let (scores, out) = buffer.split_at_mut(rows * self.s);
                for first in (0..self.t).step_by(rows) {
                    let count = rows.min(self.t - first);
                    head.forward(first, (scores, out), &mut lse[first..first + count]);
                    // SAFETY: this is the only task of this head.
                    unsafe { o.write(number, first, &out[..count * self.e]) };
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
        d_o: View<'_>,
        [dq, dk, dv]: [Out<'_>; 3],
    ) {
        let sizes = [(dq, self.t, self.d), (dk, self.s, self.d), (dv, self.s, self.e)];
        let [dq, dk, dv] = apart(self, sizes);
        let rows = self.queries_per_block();
        threads.each(self.n * self.heads, |task| {
            let number = (task / self.heads, task % self.heads);
            let head = Head::new(self, &operands, number);
            let lse = &results.lse[task * self.t..][..self.t];
            let strides = [results.o.place.row, d_o.place.row];
            let outer = Outer { o: results.o.head(number), d_o: d_o.head(number), strides, e: self.e, lse };
            scratch(rows * (2 * self.s + self.d) + self.s * (self.d + self.e), |buffer| {
                let (scores, rest) = buffer.split_at_mut(2 * rows * self.s);
                let (dq_block, rest) = rest.split_at_mut(rows * self.d);
                rest.fill(0.0);
                let (dk_sum, dv_sum) = rest.split_at_mut(self.s * self.d);
                for first in (0..self.t).step_by(rows) {
                    let count = rows.min(self.t - first);
                    head.backward(outer, first, scores, [&mut *dq_block, &mut *dk_sum, &mut *dv_sum]);
                    // SAFETY: this is the only task of this head.
                    unsafe { dq.write(number, first, &dq_block[..count * self.d]) };
                }
                // SAFETY: as above.
                unsafe { dk.write(number, 0, dk_sum) };
                // SAFETY: as above.
                unsafe { dv.write(number, 0, dv_sum) };
            });
        });
    }

    /// Scores of a block fill half of a second cache at most.
    fn queries_per_block(&self) -> usize {
        (32 * 1024 / self.s.max(1)).clamp(16, 64).min(self.t.max(1))
    }
}

/// One head of one sample.
#[derive(Clone, Copy)]
struct Head<'a> {
    sizes: &'a Attention,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// The distances of rows of each.
    strides: [usize; 3],
    mask: Option<(&'a [f32], usize, usize)>,
}

impl<'a> Head<'a> {
    fn new(sizes: &'a Attention, operands: &Operands<'a>, number: (usize, usize)) -> Self {
        let Operands { q, k, v, mask } = operands;
        let mask = mask.map(|m| (&m.data[number.0 * m.batch + number.1 * m.head..], m.row, m.col));
        let strides = [q.place.row, k.place.row, v.place.row];
        Self { sizes, q: q.head(number), k: k.head(number), v: v.head(number), strides, mask }
    }

    /// `scores = q · kᵀ` for the queries from `first` and the keys they see, of which rows have as many columns.
    fn scores(&self, first: usize, scores: &mut [f32]) -> (usize, Block<'a>) {
        let Attention { t, s, d, scale, causal, .. } = *self.sizes;
        let count = self.sizes.queries_per_block().min(t - first);
        let keys = if causal { s.min(first + count) } else { s };
        let size = Size { m: count, n: keys, k: d };
        product(size, self.queries(first), Mat::transposed(self.k, self.strides[1]), scores, keys, false);
        (count, Block { first, keys, scale, causal, mask: self.mask })
    }

    fn queries(&self, first: usize) -> Mat<'a> {
        Mat::rows(&self.q[first * self.strides[0]..], self.strides[0])
    }

    fn forward(&self, first: usize, (scores, out): (&mut [f32], &mut [f32]), lse: &mut [f32]) {
        let (count, block) = self.scores(first, scores);
        wide(rows::probabilities, (block, &mut scores[..count * block.keys], lse));
        let size = Size { m: count, n: self.sizes.e, k: block.keys };
        let v = Mat::rows(self.v, self.strides[2]);
        product(size, Mat::rows(scores, block.keys), v, out, self.sizes.e, false);
    }

    /// Writes `dq` of the queries from `first`, and adds what they give to `dk` and `dv`.
    fn backward(&self, outer: Outer<'_>, first: usize, scores: &mut [f32], [dq, dk, dv]: [&mut [f32]; 3]) {
        let Attention { s, d, e, .. } = *self.sizes;
        let (p, dp) = scores.split_at_mut(self.sizes.queries_per_block() * s);
        let (count, block) = self.scores(first, p);
        let keys = block.keys;
        let d_o = Mat::rows(&outer.d_o[first * outer.strides[1]..], outer.strides[1]);
        let size = Size { m: count, n: keys, k: e };
        product(size, d_o, Mat::transposed(self.v, self.strides[2]), dp, keys, false);
        let (p, dp) = (&mut p[..count * keys], &mut dp[..count * keys]);
        wide(rows::score_gradients, (block, outer, &mut *p, &mut *dp));
        product(Size { m: keys, n: e, k: count }, Mat::transposed(p, keys), d_o, dv, e, true);
        product(
            Size { m: keys, n: d, k: count },
            Mat::transposed(dp, keys),
            self.queries(first),
            dk,
            d,
            true,
        );
        let k = Mat::rows(self.k, self.strides[1]);
        product(Size { m: count, n: d, k: keys }, Mat::rows(dp, keys), k, dq, d, false);
    }
}
