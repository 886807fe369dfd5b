//! Search for pools whose memory is so tight that the order of nodes decides whether the model fits at all.
//!
//! From the model's beginning on, each stage takes as much as fits into its node: no other cuts reach further with the
//! same nodes. The search follows the orders of nodes that leave the most room for the rest.

use crate::evaluate::{Formation, Problem, StageRange, Timed};
use crate::search::Patience;
use crate::search::build::{Builder, Found};
use crate::search::genetic::stage_counts;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Orders that are followed at a time, times the number of nodes.
const FOLLOWED: usize = 6_000;
/// The largest pools that are searched: larger ones have other solutions, or take too long.
const MOST_NODES: usize = 200;

/// The first formation that fits, if any is found.
pub(crate) fn tight(builder: &mut Builder<'_>, patience: &mut Patience<'_>) -> Option<Found> {
    let problem = builder.problem;
    if problem.pool.nodes.len() > MOST_NODES {
        return None;
    }
    let count = problem.options.replicas.unwrap_or(1).max(1);
    let share = problem.batch().div_ceil(count);
    // With many micro-batches each is small.
    for micro_batches in problem.options.micro_batch_choices().into_iter().rev() {
        // Replicas with memory for more samples can make up for others.
        for m in BTreeSet::from([share.div_ceil(micro_batches), 1]).into_iter().rev() {
            if !patience.lasts() {
                return None;
            }
            let Some(replicas) = replicas(problem, count, (micro_batches, m), patience) else { continue };
            if let Some(found) = builder.evaluate(Formation { replicas, micro_batches }) {
                return Some(found);
            }
        }
    }
    None
}

/// This many replicas, each with as few stages as possible.
fn replicas(
    problem: &Problem<'_>,
    count: usize,
    samples: (usize, usize),
    patience: &mut Patience<'_>,
) -> Option<Vec<Rc<Timed>>> {
    let mut free: Vec<usize> = (0..problem.pool.nodes.len()).collect();
    let replica = |_: usize| {
        let parts = stage_counts(problem)
            .into_iter()
            .find_map(|stages| pack(problem, &free, stages, samples, patience))?;
        free.retain(|node| parts.iter().all(|part| part.node != *node));
        Some(Rc::new(Timed::new(problem, parts, samples.0)))
    };
    (0..count).map(replica).collect()
}

/// The stages of one replica so far.
#[derive(Debug, Clone)]
struct Begun {
    parts: Vec<StageRange>,
    /// The number of places that are held.
    at: usize,
    /// Bytes of its nodes.
    memory: f64,
    /// Bytes of the largest unused nodes, minus what remains to be held.
    room: f64,
}

/// Stages of some of these nodes, for micro-batches of `m` samples.
fn pack(
    problem: &Problem<'_>,
    free: &[usize],
    stages: usize,
    (micro_batches, m): (usize, usize),
    patience: &mut Patience<'_>,
) -> Option<Vec<StageRange>> {
    let followed = FOLLOWED / free.len().max(1);
    let mut free = free.to_vec();
    free.sort_by_key(|node| (Reverse(problem.pool.nodes[*node].memory), *node));
    let mut begun = vec![Begun { parts: Vec::new(), at: 0, memory: 0.0, room: 0.0 }];
    for stage in 0..stages {
        let behind = stages - stage;
        let kept = problem.kept(behind, micro_batches);
        // Every later stage holds something, too.
        let most = (problem.end() + 1).checked_sub(behind)?;
        let mut next = Vec::new();
        for old in &begun {
            // Each takes as long as a formation in large pools.
            if !patience.lasts() {
                return None;
            }
            let mut seen = BTreeSet::new();
            for node in &free {
                let used = old.parts.iter().any(|part| part.node == *node);
                // Nodes with equal memory are interchangeable.
                if used || !seen.insert(problem.pool.nodes[*node].memory) {
                    continue;
                }
                let to = furthest(problem, *node, (old.at, most), (kept, m));
                let done = behind > 1 || to == problem.end();
                if to > old.at && done {
                    let mut parts = old.parts.clone();
                    parts.push(StageRange { node: *node, from: old.at, to });
                    let room = room(problem, &free, &parts, behind - 1) - need(problem, to, m);
                    let memory = old.memory + problem.pool.nodes[*node].memory as f64;
                    next.push(Begun { parts, at: to, memory, room });
                }
            }
        }
        next.retain(|one| one.room >= 0.0);
        next.sort_by(|a, b| b.room.total_cmp(&a.room).then(a.memory.total_cmp(&b.memory)));
        next.truncate(followed);
        begun = next;
    }
    begun.into_iter().next().map(|one| one.parts)
}

/// How far a node reaches from a place, at most to another.
fn furthest(
    problem: &Problem<'_>,
    node: usize,
    (from, most): (usize, usize),
    (kept, m): (usize, usize),
) -> usize {
    let fits = |to: usize| problem.fits(node, from, to, kept, m);
    let (mut low, mut high) = (from, most.max(from));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Bytes of the largest nodes that are not used yet.
fn room(problem: &Problem<'_>, largest: &[usize], parts: &[StageRange], count: usize) -> f64 {
    let base = problem.options.base_bytes;
    let unused = largest.iter().filter(|node| parts.iter().all(|part| part.node != **node));
    unused.take(count).map(|node| problem.pool.nodes[*node].memory.saturating_sub(base) as f64).sum()
}

/// A lower bound of the bytes of everything after a place.
fn need(problem: &Problem<'_>, from: usize, m: usize) -> f64 {
    let end = problem.end();
    if from == end {
        return 0.0;
    }
    let base = problem.options.base_bytes as f64;
    problem.memory(from, end, problem.kept(1, 1), m) - base
}
