//! How likely a candidate is the same as one that was tried, under other genes.
//!
//! Spaces often describe one network in several ways, and a search that does not know it would try the best networks
//! again and again. Results whose values are all equal to an earlier result's, to the last digit, give it away.

use super::data::Results;
use super::factor::LANES;
use super::kernel::{Coordinates, distances, exp_of_negative, side_by_side};
use crate::core::space::Genes;
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
    /// `None` if no result is a copy.
    pub(super) fn among(results: &Results<'_>, place: impl Fn(&Genes) -> Coordinates) -> Option<Self> {
        let mut before = BTreeSet::new();
        let is_copy =
            |values: &Vec<f64>| !before.insert(values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        let copies: Vec<bool> = results.scaled.iter().map(is_copy).collect();
        if !copies.contains(&true) {
            return None;
        }
        let tried: Vec<(Coordinates, bool)> =
            results.genes.iter().map(|genes| place(genes)).zip(copies).collect();
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
