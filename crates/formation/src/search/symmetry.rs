//! Interchangeable nodes.

use crate::evaluate::Problem;
use std::collections::BTreeSet;

/// The class of each node: swapping nodes of one class changes nothing.
pub(crate) fn classes(problem: &Problem<'_>) -> Vec<usize> {
    let count = problem.pool.nodes.len();
    let mut classes: Vec<usize> = Vec::with_capacity(count);
    for node in 0..count {
        let same = (0..node).find(|other| alike(problem, *other, node));
        classes.push(same.map_or(node, |other| classes[other]));
    }
    classes
}

fn alike(problem: &Problem<'_>, a: usize, b: usize) -> bool {
    let alone = |n: usize| problem.host.iter().filter(|h| **h == problem.host[n]).count() == 1;
    let hosts = || problem.host[a] == problem.host[b] || (alone(a) && alone(b));
    let links = || (0..problem.pool.nodes.len()).all(|n| n == a || n == b || linked_alike(problem, a, b, n));
    same_machine(problem, a, b) && hosts() && links()
}

/// Whether two unused nodes are interchangeable in a formation of `used` nodes.
pub(crate) fn alike_beside(problem: &Problem<'_>, used: &[usize], a: usize, b: usize) -> bool {
    let alone = |n: usize| used.iter().all(|u| problem.host[*u] != problem.host[n]);
    let hosts = || problem.host[a] == problem.host[b] || (alone(a) && alone(b));
    let links = || used.iter().all(|n| linked_alike(problem, a, b, *n));
    same_machine(problem, a, b) && hosts() && links()
}

fn linked_alike(problem: &Problem<'_>, a: usize, b: usize, other: usize) -> bool {
    problem.link(a, other) == problem.link(b, other)
}

/// Whether two nodes are the same apart from their links.
fn same_machine(problem: &Problem<'_>, a: usize, b: usize) -> bool {
    let (one, two) = (&problem.pool.nodes[a], &problem.pool.nodes[b]);
    let cores = |n: usize| problem.cores[problem.host[n]];
    (one.memory, one.speed, one.threads, one.uplink) == (two.memory, two.speed, two.threads, two.uplink)
        && cores(a) == cores(b)
        && held(problem, a) == held(problem, b)
}

/// Operators that a node holds; `None` if moving is free. A node that others fetch from is not interchangeable.
fn held(problem: &Problem<'_>, node: usize) -> Option<BTreeSet<usize>> {
    if problem.moves.is_empty() {
        return None;
    }
    let own = problem.options.held.iter().filter(|h| h.node == node);
    Some(own.flat_map(|h| h.ops.clone()).collect())
}

/// Whether the order of replicas in a ring never matters, however many there are.
pub(crate) fn rings_are_alike(problem: &Problem<'_>) -> bool {
    let nodes = &problem.pool.nodes;
    let (local, far) = (problem.pool.local_link, nodes[0].uplink.unwrap_or(problem.pool.default_link));
    let slower = far.bytes_per_s <= local.bytes_per_s && far.latency_s >= local.latency_s;
    problem.pool.links.is_empty() && slower && nodes.iter().all(|n| n.uplink == nodes[0].uplink)
}
