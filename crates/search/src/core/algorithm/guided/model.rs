//! What results let expect of an objective: a Gaussian process over candidates.

use super::factor::{Factor, LANES, Lanes};
use super::kernel::{Coordinates, Kernel, side_by_side};

/// A factor that is kept from one choice to the next, and what it is the factor of.
#[derive(Debug, Default)]
pub(super) struct Kept {
    kernel: Option<Kernel>,
    points: Vec<Coordinates>,
    factor: Factor,
}

impl Kept {
    /// Makes it the factor of these points under this kernel. What the points have in common with those before, from
    /// the first one on, need not be computed again.
    fn update(&mut self, kernel: &Kernel, points: &[Coordinates]) {
        let same = self.kernel.as_ref() == Some(kernel);
        let common = self.points.iter().zip(points).take_while(|(a, b)| same && a == b).count();
        self.factor.truncate(common);
        self.points.truncate(common);
        self.kernel = Some(kernel.clone());
        self.extend(&points[common..]);
    }

    fn extend(&mut self, points: &[Coordinates]) {
        let Some(kernel) = &self.kernel else { return };
        let mut columns = Vec::new();
        for group in points.chunks(LANES) {
            let first = self.points.len();
            self.points.extend_from_slice(group);
            kernel.similarities(&self.points, &side_by_side(group), &mut columns);
            (0..group.len()).for_each(|lane| columns[first + lane][lane] += kernel.noise);
            self.factor.extend(&mut columns, group.len());
        }
    }
}

/// The mean and the standard deviation of a value that is standardised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// The model of one objective for one choice.
#[derive(Debug)]
pub(super) struct Model<'a> {
    kept: &'a mut Kept,
    /// L⁻¹ y.
    explained: Vec<f64>,
    sides: Vec<Lanes>,
}

impl<'a> Model<'a> {
    /// `values` are standardised. Pending points count as results with the value that the others let expect: they make
    /// the model more certain around them, and change no mean.
    pub(super) fn of(kernel: &Kernel, kept: &'a mut Kept, points: &[Coordinates], values: &[f64]) -> Self {
        kept.update(kernel, points);
        let explained = kept.factor.solve_one(values);
        Self { kept, explained, sides: Vec::new() }
    }

    /// Believes in the predictions of these points; gives them.
    pub(super) fn believe(&mut self, pending: &[Coordinates]) -> Vec<Prediction> {
        let predictions: Vec<Prediction> =
            pending.chunks(LANES).flat_map(|group| self.predict(group)).collect();
        self.kept.extend(pending);
        // What such a point adds to L⁻¹ y is its value less what the others let expect: nothing.
        self.explained.resize(self.kept.factor.rows(), 0.0);
        predictions
    }

    /// Of up to [`LANES`] candidates.
    pub(super) fn predict(&mut self, group: &[Coordinates]) -> Vec<Prediction> {
        let Kept { kernel: Some(kernel), points, factor } = &*self.kept else { return Vec::new() };
        kernel.similarities(points, &side_by_side(group), &mut self.sides);
        factor.solve(&mut self.sides);
        let (mut mean, mut known) = ([0.0; LANES], [0.0; LANES]);
        for (line, value) in self.sides.iter().zip(&self.explained) {
            for lane in 0..LANES {
                mean[lane] += line[lane] * value;
                known[lane] += line[lane] * line[lane];
            }
        }
        let of_lane = |lane: usize| Prediction {
            mean: mean[lane],
            deviation: ((1.0 - known[lane]).max(0.0) + kernel.noise).sqrt(),
        };
        (0..group.len()).map(of_lane).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dice::Dice;
    use phalanx_types::Seed;

    fn points(count: usize, dice: &mut Dice) -> Vec<Coordinates> {
        (0..count).map(|_| Coordinates((0..4).map(|_| dice.below(6) as f64 / 5.0).collect())).collect()
    }

    #[test]
    fn results_are_predicted_and_what_is_far_is_not() {
        let mut dice = Dice::new(Seed(1));
        let points = points(40, &mut dice);
        let values: Vec<f64> = points.iter().map(|at| at.0[0] + at.0[1] - 1.0).collect();
        let kernel = Kernel { weights: vec![1.0, 1.0, 0.01, 0.01], noise: 1e-4, additive: 0.6 };
        let mut kept = Kept::default();
        let mut model = Model::of(&kernel, &mut kept, &points, &values);
        for (group, wanted) in points.chunks(8).zip(values.chunks(8)) {
            for (prediction, wanted) in model.predict(group).iter().zip(wanted) {
                assert!((prediction.mean - wanted).abs() < 0.05, "{prediction:?}, not {wanted}");
                assert!(prediction.deviation < 0.05, "{prediction:?}");
            }
        }
        let far = model.predict(&[Coordinates(vec![-2.0; 4])]);
        assert!(far[0].deviation > 0.3, "{far:?}");
    }

    #[test]
    fn a_kept_factor_changes_nothing() {
        let mut dice = Dice::new(Seed(2));
        let points = points(50, &mut dice);
        let values: Vec<f64> = points.iter().map(|at| at.0[0] * at.0[3] + 0.1 * dice.unit()).collect();
        let kernel = Kernel { weights: vec![0.5; 4], noise: 1e-3, additive: 0.4 };
        let pending = &points[44..47];
        let ask = |kept: &mut Kept, count: usize| {
            let mut model = Model::of(&kernel, kept, &points[..count], &values[..count]);
            let believed = model.believe(pending);
            (believed, model.predict(&points[40..48]))
        };
        let mut kept = Kept::default();
        for count in [20, 23, 22, 40] {
            assert_eq!(ask(&mut kept, count), ask(&mut Kept::default(), count));
        }
        let (believed, after) = ask(&mut kept, 30);
        assert!(after[4].deviation < believed[0].deviation);
        assert!((after[4].mean - believed[0].mean).abs() < 1e-9);
    }
}
