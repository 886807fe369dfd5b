//! A plain network: linear layers with ReLU between them, trained by Adam on squared errors.
//!
//! A value that ReLU made 0 neither contributes forward nor gets a gradient backward; both passes skip it.

use crate::core::dice::Dice;

const LEARNING_RATE: f32 = 3e-3;
const FIRST_DECAY: f32 = 0.9;
const SECOND_DECAY: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// Weights stand by input: those of one input to all outputs beside each other.
#[derive(Debug, Clone)]
struct Layer {
    outputs: usize,
    weights: Vec<f32>,
    biases: Vec<f32>,
}

#[derive(Debug, Clone)]
pub(super) struct Network {
    layers: Vec<Layer>,
}

impl Network {
    /// Weights as He and others draw them, but uniform; biases 0.
    pub(super) fn new(widths: &[usize], dice: &mut Dice) -> Self {
        let layers = widths.windows(2).map(|pair| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let limit = (6.0 / inputs.max(1) as f64).sqrt();
            let weights = (0..inputs * outputs).map(|_| ((dice.unit() * 2.0 - 1.0) * limit) as f32).collect();
            Layer { outputs, weights, biases: vec![0.0; outputs] }
        });
        Self { layers: layers.collect() }
    }

    pub(super) fn output(&self, input: &[f32]) -> Vec<f32> {
        self.forward(input).pop().unwrap_or_default()
    }

    /// The input, and what comes out of each layer.
    fn forward(&self, input: &[f32]) -> Vec<Vec<f32>> {
        let mut values = Vec::with_capacity(self.layers.len() + 1);
        values.push(input.to_vec());
        for (index, layer) in self.layers.iter().enumerate() {
            let mut output = layer.biases.clone();
            for (&value, weights) in values[index].iter().zip(layer.weights.chunks_exact(layer.outputs)) {
                if value != 0.0 {
                    add_scaled(&mut output, value, weights);
                }
            }
            if index + 1 < self.layers.len() {
                output.iter_mut().for_each(|value| *value = value.max(0.0));
            }
            values.push(output);
        }
        values
    }

    /// Adds the gradient of one result's error to `gradient`, which has this network's form.
    fn backward(&self, values: &[Vec<f32>], mut error: Vec<f32>, gradient: &mut Network) {
        for (index, (layer, gradient)) in self.layers.iter().zip(&mut gradient.layers).enumerate().rev() {
            add_scaled(&mut gradient.biases, 1.0, &error);
            let weights = layer.weights.chunks_exact(layer.outputs);
            let gradients = gradient.weights.chunks_exact_mut(layer.outputs);
            let mut before = vec![0.0; values[index].len()];
            for (((&value, before), weights), gradient) in
                values[index].iter().zip(&mut before).zip(weights).zip(gradients)
            {
                if value != 0.0 {
                    add_scaled(gradient, value, &error);
                    *before = dot(weights, &error);
                }
            }
            error = before;
        }
    }

    fn parameters(&mut self) -> impl Iterator<Item = &mut Vec<f32>> {
        self.layers.iter_mut().flat_map(|layer| [&mut layer.weights, &mut layer.biases])
    }

    fn zeroed(&self) -> Self {
        let mut zeroed = self.clone();
        zeroed.parameters().for_each(|parameters| parameters.fill(0.0));
        zeroed
    }
}

fn add_scaled(to: &mut [f32], factor: f32, values: &[f32]) {
    for (to, &value) in to.iter_mut().zip(values) {
        *to += factor * value;
    }
}

/// Eight sums beside each other, which the compiler turns into wide instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The optimiser and its two running means of a network's gradient.
#[derive(Debug)]
pub(super) struct Adam {
    gradient: Network,
    first: Network,
    second: Network,
    steps: i32,
}

impl Adam {
    pub(super) fn new(network: &Network) -> Self {
        let zeroed = network.zeroed();
        Self { gradient: zeroed.clone(), first: zeroed.clone(), second: zeroed, steps: 0 }
    }

    /// One step down the mean squared error of these (input, target).
    pub(super) fn step(&mut self, network: &mut Network, results: &[(&[f32], &[f32])]) {
        self.gradient.parameters().for_each(|parameters| parameters.fill(0.0));
        for (input, target) in results {
            let values = network.forward(input);
            let Some(output) = values.last() else { continue };
            let share = 2.0 / (results.len() * target.len().max(1)) as f32;
            let error =
                output.iter().zip(*target).map(|(output, target)| share * (output - target)).collect();
            network.backward(&values, error, &mut self.gradient);
        }
        self.steps += 1;
        let first_share = 1.0 - FIRST_DECAY.powi(self.steps);
        let second_share = 1.0 - SECOND_DECAY.powi(self.steps);
        let parameters = network.parameters().flatten();
        let means = self.first.parameters().flatten().zip(self.second.parameters().flatten());
        for ((parameter, gradient), (first, second)) in
            parameters.zip(self.gradient.parameters().flatten()).zip(means)
        {
            *first = FIRST_DECAY * *first + (1.0 - FIRST_DECAY) * *gradient;
            *second = SECOND_DECAY * *second + (1.0 - SECOND_DECAY) * *gradient * *gradient;
            *parameter -=
                LEARNING_RATE * (*first / first_share) / ((*second / second_share).sqrt() + EPSILON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Seed;

    fn error(network: &Network, input: &[f32], target: &[f32]) -> f32 {
        network.output(input).iter().zip(target).map(|(o, t)| (o - t).powi(2)).sum()
    }

    #[test]
    fn gradients_are_those_of_differences() {
        let mut network = Network::new(&[3, 11, 9, 2], &mut Dice::new(Seed(3)));
        let (input, target) = ([0.7, -1.2, 0.4], [0.3, -0.5]);
        let values = network.forward(&input);
        let slope = values[3].iter().zip(&target).map(|(o, t)| 2.0 * (o - t)).collect();
        let mut gradient = network.zeroed();
        network.backward(&values, slope, &mut gradient);
        let expected: Vec<f32> = gradient.parameters().flatten().map(|g| *g).collect();
        assert!(expected.iter().filter(|g| **g != 0.0).count() > 40);
        for (index, expected) in expected.into_iter().enumerate() {
            let mut at = |shift: f32| {
                let moved = |network: &mut Network, by: f32| {
                    network.parameters().flatten().nth(index).into_iter().for_each(|p| *p += by);
                };
                moved(&mut network, shift);
                let value = error(&network, &input, &target);
                moved(&mut network, -shift);
                value
            };
            let difference = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((difference - expected).abs() < 0.02, "{index}: {difference}, not {expected}");
        }
    }

    #[test]
    fn adam_comes_near_to_a_crooked_line() {
        let mut network = Network::new(&[1, 16, 16, 1], &mut Dice::new(Seed(1)));
        let mut adam = Adam::new(&network);
        let points: Vec<([f32; 1], [f32; 1])> =
            (-8..=8).map(|i| ([i as f32 / 4.0], [(i as f32 / 4.0).sin()])).collect();
        let results: Vec<(&[f32], &[f32])> = points.iter().map(|(x, y)| (&x[..], &y[..])).collect();
        let mean = |network: &Network| {
            results.iter().map(|(x, y)| error(network, x, y)).sum::<f32>() / results.len() as f32
        };
        let before = mean(&network);
        (0..400).for_each(|_| adam.step(&mut network, &results));
        assert!(mean(&network) < 0.02 && before > 0.2, "{before}, then {}", mean(&network));
    }
}
