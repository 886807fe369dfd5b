//! The cost of moving parameters to nodes that do not hold them yet.

use crate::evaluate::{Formation, Problem};

/// For each node, the seconds of fetching everything before each place; empty if moving is free.
pub(crate) fn table(problem: &Problem<'_>) -> Vec<Vec<f64>> {
    let options = problem.options;
    if options.held.is_empty() || options.move_horizon <= 0.0 {
        return Vec::new();
    }
    (0..problem.pool.nodes.len()).map(|node| row(problem, node)).collect()
}

fn row(problem: &Problem<'_>, node: usize) -> Vec<f64> {
    let bytes_per_s = fastest_sources(problem, node);
    let mut all = vec![0.0];
    for pair in problem.places.windows(2) {
        let range = pair[0]..pair[1];
        let seconds: f64 = range.map(|op| state_bytes(problem, op) / bytes_per_s[op]).sum();
        all.push(all[all.len() - 1] + seconds);
    }
    all
}

/// How fast each operator's parameters can be fetched; infinite if the node holds them already.
fn fastest_sources(problem: &Problem<'_>, node: usize) -> Vec<f64> {
    let mut fastest = vec![0.0f64; problem.model.ops.len()];
    for held in problem.options.held.iter().filter(|h| h.node < problem.pool.nodes.len()) {
        let here = held.node == node;
        let speed = if here { f64::INFINITY } else { problem.link(held.node, node).bytes_per_s };
        let end = held.ops.end.min(fastest.len());
        fastest[held.ops.start.min(end)..end].iter_mut().for_each(|f| *f = f.max(speed));
    }
    let unknown = problem.pool.default_link.bytes_per_s;
    fastest.iter_mut().filter(|f| **f == 0.0).for_each(|f| *f = unknown);
    fastest
}

/// Weights and optimizer state; gradients are recomputed.
fn state_bytes(problem: &Problem<'_>, op: usize) -> f64 {
    let factor = (problem.options.kept_per_parameter_byte - 1.0).max(1.0);
    problem.model.ops[op].parameter_bytes as f64 * factor
}

/// The slowest node's seconds, plus a little for each other node's: of two equal plans the one that moves less is
/// better.
pub(crate) fn moving(problem: &Problem<'_>, formation: &Formation) -> f64 {
    if problem.moves.is_empty() {
        return 0.0;
    }
    let (mut slowest, mut sum) = (0.0f64, 0.0);
    for part in formation.replicas.iter().flat_map(|r| &r.parts) {
        let seconds = problem.moves[part.node][part.to] - problem.moves[part.node][part.from];
        slowest = slowest.max(seconds);
        sum += seconds;
    }
    slowest + sum / problem.pool.nodes.len() as f64
}
