//! How likely a candidate is the same as one that was tried, under other genes.
//!
//! Spaces often describe one network in several ways, and a search that does not know it would try the best networks
//! again and again. Results whose values are all equal to an earlier result's, to the last digit, give it away.

use super::data::{Data, Results};
use super::factor::LANES;
use super::kernel::{Coordinates, distances, exp_of_negative, side_by_side};
use std::collections::BTreeSet;

/// How fast a result's weight falls with the number of genes that differ.
const SHARPNESS: f64 = 1.5;
/// The weight of assuming that nothing is a copy, as of one result with the same genes but for one.
const PRIOR: f64 = 0.22;

#[derive(Debug)]
pub(super) struct Copies {
    /// What was tried, and whether it was a copy.
    tried: Vec<(Coordinates, bool)>,
    weights: Vec<f64>,
}

impl Copies {
    /// By the results that are modelled. `None` if no result is a copy.
    pub(super) fn among(results: &Results<'_>, data: &Data) -> Option<Self> {
        let mut before = BTreeSet::new();
        let is_copy =
            |values: &Vec<f64>| !before.insert(values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        let copies: Vec<bool> = results.scaled.iter().map(is_copy).collect();
        if !copies.contains(&true) {
            return None;
        }
        let tried: Vec<(Coordinates, bool)> =
            data.points.iter().cloned().zip(data.rows.iter().map(|&row| copies[row])).collect();
        let weights = vec![SHARPNESS; tried.first().map_or(0, |(at, _)| at.0.len())];
        Some(Self { tried, weights })
    }

    /// The chance that each of these is new: by whether what differs from it in few genes was.
    pub(super) fn novelty(&self, places: &[Coordinates]) -> Vec<f64> {
        let mut novelty = Vec::with_capacity(places.len());
        for group in places.chunks(LANES) {
            let side = side_by_side(group);
            let (mut copies, mut all) = ([0.0; LANES], [PRIOR; LANES]);
            for (at, is_copy) in &self.tried {
                let distances = distances(&self.weights, &at.0, &side);
                for lane in 0..LANES {
                    let weight = exp_of_negative(distances[lane]);
                    all[lane] += weight;
                    copies[lane] += if *is_copy { weight } else { 0.0 };
                }
            }
            novelty.extend((0..group.len()).map(|lane| 1.0 - copies[lane] / all[lane]));
        }
        novelty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::algorithm::{History, Observation};
    use crate::core::objective::{Goal, NothingKnown, Objective};
    use crate::core::space::{Activity, Choice, Gene, Genes, Space};

    #[test]
    fn what_is_near_copies_is_less_likely_new() {
        let choices = ["a", "b", "c"].map(|label| Choice { label: label.to_owned(), number: None });
        let gene = |name: &str| Gene {
            name: name.to_owned(),
            choices: choices.to_vec(),
            activity: Activity::Always,
        };
        let space = Space::new(["op1", "op2", "op3", "op4"].map(gene).to_vec()).unwrap();
        let objectives = [Objective { name: "loss".to_owned(), goal: Goal::Min, cheap: false }];
        let result =
            |genes: [u16; 4], value| Observation { genes: Genes(genes.to_vec()), values: vec![value] };
        let mut results = vec![
            result([0, 0, 0, 0], 1.0),
            result([0, 0, 0, 1], 1.0),
            result([0, 0, 1, 0], 1.0),
            result([2, 2, 2, 2], 2.0),
            result([2, 2, 2, 1], 3.0),
        ];
        let place = |genes: &Genes| Coordinates::of(&space, &[false; 4], genes);
        let seen = BTreeSet::new();
        let novelty = |results: &[Observation]| {
            let known = &NothingKnown;
            let history =
                History { space: &space, objectives: &objectives, results, pending: &[], seen: &seen, known };
            let results = Results::of(&history);
            let rows: Vec<usize> = (0..results.genes.len()).collect();
            let copies = Copies::among(&results, &Data::of(&results, &rows, place))?;
            Some(copies.novelty(&[[0, 0, 1, 1], [2, 2, 1, 2]].map(|genes| place(&Genes(genes.to_vec())))))
        };
        let found = novelty(&results).unwrap();
        assert!(found[0] < 0.6 && found[1] > 0.95, "{found:?}");
        results.drain(1..3);
        assert_eq!(novelty(&results), None);
    }
}
