use super::{FEW, NOISE, Tries};
use crate::evaluate::Problem;
use crate::search::{Builder, Change, Found, check, genetic};
use crate::{Because, Choice, Effort, Options};

/// Formations that are tried for another number of replicas.
const TRIES: u64 = 600;

/// Why the plan has these numbers of replicas, stages and micro-batches.
pub(super) fn choices(tries: &mut Tries<'_, '_, '_>) -> Vec<Choice> {
    let mut all = vec![replicas(tries)];
    let few = tries.found.formation.replicas.len().min(FEW);
    for replica in 0..few {
        all.extend(stages(tries, replica));
        all.extend(order(tries, replica));
    }
    all.push(micro_batches(tries));
    all.extend(moves(tries.problem(), &tries.found));
    all
}

fn because(than: usize, percent: f64) -> Because {
    if percent < -NOISE {
        Because::Overlooked { than, percent: -percent }
    } else {
        Because::Faster { than, percent }
    }
}

/// The result of trying another number.
enum Tried {
    Percent(f64),
    /// No fitting formation was found.
    NoFit,
    Impossible,
    Skipped,
}

fn replicas(tries: &mut Tries<'_, '_, '_>) -> Choice {
    let chosen = tries.found.formation.replicas.len();
    if tries.problem().options.replicas.is_some() {
        return Choice::Replicas { chosen, why: Because::Given };
    }
    let (mut best, mut no_fit, mut not_tried) = (None, false, false);
    for than in [chosen - 1, chosen + 1] {
        match other_replicas(tries, than) {
            Tried::Percent(percent) if best.is_none_or(|(_, least)| percent < least) => {
                best = Some((than, percent));
            }
            Tried::NoFit => no_fit = true,
            Tried::Skipped => not_tried = true,
            Tried::Percent(_) | Tried::Impossible => {}
        }
    }
    let why = match best {
        Some((than, percent)) => because(than, percent),
        None if not_tried => Because::NotTried,
        None if !has_nodes_for(tries.problem(), chosen + 1) => Because::Nodes { enough_for: chosen },
        None if no_fit => Because::NoneFits,
        None => Because::OnlyOne,
    };
    Choice::Replicas { chosen, why }
}

/// Whether this many replicas have a node for each of their stages.
fn has_nodes_for(problem: &Problem<'_>, replicas: usize) -> bool {
    let stages = problem.options.stages.unwrap_or(1).max(1);
    replicas.saturating_mul(stages) <= problem.pool.nodes.len()
}

/// The best formation with this many replicas that is found quickly.
fn other_replicas(tries: &mut Tries<'_, '_, '_>, count: usize) -> Tried {
    let problem = tries.problem();
    if count == 0 || !has_nodes_for(problem, count) || count > problem.batch() {
        return Tried::Impossible;
    }
    if !tries.may_try() {
        return Tried::Skipped;
    }
    if tries.is_small() {
        return planned(tries, count);
    }
    let shares = &tries.found.score.shares;
    let slowest = (0..shares.len()).min_by_key(|r| shares[*r]).filter(|_| count < shares.len());
    let Some(slowest) = slowest else { return Tried::Skipped };
    let fewer = tries.with(&Change { removed: vec![slowest], added: Vec::new() }, false);
    fewer.map_or(Tried::NoFit, Tried::Percent)
}

fn planned(tries: &mut Tries<'_, '_, '_>, count: usize) -> Tried {
    let problem = tries.problem();
    let effort = Effort { evaluations: TRIES, exact_nodes: 0 };
    let options = Options { replicas: Some(count), effort, ..problem.options.clone() };
    let Ok(other) = Problem::new(problem.model, problem.pool, &options) else { return Tried::Impossible };
    if check(&other).is_err() {
        return Tried::NoFit;
    }
    let planned = genetic(&mut Builder::new(&other), None, tries.patience);
    // An unfinished search says nothing about how good the result would have been.
    if tries.patience.is_over() {
        return Tried::Skipped;
    }
    planned.map_or(Tried::NoFit, |found| Tried::Percent(tries.slower(found)))
}

fn stages(tries: &mut Tries<'_, '_, '_>, replica: usize) -> Option<Choice> {
    let list = tries.found.lists().swap_remove(replica);
    let chosen = list.len();
    if tries.problem().options.stages.is_some() {
        return Some(Choice::Stages { replica, chosen, why: Because::Given });
    }
    if chosen == 1 {
        return None;
    }
    let mut best = f64::INFINITY;
    for i in 0..chosen {
        if !tries.may_try() {
            return Some(Choice::Stages { replica, chosen, why: Because::NotTried });
        }
        let mut fewer = list.clone();
        fewer.remove(i);
        let change = Change { removed: vec![replica], added: vec![fewer] };
        best = best.min(tries.with(&change, true).unwrap_or(f64::INFINITY));
    }
    let why =
        if best.is_finite() { because(chosen - 1, best) } else { Because::Memory { instead_of: chosen - 1 } };
    Some(Choice::Stages { replica, chosen, why })
}

fn order(tries: &mut Tries<'_, '_, '_>, replica: usize) -> Option<Choice> {
    let mut list = tries.found.lists().swap_remove(replica);
    if list.len() < 2 || !tries.may_try() {
        return None;
    }
    let first = tries.problem().pool.nodes[list[0]].name.clone();
    list.reverse();
    let slower = tries.with(&Change { removed: vec![replica], added: vec![list] }, false);
    slower.is_none_or(|percent| percent >= 0.5).then_some(Choice::Order {
        replica,
        first,
        percent_slower_reversed: slower,
    })
}

fn micro_batches(tries: &mut Tries<'_, '_, '_>) -> Choice {
    let chosen = tries.found.formation.micro_batches;
    let options = tries.problem().options;
    if options.micro_batches.is_some() {
        return Choice::MicroBatches { chosen, why: Because::Given };
    }
    let all = options.micro_batch_choices();
    let near: Vec<usize> = all.into_iter().filter(|m| *m == chosen / 2 || *m == chosen * 2).collect();
    let lists = tries.found.lists();
    let mut best: Option<(usize, f64)> = None;
    for m in &near {
        if !tries.may_try() {
            return Choice::MicroBatches { chosen, why: Because::NotTried };
        }
        let Some(found) = tries.builder.raise(&lists, *m) else { continue };
        let found = tries.builder.recut(found);
        let percent = tries.slower(found);
        if best.is_none_or(|(_, least)| percent < least) {
            best = Some((*m, percent));
        }
    }
    let why = match (best, near.first()) {
        (Some((than, percent)), _) => because(than, percent),
        (None, Some(m)) => Because::Memory { instead_of: *m },
        (None, None) => Because::OnlyOne,
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
