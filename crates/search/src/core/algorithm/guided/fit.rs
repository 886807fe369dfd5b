//! Learns from results how much each gene matters: the kernel under which the results are most likely.

use super::factor::{Factor, LANES, Lanes};
use super::kernel::{Coordinates, Kernel, distances, mismatch, side_by_side};
use crate::core::dice::Dice;

const WEIGHTS: [f64; 5] = [0.1, 0.2, 0.35, 0.6, 1.0];
const NOISES: [f64; 3] = [1e-3, 1e-2, 1e-1];
const ADDITIVES: [f64; 3] = [0.0, 0.4, 0.8];

/// The logarithm of the likelihood of standardised values, for kernels that differ little from each other.
#[derive(Debug)]
struct Likelihood<'a> {
    points: &'a [Coordinates],
    values: &'a [f64],
    /// Points side by side, [`LANES`] at a time.
    groups: Vec<Vec<Lanes>>,
    /// Distances D between each point up to the end of a group and the group's points, under the kernel so far.
    distances: Vec<Vec<Lanes>>,
    /// What one evaluation computes in.
    columns: Vec<Lanes>,
}

impl<'a> Likelihood<'a> {
    fn of(points: &'a [Coordinates], values: &'a [f64], weights: &[f64]) -> Self {
        let groups: Vec<Vec<Lanes>> = points.chunks(LANES).map(side_by_side).collect();
        let mut likelihood = Self { points, values, groups, distances: Vec::new(), columns: Vec::new() };
        likelihood.set_weights(weights);
        likelihood
    }

    fn set_weights(&mut self, weights: &[f64]) {
        let of_group = |(number, group): (usize, &Vec<Lanes>)| {
            let until = ((number + 1) * LANES).min(self.points.len());
            self.points[..until].iter().map(|point| distances(weights, &point.0, group)).collect()
        };
        self.distances = self.groups.iter().enumerate().map(of_group).collect();
    }

    /// Changes the weight of one gene by so much.
    fn shift(&self, group: usize, row: usize, gene: usize, by: f64) -> Lanes {
        let (line, at) = (&self.groups[group][gene], self.points[row].0[gene]);
        let from = &self.distances[group][row];
        std::array::from_fn(|lane| from[lane] + by * mismatch(line[lane], at))
    }

    fn accept(&mut self, gene: usize, by: f64) {
        for group in 0..self.groups.len() {
            let shifted: Vec<Lanes> =
                (0..self.distances[group].len()).map(|row| self.shift(group, row, gene, by)).collect();
            self.distances[group] = shifted;
        }
    }

    /// Under a kernel whose weights are those of `distances`, but for a gene whose weight differs by so much.
    fn under(&mut self, kernel: &Kernel, change: Option<(usize, f64)>) -> f64 {
        let mut factor = Factor::default();
        let mut columns = std::mem::take(&mut self.columns);
        for (group, distances) in self.distances.iter().enumerate() {
            columns.clear();
            match change {
                None => columns.extend_from_slice(distances),
                Some((gene, by)) => {
                    columns.extend((0..distances.len()).map(|row| self.shift(group, row, gene, by)));
                }
            }
            kernel.similarity(&mut columns);
            let first = group * LANES;
            let count = distances.len() - first;
            (0..count).for_each(|lane| columns[first + lane][lane] += kernel.noise);
            factor.extend(&mut columns, count);
        }
        self.columns = columns;
        let residual: f64 = factor.solve_one(self.values).iter().map(|value| value * value).sum();
        let likelihood = -0.5 * residual - factor.log_diagonal();
        if likelihood.is_finite() { likelihood } else { f64::NEG_INFINITY }
    }
}

/// The best kernel of a coarse grid, for a first guess.
pub(super) fn first_fit(points: &[Coordinates], values: &[f64], genes: usize) -> Kernel {
    let guess = |weight: f64, noise, additive| Kernel { weights: vec![weight; genes], noise, additive };
    let mut best = (f64::NEG_INFINITY, guess(WEIGHTS[2], NOISES[1], ADDITIVES[1]));
    let mut likelihood = Likelihood::of(points, values, &best.1.weights);
    for weight in WEIGHTS {
        likelihood.set_weights(&vec![weight; genes]);
        for (noise, additive) in NOISES.into_iter().flat_map(|noise| ADDITIVES.map(|part| (noise, part))) {
            let kernel = guess(weight, noise, additive);
            let found = likelihood.under(&kernel, None);
            if found > best.0 {
                best = (found, kernel);
            }
        }
    }
    best.1
}

