//! The reasons for a plan, found by trying alternatives.

mod choices;
mod left_out;

use crate::evaluate::Problem;
use crate::search::{Builder, Change, Found, Patience, better, changed, smallest_part};
use crate::{Choice, LeftOut, ModelCost, Options, Pool, WhyLeftOut};

/// Up to this many replicas each one is examined.
const FEW: usize = 4;
/// Up to this many nodes every reason is searched for thoroughly.
const SMALL: usize = 16;
/// A formation that is faster by less than this, in percent, does not count as better.
const NOISE: f64 = 0.1;

impl Pool {
    /// The nodes that have less memory than any part of the model needs, each with the reason.
    pub fn too_small(&self, model: &ModelCost, options: &Options) -> Vec<LeftOut> {
        // Models and pools that cannot be planned have other faults.
        let Ok(problem) = Problem::new(model, self, options) else { return Vec::new() };
        let needs = smallest_part(&problem);
        let small = self.nodes.iter().enumerate().filter(|(_, node)| node.memory < needs);
        let why = |has| WhyLeftOut::TooSmall { has, needs };
        small.map(|(node, has)| LeftOut { node, why: why(has.memory) }).collect()
    }
}

/// What may be done to find reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trying {
    /// Alternatives are tried, and adopted where they are better.
    Improve,
    /// Alternatives are only tried.
    Look,
    /// Only reasons that are known without trying.
    Nothing,
}

/// Why a formation is as it is.
#[derive(Debug)]
pub(crate) struct Reasons {
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) choices: Vec<Choice>,
    /// A formation that turned out to be better. The reasons do not apply to it.
    pub(crate) better: Option<Found>,
}

/// Why each unused node holds nothing, and why the plan has these numbers of replicas, stages and micro-batches.
pub(crate) fn reasons(
    builder: &mut Builder<'_>,
    found: &Found,
    patience: &mut Patience<'_>,
    trying: Trying,
) -> Reasons {
    let mut tries = Tries { builder, found: found.clone(), patience, trying, better: None, improved: false };
    let left_out = left_out::left_out(&mut tries);
    let choices = if tries.improved { Vec::new() } else { choices::choices(&mut tries) };
    tries.take_better();
    Reasons { left_out, choices, better: tries.improved.then_some(tries.found) }
}

/// Tries other formations, and remembers the best of those that are better.
struct Tries<'a, 'p, 'k> {
    builder: &'a mut Builder<'p>,
    found: Found,
    patience: &'a mut Patience<'k>,
    trying: Trying,
    better: Option<Found>,
    improved: bool,
}

impl<'p> Tries<'_, 'p, '_> {
    fn problem(&self) -> &'p Problem<'p> {
        self.builder.problem
    }

    fn is_small(&self) -> bool {
        self.problem().pool.nodes.len() <= SMALL
    }

    /// Whether there is effort left to try alternatives.
    fn may_try(&mut self) -> bool {
        self.trying != Trying::Nothing && self.patience.lasts()
    }

    /// By how many percent a step takes longer with a change, if the model still fits.
    fn with(&mut self, change: &Change, recut: bool) -> Option<f64> {
        let formation = changed(self.builder, &self.found, change)?;
        let other = self.builder.evaluate(formation)?;
        let other = if recut { self.builder.recut(other) } else { other };
        Some(self.slower(other))
    }

    /// By how many percent a step takes longer with another formation.
    fn slower(&mut self, other: Found) -> f64 {
        let percent = (other.total() / self.found.total() - 1.0) * 100.0;
        if percent < -NOISE && self.trying == Trying::Improve {
            self.better = better(self.better.take(), Some(other));
        }
        percent
    }

    /// Continues with the best formation seen, if it is better.
    fn take_better(&mut self) -> bool {
        let Some(better) = self.better.take() else { return false };
        (self.found, self.improved) = (better.in_order(), true);
        true
    }
}
