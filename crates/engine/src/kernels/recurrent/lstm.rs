//! The steps of an LSTM. Gates: input, forget, cell, output.

use super::{Back, RecurrentInputs, Sizes, add, begin};
use crate::kernels::gemm::{Mat, Size, product};
use crate::kernels::math::{sigmoid, tanh, wide};
use crate::threads::scratch;

/// Runs a block of sequences from sequence `first` on. `gates` hold the input's part and become the gates;
/// `turned` is the transpose of the state's weights.
pub(super) fn forward(
    sizes: &Sizes,
    given: &RecurrentInputs<'_>,
    turned: &[f32],
    first: usize,
    (y, gates, cells): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let Sizes { t, h, .. } = *sizes;
    let (n, four) = (y.len() / (t * h), 4 * h);
    scratch(n * (four + 2 * h), |buffer| {
        let (products, rest) = buffer.split_at_mut(n * four);
        let (states, cell_states) = rest.split_at_mut(n * h);
        begin(given.h0, first * h, states);
        begin(given.c0, first * h, cell_states);
        for step in 0..t {
            let now = sizes.time(step);
            // Into a buffer of its own: rows of the gates are so far apart that they map to the same cache lines.
            let size = Size { m: n, n: four, k: h };
            product(size, Mat::rows(states, h), Mat::rows(turned, four), products, four, false);
            for (r, (c, state)) in cell_states.chunks_exact_mut(h).zip(states.chunks_exact_mut(h)).enumerate()
            {
                let row = r * t + now;
                let gates = &mut gates[row * four..][..four];
                wide!(step_row, (&products[r * four..][..four], gates, &mut *c, &mut *state));
                y[row * h..][..h].copy_from_slice(state);
                cells[row * h..][..h].copy_from_slice(c);
            }
        }
    });
}

#[inline(always)]
fn step_row((products, gates, c, state): (&[f32], &mut [f32], &mut [f32], &mut [f32])) {
    let h = c.len();
    let (input, rest) = gates.split_at_mut(h);
    let (forget, rest) = rest.split_at_mut(h);
    let (cell, output) = rest.split_at_mut(h);
    let (of_input, rest) = products.split_at(h);
    let (of_forget, rest) = rest.split_at(h);
    let (of_cell, of_output) = rest.split_at(h);
    let (output, of_output, state) = (&mut output[..h], &of_output[..h], &mut state[..h]);
    for j in 0..h {
        let (i, f) = (sigmoid(input[j] + of_input[j]), sigmoid(forget[j] + of_forget[j]));
        let (g, o) = (tanh(cell[j] + of_cell[j]), sigmoid(output[j] + of_output[j]));
        let next = f * c[j] + i * g;
        (input[j], forget[j], cell[j], output[j]) = (i, f, g, o);
        c[j] = next;
        state[j] = o * tanh(next);
    }
}

/// Writes the gradients of the gates before their functions, and of the first states into `dh` and `dc`.
pub(super) fn backward(
    sizes: &Sizes,
    given: &RecurrentInputs<'_>,
    back: &Back<'_>,
    (first, dy): (usize, Option<&[f32]>),
    (slopes, dh, dc): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let Sizes { t, h, .. } = *sizes;
    let (n, four) = (dh.len() / h, 4 * h);
    begin(back.dh, first * h, dh);
    begin(back.dc, first * h, dc);
    scratch(h + n * four, |buffer| {
        let (none, block) = buffer.split_at_mut(h);
        none.fill(0.0);
        for step in (0..t).rev() {
            let now = sizes.time(step);
            for r in 0..n {
                let row = (first + r) * t + now;
                let before = match (step, given.c0) {
                    (0, Some(c0)) => &c0[(first + r) * h..][..h],
                    (0, None) => &*none,
                    _ => &back.extra[((first + r) * t + sizes.time(step - 1)) * h..][..h],
                };
                let dh = &mut dh[r * h..][..h];
                add(dy, row * h, dh);
                let cells = (before, &back.extra[row * h..][..h]);
                let gates = &back.gates[row * four..][..four];
                let block = &mut block[r * four..][..four];
                wide!(back_row, (gates, cells, (&*dh, &mut dc[r * h..][..h]), &mut *block));
                slopes[(r * t + now) * four..][..four].copy_from_slice(block);
            }
            let size = Size { m: n, n: h, k: four };
            product(size, Mat::rows(block, four), Mat::rows(given.w_hh, h), dh, h, false);
        }
    });
}

type BackRow<'a> = (&'a [f32], (&'a [f32], &'a [f32]), (&'a [f32], &'a mut [f32]), &'a mut [f32]);

#[inline(always)]
fn back_row((gates, (before, after), (dh, dc), slopes): BackRow<'_>) {
    let h = dh.len();
    let (input, rest) = gates.split_at(h);
    let (forget, rest) = rest.split_at(h);
    let (cell, output) = rest.split_at(h);
    let (d_input, rest) = slopes.split_at_mut(h);
    let (d_forget, rest) = rest.split_at_mut(h);
    let (d_cell, d_output) = rest.split_at_mut(h);
    let (output, d_output) = (&output[..h], &mut d_output[..h]);
    let (before, after, dc) = (&before[..h], &after[..h], &mut dc[..h]);
    for j in 0..h {
        let (i, f, g, o) = (input[j], forget[j], cell[j], output[j]);
        let bent = tanh(after[j]);
        let d = dc[j] + dh[j] * o * (1.0 - bent * bent);
        d_input[j] = d * g * i * (1.0 - i);
        d_forget[j] = d * before[j] * f * (1.0 - f);
        d_cell[j] = d * i * (1.0 - g * g);
        d_output[j] = dh[j] * bent * o * (1.0 - o);
        dc[j] = d * f;
    }
}
