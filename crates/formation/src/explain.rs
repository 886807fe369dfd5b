//! The reasons for a plan, found by trying what else could have been.

use crate::evaluate::Problem;
use crate::search::{Builder, Change, Found, changed, genetic, smallest_part};
use crate::{Because, Choice, Effort, LeftOut, ModelCost, Options, Pool, WhyLeftOut};
use std::collections::BTreeSet;

/// Formations that are tried to give reasons.
const TRIES: u64 = 600;
/// Replicas of which each is looked at.
const FEW: usize = 4;
/// Pools of which other numbers of replicas are planned, to say how much slower they are.
const SMALL: usize = 16;

impl Pool {
    /// The nodes that have less memory than any part of the model needs, each with the reason.
    pub fn too_small(&self, model: &ModelCost, options: &Options) -> Vec<LeftOut> {
        // What cannot be planned with has other faults.
        let Ok(problem) = Problem::new(model, self, options) else { return Vec::new() };
        let needs = smallest_part(&problem);
        let small = self.nodes.iter().enumerate().filter(|(_, node)| node.memory < needs);
        let why = |has| WhyLeftOut::TooSmall { has, needs };
        small.map(|(node, has)| LeftOut { node, why: why(has.memory) }).collect()
    }
}

/// Why each node that holds nothing does so.
pub(crate) fn left_out(builder: &mut Builder<'_>, found: &Found) -> Vec<LeftOut> {
    let problem = builder.problem;
    let lists = found.lists();
    let used: BTreeSet<usize> = lists.iter().flatten().copied().collect();
    let tries = if problem.pool.nodes.len() <= SMALL { TRIES } else { TRIES / 6 };
    let end = builder.evaluations + tries;
    let smallest = smallest_part(problem);
    let free = (0..problem.pool.nodes.len()).filter(|n| !used.contains(n));
    free.map(|node| LeftOut { node, why: why_left_out(builder, found, (node, smallest, end)) }).collect()
}

fn why_left_out(
    builder: &mut Builder<'_>,
    found: &Found,
    (node, smallest, end): (usize, u64, u64),
) -> WhyLeftOut {
    let options = builder.problem.options;
    let has = builder.problem.pool.nodes[node].memory;
    if has < smallest {
        return WhyLeftOut::TooSmall { has, needs: smallest };
    }
    if options.stages.is_some() && options.replicas.is_some() {
        return WhyLeftOut::NotNeeded;
    }
    let best = additions(found, node, options)
        .into_iter()
        .filter_map(|change| {
            if builder.evaluations >= end {
                return None;
            }
            let formation = changed(builder, found, &change)?;
            let added = builder.evaluate(formation)?;
            let small = builder.problem.pool.nodes.len() <= SMALL;
            Some(if small { builder.recut(added) } else { added }.total())
        })
        .fold(f64::INFINITY, f64::min);
    let percent = (best / found.total() - 1.0) * 100.0;
    match percent {
        p if p.is_infinite() => WhyLeftOut::NoPlace,
        p if p >= 0.5 => WhyLeftOut::Slower { percent },
        _ => WhyLeftOut::NoGain,
    }
}

/// The ways to add one node.
fn additions(found: &Found, node: usize, options: &Options) -> Vec<Change> {
    let mut all = Vec::new();
    if options.replicas.is_none() && options.stages.is_none_or(|s| s == 1) {
        all.push(Change { removed: Vec::new(), added: vec![vec![node]] });
    }
    if options.stages.is_some() {
        return all;
    }
    for (r, list) in found.lists().into_iter().enumerate().take(FEW) {
        for at in 0..=list.len() {
            let mut longer = list.clone();
            longer.insert(at, node);
            all.push(Change { removed: vec![r], added: vec![longer] });
        }
    }
    all
}

/// Why there are so many replicas, stages and micro-batches.
pub(crate) fn choices(builder: &mut Builder<'_>, found: &Found) -> Vec<Choice> {
    let mut all = vec![replicas(builder, found)];
    let few = found.formation.replicas.len().min(FEW);
    for replica in 0..few {
        all.extend(stages(builder, found, replica));
        all.extend(order(builder, found, replica));
    }
    all.push(micro_batches(builder, found));
    all.extend(moves(builder.problem, found));
    all
}

fn percent(other: f64, found: &Found) -> f64 {
    (other / found.total() - 1.0) * 100.0
}

fn replicas(builder: &mut Builder<'_>, found: &Found) -> Choice {
    let chosen = found.formation.replicas.len();
    let options = builder.problem.options;
    if options.replicas.is_some() {
        return Choice::Replicas { chosen, why: Because::Given };
    }
    let others = [chosen.wrapping_sub(1), chosen + 1].into_iter().filter(|r| *r > 0);
    let tried = others.filter_map(|than| Some((than, other_replicas(builder, found, than)?)));
    let best = tried.min_by(|a, b| a.1.total_cmp(&b.1));
    let why = match best {
        Some((than, total)) => Because::Faster { than, percent: percent(total, found) },
        None if !has_nodes_for(builder.problem, chosen + 1) => Because::Nodes { enough_for: chosen },
        None => Because::OnlyOne,
    };
    Choice::Replicas { chosen, why }
}