/// Changes one number of a kernel after the other, at random, and keeps what makes the values more likely.
pub(super) fn improve(
    kernel: &mut Kernel,
    points: &[Coordinates],
    values: &[f64],
    steps: usize,
    dice: &mut Dice,
) {
    let mut likelihood = Likelihood::of(points, values, &kernel.weights);
    let mut best = likelihood.under(kernel, None);
    let genes = kernel.weights.len();
    for _ in 0..steps {
        let mut tried = kernel.clone();
        let (which, up) = (dice.below(genes + 2), dice.chance(0.5));
        let mut change = None;
        if let Some(weight) = tried.weights.get_mut(which) {
            let before = *weight;
            *weight = (before * if up { 1.6 } else { 0.6 }).clamp(0.01, 4.0);
            change = Some((which, *weight - before));
        } else if which == genes {
            tried.noise = (tried.noise * if up { 2.5 } else { 0.4 }).clamp(1e-4, 0.5);
        } else {
            tried.additive = (tried.additive + if up { 0.2 } else { -0.2 }).clamp(0.0, 0.8);
        }
        let found = likelihood.under(&tried, change);
        if found > best {
            best = found;
            *kernel = tried;
            if let Some((gene, by)) = change {
                likelihood.accept(gene, by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Seed;

    fn points(count: usize, genes: usize, dice: &mut Dice) -> Vec<Coordinates> {
        (0..count).map(|_| Coordinates((0..genes).map(|_| dice.below(5) as f64 / 4.0).collect())).collect()
    }

    #[test]
    fn likelihood_is_that_of_the_normal_distribution() {
        let mut dice = Dice::new(Seed(1));
        let points = vec![Coordinates(vec![0.0]), Coordinates(vec![0.5])];
        let kernel = Kernel { weights: vec![2.0], noise: 0.1, additive: 0.0 };
        let mut likelihood = Likelihood::of(&points, &[0.3, -0.8], &kernel.weights);
        let (diagonal, other) = (1.1_f64, (-1.0_f64).exp());
        let determinant = diagonal * diagonal - other * other;
        let quadratic = (diagonal * (0.09 + 0.64) - 2.0 * other * 0.3 * -0.8) / determinant;
        let wanted = -0.5 * quadratic - 0.5 * determinant.ln();
        assert!((likelihood.under(&kernel, None) - wanted).abs() < 1e-12);
        // A changed weight gives what that weight gives at once.
        let many = self::points(37, 3, &mut dice);
        let values: Vec<f64> = (0..37).map(|_| dice.unit() - 0.5).collect();
        let kernel = Kernel { weights: vec![0.5, 1.0, 2.0], noise: 0.01, additive: 0.4 };
        let mut changed = kernel.clone();
        changed.weights[1] = 0.25;
        let mut likelihood = Likelihood::of(&many, &values, &kernel.weights);
        let found = likelihood.under(&changed, Some((1, -0.75)));
        let wanted = Likelihood::of(&many, &values, &changed.weights).under(&changed, None);
        assert!((found - wanted).abs() < 1e-9);
        likelihood.accept(1, -0.75);
        assert!((likelihood.under(&changed, None) - wanted).abs() < 1e-9);
    }

    #[test]
    fn genes_that_matter_get_weight() {
        let mut dice = Dice::new(Seed(2));
        let points = points(80, 4, &mut dice);
        let raw: Vec<f64> = points.iter().map(|at| (4.0 * at.0[2]).sin() + 0.01 * dice.unit()).collect();
        let mean = raw.iter().sum::<f64>() / 80.0;
        let deviation = (raw.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 80.0).sqrt();
        let values: Vec<f64> = raw.iter().map(|value| (value - mean) / deviation).collect();
        let mut kernel = first_fit(&points, &values, 4);
        improve(&mut kernel, &points, &values, 120, &mut dice);
        let least = [0, 1, 3].map(|gene| kernel.weights[gene]).into_iter().fold(0.0, f64::max);
        assert!(kernel.weights[2] > 5.0 * least, "{kernel:?}");
        assert!(kernel.noise <= 1e-2, "{kernel:?}");
    }
}
