//! Small networks that are trained on the same results from different beginnings: where they disagree, nothing is known.

use super::network::{Adam, Network};
use crate::core::dice::Dice;
use phalanx_types::Seed;

/// Results of one training step.
const STEP_RESULTS: usize = 16;

/// The size of an ensemble and how long it is trained.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Training {
    pub(super) networks: usize,
    /// Hidden layers of each network.
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) steps: usize,
}

/// What is expected of one objective, and how far the networks differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Predicted {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// Subtracts the mean of a column and divides by its deviation.
#[derive(Debug, Clone, Copy)]
struct Scale {
    mean: f64,
    deviation: f64,
}

#[derive(Debug)]
pub(super) struct Ensemble {
    networks: Vec<Network>,
    inputs: Vec<Scale>,
    targets: Vec<Scale>,
}

impl Ensemble {
    /// The same ensemble for the same results: the beginnings are numbered, not drawn.
    pub(super) fn train(training: &Training, inputs: &[Vec<f64>], targets: &[Vec<f64>]) -> Self {
        let (input_scales, target_scales) = (scales(inputs), scales(targets));
        let inputs: Vec<Vec<f32>> = inputs.iter().map(|row| standardise(&input_scales, row)).collect();
        let targets: Vec<Vec<f32>> = targets.iter().map(|row| standardise(&target_scales, row)).collect();
        let mut widths = vec![input_scales.len()];
        widths.extend(std::iter::repeat_n(training.width, training.layers));
        widths.push(target_scales.len());
        let networks = (0..training.networks)
            .map(|number| {
                let mut dice = Dice::of(Seed(0), "ensemble", number as u64);
                let mut network = Network::new(&widths, &mut dice);
                fit(&mut network, training.steps, &inputs, &targets, &mut dice);
                network
            })
            .collect();
        Self { networks, inputs: input_scales, targets: target_scales }
    }

    pub(super) fn predict(&self, input: &[f64]) -> Vec<Predicted> {
        let input = standardise(&self.inputs, input);
        let outputs: Vec<Vec<f32>> = self.networks.iter().map(|network| network.output(&input)).collect();
        let predict = |(objective, scale): (usize, &Scale)| {
            let column = outputs.iter().filter_map(|output| output.get(objective)).map(|&v| f64::from(v));
            let Scale { mean, deviation } = Scale::of(column);
            Predicted { mean: scale.mean + mean * scale.deviation, deviation: deviation * scale.deviation }
        };
        self.targets.iter().enumerate().map(predict).collect()
    }
}

fn fit(network: &mut Network, steps: usize, inputs: &[Vec<f32>], targets: &[Vec<f32>], dice: &mut Dice) {
    let mut adam = Adam::new(network);
    let mut order: Vec<usize> = Vec::new();
    for _ in 0..steps {
        if order.len() < STEP_RESULTS.min(inputs.len()) {
            order = (0..inputs.len()).collect();
            dice.shuffle(&mut order);
        }
        let chosen = order.split_off(order.len().saturating_sub(STEP_RESULTS));
        let results: Vec<_> = chosen.iter().map(|&i| (&inputs[i][..], &targets[i][..])).collect();
        adam.step(network, &results);
    }
}

impl Scale {
    /// The mean and the standard deviation; 0 for columns of one value.
    fn of(column: impl Iterator<Item = f64> + Clone) -> Self {
        let count = column.clone().count().max(1) as f64;
        let mean = column.clone().sum::<f64>() / count;
        let variance = column.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Self { mean, deviation: variance.sqrt() }
    }
}

fn scales(rows: &[Vec<f64>]) -> Vec<Scale> {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns)
        .map(|column| Scale::of(rows.iter().filter_map(move |row| row.get(column).copied())))
        .collect()
}

/// A column in which all results were equal says nothing of them, whatever a candidate has there.
fn standardise(scales: &[Scale], row: &[f64]) -> Vec<f32> {
    let scaled = |(scale, value): (&Scale, &f64)| match scale.deviation > 0.0 {
        true => ((value - scale.mean) / scale.deviation) as f32,
        false => 0.0,
    };
    scales.iter().zip(row).map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ensemble_learns_and_is_less_sure_far_from_what_it_saw() {
        let training = Training { networks: 4, layers: 2, width: 16, steps: 300 };
        let inputs: Vec<Vec<f64>> =
            (0..64).map(|i| vec![f64::from(i % 8) * 16.0, f64::from(i / 8), 3.0]).collect();
        let truth = |row: &[f64]| vec![1000.0 + row[0] * row[1], -row[1]];
        let targets: Vec<Vec<f64>> = inputs.iter().map(|row| truth(row)).collect();
        let ensemble = Ensemble::train(&training, &inputs, &targets);
        let spread = Scale::of(targets.iter().map(|row| row[0])).deviation;
        for row in &inputs {
            let predicted = ensemble.predict(row);
            assert!((predicted[0].mean - truth(row)[0]).abs() < 0.5 * spread, "{row:?}: {predicted:?}");
            assert!((predicted[1].mean - truth(row)[1]).abs() < 1.0, "{row:?}: {predicted:?}");
        }
        let far = ensemble.predict(&[1000.0, -60.0, 3.0]);
        assert!(far[0].deviation > 2.0 * ensemble.predict(&inputs[27])[0].deviation);
        let again = Ensemble::train(&training, &inputs, &targets);
        assert_eq!(again.predict(&inputs[5]), ensemble.predict(&inputs[5]));
    }

    #[test]
    fn one_result_and_equal_results_are_enough() {
        let training = Training { networks: 2, layers: 1, width: 4, steps: 5 };
        for count in [1, 3] {
            let ensemble = Ensemble::train(&training, &vec![vec![1.0]; count], &vec![vec![7.0]; count]);
            assert_eq!(ensemble.predict(&[1.0]), [Predicted { mean: 7.0, deviation: 0.0 }]);
        }
    }
}