/// Whether so many replicas have a node for each of their stages.
fn has_nodes_for(problem: &Problem<'_>, replicas: usize) -> bool {
    let stages = problem.options.stages.unwrap_or(1).max(1);
    replicas.saturating_mul(stages) <= problem.pool.nodes.len()
}

/// What the best formation that is quickly found with so many replicas costs.
fn other_replicas(builder: &mut Builder<'_>, found: &Found, count: usize) -> Option<f64> {
    let problem = builder.problem;
    if !has_nodes_for(problem, count) || count > problem.batch() {
        return None;
    }
    if problem.pool.nodes.len() <= SMALL {
        let effort = Effort { evaluations: TRIES, exact_nodes: 0 };
        let options = Options { replicas: Some(count), effort, ..problem.options.clone() };
        let other = Problem::new(problem.model, problem.pool, &options).ok()?;
        return genetic(&mut Builder::new(&other), None, &mut || true).map(|f| f.total());
    }
    if count > found.formation.replicas.len() {
        return None;
    }
    let slowest = (0..found.score.shares.len()).min_by_key(|r| found.score.shares[*r])?;
    let formation = changed(builder, found, &Change { removed: vec![slowest], added: Vec::new() })?;
    builder.evaluate(formation).map(|f| f.total())
}

fn stages(builder: &mut Builder<'_>, found: &Found, replica: usize) -> Option<Choice> {
    let lists = found.lists();
    let list = &lists[replica];
    let chosen = list.len();
    if builder.problem.options.stages.is_some() {
        return Some(Choice::Stages { replica, chosen, why: Because::Given });
    }
    if chosen == 1 {
        return None;
    }
    let fewer = (0..chosen).filter_map(|i| {
        let mut fewer = list.clone();
        fewer.remove(i);
        let formation = changed(builder, found, &Change { removed: vec![replica], added: vec![fewer] })?;
        let fewer = builder.evaluate(formation)?;
        Some(builder.recut(fewer).total())
    });
    let best = fewer.fold(f64::INFINITY, f64::min);
    let why = if best.is_finite() {
        Because::Faster { than: chosen - 1, percent: percent(best, found) }
    } else {
        Because::Memory { instead_of: chosen - 1 }
    };
    Some(Choice::Stages { replica, chosen, why })
}

fn order(builder: &mut Builder<'_>, found: &Found, replica: usize) -> Option<Choice> {
    let mut list = found.lists().swap_remove(replica);
    if list.len() < 2 {
        return None;
    }
    let first = builder.problem.pool.nodes[list[0]].name.clone();
    list.reverse();
    let formation = changed(builder, found, &Change { removed: vec![replica], added: vec![list] });
    let reversed = formation.and_then(|f| builder.evaluate(f)).map_or(f64::INFINITY, |f| f.total());
    let slower = percent(reversed, found);
    (slower >= 0.5).then_some(Choice::Order { replica, first, percent_slower_reversed: slower })
}

fn micro_batches(builder: &mut Builder<'_>, found: &Found) -> Choice {
    let chosen = found.formation.micro_batches;
    let options = builder.problem.options;
    if options.micro_batches.is_some() {
        return Choice::MicroBatches { chosen, why: Because::Given };
    }
    let all = options.micro_batch_choices();
    let lists = found.lists();
    let near: Vec<usize> = all.into_iter().filter(|m| *m == chosen / 2 || *m == chosen * 2).collect();
    let mut tried = Vec::new();
    for m in &near {
        if let Some(found) = builder.raise(&lists, *m) {
            tried.push((*m, builder.recut(found).total()));
        }
    }
    let best = tried.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let why = match (best, near.first()) {
        (Some((than, total)), _) => Because::Faster { than, percent: percent(total, found) },
        (None, Some(m)) if *m < chosen => Because::Memory { instead_of: *m },
        _ => Because::OnlyOne,
    };
    Choice::MicroBatches { chosen, why }
}

fn moves(problem: &Problem<'_>, found: &Found) -> Option<Choice> {
    if problem.moves.is_empty() || found.score.moving_s <= 0.0 {
        return None;
    }
    let held =
        |node: usize, op: usize| problem.options.held.iter().any(|h| h.node == node && h.ops.contains(&op));
    let mut bytes = 0u64;
    for part in found.formation.replicas.iter().flat_map(|r| &r.parts) {
        let ops = problem.places[part.from]..problem.places[part.to];
        let missing = ops.filter(|op| !held(part.node, *op));
        bytes = missing.map(|op| problem.model.ops[op].parameter_bytes).fold(bytes, u64::saturating_add);
    }
    Some(Choice::Moves { bytes, seconds: found.score.moving_s })
}
