//! Where to cut a replica whose nodes stand in a given order.

mod balance;
mod label;
mod pareto;
mod walk;

pub(crate) use balance::{balanced, shifted};
pub(crate) use label::tell_all;
pub(crate) use pareto::{best, candidates, nearly_best, within};
pub(crate) use walk::all;

use crate::evaluate::{Problem, StageRange};

/// A replica's nodes in order, and what they work on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane<'a> {
    pub(crate) nodes: &'a [usize],
    pub(crate) micro_batches: usize,
    /// Samples of a micro-batch.
    pub(crate) m: usize,
}

/// Places of which there may be so many for cuts to be found by dynamic programming in every evaluation.
const FEW_PLACES: usize = 20;
/// Stages, likewise.
const FEW_STAGES: usize = 7;

/// Good cuts: the best ones where that is found quickly, else balanced ones, shifted while that helps.
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
