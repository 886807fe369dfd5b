//! Genetic search: good formations of large pools by mutation, crossover and selection.

use crate::evaluate::{Formation, Problem, Timed};
use crate::search::build::{Builder, Found, better};
use crate::search::mutate::{self, Change, Dice};
use crate::search::{Patience, greedy, polish, tight};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The size of a population.
const POPULATION: usize = 12;
/// The number of populations, one after the other, for small pools.
const POPULATIONS: usize = 4;
/// The most random formations while none is known that fits.
const MANY_TRIES: usize = 3_000;
/// From this many replicas on, changes that make their replicas slower are not evaluated further.
const MANY: usize = 9;
/// Up to this many nodes all replicas are cut again when one has changed.
const SMALL: usize = 10;
/// Up to this many nodes every plain formation is evaluated; in larger pools only some.
const THOROUGH: usize = 200;

/// The best formation found starting from plain ones and `best`; never worse than those.
pub(crate) fn genetic(
    builder: &mut Builder<'_>,
    best: Option<Found>,
    patience: &mut Patience<'_>,
) -> Option<Found> {
    let problem = builder.problem;
    let mut dice = Dice::new(problem.options.seed);
    // Small pools have few formations, and good ones are often separated by bad ones.
    let populations = if problem.pool.nodes.len() <= SMALL { POPULATIONS } else { 1 };
    let mut best = best;
    for _ in 0..populations {
        if best.is_some() && patience.is_over() {
            break;
        }
        best = better(best.clone(), evolved(builder, best, &mut dice, patience));
    }
    best
}

/// The best of one population.
fn evolved(
    builder: &mut Builder<'_>,
    best: Option<Found>,
    dice: &mut Dice,
    patience: &mut Patience<'_>,
) -> Option<Found> {
    let options = builder.problem.options;
    let mut all = seeds(builder, best, dice, patience);
    if all.is_empty() {
        return None;
    }
    let nodes = builder.problem.pool.nodes.len() as u64;
    let most_in_vain = 2_000 + 40 * nodes.min(200);
    let start = builder.evaluations;
    let (mut tries, mut since) = (0u64, 0u64);
    while builder.evaluations - start < options.effort.evaluations
        && tries < options.effort.evaluations.saturating_mul(3)
        && since < most_in_vain
        && patience.lasts()
    {
        tries += 1;
        since += 1;
        let Some(child) = child(builder, &all, dice) else { continue };
        if child.total() < all[0].total() * (1.0 - 1e-9) {
            since = 0;
        }
        admit(&mut all, child);
    }
    let best = all.swap_remove(0);
    Some(polish::polish(builder, best, patience))
}

/// Keeps the best, sorted, without two of equal cost.
fn admit(all: &mut Vec<Found>, found: Found) {
    let place = all.partition_point(|f| f.total() < found.total());
    if all.get(place).is_some_and(|f| f.total() == found.total()) {
        return;
    }
    all.insert(place, found);
    all.truncate(POPULATION);
}

fn child(builder: &mut Builder<'_>, all: &[Found], dice: &mut Dice) -> Option<Found> {
    // The better of two; on large pools nearly always the best, since there is little time for detours.
    let mut index = dice.index(all.len()).min(dice.index(all.len()));
    if all[0].formation.replicas.len() >= MANY && dice.percent(80) {
        index = 0;
    }
    let parent = &all[index];
    let problem = builder.problem;
    match dice.index(100) {
        0..8 => {
            let other = &all[dice.index(all.len())];
            let lists = mixed(problem, parent, other, dice);
            let lists = lists.filter(|lists| allowed(problem, lists))?;
            builder.raise(&lists, parent.formation.micro_batches)
        }
        8..12 => {
            let choices = problem.options.micro_batch_choices();
            let count = parent.formation.replicas.len();
            let useful = choices.partition_point(|m| m * count <= problem.batch() * 2).max(1);
            let micro_batches = *dice.pick(&choices[..useful])?;
            builder.raise(&parent.lists(), micro_batches)
        }
        12..35 => {
            let formation = mutate::recut(problem, &parent.formation, dice)?;
            builder.evaluate(formation)
        }
        _ => {
            let lists = parent.lists();
            let free = free(problem, &lists);
            let change = mutate::change(problem, &lists, &free, dice)?;
            let formation = mutate::changed(builder, parent, &change)?;
            if !promising(problem, parent, &formation, &change) && !dice.percent(3) {
                return None;
            }
            let found = builder.evaluate(formation)?;
            Some(if problem.pool.nodes.len() <= SMALL { builder.recut(found) } else { found })
        }
    }
}

/// Whether changed replicas process as many samples as before in the current time of a step.
fn promising(problem: &Problem<'_>, parent: &Found, formation: &Formation, change: &Change) -> bool {
    if formation.replicas.len() < MANY {
        return true;
    }
    let limit = parent.score.step_s;
    let flow = |replica: &Rc<Timed>| replica.flow(limit);
    let before: f64 = change.removed.iter().map(|r| flow(&parent.formation.replicas[*r])).sum();
    let fresh = formation.replicas.len() - change.added.len();
    let after: f64 = formation.replicas[fresh..].iter().map(flow).sum();
    let fewer_replicas = change.added.len() < change.removed.len() && problem.parameters[problem.end()] > 0.0;
    after >= before || fewer_replicas
}

/// Nodes that hold nothing.
pub(crate) fn free(problem: &Problem<'_>, lists: &[Vec<usize>]) -> Vec<usize> {
    let mut used = vec![false; problem.pool.nodes.len()];
    lists.iter().flatten().for_each(|n| used[*n] = true);
    (0..used.len()).filter(|n| !used[*n]).collect()
}

