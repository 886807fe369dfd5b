//! Gradient norms and clipping. Results do not depend on the number of threads or on the vector width.

use crate::kernels::math::wide;
use crate::threads::Threads;
use serde::{Deserialize, Serialize};

/// Elements per task.
const BLOCK: usize = 16 * 1024;

const LANES: usize = 16;

/// A limit on gradients, as `torch.nn.utils.clip_grad_norm_` and `clip_grad_value_` set it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clip {
    /// Scales all gradients together down to this Euclidean norm if theirs is larger.
    Norm(f32),
    /// Clamps every element to this distance from zero.
    Value(f32),
}

/// The Euclidean norm of many gradients, added one after another.
#[derive(Debug, Clone, Default)]
pub struct GradNorm {
    squares: f64,
    blocks: Vec<f64>,
}

impl GradNorm {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a gradient and returns the sum of its squares. Adding these sums in the order of the whole model's
    /// parameters gives the bits of [`GradNorm::squares`], however parameters are distributed.
    pub fn add(&mut self, t: &Threads, gradient: &[f32]) -> f64 {
        self.blocks.clear();
        self.blocks.resize(gradient.len().div_ceil(BLOCK), 0.0);
        t.chunks(&mut self.blocks, 1, |i, sum| {
            let end = gradient.len().min((i + 1) * BLOCK);
            sum[0] = wide!(sum_of_squares, &gradient[i * BLOCK..end]);
        });
        let own = self.blocks.iter().sum::<f64>();
        self.squares += own;
        own
    }

    /// The norm of what was added. Not finite if any element was not.
    pub fn value(&self) -> f64 {
        self.squares.sqrt()
    }

    /// The sum of squares, for combining the norms of parts on different machines.
    pub fn squares(&self) -> f64 {
        self.squares
    }

    /// Resets the sum; keeps its memory.
    pub fn reset(&mut self) {
        self.squares = 0.0;
    }
}

/// The Euclidean norm of all these gradients together.
pub fn grad_norm<'a>(t: &Threads, gradients: impl IntoIterator<Item = &'a [f32]>) -> f64 {
    let mut norm = GradNorm::new();
    gradients.into_iter().for_each(|gradient| _ = norm.add(t, gradient));
    norm.value()
}

/// The factor that reduces gradients of this norm to at most `max`; 1 if they are not larger.
pub fn clip_factor(norm: f64, max: f32) -> f32 {
    let factor = f64::from(max) / (norm + 1e-6);
    if factor < 1.0 { factor as f32 } else { 1.0 }
}

/// Multiplies a gradient by a factor.
pub fn scale(t: &Threads, gradient: &mut [f32], factor: f32) {
    if factor != 1.0 {
        t.chunks(gradient, BLOCK, |_, block| wide!(multiply, (block, factor)));
    }
}

/// Adds a gradient to the sum over earlier micro-batches.
pub fn accumulate(t: &Threads, sum: &mut [f32], gradient: &[f32]) {
    t.chunks(sum, BLOCK, |i, block| wide!(add_to, (block, &gradient[i * BLOCK..])));
}

/// Clamps every element of a gradient to `-max..=max`; NaN stays.
pub fn clip_value(t: &Threads, gradient: &mut [f32], max: f32) {
    t.chunks(gradient, BLOCK, |_, block| wide!(limit, (block, max)));
}

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f64 {
    let (lanes, rest) = x.as_chunks::<LANES>();
    let mut sums = [0f64; LANES];
    for x in lanes {
        for l in 0..LANES {
            sums[l] += f64::from(x[l]) * f64::from(x[l]);
        }
    }
    for (l, x) in rest.iter().enumerate() {
        sums[l] += f64::from(*x) * f64::from(*x);
    }
    sums.iter().sum()
}

#[inline(always)]
fn multiply((x, factor): (&mut [f32], f32)) {
    x.iter_mut().for_each(|x| *x *= factor);
}

#[inline(always)]
fn add_to((sum, gradient): (&mut [f32], &[f32])) {
    sum.iter_mut().zip(gradient).for_each(|(s, g)| *s += g);
}

#[inline(always)]
fn limit((x, max): (&mut [f32], f32)) {
    for x in x {
        let low = if *x < -max { -max } else { *x };
        *x = if low > max { max } else { low };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7919) % 1000) as f32 / 100.0 - 5.0).collect()
    }

    #[test]
    fn the_norm_is_that_of_all_parts_and_the_same_for_every_team() {
        let (a, b) = (numbers(100_003), numbers(7));
        let naive = a.iter().chain(&b).map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let norms = [1, 2, 3].map(|n| grad_norm(&Threads::new(n), [a.as_slice(), b.as_slice()]));
        assert!((norms[0] / naive - 1.0).abs() < 1e-12);
        assert!(norms.iter().all(|n| n.to_bits() == norms[0].to_bits()));
    }

    #[test]
    fn sums_of_single_gradients_add_up_to_the_bits_of_the_whole() {
        let all: Vec<Vec<f32>> = [70_001, 3, 16_384, 999].map(numbers).to_vec();
        let mut whole = GradNorm::new();
        all.iter().for_each(|g| _ = whole.add(&Threads::new(2), g));
        // Two machines, each with its own order.
        let (mut one, mut other) = (GradNorm::new(), GradNorm::new());
        let mut sums = [0.0; 4];
        [2, 0].into_iter().for_each(|i| sums[i] = one.add(&Threads::new(1), &all[i]));
        [3, 1].into_iter().for_each(|i| sums[i] = other.add(&Threads::new(3), &all[i]));
        assert_eq!(sums.iter().fold(0.0, |a, s| a + s).to_bits(), whole.squares().to_bits());
    }

    #[test]
    fn gradients_below_the_limit_stay_as_they_are() {
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert_eq!(clip_factor(0.0, 1.0), 1.0);
        assert!((clip_factor(4.0, 1.0) - 0.25).abs() < 1e-6);
    }

    #[test]
    fn accumulating_adds_every_element() {
        let mut sum = numbers(40_001);
        accumulate(&Threads::new(2), &mut sum, &numbers(40_001));
        assert!(sum.iter().zip(numbers(40_001)).all(|(s, x)| *s == x + x));
    }

    #[test]
    fn scaling_and_limiting_act_on_every_element() {
        let t = Threads::new(2);
        let mut x = numbers(40_000);
        scale(&t, &mut x, 0.5);
        assert!(x.iter().zip(numbers(40_000)).all(|(x, y)| *x == y * 0.5));
        x[17] = f32::NAN;
        clip_value(&t, &mut x, 1.0);
        assert!(x[17].is_nan() && x.iter().filter(|x| !x.is_nan()).all(|x| x.abs() <= 1.0));
        assert!(x.contains(&1.0) && x.contains(&0.25));
    }
}
