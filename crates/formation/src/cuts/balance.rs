use crate::cuts::Lane;
use crate::evaluate::{Problem, StageRange, pipeline_seconds};

/// Bisection steps for the time of the slowest stage.
const HALVINGS: usize = 24;

/// Cuts that minimise the longest computing time of a stage, ignoring links; `None` if the model does not fit.
pub(crate) fn balanced(problem: &Problem<'_>, lane: Lane<'_>) -> Option<Vec<StageRange>> {
    if lane.nodes.len() > problem.end() {
        return None;
    }
    let all = problem.work_before(problem.end(), lane.micro_batches, lane.m);
    let speeds = lane.nodes.iter().map(|n| problem.pool.nodes[*n].speed);
    let mut low = all / speeds.clone().sum::<f64>();
    let mut high = all / speeds.fold(f64::INFINITY, f64::min);
    let mut found = packed(problem, lane, high)?;
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        match packed(problem, lane, middle) {
            Some(parts) => (high, found) = (middle, parts),
            None => low = middle,
        }
        if high - low < high * 1e-4 {
            break;
        }
    }
    Some(found)
}

/// Gives every node as much as it can take within `limit` seconds and its memory.
fn packed(problem: &Problem<'_>, lane: Lane<'_>, limit: f64) -> Option<Vec<StageRange>> {
    let count = lane.nodes.len();
    let (mut parts, mut from) = (Vec::with_capacity(count), 0);
    for (s, node) in lane.nodes.iter().enumerate() {
        let last = problem.end() - (count - s - 1);
        let kept = problem.kept(count - s, lane.micro_batches);
        let enough = limit * problem.pool.nodes[*node].speed * (1.0 + 1e-12);
        let before = problem.work_before(from, lane.micro_batches, lane.m);
        let takes = |to: usize| {
            let work = problem.work_before(to, lane.micro_batches, lane.m) - before;
            work <= enough && problem.fits(*node, from, to, kept, lane.m)
        };
        let to = farthest(from, last, takes)?;
        parts.push(StageRange { node: *node, from, to });
        from = to;
    }
    (from == problem.end()).then_some(parts)
}

/// The largest place in `from + 1 ..= last` for which `takes` holds.
fn farthest(from: usize, last: usize, takes: impl Fn(usize) -> bool) -> Option<usize> {
    if from >= last || !takes(from + 1) {
        return None;
    }
    let (mut low, mut high) = (from + 1, last + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if takes(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

/// Moves each cut to a neighbouring place while that makes the replica faster.
pub(crate) fn shifted(problem: &Problem<'_>, lane: Lane<'_>, mut parts: Vec<StageRange>) -> Vec<StageRange> {
    let mut time = pipeline_seconds(problem, &parts, lane.micro_batches, lane.m);
    for _ in 0..2 {
        let mut better = false;
        for cut in 1..parts.len() {
            for by in [-1isize, 1] {
                let from = parts[cut].from;
                while shift(problem, lane, &mut parts, cut, by) {
                    let after = pipeline_seconds(problem, &parts, lane.micro_batches, lane.m);
                    if after >= time * (1.0 - 1e-9) {
                        let back = parts[cut].from.wrapping_add_signed(-by);
                        place(&mut parts, cut, back);
                        break;
                    }
                    time = after;
                }
                better |= parts[cut].from != from;
            }
        }
        if !better {
            break;
        }
    }
    parts
}

fn place(parts: &mut [StageRange], cut: usize, at: usize) {
    (parts[cut - 1].to, parts[cut].from) = (at, at);
}

/// Moves one cut, if everything still fits.
fn shift(problem: &Problem<'_>, lane: Lane<'_>, parts: &mut [StageRange], cut: usize, by: isize) -> bool {
    let before = parts[cut].from;
    let to = before.wrapping_add_signed(by);
    if to <= parts[cut - 1].from || to >= parts[cut].to {
        return false;
    }
    place(parts, cut, to);
    let fits = |s: usize| {
        let kept = problem.kept(parts.len() - s, lane.micro_batches);
        problem.fits(parts[s].node, parts[s].from, parts[s].to, kept, lane.m)
    };
    let both = fits(cut - 1) && fits(cut);
    if !both {
        place(parts, cut, before);
    }
    both
}
