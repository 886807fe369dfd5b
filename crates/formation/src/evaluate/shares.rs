//! How many samples of a batch each replica takes, so that all finish together.

use crate::evaluate::{Formation, Line, Problem, StageRange};

/// Bisection steps for the time.
const HALVINGS: usize = 40;

/// The samples of each replica; `None` if a whole batch does not fit in memory.
pub(crate) fn shares(problem: &Problem<'_>, formation: &Formation) -> Option<Vec<usize>> {
    let batch = problem.batch();
    let replicas = &formation.replicas;
    let room = replicas.iter().fold(0usize, |sum, r| sum.saturating_add(r.most));
    if replicas.len() > batch || room < batch || replicas.iter().any(|r| r.most == 0) {
        return None;
    }
    if let [_] = &replicas[..] {
        return Some(vec![batch]);
    }
    let crowds = crowds(problem, formation);
    let within = |limit: f64| -> Vec<usize> {
        let each = replicas.iter().zip(&crowds);
        each.map(|(r, (factor, line))| r.samples_within(problem, limit, *factor, *line)).collect()
    };
    let enough = |all: &[usize]| {
        all.iter().all(|n| *n > 0) && all.iter().fold(0usize, |sum, n| sum.saturating_add(*n)) >= batch
    };
    let (mut low, mut high) = (0.0, first_guess(problem, formation));
    let mut found = within(high);
    while !enough(&found) {
        low = high;
        high *= 2.0;
        found = within(high);
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        let tried = within(middle);
        if enough(&tried) {
            (high, found) = (middle, tried);
        } else {
            low = middle;
        }
        if high - low <= high * 1e-7 {
            break;
        }
    }
    let mut order: Vec<usize> = (0..replicas.len()).collect();
    order.sort_by_key(|r| replicas[*r].parts[0].node);
    give_back(&mut found, &order, batch);
    Some(found)
}

fn first_guess(problem: &Problem<'_>, formation: &Formation) -> f64 {
    let times = formation.replicas.iter().map(|r| r.seconds(problem, 1));
    times.fold(f64::MIN_POSITIVE, f64::max)
}

/// Takes surplus samples from the largest shares until one batch is left. Among equals those that come first in `order`
/// give first, so that the same formation has the same shares however its replicas are listed.
fn give_back(shares: &mut [usize], order: &[usize], batch: usize) {
    let mut surplus = shares.iter().sum::<usize>().saturating_sub(batch);
    while surplus > 0 {
        let most = shares.iter().copied().max().unwrap_or(0);
        // Lowers the largest shares to the next lower one, all at once if the difference is large.
        let next = shares.iter().copied().filter(|n| *n < most).max().unwrap_or(1).max(1);
        for replica in order.iter().copied().filter(|r| shares[*r] == most).collect::<Vec<_>>() {
            let less = (most - next).max(1).min(surplus);
            shares[replica] -= less;
            surplus -= less;
        }
    }
}

/// For each replica its longest line over a host that it shares with others, times the number of replicas sharing it.
fn crowds(problem: &Problem<'_>, formation: &Formation) -> Vec<(f64, Line)> {
    let mut sharing = vec![0u32; problem.cores.len()];
    let mut seen = vec![usize::MAX; problem.cores.len()];
    for (r, part) in parts(formation) {
        let host = problem.host[part.node];
        if seen[host] != r {
            seen[host] = r;
            sharing[host] += 1;
        }
    }
    if sharing.iter().all(|n| *n < 2) {
        return vec![(0.0, Line::default()); formation.replicas.len()];
    }
    formation
        .replicas
        .iter()
        .map(|replica| crowd(problem, &replica.parts, replica.micro_batches, &sharing))
        .collect()
}

fn crowd(problem: &Problem<'_>, parts: &[StageRange], micro_batches: usize, sharing: &[u32]) -> (f64, Line) {
    let mut longest = (0.0, Line::default());
    for (i, part) in parts.iter().enumerate() {
        let host = problem.host[part.node];
        let first = parts[..i].iter().all(|p| problem.host[p.node] != host);
        if sharing[host] < 2 || !first {
            continue;
        }
        let here = parts[i..].iter().filter(|p| problem.host[p.node] == host);
        let work = here.map(|p| part_of_host(problem, *p, micro_batches)).fold(Line::default(), Line::plus);
        let line = work.times(micro_batches as f64);
        if line.at(1) * f64::from(sharing[host]) > longest.1.at(1) * longest.0 {
            longest = (f64::from(sharing[host]), line);
        }
    }
    longest
}

/// Seconds of the host's cores for one of `micro_batches` micro-batches.
pub(crate) fn part_of_host(problem: &Problem<'_>, part: StageRange, micro_batches: usize) -> Line {
    let (base, slope) = problem.busy(part, micro_batches);
    Line { base, slope }.times(problem.pool.nodes[part.node].threads / problem.cores[problem.host[part.node]])
}

fn parts(formation: &Formation) -> impl Iterator<Item = (usize, StageRange)> {
    formation.replicas.iter().enumerate().flat_map(|(r, replica)| replica.parts.iter().map(move |p| (r, *p)))
}
