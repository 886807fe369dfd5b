use crate::Mode;
use crate::evaluate::shares::{part_of_host, shares};
use crate::evaluate::{Problem, Timed, exchange, moving, way};
use std::rc::Rc;

/// Replicas, each with its parts and times.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Formation {
    pub(crate) replicas: Vec<Rc<Timed>>,
    pub(crate) micro_batches: usize,
}

/// The cost of a formation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Score {
    pub(crate) shares: Vec<usize>,
    pub(crate) step_s: f64,
    /// The host whose cores are the bottleneck of the step, if there is one.
    pub(crate) host: Option<usize>,
    pub(crate) exchange_s: f64,
    pub(crate) exchange_node: usize,
    pub(crate) moving_s: f64,
    /// The objective to minimise.
    pub(crate) total: f64,
}

/// A stage that computes for at least this fraction of the time disturbs the others on a crowded host as if it always
/// did: they wait for it while it waits for a core.
const DISTURBING: f64 = 0.1;

/// The cost of a formation; `None` if its batch does not fit in memory.
pub(crate) fn evaluate(problem: &Problem<'_>, formation: &Formation) -> Option<Score> {
    let shares = shares(problem, formation)?;
    let alone: Vec<f64> =
        formation.replicas.iter().zip(&shares).map(|(r, samples)| r.seconds(problem, *samples)).collect();
    let hosts = hosts(problem, formation, &shares, &alone);
    let crowding = |replica: &Timed| {
        replica.parts.iter().map(|part| hosts[problem.host[part.node]].1).fold(1.0, f64::max)
    };
    let slowest = formation.replicas.iter().zip(&alone).map(|(r, t)| t * crowding(r)).fold(0.0, f64::max);
    let busiest = hosts.iter().map(|(seconds, crowding)| seconds * crowding).enumerate();
    let (crowded, host) =
        busiest.fold((0.0, 0), |worst, (host, t)| if t > worst.0 { (t, host) } else { worst });
    let step_s = slowest.max(crowded) + pauses(problem, formation, &shares);
    let (exchange_s, exchange_node) = exchange(problem, formation);
    let moving_s = moving(problem, formation);
    let part = step_s + exchange_s / problem.options.exchange.every as f64;
    let total = if moving_s > 0.0 { part * (1.0 + moving_s / problem.options.move_horizon) } else { part };
    let host = (crowded >= slowest).then_some(host);
    Some(Score { shares, step_s, host, exchange_s, exchange_node, moving_s, total })
}

/// Idle seconds of each step: all stages agree on the step, and pipelines that stopped for it, or for an exchange, fill
/// again.
fn pauses(problem: &Problem<'_>, formation: &Formation, shares: &[usize]) -> f64 {
    let options = problem.options;
    let agree = options.step_s + 2.0 * farthest(problem, formation);
    if options.mode == Mode::Exact {
        return agree;
    }
    let several = formation.replicas.len() > 1;
    let steps = if several { options.exchange.every } else { options.unit };
    let filling = |(replica, samples): (&std::rc::Rc<Timed>, &usize)| {
        let (micro_batches, m) = replica.split(*samples);
        way(problem, &replica.parts, (micro_batches, m)) * (1.0 - 1.0 / replica.parts.len() as f64)
    };
    let filling = formation.replicas.iter().zip(shares).map(filling).fold(0.0, f64::max);
    (agree + filling) / steps as f64
}

/// A lower bound of the pauses of any formation.
pub(crate) fn shortest_pause(problem: &Problem<'_>) -> f64 {
    match problem.options.mode {
        Mode::Exact => problem.options.step_s,
        Mode::Asynchronous { .. } => {
            problem.options.step_s / problem.options.unit.max(problem.options.exchange.every) as f64
        }
    }
}

/// The longest latency between hosts: of neighbours in a replica, and of replicas to one of them.
fn farthest(problem: &Problem<'_>, formation: &Formation) -> f64 {
    // Independent of the order of replicas.
    let first = formation.replicas.iter().map(|replica| replica.parts[0].node).min();
    let mut longest = 0.0f64;
    for replica in &formation.replicas {
        let mut before = first;
        for part in &replica.parts {
            let far = before.filter(|before| problem.host[*before] != problem.host[part.node]);
            longest = far.map_or(longest, |before| longest.max(problem.link(before, part.node).latency_s));
            before = Some(part.node);
        }
    }
    longest
}

/// The busy time of each host's cores for a step of all replicas, given the time of each replica alone, and the factor
/// by which contention for cores slows everything down there.
fn hosts(problem: &Problem<'_>, formation: &Formation, shares: &[usize], alone: &[f64]) -> Vec<(f64, f64)> {
    let mut all = vec![(0.0, 0.0); problem.cores.len()];
    for ((replica, samples), alone) in formation.replicas.iter().zip(shares).zip(alone) {
        let (micro_batches, m) = replica.split(*samples);
        for part in &replica.parts {
            let (seconds, threads) = &mut all[problem.host[part.node]];
            let own = part_of_host(problem, *part, micro_batches).at(m) * micro_batches as f64;
            *seconds += own;
            let (own_threads, cores) =
                (problem.pool.nodes[part.node].threads, problem.cores[problem.host[part.node]]);
            let busy = own * cores / own_threads / alone.max(f64::MIN_POSITIVE);
            *threads += own_threads * (busy / DISTURBING).min(1.0);
        }
    }
    let excess = problem.options.crowding - 1.0;
    let host = |((seconds, threads), cores): ((f64, f64), &f64)| {
        (seconds, 1.0 + excess * (threads - cores).clamp(0.0, 1.0))
    };
    all.into_iter().zip(&problem.cores).map(host).collect()
}
