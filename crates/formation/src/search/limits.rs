//! Detects what is missing before anything is tried.

use crate::evaluate::Problem;
use crate::search::tight::tight;
use crate::search::{Builder, Patience};
use crate::{Options, Shortfall};
use std::cmp::Reverse;

/// How many times the additional memory is doubled to find out how much would suffice.
const DOUBLINGS: u32 = 16;

/// Refuses problems that no formation can solve.
pub(crate) fn check(problem: &Problem<'_>) -> Result<(), Shortfall> {
    let (options, nodes) = (problem.options, problem.pool.nodes.len());
    for (of, number) in [("replicas", options.replicas), ("stages", options.stages)] {
        if number == Some(0) {
            return Err(Shortfall::Senseless { what: "number", of: of.to_owned(), value: 0.0 });
        }
    }
    let (replicas, stages) = least_numbers(options);
    if replicas.saturating_mul(stages) > nodes {
        return Err(Shortfall::Nodes { replicas, stages, has: nodes });
    }
    if stages > problem.end() {
        return Err(Shortfall::Cuts { stages, most: problem.end() });
    }
    if replicas > options.batch {
        return Err(Shortfall::Batch { batch: options.batch, replicas });
    }
    memory(problem, replicas)?;
    parts(problem)
}

/// The fewest replicas and stages of each that were requested.
fn least_numbers(options: &Options) -> (usize, usize) {
    (options.replicas.unwrap_or(1), options.stages.unwrap_or(1))
}

/// The least memory of a part of the model: with one sample of one micro-batch.
pub(crate) fn least(problem: &Problem<'_>, from: usize, to: usize) -> u64 {
    problem.memory(from, to, problem.kept(1, 1), 1) as u64
}

/// The least that any part of the model needs.
pub(crate) fn smallest_part(problem: &Problem<'_>) -> u64 {
    (0..problem.end()).map(|place| least(problem, place, place + 1)).min().unwrap_or(0)
}

/// The least memory of this many replicas, without the base memory of processes.
fn held(problem: &Problem<'_>, replicas: usize) -> u64 {
    let one = least(problem, 0, problem.end()).saturating_sub(problem.options.base_bytes);
    one.saturating_mul(replicas as u64)
}

/// Counts only nodes that can hold a part; if there are more than can be used, the largest.
fn memory(problem: &Problem<'_>, replicas: usize) -> Result<(), Shortfall> {
    let base = problem.options.base_bytes;
    let places = problem.options.stages.unwrap_or(problem.end()).saturating_mul(replicas);
    let mut sizes: Vec<u64> = problem.pool.nodes.iter().map(|n| n.memory).collect();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    sizes.truncate(places);
    let has = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    let room = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.saturating_sub(base)));
    let needs = held(problem, replicas);
    if room >= needs {
        return Ok(());
    }
    let processes = base.saturating_mul(sizes.len() as u64);
    let needs = if has < needs { needs } else { needs.saturating_add(processes) };
    Err(Shortfall::Memory { needs, has, nodes: sizes.len(), of: problem.pool.nodes.len() })
}

fn parts(problem: &Problem<'_>) -> Result<(), Shortfall> {
    let Some(largest) = problem.pool.nodes.iter().max_by_key(|n| n.memory) else {
        return Err(Shortfall::EmptyPool);
    };
    for place in 0..problem.end() {
        let needs = least(problem, place, place + 1);
        if needs > largest.memory {
            let part = name(problem, problem.places[place], problem.places[place + 1]);
            let (has, largest) = (largest.memory, largest.name.clone());
            return Err(Shortfall::Part { part, needs, largest, has });
        }
    }
    Ok(())
}

fn name(problem: &Problem<'_>, from: usize, to: usize) -> String {
    let ops = &problem.model.ops;
    if to - from == 1 {
        format!("operator {}", ops[from].name)
    } else {
        format!("the part from {} to {}, which cannot be cut,", ops[from].name, ops[to - 1].name)
    }
}

/// No formation that was tried fits.
pub(crate) fn no_fit(problem: &Problem<'_>, patience: &mut Patience<'_>) -> Shortfall {
    let nodes = &problem.pool.nodes;
    let (replicas, stages) = least_numbers(problem.options);
    let processes = problem.options.base_bytes.saturating_mul(replicas.saturating_mul(stages) as u64);
    Shortfall::NoFit {
        nodes: nodes.len(),
        has: nodes.iter().map(|n| n.memory).fold(0, u64::saturating_add),
        needs: held(problem, replicas).saturating_add(processes),
        lacks: lacks(problem, patience),
    }
}

/// Bytes per node that would suffice if every node had that much more.
fn lacks(problem: &Problem<'_>, patience: &mut Patience<'_>) -> Option<u64> {
    let mut fits = |more: u64| fits_with(problem, more, patience);
    let largest = problem.pool.nodes.iter().map(|n| n.memory).max()?;
    let first = (largest / 64).max(1);
    let mut high = (0..DOUBLINGS).map(|n| first.saturating_mul(1 << n)).find(|more| fits(*more))?;
    let mut low = if high == first { 0 } else { high / 2 };
    while high - low > high / 100 && high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

fn fits_with(problem: &Problem<'_>, more: u64, patience: &mut Patience<'_>) -> bool {
    let mut pool = problem.pool.clone();
    pool.nodes.iter_mut().for_each(|node| node.memory = node.memory.saturating_add(more));
    let larger = Problem::new(problem.model, &pool, problem.options);
    larger.is_ok_and(|larger| tight(&mut Builder::new(&larger), patience).is_some())
}
