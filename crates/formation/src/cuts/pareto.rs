//! The best cuts by dynamic programming, from the last stage to the first.
//!
//! For every number of last stages and every place where they may begin, all Pareto-optimal labels are kept. Stages put
//! in front never make a better label worse, so the best replica is among the labels that are left.

use crate::cuts::Lane;
use crate::cuts::label::{Counter, Label};
use crate::evaluate::{Problem, StageRange};
use crate::search::Patience;

/// The labels kept per place where speed matters more than certainty.
const FEW_LABELS: usize = 6;

#[derive(Debug, Clone, Copy)]
struct FrontEntry {
    label: Label,
    /// Where the first of these stages ends, and the index of its successor entry.
    to: usize,
    next: usize,
}

/// The fastest cuts of a lane and their time, if they take at most `limit`.
pub(crate) fn best(problem: &Problem<'_>, lane: Lane<'_>, limit: f64) -> Option<(f64, Vec<StageRange>)> {
    among(problem, lane, limit, usize::MAX)
}

/// Like [`best`], but keeps only a few labels for each place: fast for large models too, and nearly as good.
pub(crate) fn nearly_best(
    problem: &Problem<'_>,
    lane: Lane<'_>,
    limit: f64,
) -> Option<(f64, Vec<StageRange>)> {
    among(problem, lane, limit, FEW_LABELS)
}

/// Whether there are cuts that take at most `limit`. False if patience ends first.
pub(crate) fn within(problem: &Problem<'_>, lane: Lane<'_>, limit: f64, patience: &mut Patience<'_>) -> bool {
    let found = fronts(problem, lane, limit, (true, usize::MAX), patience);
    let counter = Counter::new(problem, lane);
    found.is_some_and(|all| all[0][0].iter().any(|e| counter.seconds(&e.label) <= limit))
}

fn among(problem: &Problem<'_>, lane: Lane<'_>, limit: f64, most: usize) -> Option<(f64, Vec<StageRange>)> {
    let found = fronts(problem, lane, limit, (true, most), &mut Patience::new(&mut || true))?;
    let counter = Counter::new(problem, lane);
    let times = found[0][0].iter().map(|e| counter.seconds(&e.label)).enumerate();
    let (index, time) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (time <= limit).then(|| (time, walk(&found, lane, index)))
}

/// Cuts that include the best ones for any objective that grows with time, hosts' work and moving, if labels
/// [`tell_all`](crate::cuts::tell_all). Empty if patience ends first.
pub(crate) fn candidates(
    problem: &Problem<'_>,
    lane: Lane<'_>,
    limit: f64,
    patience: &mut Patience<'_>,
) -> Vec<Vec<StageRange>> {
    let Some(found) = fronts(problem, lane, limit, (false, usize::MAX), patience) else { return Vec::new() };
    (0..found[0][0].len()).map(|index| walk(&found, lane, index)).collect()
}

type Fronts = Vec<Vec<Vec<FrontEntry>>>;

/// By stage and place, the entries that begin there; `None` if there are too few places, or patience ends.
fn fronts(
    problem: &Problem<'_>,
    lane: Lane<'_>,
    limit: f64,
    (only_time, most): (bool, usize),
    patience: &mut Patience<'_>,
) -> Option<Fronts> {
    let (count, end) = (lane.nodes.len(), problem.end());
    if count > end {
        return None;
    }
    let counter = Counter::new(problem, lane);
    let ways = counter.ways_before();
    let mut all: Fronts = vec![vec![Vec::new(); end + 1]; count];
    for stage in (0..count).rev() {
        let starts = if stage == 0 { 0..1 } else { stage..end - (count - stage) + 1 };
        for from in starts {
            let way = ways[stage][from];
            if way.is_infinite() {
                continue;
            }
            let mut front = Vec::new();
            let ends = if stage + 1 == count { end..end + 1 } else { from + 1..end };
            for to in ends {
                if !patience.lasts_for_one() {
                    return None;
                }
                let mut add = |behind: &Label, next: usize| {
                    let Some(mut label) = counter.before(stage, from, to, behind) else { return false };
                    if only_time {
                        label.moving = [0.0; 2];
                    }
                    if counter.at_least(&label, way) <= limit {
                        keep(&mut front, FrontEntry { label, to, next });
                    }
                    true
                };
                if stage + 1 == count {
                    add(&Label::default(), 0);
                    continue;
                }
                let fits = all[stage + 1][to].iter().enumerate().all(|(next, e)| add(&e.label, next));
                if !fits {
                    break;
                }
            }
            if front.len() > most {
                front.sort_by(|a, b| counter.seconds(&a.label).total_cmp(&counter.seconds(&b.label)));
                front.truncate(most);
            }
            all[stage][from] = front;
        }
    }
    Some(all)
}

/// Adds an entry unless another one is no worse, and drops the entries that it beats.
fn keep(front: &mut Vec<FrontEntry>, entry: FrontEntry) {
    if front.iter().any(|e| e.label.no_worse(&entry.label)) {
        return;
    }
    front.retain(|e| !entry.label.no_worse(&e.label));
    front.push(entry);
}

fn walk(fronts: &Fronts, lane: Lane<'_>, mut index: usize) -> Vec<StageRange> {
    let (mut parts, mut from) = (Vec::with_capacity(lane.nodes.len()), 0);
    for (stage, node) in lane.nodes.iter().enumerate() {
        let entry = fronts[stage][from][index];
        parts.push(StageRange { node: *node, from, to: entry.to });
        (from, index) = (entry.to, entry.next);
    }
    parts
}
