//! Where to cut a replica whose nodes are in a given order.

mod balance;
mod label;
mod pareto;
mod walk;

pub(crate) use balance::{balanced, shifted};
pub(crate) use label::tell_all;
pub(crate) use pareto::{best, candidates, nearly_best, within};
pub(crate) use walk::all;

use crate::evaluate::{Problem, StageRange};

/// A replica's nodes in order, and its micro-batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane<'a> {
    pub(crate) nodes: &'a [usize],
    pub(crate) micro_batches: usize,
    /// Samples of a micro-batch.
    pub(crate) m: usize,
}

/// The most places for which every evaluation finds cuts by dynamic programming.
const FEW_PLACES: usize = 20;
/// The most stages for that.
const FEW_STAGES: usize = 7;

/// Good cuts: optimal ones where these are found quickly, otherwise balanced ones, shifted while that helps.
pub(crate) fn good(problem: &Problem<'_>, lane: Lane<'_>) -> Option<Vec<StageRange>> {
    if lane.nodes.len() == 1 {
        let whole = StageRange { node: lane.nodes[0], from: 0, to: problem.end() };
        let kept = problem.kept(1, lane.micro_batches);
        return problem.fits(whole.node, 0, whole.to, kept, lane.m).then(|| vec![whole]);
    }
    if problem.end() <= FEW_PLACES && lane.nodes.len() <= FEW_STAGES {
        return best(problem, lane, f64::INFINITY).map(|(_, parts)| parts);
    }
    balanced(problem, lane).map(|parts| shifted(problem, lane, parts))
}
