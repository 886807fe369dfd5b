//! Results ordered by the number of their front, and by how lonely they are on it.

use super::Observation;
use crate::core::dice::Dice;
use crate::core::objective::Objective;
use crate::core::pareto;
use crate::core::space::Genes;
use std::cmp::Ordering;

/// A result with its place among others.
#[derive(Debug, Clone)]
pub(super) struct Ranked<'a> {
    pub(super) genes: &'a Genes,
    /// 0: no other result is better in every objective.
    pub(super) rank: usize,
    /// Larger: fewer others are near it on its front.
    pub(super) crowding: f64,
}

impl Ranked<'_> {
    /// Less is better: an earlier front, then more room around it.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank).then(other.crowding.total_cmp(&self.crowding))
    }
}

/// The values of a result, turned so that less is better; `None` if one is missing or not finite, because such a result
/// cannot be compared with others.
pub(super) fn point(objectives: &[Objective], result: &Observation) -> Option<Vec<f64>> {
    let usable = result.values.len() == objectives.len() && result.values.iter().all(|v| v.is_finite());
    usable.then(|| objectives.iter().zip(&result.values).map(|(o, v)| o.lower_is_better(*v)).collect())
}

/// The results that can be compared, in the order in which they came.
pub(super) fn comparable<'a>(
    objectives: &[Objective],
    results: &'a [Observation],
) -> Vec<(&'a Genes, Vec<f64>)> {
    results.iter().filter_map(|result| Some((&result.genes, point(objectives, result)?))).collect()
}

/// All of them with their places, best first.
pub(super) fn rank<'a>(results: &[(&'a Genes, Vec<f64>)]) -> Vec<Ranked<'a>> {
    let points: Vec<Vec<f64>> = results.iter().map(|(_, point)| point.clone()).collect();
    let mut ranked: Vec<Ranked<'a>> = Vec::with_capacity(results.len());
    for (rank, front) in pareto::fronts(&points).iter().enumerate() {
        let crowding = pareto::crowding(&points, front);
        for (&index, &crowding) in front.iter().zip(&crowding) {
            ranked.extend(results.get(index).map(|(genes, _)| Ranked { genes, rank, crowding }));
        }
    }
    ranked.sort_by(Ranked::order);
    ranked
}

/// The better of two random ones.
pub(super) fn tournament<'a, 'g>(of: &'a [Ranked<'g>], dice: &mut Dice) -> Option<&'a Ranked<'g>> {
    let (first, second) = (dice.pick(of)?, dice.pick(of)?);
    Some(if second.order(first) == Ordering::Less { second } else { first })
}
