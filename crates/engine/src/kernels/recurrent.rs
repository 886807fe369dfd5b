//! One layer and direction of an LSTM or GRU.
//!
//! Internally sequences are contiguous (`[N, T, …]`): a block of sequences is a piece of every buffer, and one task
//! runs it through all its steps. Work that does not depend on the previous step (the input's projection, the gradients
//! of input and weights) is one product over all steps.

mod gru;
mod lstm;
#[cfg(test)]
mod tests;

use crate::kernels::gemm::{Mat, Size, parallel};
use crate::kernels::linear;
use crate::kernels::math::wide;
use crate::tape::Cell;
use crate::threads::{Threads, scratch};

/// How many numbers forward keeps for backward: the gates and the cells (LSTM), or the gates and the state's part of
/// the new gate (GRU).
pub(crate) fn saved(cell: &Cell) -> usize {
    let sizes = Sizes::new(cell);
    sizes.rows() * (sizes.gates + 1) * sizes.h
}

/// x, w_ih, w_hh, b_ih?, b_hh?, h0?, c0? → y, h, c (LSTM), what backward needs
pub(crate) fn forward(threads: &Threads, cell: &Cell, ins: &[&[f32]], outs: &mut [&mut [f32]]) {
    let sizes = Sizes::new(cell);
    let given = RecurrentInputs::new(cell, ins);
    let [y, states @ .., kept] = outs else { unreachable!("a recurrent layer has results") };
    let (gates, extra) = kept.split_at_mut(sizes.rows() * sizes.gates * sizes.h);
    if cell.kind.batch_first {
        sizes.run(threads, &given, given.x, y, (gates, extra));
        sizes.last(y, extra, states);
        return;
    }
    let [n, t, i, h] = [sizes.n, sizes.t, sizes.i, sizes.h];
    scratch(sizes.rows() * (i + h), |buffer| {
        let (x, sequences) = buffer.split_at_mut(sizes.rows() * i);
        swap_axes(threads, (t, n, i), given.x, x);
        sizes.run(threads, &given, x, sequences, (gates, extra));
        sizes.last(sequences, extra, states);
        swap_axes(threads, (n, t, h), sequences, y);
    });
}

/// x, w_ih, w_hh, b_ih?, b_hh?, h0?, c0?, y, what forward kept, then the gradients of the results that exist → the
/// gradients of all inputs
pub(crate) fn backward(
    threads: &Threads,
    cell: &Cell,
    (has_dy, has_dh, has_dc): (bool, bool, bool),
    ins: &[&[f32]],
    outs: &mut [&mut [f32]],
) {
    let sizes = Sizes::new(cell);
    let given = RecurrentInputs::new(cell, ins);
    let inputs = 3 + 2 * usize::from(cell.kind.bias) + usize::from(cell.kind.initial) * given.states();
    let (y, kept) = (ins[inputs], ins[inputs + 1]);
    let mut rest = ins[inputs + 2..].iter().copied();
    let mut next = |there: bool| if there { rest.next() } else { None };
    let (dy, dh, dc) = (next(has_dy), next(has_dh), next(has_dc));
    let (gates, extra) = kept.split_at(sizes.rows() * sizes.gates * sizes.h);
    let back = Back { dh, dc, gates, extra };
    let (dx, learned) = outs.split_at_mut(1);
    let [n, t, i, h] = [sizes.n, sizes.t, sizes.i, sizes.h];
    if cell.kind.batch_first {
        sizes.run_back(threads, &given, (given.x, y, dy), &back, (&mut *dx[0], learned));
        return;
    }
    scratch(sizes.rows() * (2 * i + 2 * h), |buffer| {
        let (x, buffer) = buffer.split_at_mut(sizes.rows() * i);
        let (d_inputs, buffer) = buffer.split_at_mut(sizes.rows() * i);
        let (sequences, d_sequences) = buffer.split_at_mut(sizes.rows() * h);
        swap_axes(threads, (t, n, i), given.x, x);
        swap_axes(threads, (t, n, h), y, sequences);
        if let Some(dy) = dy {
            swap_axes(threads, (t, n, h), dy, d_sequences);
        }
        let dy = dy.is_some().then_some(&*d_sequences);
        sizes.run_back(threads, &given, (x, sequences, dy), &back, (&mut *d_inputs, learned));
        swap_axes(threads, (n, t, i), d_inputs, dx[0]);
    });
}

/// `[a, b, width]` → `[b, a, width]`
fn swap_axes(threads: &Threads, (a, b, width): (usize, usize, usize), x: &[f32], y: &mut [f32]) {
    threads.chunks(y, (a * width).max(1), |j, y| {
        for (i, row) in y.chunks_exact_mut(width.max(1)).enumerate() {
            row.copy_from_slice(&x[(i * b + j) * width..][..width]);
        }
    });
}

/// The sizes of a layer.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    n: usize,
    t: usize,
    i: usize,
    h: usize,
    /// 4 of an LSTM, 3 of a GRU.
    gates: usize,
    reverse: bool,
}

