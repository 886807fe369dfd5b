//! The steps of a GRU. Gates: reset, update, new.

use super::{Back, RecurrentInputs, Sizes, add, begin};
use crate::kernels::gemm::{Mat, Size, product};
use crate::kernels::math::{sigmoid, tanh, wide};
use crate::threads::scratch;

/// Runs a block of sequences from sequence `first` on. `gates` hold the input's part and become the gates;
/// `parts` become the state's part of the new gate; `turned` is the transpose of the state's weights.
pub(super) fn forward(
    sizes: &Sizes,
    given: &RecurrentInputs<'_>,
    turned: &[f32],
    first: usize,
    (y, gates, parts): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let Sizes { t, h, .. } = *sizes;
    let (n, three) = (y.len() / (t * h), 3 * h);
    scratch(n * (three + h) + h, |buffer| {
        let (products, rest) = buffer.split_at_mut(n * three);
        let (states, bias) = rest.split_at_mut(n * h);
        begin(given.h0, first * h, states);
        begin(given.bias.map(|(_, b_hh)| b_hh), 2 * h, bias);
        for step in 0..t {
            let now = sizes.time(step);
            let size = Size { m: n, n: three, k: h };
            product(size, Mat::rows(states, h), Mat::rows(turned, three), products, three, false);
            for (r, state) in states.chunks_exact_mut(h).enumerate() {
                let row = r * t + now;
                let out = (&mut gates[row * three..][..three], &mut parts[row * h..][..h]);
                wide!(step_row, (&products[r * three..][..three], &*bias, out, &mut *state));
                y[row * h..][..h].copy_from_slice(state);
            }
        }
    });
}

type StepRow<'a> = (&'a [f32], &'a [f32], (&'a mut [f32], &'a mut [f32]), &'a mut [f32]);

#[inline(always)]
fn step_row((products, bias, (gates, part), state): StepRow<'_>) {
    let h = state.len();
    let (reset, rest) = gates.split_at_mut(h);
    let (update, new) = rest.split_at_mut(h);
    let (of_reset, rest) = products.split_at(h);
    let (of_update, of_new) = rest.split_at(h);
    let (new, of_new, bias, part) = (&mut new[..h], &of_new[..h], &bias[..h], &mut part[..h]);
    for j in 0..h {
        let r = sigmoid(reset[j] + of_reset[j]);
        let z = sigmoid(update[j] + of_update[j]);
        let inner = of_new[j] + bias[j];
        let n = tanh(new[j] + r * inner);
        (reset[j], update[j], new[j], part[j]) = (r, z, n, inner);
        state[j] = n + z * (state[j] - n);
    }
}

/// Writes the gradients of the gates before their functions (the last quarter: of the state's part of the new gate),
/// and of the first state into `dh`.
pub(super) fn backward(
    sizes: &Sizes,
    given: &RecurrentInputs<'_>,
    back: &Back<'_>,
    (first, dy, before): (usize, Option<&[f32]>, &[f32]),
    (slopes, dh): (&mut [f32], &mut [f32]),
) {
    let Sizes { t, h, .. } = *sizes;
    let (n, three, four) = (dh.len() / h, 3 * h, 4 * h);
    begin(back.dh, first * h, dh);
    // Each step has a buffer of its own: rows of the slopes are so far apart that they map to the same cache lines.
    scratch(n * four, |block| {
        for step in (0..t).rev() {
            let now = sizes.time(step);
            for r in 0..n {
                let row = (first + r) * t + now;
                let dh = &mut dh[r * h..][..h];
                add(dy, row * h, dh);
                let kept = (&back.gates[row * three..][..three], &back.extra[row * h..][..h]);
                let block = &mut block[r * four..][..four];
                wide!(back_row, (kept, &before[row * h..][..h], dh, &mut *block));
                slopes[(r * t + now) * four..][..four].copy_from_slice(block);
            }
            let size = Size { m: n, n: h, k: 2 * h };
            product(size, Mat::rows(block, four), Mat::rows(given.w_hh, h), dh, h, true);
            let (new, weights) = (Mat::rows(&block[three..], four), Mat::rows(&given.w_hh[2 * h * h..], h));
            product(Size { m: n, n: h, k: h }, new, weights, dh, h, true);
        }
    });
}

type BackRow<'a> = ((&'a [f32], &'a [f32]), &'a [f32], &'a mut [f32], &'a mut [f32]);

#[inline(always)]
fn back_row(((gates, part), before, dh, slopes): BackRow<'_>) {
    let h = dh.len();
    let (reset, rest) = gates.split_at(h);
    let (update, new) = rest.split_at(h);
    let (d_reset, rest) = slopes.split_at_mut(h);
    let (d_update, rest) = rest.split_at_mut(h);
    let (d_new, d_part) = rest.split_at_mut(h);
    let (new, d_part, part, before) = (&new[..h], &mut d_part[..h], &part[..h], &before[..h]);
    for j in 0..h {
        let (r, z, n) = (reset[j], update[j], new[j]);
        let inner = dh[j] * (1.0 - z) * (1.0 - n * n);
        d_reset[j] = inner * part[j] * r * (1.0 - r);
        d_update[j] = dh[j] * (before[j] - n) * z * (1.0 - z);
        d_new[j] = inner;
        d_part[j] = inner * r;
        dh[j] *= z;
    }
}
