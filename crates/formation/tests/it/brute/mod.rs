//! The best formation by exhaustive search. Shares only the objective with the planner.

use crate::random::Case;
use phalanx_formation::{Shape, ShapeStage, predict};

/// The lowest score of all formations, if any fits.
pub(crate) fn best(case: &Case) -> Option<f64> {
    let nodes: Vec<usize> = (0..case.pool.nodes.len()).collect();
    let mut sets = Vec::new();
    lists(&nodes, &mut Vec::new(), &mut sets);
    let choices = case.options.micro_batch_choices();
    let wanted = |set: &&Vec<Vec<usize>>| {
        let options = &case.options;
        options.replicas.is_none_or(|r| r == set.len())
            && options.stages.is_none_or(|s| set.iter().all(|list| list.len() == s))
    };
    let mut best: Option<f64> = None;
    for set in sets.iter().filter(wanted) {
        for shape in cut(case, set) {
            for micro_batches in &choices {
                let shape = Shape { replicas: shape.clone(), micro_batches: *micro_batches };
                let Ok(plan) = predict(&case.model, &case.pool, &case.options, &shape) else { continue };
                let score = plan.predicted.score;
                best = Some(best.map_or(score, |b| b.min(score)));
            }
        }
    }
    best
}

/// All sets of lists of different nodes: each next list begins with a larger node than the one before.
fn lists(nodes: &[usize], made: &mut Vec<Vec<usize>>, all: &mut Vec<Vec<Vec<usize>>>) {
    let least = made.last().map_or(0, |list| list[0] + 1);
    for first in nodes.iter().filter(|n| **n >= least) {
        if made.iter().any(|list| list.contains(first)) {
            continue;
        }
        made.push(vec![*first]);
        grow(nodes, made, all);
        made.pop();
    }
}

fn grow(nodes: &[usize], made: &mut Vec<Vec<usize>>, all: &mut Vec<Vec<Vec<usize>>>) {
    all.push(made.clone());
    lists(nodes, made, all);
    let last = made.len() - 1;
    for node in nodes {
        if !made.iter().any(|list| list.contains(node)) {
            made[last].push(*node);
            grow(nodes, made, all);
            made[last].pop();
        }
    }
}

/// A set of lists, cut in every legal way.
fn cut(case: &Case, set: &[Vec<usize>]) -> Vec<Vec<Vec<ShapeStage>>> {
    let mut all = vec![Vec::new()];
    for list in set {
        let mut cuts: Vec<usize> = case.model.cuts.iter().map(|c| c.at).collect();
        cuts.sort_unstable();
        let mut ways = Vec::new();
        stages(list, 0, &cuts, case.model.ops.len(), &mut Vec::new(), &mut ways);
        all = all
            .iter()
            .flat_map(|before: &Vec<Vec<ShapeStage>>| {
                ways.iter().map(move |way| before.iter().cloned().chain([way.clone()]).collect::<Vec<_>>())
            })
            .collect();
    }
    all
}

fn stages(
    list: &[usize],
    from: usize,
    cuts: &[usize],
    end: usize,
    made: &mut Vec<ShapeStage>,
    all: &mut Vec<Vec<ShapeStage>>,
) {
    if let [last] = list {
        let whole = made.iter().cloned().chain([ShapeStage { node: *last, ops: from..end }]);
        all.push(whole.collect());
        return;
    }
    for to in cuts.iter().copied().filter(|c| *c > from) {
        made.push(ShapeStage { node: list[0], ops: from..to });
        stages(&list[1..], to, cuts, end, made, all);
        made.pop();
    }
}
