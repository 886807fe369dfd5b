use super::*;
use crate::kernels::math::testing::{bits, close, double, noise, slopes, slopes_agree};
use phalanx_graph::Recurrent;

#[derive(Debug, Clone, Copy)]
struct Shape {
    lstm: bool,
    n: usize,
    t: usize,
    i: usize,
    h: usize,
    flags: [bool; 4],
}

impl Shape {
    fn cell(&self) -> Cell {
        let [batch_first, reverse, bias, initial] = self.flags;
        let kind = Recurrent { hidden: self.h, batch_first, reverse, bias, initial };
        Cell { lstm: self.lstm, steps: self.t, batch: self.n, input: self.i, kind }
    }

    fn gates(&self) -> usize {
        if self.lstm { 4 } else { 3 }
    }

    fn states(&self) -> usize {
        1 + usize::from(self.lstm)
    }

    /// The sizes of all inputs.
    fn inputs(&self) -> Vec<usize> {
        let [_, _, bias, initial] = self.flags;
        let wide = self.gates() * self.h;
        let mut sizes = vec![self.n * self.t * self.i, wide * self.i, wide * self.h];
        sizes.extend(vec![wide; if bias { 2 } else { 0 }]);
        sizes.extend(vec![self.n * self.h; if initial { self.states() } else { 0 }]);
        sizes
    }

    fn outputs(&self) -> Vec<usize> {
        let mut sizes = vec![self.n * self.t * self.h];
        sizes.extend(vec![self.n * self.h; self.states()]);
        sizes
    }

    /// PyTorch's formulas: y and the last states, one after another.
    fn reference(&self, ins: &[Vec<f64>]) -> Vec<f64> {
        let Shape { n: batch, t: steps, i: width, h, .. } = *self;
        let [batch_first, reverse, bias, initial] = self.flags;
        let none = vec![0.0; 4 * h];
        let (b_ih, b_hh) = if bias { (&ins[3], &ins[4]) } else { (&none, &none) };
        let mut y = vec![0.0; batch * steps * h];
        let mut last = vec![vec![0.0; batch * h]; self.states()];
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for n in 0..batch {
            let from = ins.len() - if initial { self.states() } else { 0 };
            let begin = |s: usize| if initial { ins[from + s][n * h..][..h].to_vec() } else { vec![0.0; h] };
            let (mut state, mut c) = (begin(0), if self.lstm { begin(1) } else { vec![] });
            for step in 0..steps {
                let time = if reverse { steps - 1 - step } else { step };
                let row = if batch_first { n * steps + time } else { time * batch + n };
                let x = &ins[0][row * width..][..width];
                let of_x = |g: usize| (0..width).map(|k| ins[1][g * width + k] * x[k]).sum::<f64>() + b_ih[g];
                let of_h = |g: usize| (0..h).map(|k| ins[2][g * h + k] * state[k]).sum::<f64>() + b_hh[g];
                let both = |g: usize| of_x(g) + of_h(g);
                let next: Vec<f64> = if self.lstm {
                    let gate = |j: usize| {
                        (
                            sigmoid(both(j)),
                            sigmoid(both(h + j)),
                            both(2 * h + j).tanh(),
                            sigmoid(both(3 * h + j)),
                        )
                    };
                    let gates: Vec<_> = (0..h).map(gate).collect();
                    c = (0..h).map(|j| gates[j].1 * c[j] + gates[j].0 * gates[j].2).collect();
                    (0..h).map(|j| gates[j].3 * c[j].tanh()).collect()
                } else {
                    let gate = |j: usize| {
                        let (r, z) = (sigmoid(both(j)), sigmoid(both(h + j)));
                        let new = (of_x(2 * h + j) + r * of_h(2 * h + j)).tanh();
                        (1.0 - z) * new + z * state[j]
                    };
                    (0..h).map(gate).collect()
                };
                y[row * h..][..h].copy_from_slice(&next);
                state = next;
            }
            last[0][n * h..][..h].copy_from_slice(&state);
            if self.lstm {
                last[1][n * h..][..h].copy_from_slice(&c);
            }
        }
        y.into_iter().chain(last.into_iter().flatten()).collect()
    }
}

