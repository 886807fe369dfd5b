//! The steps of an LSTM. Gates: input, forget, cell, output.

use super::{Back, Given, Sizes, add, begin};
use crate::kernels::gemm::{Mat, Size, product};
use crate::kernels::math::{sigmoid, tanh, wide};
use crate::threads::scratch;

/// Runs a block of sequences from sequence `first` on. `gates` hold the input's part and become the gates.
pub(super) fn forward(
    sizes: &Sizes,
    given: &Given<'_>,
    first: usize,
    (y, gates, cells): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let Sizes { t, h, .. } = *sizes;
    let (n, four) = (y.len() / (t * h), 4 * h);
    scratch(n * h, |c| {
        begin(given.c0, first * h, c);
        for step in 0..t {
            let now = sizes.time(step);
            let state = match (step, given.h0) {
                (0, Some(h0)) => Some(Mat::rows(&h0[first * h..], h)),
                (0, None) => None,
                _ => Some(Mat::rows(&y[sizes.time(step - 1) * h..], t * h)),
            };
            if let Some(state) = state {
                let size = Size { m: n, n: four, k: h };
                product(
                    size,
                    state,
                    Mat::transposed(given.w_hh, h),
                    &mut gates[now * four..],
                    t * four,
                    true,
                );
            }
            for (r, c) in c.chunks_exact_mut(h).enumerate() {
                let row = r * t + now;
                let (y, cell) = (&mut y[row * h..][..h], &mut cells[row * h..][..h]);
                wide(step_row, (&mut gates[row * four..][..four], c, y));
                cell.copy_from_slice(c);
            }
        }
    });
}

#[inline(always)]
fn step_row((gates, c, y): (&mut [f32], &mut [f32], &mut [f32])) {
    let h = c.len();
    let (input, rest) = gates.split_at_mut(h);
    let (forget, rest) = rest.split_at_mut(h);
    let (cell, output) = rest.split_at_mut(h);
    let (output, y) = (&mut output[..h], &mut y[..h]);
    for j in 0..h {
        let (i, f, g, o) = (sigmoid(input[j]), sigmoid(forget[j]), tanh(cell[j]), sigmoid(output[j]));
        let next = f * c[j] + i * g;
        (input[j], forget[j], cell[j], output[j]) = (i, f, g, o);
        c[j] = next;
        y[j] = o * tanh(next);
    }
}

/// Writes the gradients of the gates before their functions, and of the first states into `dh` and `dc`.
pub(super) fn backward(
    sizes: &Sizes,
    given: &Given<'_>,
    back: &Back<'_>,
    (first, dy): (usize, Option<&[f32]>),
    (slopes, dh, dc): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let Sizes { t, h, .. } = *sizes;
    let (n, four) = (dh.len() / h, 4 * h);
    begin(back.dh, first * h, dh);
    begin(back.dc, first * h, dc);
    scratch(h, |none| {
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
                let slopes = &mut slopes[(r * t + now) * four..][..four];
                wide(
                    back_row,
                    (&back.gates[row * four..][..four], cells, (&*dh, &mut dc[r * h..][..h]), slopes),
                );
            }
            let slopes = Mat::rows(&slopes[now * four..], t * four);
            product(Size { m: n, n: h, k: four }, slopes, Mat::rows(given.w_hh, h), dh, h, false);
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
