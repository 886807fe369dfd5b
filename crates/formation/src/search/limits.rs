//! What can be said to be missing before anything is tried.

use crate::evaluate::Problem;
use crate::{PoolNode, Shortfall};

/// Refuses what no formation can do.
pub(crate) fn check(problem: &Problem<'_>) -> Result<(), Shortfall> {
    let (options, nodes) = (problem.options, problem.pool.nodes.len());
    let (replicas, stages) = (options.replicas.unwrap_or(1).max(1), options.stages.unwrap_or(1).max(1));
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

/// What a part of the model needs at the very least: with one sample of one micro-batch.
pub(crate) fn least(problem: &Problem<'_>, from: usize, to: usize) -> u64 {
    problem.memory(from, to, problem.kept(1, 1), 1) as u64
}

/// The least that any part of the model needs.
pub(crate) fn smallest_part(problem: &Problem<'_>) -> u64 {
    (0..problem.end()).map(|place| least(problem, place, place + 1)).min().unwrap_or(0)
}

fn memory(problem: &Problem<'_>, replicas: usize) -> Result<(), Shortfall> {
    let base = problem.options.base_bytes;
    let one = least(problem, 0, problem.end()).saturating_sub(base);
    let needs = one.saturating_mul(replicas as u64);
    let nodes = &problem.pool.nodes;
    let has = total(nodes);
    let room = nodes.iter().map(|n| n.memory.saturating_sub(base)).fold(0, u64::saturating_add);
    let processes = base.saturating_mul(nodes.len().min(problem.end() * replicas) as u64);
    let needs_in_all = if has < needs { needs } else { needs.saturating_add(processes) };
    if room < needs {
        Err(Shortfall::Memory { needs: needs_in_all, has, nodes: nodes.len() })
    } else {
        Ok(())
    }
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

/// Nothing that was tried fits.
pub(crate) fn no_fit(problem: &Problem<'_>) -> Shortfall {
    let nodes = &problem.pool.nodes;
    Shortfall::NoFit { nodes: nodes.len(), has: total(nodes) }
}

fn total(nodes: &[PoolNode]) -> u64 {
    nodes.iter().map(|n| n.memory).fold(0, u64::saturating_add)
}