/// The inputs of forward.
#[derive(Debug, Clone, Copy)]
struct RecurrentInputs<'a> {
    x: &'a [f32],
    w_ih: &'a [f32],
    w_hh: &'a [f32],
    bias: Option<(&'a [f32], &'a [f32])>,
    h0: Option<&'a [f32]>,
    c0: Option<&'a [f32]>,
    lstm: bool,
}

/// The additional inputs of backward.
#[derive(Debug, Clone, Copy)]
struct Back<'a> {
    dh: Option<&'a [f32]>,
    dc: Option<&'a [f32]>,
    gates: &'a [f32],
    extra: &'a [f32],
}

impl<'a> RecurrentInputs<'a> {
    fn new(cell: &Cell, ins: &[&'a [f32]]) -> Self {
        let states = 3 + 2 * usize::from(cell.kind.bias);
        let initial = |i: usize| if cell.kind.initial { Some(ins[states + i]) } else { None };
        Self {
            x: ins[0],
            w_ih: ins[1],
            w_hh: ins[2],
            bias: cell.kind.bias.then(|| (ins[3], ins[4])),
            h0: initial(0),
            c0: if cell.lstm { initial(1) } else { None },
            lstm: cell.lstm,
        }
    }

    /// How many states a sequence has: h, and the cell of an LSTM.
    fn states(&self) -> usize {
        1 + usize::from(self.lstm)
    }
}

impl Sizes {
    fn new(cell: &Cell) -> Self {
        Self {
            n: cell.batch,
            t: cell.steps,
            i: cell.input,
            h: cell.kind.hidden,
            gates: if cell.lstm { 4 } else { 3 },
            reverse: cell.kind.reverse,
        }
    }

    fn rows(&self) -> usize {
        self.n * self.t
    }

    /// Sequences per task: enough for a product, and several tasks for a large batch.
    fn sequences(&self) -> usize {
        self.n.div_ceil(8).clamp(16, 64).min(self.n.max(1))
    }

    /// The position in time of a step of the computation.
    fn time(&self, step: usize) -> usize {
        if self.reverse { self.t - 1 - step } else { step }
    }

    /// Forward, all sequences one after another.
    fn run(
        &self,
        threads: &Threads,
        given: &RecurrentInputs<'_>,
        x: &[f32],
        y: &mut [f32],
        (gates, extra): (&mut [f32], &mut [f32]),
    ) {
        let wide_h = self.gates * self.h;
        let size = Size { m: self.rows(), n: wide_h, k: self.i };
        scratch(wide_h, |bias| {
            self.projected_bias(given, bias);
            let bias = &*bias;
            parallel(threads, size, Mat::rows(x, self.i), Mat::transposed(given.w_ih, self.i), gates);
            let rows = (16 * 1024 / wide_h.max(1)).max(1);
            threads.chunks(&mut gates[..self.rows() * wide_h], (rows * wide_h).max(1), |_, rows| {
                linear::add_bias(bias, rows);
            });
        });
        let (block, row) = (self.sequences(), self.t);
        let y = (y, (block * row * self.h).max(1));
        let (gates, extra) = ((gates, (block * row * wide_h).max(1)), (extra, (block * row * self.h).max(1)));
        // Transposed once, instead of in every step of every block.
        scratch(wide_h * self.h, |turned| {
            swap_axes(threads, (wide_h, self.h, 1), given.w_hh, turned);
            let turned = &*turned;
            threads.chunks3(y, gates, extra, |task, y, gates, extra| {
                let first = task * block;
                if given.lstm {
                    lstm::forward(self, given, turned, first, (y, gates, extra));
                } else {
                    gru::forward(self, given, turned, first, (y, gates, extra));
                }
            });
        });
    }

    /// What is added to the projection: both biases (LSTM); for the new gate of a GRU only the input's.
    fn projected_bias(&self, given: &RecurrentInputs<'_>, bias: &mut [f32]) {
        bias.fill(0.0);
        if let Some((b_ih, b_hh)) = given.bias {
            bias.copy_from_slice(b_ih);
            let both = if given.lstm { 4 * self.h } else { 2 * self.h };
            bias[..both].iter_mut().zip(b_hh).for_each(|(sum, b)| *sum += b);
        }
    }

    /// The states after the last step.
    fn last(&self, y: &[f32], extra: &[f32], states: &mut [&mut [f32]]) {
        if self.t == 0 {
            return;
        }
        for (state, from) in states.iter_mut().zip([y, extra]) {
            for (n, state) in state.chunks_exact_mut(self.h.max(1)).enumerate() {
                state.copy_from_slice(&from[(n * self.t + self.time(self.t - 1)) * self.h..][..self.h]);
            }
        }
    }