fn run(shape: &Shape, threads: usize, ins: &[Vec<f32>], d: &[Option<Vec<f32>>]) -> (Vec<f32>, Vec<Vec<f32>>) {
    let (t, cell) = (Threads::new(threads), shape.cell());
    let ins: Vec<&[f32]> = ins.iter().map(Vec::as_slice).collect();
    let mut outs: Vec<Vec<f32>> = shape.outputs().iter().map(|n| vec![f32::NAN; *n]).collect();
    outs.push(vec![f32::NAN; saved(&cell)]);
    let mut places: Vec<&mut [f32]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
    forward(&t, &cell, &ins, &mut places);
    let mut gradients: Vec<Vec<f32>> = ins.iter().map(|x| vec![f32::NAN; x.len()]).collect();
    let mut places: Vec<&mut [f32]> = gradients.iter_mut().map(Vec::as_mut_slice).collect();
    let mut all = ins.clone();
    all.extend([outs[0].as_slice(), outs[outs.len() - 1].as_slice()]);
    all.extend(d.iter().flatten().map(Vec::as_slice));
    let has = |k: usize| d.get(k).is_some_and(Option::is_some);
    backward(&t, &cell, (has(0), has(1), has(2)), &all, &mut places);
    outs.pop();
    (outs.concat(), gradients)
}

#[test]
fn results_and_gradients_match_the_formulas() {
    for case in 0..24u32 {
        let flag = |bit: u32| case >> bit & 1 == 1;
        let flags = [flag(1), flag(2), case % 3 != 0, case % 5 != 0];
        let (n, t) = [(3, 4), (1, 1), (37, 2), (2, 7)][case as usize % 4];
        let shape = Shape { lstm: flag(0), n, t, i: 3, h: 5, flags };
        let what = format!("{shape:?}");
        let ins: Vec<Vec<f32>> = shape.inputs().iter().zip(1..).map(|(n, seed)| noise(*n, seed)).collect();
        // Not every result has a gradient.
        let there = |k: usize| k == case as usize % 3 || case % 2 == 0;
        let gradient = |(k, n): (usize, &usize)| there(k).then(|| noise(*n, 20 + k as u64));
        let d: Vec<Option<Vec<f32>>> = shape.outputs().iter().enumerate().map(gradient).collect();
        let (results, gradients) = run(&shape, 2, &ins, &d);
        let doubles: Vec<Vec<f64>> = ins.iter().map(|x| double(x)).collect();
        close(&results, &shape.reference(&doubles), 2e-6, &what);
        let flat: Vec<f64> = d
            .iter()
            .zip(shape.outputs())
            .flat_map(|(d, n)| d.clone().unwrap_or_else(|| vec![0.0; n]))
            .map(f64::from)
            .collect();
        for k in 0..ins.len() {
            let measured = slopes(&ins[k], |x| {
                let mut all = doubles.clone();
                all[k] = x.to_vec();
                shape.reference(&all).iter().zip(&flat).map(|(y, g)| y * g).sum()
            });
            if measured.iter().any(|(_, slope)| slope.abs() > 1e-6) {
                slopes_agree(&gradients[k], &measured, 2e-5, &format!("input {k} of {what}"));
            } else {
                assert!(gradients[k].iter().all(|g| g.abs() < 1e-5), "input {k} of {what}");
            }
        }
        for threads in [1, 3] {
            let other = run(&shape, threads, &ins, &d);
            assert_eq!(bits(&other.0), bits(&results), "{what}");
            assert!(other.1.iter().zip(&gradients).all(|(a, b)| bits(a) == bits(b)), "{what}");
        }
    }
}
