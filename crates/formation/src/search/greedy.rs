//! Plain formations: nodes in order of speed or memory, dealt to replicas with the same number of stages.

use crate::evaluate::Problem;
use crate::search::build::{Builder, Found, better};
use std::cmp::Reverse;

/// The best of the plain formations with as few stages as the model fits into.
pub(crate) fn greedy(builder: &mut Builder<'_>) -> Option<Found> {
    let problem = builder.problem;
    let most = problem.pool.nodes.len().min(problem.end());
    let range = problem.options.stages.map_or(1..=most, |s| s..=s);
    for stages in range {
        let mut best = None;
        for order in orders(problem) {
            for replicas in replica_counts(problem, stages) {
                best = better(best, plain(builder, &order, replicas, stages));
            }
        }
        if best.is_some() {
            return best;
        }
    }
    None
}

/// All nodes by speed, by memory, and by host.
pub(crate) fn orders(problem: &Problem<'_>) -> Vec<Vec<usize>> {
    let nodes = &problem.pool.nodes;
    let all = || (0..nodes.len()).collect::<Vec<_>>();
    let mut speed = all();
    speed.sort_by(|a, b| nodes[*b].speed.total_cmp(&nodes[*a].speed).then(a.cmp(b)));
    let mut memory = all();
    memory.sort_by_key(|n| (Reverse(nodes[*n].memory), *n));
    vec![speed, memory]
}

/// As many replicas as there are nodes for, half of that, and so on.
pub(crate) fn replica_counts(problem: &Problem<'_>, stages: usize) -> Vec<usize> {
    let most = (problem.pool.nodes.len() / stages).min(problem.batch());
    match problem.options.replicas {
        Some(given) if given <= most => vec![given],
        Some(_) => Vec::new(),
        None => std::iter::successors(Some(most), |n| Some(n / 2)).take_while(|n| *n > 0).collect(),
    }
}

/// The first nodes of an order, dealt back and forth, with the best number of micro-batches.
fn plain(builder: &mut Builder<'_>, order: &[usize], replicas: usize, stages: usize) -> Option<Found> {
    let mut lists = dealt(&order[..replicas * stages], replicas);
    let nodes = &builder.problem.pool.nodes;
    lists.iter_mut().for_each(|list| list.sort_by_key(|n| (Reverse(nodes[*n].memory), *n)));
    let choices = builder.problem.options.micro_batch_choices();
    choices.into_iter().fold(None, |best, m| better(best, builder.raise(&lists, m)))
}

/// One node to each replica in turn, then back.
pub(crate) fn dealt(nodes: &[usize], replicas: usize) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); replicas];
    for (round, some) in nodes.chunks(replicas).enumerate() {
        for (i, node) in some.iter().enumerate() {
            let to = if round % 2 == 0 { i } else { replicas - 1 - i };
            lists[to].push(*node);
        }
    }
    lists
}
