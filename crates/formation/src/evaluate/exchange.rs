//! The cost of averaging the parameters of several replicas.
//!
//! Every range of parameters that is on one node in each replica is averaged around a ring of those nodes. All rings
//! run at the same time, and a node's bytes for all of its rings go over its one link.

use crate::Link;
use crate::evaluate::{Formation, Problem, StageRange};

/// Seconds of one exchange, and the slowest node.
pub(crate) fn exchange(problem: &Problem<'_>, formation: &Formation) -> (f64, usize) {
    let count = formation.replicas.len();
    if count < 2 {
        return (0.0, 0);
    }
    let mut ring: Vec<&[StageRange]> = formation.replicas.iter().map(|r| &r.parts[..]).collect();
    ring.sort_by_key(|parts| parts[0].node);
    let mut load = vec![(0.0f64, 0.0f64); problem.pool.nodes.len()];
    let mut at = vec![0usize; count];
    let mut place = 0;
    while place < problem.end() {
        let next = ring.iter().zip(&at).map(|(parts, s)| parts[*s].to).min().unwrap_or(problem.end());
        let slowest = slowest(problem, &ring, &at);
        let bytes = (problem.parameters[next] - problem.parameters[place])
            * problem.options.exchange.bytes_per_parameter_byte;
        let seconds = sent(count, bytes) / slowest.bytes_per_s;
        let latency = if bytes > 0.0 { 2.0 * (count - 1) as f64 * slowest.latency_s } else { 0.0 };
        for (parts, s) in ring.iter().zip(&mut at) {
            let (sum, longest) = &mut load[parts[*s].node];
            *sum += seconds;
            *longest = longest.max(latency);
            *s += usize::from(parts[*s].to == next);
        }
        place = next;
    }
    let each = load.iter().map(|(sum, latency)| sum + latency).enumerate();
    each.fold((0.0, 0), |worst, (node, t)| if t > worst.0 { (t, node) } else { worst })
}

/// Bytes that each node of a ring sends for a range.
fn sent(count: usize, bytes: f64) -> f64 {
    2.0 * (count - 1) as f64 / count as f64 * bytes
}

fn slowest(problem: &Problem<'_>, ring: &[&[StageRange]], at: &[usize]) -> Link {
    let node = |r: usize| ring[r][at[r]].node;
    let mut worst = Link::new(f64::INFINITY, 0.0);
    let pairs = if ring.len() == 2 { 1 } else { ring.len() };
    for r in 0..pairs {
        let link = problem.link(node(r), node((r + 1) % ring.len()));
        worst = Link::new(worst.bytes_per_s.min(link.bytes_per_s), worst.latency_s.max(link.latency_s));
    }
    worst
}

/// A lower bound of the exchange between replicas on these nodes, wherever they are cut.
pub(crate) fn lower_bound(problem: &Problem<'_>, replicas: &[Vec<usize>]) -> f64 {
    let count = replicas.len();
    if count < 2 {
        return 0.0;
    }
    let bytes = problem.parameters[problem.end()] * problem.options.exchange.bytes_per_parameter_byte;
    let others = |r: usize| (0..count).filter(move |o| *o != r).flat_map(|o| &replicas[o]);
    let fastest =
        |r: usize, node: usize| others(r).map(|o| problem.link(node, *o).bytes_per_s).fold(0.0, f64::max);
    let replica = |r: usize| {
        let together: f64 = replicas[r].iter().map(|node| fastest(r, *node)).sum();
        sent(count, bytes) / together
    };
    (0..count).map(replica).fold(0.0, f64::max)
}
