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

/// If nothing is expected to improve the front, the deviations are taken so many times: then what is nearest to an
/// improvement comes first, instead of anything.
const SPREADS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

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

/// The candidates by what they are expected to add to the hypervolume of the front, most first. Of equal ones the first
/// comes first.
pub(super) fn rank(candidates: &[Vec<Outlook>], front: Vec<Vec<f64>>) -> Vec<usize> {
    let Some(objectives) = candidates.first().map(Vec::len) else { return Vec::new() };
    let mut improvement = Improvement::over(&front, &vec![REFERENCE; objectives]);
    let mut outcomes = vec![Vec::new(); objectives];
    let mut gains = Vec::new();
    for spread in SPREADS {
        gains.clear();
        for candidate in candidates {
            for (outlook, outcomes) in candidate.iter().zip(&mut outcomes) {
                outlook.outcomes(spread, outcomes);
            }
            gains.push(improvement.expected(&outcomes));
        }
        if gains.iter().any(|gain| *gain > 0.0) {
            break;
        }
    }
    let mut order: Vec<usize> = (0..candidates.len()).collect();
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
        let order = rank(&candidates, front.clone());
        assert_eq!(order[..2], [1, 2]);
        // Nothing improves this front; the one that is nearest to it comes first, even so.
        let hopeless = [at(2.0, 0.1), at(0.5, 0.1), at(1.0, 0.1)];
        assert_eq!(rank(&hopeless, front)[0], 1);
        assert_eq!(rank(&[], Vec::new()), [0; 0]);
    }
}