/// Whether the numbers of replicas and stages are as requested.
fn allowed(problem: &Problem<'_>, lists: &[Vec<usize>]) -> bool {
    let options = problem.options;
    options.replicas.is_none_or(|r| r == lists.len())
        && options.stages.is_none_or(|s| lists.iter().all(|l| l.len() == s))
        && lists.len() <= options.batch
}

/// Crossover: some replicas of one formation, and those of the other whose nodes are still free.
fn mixed(problem: &Problem<'_>, one: &Found, two: &Found, dice: &mut Dice) -> Option<Vec<Vec<usize>>> {
    let mut lists: Vec<Vec<usize>> = one.lists().into_iter().filter(|_| dice.percent(50)).collect();
    let mut used: BTreeSet<usize> = lists.iter().flatten().copied().collect();
    let mut rest = Vec::new();
    for list in two.lists() {
        if list.iter().all(|n| !used.contains(n)) {
            used.extend(&list);
            lists.push(list);
        } else {
            rest.extend(list.into_iter().filter(|n| !used.contains(n)));
        }
    }
    if problem.options.stages.is_none() && !lists.is_empty() {
        for node in rest.into_iter().filter(|n| used.insert(*n)) {
            let to = dice.index(lists.len());
            let at = dice.index(lists[to].len() + 1);
            lists[to].insert(at, node);
        }
    }
    (!lists.is_empty()).then_some(lists)
}

/// Plain formations of many kinds, and a few random ones.
fn seeds(
    builder: &mut Builder<'_>,
    best: Option<Found>,
    dice: &mut Dice,
    patience: &mut Patience<'_>,
) -> Vec<Found> {
    let problem = builder.problem;
    let mut all = Vec::new();
    best.into_iter().chain(greedy(builder)).for_each(|f| admit(&mut all, f));
    let choices = problem.options.micro_batch_choices();
    for stages in stage_counts(problem) {
        for replicas in greedy::replica_counts(problem, stages).into_iter().take(6) {
            for order in greedy::orders(problem) {
                // More micro-batches than samples of a replica are useless.
                let useful = choices.partition_point(|m| m * replicas <= problem.batch() * 2).max(1);
                let some = &choices[..useful];
                let mut all_lists = groupings(problem, &order[..replicas * stages], replicas, stages);
                if problem.pool.nodes.len() > THOROUGH {
                    all_lists = vec![all_lists.swap_remove(dice.index(3))];
                }
                for lists in all_lists {
                    let micro_batches = *dice.pick(some).unwrap_or(&1);
                    builder.raise(&lists, micro_batches).into_iter().for_each(|f| admit(&mut all, f));
                }
                if !patience.lasts() {
                    return all;
                }
            }
        }
    }
    if all.is_empty() {
        all.extend(tight::tight(builder, patience));
    }
    for i in 0..MANY_TRIES {
        // If memory is so tight that no plain formation fits, a random one may.
        if i >= POPULATION * 2 && (!all.is_empty() || !patience.lasts()) {
            break;
        }
        let lists = random(problem, dice);
        let micro_batches = *dice.pick(&choices).unwrap_or(&1);
        builder.raise(&lists, micro_batches).into_iter().for_each(|f| admit(&mut all, f));
    }
    if let Some(best) = all.first().map(Found::lists) {
        for micro_batches in choices {
            builder.raise(&best, micro_batches).into_iter().for_each(|f| admit(&mut all, f));
        }
    }
    all
}

pub(crate) fn stage_counts(problem: &Problem<'_>) -> Vec<usize> {
    let most = problem.pool.nodes.len().min(problem.end());
    let faster = if problem.pool.nodes.len() > THOROUGH { 6 } else { 5 };
    match problem.options.stages {
        Some(given) => vec![given],
        None => std::iter::successors(Some(1), |s| Some((s + 1).max(s * faster / 4)))
            .take_while(|s| *s <= most)
            .collect(),
    }
}

/// Nodes dealt to replicas back and forth, and in groups of similar nodes and of neighbours.
fn groupings(problem: &Problem<'_>, nodes: &[usize], replicas: usize, stages: usize) -> Vec<Vec<Vec<usize>>> {
    let memory = |n: &usize| (std::cmp::Reverse(problem.pool.nodes[*n].memory), *n);
    let mut dealt = greedy::dealt(nodes, replicas);
    let mut like: Vec<Vec<usize>> = nodes.chunks(stages).map(<[usize]>::to_vec).collect();
    let mut near = nodes.to_vec();
    near.sort_by_key(|n| (problem.host[*n], *n));
    let mut near: Vec<Vec<usize>> = near.chunks(stages).map(<[usize]>::to_vec).collect();
    for lists in [&mut dealt, &mut like, &mut near] {
        lists.iter_mut().for_each(|list| list.sort_by_key(memory));
    }
    vec![dealt, like, near]
}

fn random(problem: &Problem<'_>, dice: &mut Dice) -> Vec<Vec<usize>> {
    let mut nodes: Vec<usize> = (0..problem.pool.nodes.len()).collect();
    dice.shuffle(&mut nodes);
    let room = nodes.len() / problem.options.replicas.unwrap_or(1).max(1);
    let stages = problem.options.stages.unwrap_or_else(|| 1 + dice.index(room.min(problem.end())));
    let most = (nodes.len() / stages).min(problem.batch()).max(1);
    let replicas = problem.options.replicas.unwrap_or_else(|| 1 + dice.index(most));
    nodes.truncate((replicas * stages).min(nodes.len()));
    nodes.chunks(stages).map(<[usize]>::to_vec).take(replicas).collect()
}
