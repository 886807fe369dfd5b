use crate::evaluate::shares::{part_of_host, shares};
use crate::evaluate::{Problem, Timed, exchange, moving};
use std::rc::Rc;

/// Replicas, each with its parts and times.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Formation {
    pub(crate) replicas: Vec<Rc<Timed>>,
    pub(crate) micro_batches: usize,
}

/// What a formation costs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Score {
    pub(crate) shares: Vec<usize>,
    pub(crate) step_s: f64,
    /// The host whose cores take as long as the step, if they do.
    pub(crate) host: Option<usize>,
    pub(crate) exchange_s: f64,
    pub(crate) exchange_node: usize,
    pub(crate) moving_s: f64,
    /// What is to be as small as can be.
    pub(crate) total: f64,
}

/// What a formation costs, or nothing if it has no memory for its batch.
pub(crate) fn evaluate(problem: &Problem<'_>, formation: &Formation) -> Option<Score> {
    let shares = shares(problem, formation)?;
    let each = formation.replicas.iter().zip(&shares);
    let slowest = each.map(|(r, n)| r.seconds(problem, *n)).fold(0.0, f64::max);
    let (crowded, host) = hosts(problem, formation, &shares);
    let step_s = slowest.max(crowded) + problem.options.step_s;
    let (exchange_s, exchange_node) = exchange(problem, formation);
    let moving_s = moving(problem, formation);
    let part = step_s + exchange_s / problem.options.exchange.every as f64;
    let total = if moving_s > 0.0 { part * (1.0 + moving_s / problem.options.move_horizon) } else { part };
    let host = (crowded >= slowest).then_some(host);
    Some(Score { shares, step_s, host, exchange_s, exchange_node, moving_s, total })
}

/// The longest that a host's cores take for a step, over all replicas.
fn hosts(problem: &Problem<'_>, formation: &Formation, shares: &[usize]) -> (f64, usize) {
    let mut seconds = vec![0.0f64; problem.cores.len()];
    let mut threads = vec![0.0f64; problem.cores.len()];
    for (replica, samples) in formation.replicas.iter().zip(shares) {
        let (micro_batches, m) = replica.split(*samples);
        for part in &replica.parts {
            seconds[problem.host[part.node]] += part_of_host(problem, *part).at(m) * micro_batches as f64;
            threads[problem.host[part.node]] += problem.pool.nodes[part.node].threads;
        }
    }
    for (host, seconds) in seconds.iter_mut().enumerate() {
        if threads[host] > problem.cores[host] {
            *seconds *= problem.options.crowding;
        }
    }
    let each = seconds.into_iter().enumerate();
    each.fold((0.0, 0), |worst, (host, t)| if t > worst.0 { (t, host) } else { worst })
}
