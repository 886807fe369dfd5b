use crate::cuts::Lane;
use crate::cuts::label::{Counter, Label};
use crate::evaluate::{Problem, StageRange};
use crate::search::Patience;

/// Calls `visit` with all cuts of a lane that take at most `limit`. Stops and returns false when `visit` returns false
/// or patience is over.
pub(crate) fn all(
    problem: &Problem<'_>,
    lane: Lane<'_>,
    limit: f64,
    patience: &mut Patience<'_>,
    visit: &mut dyn FnMut(Vec<StageRange>) -> bool,
) -> bool {
    if lane.nodes.len() > problem.end() {
        return true;
    }
    let counter = Counter::new(problem, lane);
    let ways = counter.ways_before();
    let mut walk = CutWalk { counter, ways, limit, parts: Vec::new(), patience, visit };
    walk.stage(lane.nodes.len() - 1, problem.end(), &Label::default())
}

struct CutWalk<'a, 'k> {
    counter: Counter<'a>,
    ways: Vec<Vec<f64>>,
    limit: f64,
    /// From the last stage to the first.
    parts: Vec<StageRange>,
    patience: &'a mut Patience<'k>,
    visit: &'a mut dyn FnMut(Vec<StageRange>) -> bool,
}

impl CutWalk<'_, '_> {
    /// Puts this stage, and then the stages before it, in front of what begins at `to`.
    fn stage(&mut self, stage: usize, to: usize, behind: &Label) -> bool {
        let starts = if stage == 0 { 0..1 } else { stage..to };
        for from in starts.rev() {
            // Also for cuts that are not visited: nearly all may be too slow.
            if !self.patience.lasts_for_one() {
                return false;
            }
            let Some(label) = self.counter.before(stage, from, to, behind) else { break };
            if self.counter.at_least(&label, self.ways[stage][from]) > self.limit {
                continue;
            }
            self.parts.push(StageRange { node: self.counter.lane.nodes[stage], from, to });
            let on = if stage == 0 {
                let mut parts = self.parts.clone();
                parts.reverse();
                (self.visit)(parts)
            } else {
                self.stage(stage - 1, from, &label)
            };
            self.parts.pop();
            if !on {
                return false;
            }
        }
        true
    }
}
