//! Which of several candidates promises most.

use super::improvement::Improvement;
use super::model::Prediction;
use super::scale::Squash;

/// A little worse than the worst result, so that the ends of a front count.
const REFERENCE: f64 = 1.1;

/// Φ⁻¹((k + ½)/16): sixteen equally likely values of a normal distribution.
const NODES: [f64; 16] = [
    -1.862_731_867_421_651_4,
    -1.318_010_897_303_537_1,
    -1.009_990_169_249_582,
    -0.776_421_761_147_928_2,
    -0.579_132_162_255_556,
    -0.402_250_065_321_725_35,
    -0.237_202_109_328_787_7,
    -0.078_412_412_733_112_2,
    0.078_412_412_733_112_2,
    0.237_202_109_328_787_7,
    0.402_250_065_321_725_35,
    0.579_132_162_255_556,
    0.776_421_761_147_928_2,
    1.009_990_169_249_582,
    1.318_010_897_303_537_1,
    1.862_731_867_421_651_4,
];

/// What an objective of a candidate may become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outlook {
    /// Its share of the objective's range so far.
    Certain(f64),
    /// Standardised.
    Uncertain { prediction: Prediction, squash: Squash },
}

impl Outlook {
    fn outcomes(&self, spread: f64, into: &mut Vec<f64>) {
        into.clear();
        match self {
            Outlook::Certain(value) => into.push(*value),
            Outlook::Uncertain { prediction: Prediction { mean, deviation }, squash } => {
                into.extend(NODES.map(|node| squash.undo(mean + spread * deviation * node)));
            }
        }
    }
}

/// Measures candidates by what they are expected to add to the hypervolume of a front.
#[derive(Debug)]
pub(super) struct Judge {
    improvement: Improvement,
    outcomes: Vec<Vec<f64>>,
    /// All deviations are taken so many times.
    spread: f64,
}

impl Judge {
    pub(super) fn new(front: &[Vec<f64>], objectives: usize) -> Self {
        let improvement = Improvement::over(front, &vec![REFERENCE; objectives]);
        Self { improvement, outcomes: vec![Vec::new(); objectives], spread: 1.0 }
    }

    /// The gain of each. If nothing is expected to improve the front, deviations are doubled for this and later
    /// candidates, up to eight times: then what is nearest to an improvement comes first, instead of anything.
    pub(super) fn first_gains(&mut self, candidates: &[Vec<Outlook>]) -> Vec<f64> {
        loop {
            let gains = self.gains(candidates);
            if self.spread >= 8.0 || gains.iter().any(|gain| *gain > 0.0) {
                return gains;
            }
            self.spread *= 2.0;
        }
    }

    pub(super) fn gains(&mut self, candidates: &[Vec<Outlook>]) -> Vec<f64> {
        let mut gain = |candidate: &Vec<Outlook>| {
            for (outlook, outcomes) in candidate.iter().zip(&mut self.outcomes) {
                outlook.outcomes(self.spread, outcomes);
            }
            self.improvement.expected(&self.outcomes)
        };
        candidates.iter().map(&mut gain).collect()
    }
}

/// Positions by their gain, most first. Of equal ones the first comes first.
pub(super) fn order(gains: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..gains.len()).collect();
    order.sort_by(|&a, &b| gains[b].total_cmp(&gains[a]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_and_less_certain_candidates_come_first() {
        let squash = Squash::of(&[0.0, 0.25, 0.5, 0.75, 1.0]);
        let at = |mean, deviation| {
            let uncertain = Outlook::Uncertain { prediction: Prediction { mean, deviation }, squash };
            vec![uncertain, Outlook::Certain(0.4)]
        };
        let front = vec![vec![0.3, 0.3], vec![0.0, 1.0]];
        let candidates = [at(0.0, 0.1), at(-1.0, 0.1), at(0.0, 1.0), at(0.3, 0.1)];
        let gains = Judge::new(&front, 2).first_gains(&candidates);
        assert_eq!(order(&gains)[..2], [1, 2]);
        // Nothing improves this front; the one that is nearest to it comes first, even so.
        let hopeless = [at(2.0, 0.1), at(0.5, 0.1), at(1.0, 0.1)];
        let mut judge = Judge::new(&front, 2);
        assert_eq!(judge.gains(&hopeless), [0.0; 3]);
        assert_eq!(order(&judge.first_gains(&hopeless))[0], 1);
        assert_eq!(order(&[]), [0; 0]);
    }
}
