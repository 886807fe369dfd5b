//! The loops over rows of scores.

use crate::kernels::math::{dot, exp, exp_in_place, largest, log};

/// Scores of the queries from `first` with `keys` keys each.
#[derive(Clone, Copy)]
pub(super) struct ScoreBlock<'a> {
    pub(super) first: usize,
    pub(super) keys: usize,
    /// The distance of rows.
    pub(super) row: usize,
    pub(super) scale: f32,
    pub(super) causal: bool,
    /// The mask of this head with its strides over rows and columns.
    pub(super) mask: Option<(&'a [f32], usize, usize)>,
}

/// The result of a head and its gradient, for backward; rows are `strides` apart.
#[derive(Clone, Copy)]
pub(super) struct Outer<'a> {
    pub(super) o: &'a [f32],
    pub(super) d_o: &'a [f32],
    pub(super) strides: [usize; 2],
    pub(super) e: usize,
    /// The logarithm of the sum of exponentials of every row of scores.
    pub(super) lse: &'a [f32],
}

impl ScoreBlock<'_> {
    /// How many keys a query of the block sees.
    #[inline(always)]
    fn seen(&self, r: usize) -> usize {
        if self.causal { self.keys.min(self.first + r + 1) } else { self.keys }
    }

    /// Adds the mask to a row of scaled products. Without a mask the products are unchanged. Returns the scale still to
    /// be applied.
    #[inline(always)]
    fn masked(&self, r: usize, row: &mut [f32]) -> f32 {
        match self.mask {
            None => return self.scale,
            Some((mask, stride, 1)) => {
                let mask = &mask[(self.first + r) * stride..];
                row.iter_mut().zip(mask).for_each(|(x, m)| *x = *x * self.scale + m);
            }
            Some((mask, stride, column)) => {
                let mask = &mask[(self.first + r) * stride..];
                row.iter_mut().enumerate().for_each(|(j, x)| *x = *x * self.scale + mask[j * column]);
            }
        }
        1.0
    }
}

/// Turns products into probabilities.
#[inline(always)]
pub(super) fn probabilities((block, scores, lse): (ScoreBlock<'_>, &mut [f32], &mut [f32])) {
    for (r, (row, lse)) in scores.chunks_exact_mut(block.row).zip(lse).enumerate() {
        let (row, unseen) = row[..block.keys].split_at_mut(block.seen(r));
        unseen.fill(0.0);
        let scale = block.masked(r, row);
        let max = largest(row) * scale;
        let max = if max == f32::NEG_INFINITY { 0.0 } else { max };
        let total = exp_in_place(row, scale, max);
        // A query that sees no keys gets zeros, in backward too.
        *lse = if total == 0.0 { f32::INFINITY } else { max + log(total) };
        let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

type ScoreArguments<'a> = (ScoreBlock<'a>, Outer<'a>, &'a mut [f32], &'a mut [f32], usize);

/// Turns products `p` into probabilities and the gradients `dp` of these into gradients of the products.
#[inline(always)]
pub(super) fn score_gradients((block, outer, p, dp, count): ScoreArguments<'_>) {
    let rows = p.chunks_exact_mut(block.row).zip(dp.chunks_exact_mut(block.row)).take(count);
    for (r, (p, dp)) in rows.enumerate() {
        let (p, dp) = (&mut p[..block.keys], &mut dp[..block.keys]);
        let query = block.first + r;
        let [o, d_o] = outer.strides.map(|stride| query * stride);
        let along = dot(&outer.o[o..o + outer.e], &outer.d_o[d_o..d_o + outer.e]);
        let lse = outer.lse[query];
        let ((p, p_unseen), (dp, dp_unseen)) =
            (p.split_at_mut(block.seen(r)), dp.split_at_mut(block.seen(r)));
        p_unseen.fill(0.0);
        dp_unseen.fill(0.0);
        let scale = block.masked(r, p);
        for (p, dp) in p.iter_mut().zip(dp) {
            *p = exp(*p * scale - lse);
            *dp = *p * (*dp - along) * block.scale;
        }
    }
}