    /// Backward, all sequences one after another.
    fn run_back(
        &self,
        threads: &Threads,
        given: &RecurrentInputs<'_>,
        (x, y, dy): (&[f32], &[f32], Option<&[f32]>),
        back: &Back<'_>,
        (dx, learned): (&mut [f32], &mut [&mut [f32]]),
    ) {
        let (block, four) = (self.sequences(), 4 * self.h);
        scratch(self.rows() * (four + self.h) + 2 * self.n * self.h, |buffer| {
            let (slopes, buffer) = buffer.split_at_mut(self.rows() * four);
            let (before, states) = buffer.split_at_mut(self.rows() * self.h);
            let (dh, dc) = states.split_at_mut(self.n * self.h);
            self.states_before(given, y, before);
            let (before, state) = (&*before, (block * self.h).max(1));
            let parts = (&mut *slopes, (block * self.t * four).max(1));
            threads.chunks3(parts, (&mut *dh, state), (&mut *dc, state), |task, slopes, dh, dc| {
                let first = task * block;
                if given.lstm {
                    lstm::backward(self, given, back, (first, dy), (slopes, dh, dc));
                } else {
                    gru::backward(self, given, back, (first, dy, before), (slopes, dh));
                }
            });
            let (weights, rest) = learned.split_at_mut(2);
            self.weight_gradients(threads, given, (x, before, slopes), dx, weights);
            let (biases, initial) = rest.split_at_mut(2 * usize::from(given.bias.is_some()));
            self.bias_gradients(given, slopes, biases);
            for (out, state) in initial.iter_mut().zip([&*dh, &*dc]) {
                out.copy_from_slice(state);
            }
        });
    }

    /// The state at the beginning of every step.
    fn states_before(&self, given: &RecurrentInputs<'_>, y: &[f32], before: &mut [f32]) {
        let h = self.h;
        for step in 0..self.t {
            for n in 0..self.n {
                let out = &mut before[(n * self.t + self.time(step)) * h..][..h];
                match (step, given.h0) {
                    (0, Some(h0)) => out.copy_from_slice(&h0[n * h..][..h]),
                    (0, None) => out.fill(0.0),
                    _ => out.copy_from_slice(&y[(n * self.t + self.time(step - 1)) * h..][..h]),
                }
            }
        }
    }

    /// The gradients of input and weights, from those of the gates: rows of `4 h`. Of a GRU the last quarter is the
    /// state's part of the new gate.
    fn weight_gradients(
        &self,
        threads: &Threads,
        given: &RecurrentInputs<'_>,
        (x, before, slopes): (&[f32], &[f32], &[f32]),
        dx: &mut [f32],
        weights: &mut [&mut [f32]],
    ) {
        let (i, h, four, wide_h) = (self.i, self.h, 4 * self.h, self.gates * self.h);
        let size = Size { m: self.rows(), n: i, k: wide_h };
        parallel(threads, size, Mat::rows(slopes, four), Mat::rows(given.w_ih, i), dx);
        let [dw_ih, dw_hh] = weights else { unreachable!("a layer has two weights") };
        let size = Size { m: wide_h, n: i, k: self.rows() };
        parallel(threads, size, Mat::transposed(slopes, four), Mat::rows(x, i), dw_ih);
        let both = if given.lstm { four } else { 2 * h };
        let (of_both, of_new) = dw_hh.split_at_mut(both * h);
        let size = Size { m: both, n: h, k: self.rows() };
        parallel(threads, size, Mat::transposed(slopes, four), Mat::rows(before, h), of_both);
        if !given.lstm {
            let new = &slopes[(3 * h).min(slopes.len())..];
            let size = Size { m: h, n: h, k: self.rows() };
            parallel(threads, size, Mat::transposed(new, four), Mat::rows(before, h), of_new);
        }
    }

    fn bias_gradients(&self, given: &RecurrentInputs<'_>, slopes: &[f32], biases: &mut [&mut [f32]]) {
        let [db_ih, db_hh] = biases else { return };
        let (h, four) = (self.h, 4 * self.h);
        scratch(2 * four, |buffer| {
            let (total, short) = buffer.split_at_mut(four);
            wide!(sum_rows, (slopes, &mut *total, short));
            db_ih.copy_from_slice(&total[..self.gates * h]);
            if given.lstm {
                db_hh.copy_from_slice(total);
            } else {
                db_hh[..2 * h].copy_from_slice(&total[..2 * h]);
                db_hh[2 * h..].copy_from_slice(&total[3 * h..]);
            }
        });
    }
}

/// The sum of all rows; a few rows are summed first, then added to the longer sum.
#[inline(always)]
fn sum_rows((rows, total, short): (&[f32], &mut [f32], &mut [f32])) {
    total.fill(0.0);
    let width = total.len().max(1);
    for rows in rows.chunks(64 * width) {
        short.fill(0.0);
        for row in rows.chunks_exact(width) {
            short.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        total.iter_mut().zip(&*short).for_each(|(sum, x)| *sum += x);
    }
}

/// Copies what is given from `start` on, or zeros.
fn begin(given: Option<&[f32]>, start: usize, out: &mut [f32]) {
    match given {
        Some(given) => out.copy_from_slice(&given[start..][..out.len()]),
        None => out.fill(0.0),
    }
}

/// Adds what is given from `start` on.
fn add(given: Option<&[f32]>, start: usize, out: &mut [f32]) {
    if let Some(given) = given {
        out.iter_mut().zip(&given[start..]).for_each(|(out, x)| *out += x);
    }
}
