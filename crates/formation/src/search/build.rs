use crate::cuts::{self, Lane};
use crate::evaluate::{Formation, Problem, Score, Timed, evaluate};
use std::rc::Rc;

/// A formation and its cost.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) formation: Formation,
    pub(crate) score: Score,
}

impl Found {
    pub(crate) fn total(&self) -> f64 {
        self.score.total
    }

    /// The same formation, with replicas in the order of their first nodes.
    pub(crate) fn in_order(&self) -> Self {
        let mut order: Vec<usize> = (0..self.formation.replicas.len()).collect();
        order.sort_by_key(|r| self.formation.replicas[*r].parts[0].node);
        let mut found = self.clone();
        found.formation.replicas = order.iter().map(|r| self.formation.replicas[*r].clone()).collect();
        found.score.shares = order.iter().map(|r| self.score.shares[*r]).collect();
        found
    }

    /// The nodes of each replica.
    pub(crate) fn lists(&self) -> Vec<Vec<usize>> {
        let nodes = |r: &Rc<Timed>| r.parts.iter().map(|p| p.node).collect();
        self.formation.replicas.iter().map(nodes).collect()
    }
}

/// Every this many further nodes of a formation count as one more evaluation, which takes longer accordingly.
const LARGE: usize = 200;

/// Makes formations from lists of nodes, and counts them.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) evaluations: u64,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(problem: &'a Problem<'a>) -> Self {
        Self { problem, evaluations: 0 }
    }

    pub(crate) fn evaluate(&mut self, formation: Formation) -> Option<Found> {
        self.evaluations += 1 + (self.problem.pool.nodes.len() / LARGE) as u64;
        let score = evaluate(self.problem, &formation)?;
        Some(Found { formation, score })
    }

    /// A formation of replicas with these nodes in this order, cut well for the shares that their speeds suggest.
    pub(crate) fn raise(&mut self, lists: &[Vec<usize>], micro_batches: usize) -> Option<Found> {
        let batch = self.problem.batch();
        if lists.is_empty() || lists.len() > batch {
            return None;
        }
        let powers: Vec<f64> = lists.iter().map(|nodes| self.power(nodes)).collect();
        let all: f64 = powers.iter().sum();
        let replicas = lists.iter().zip(&powers).map(|(nodes, power)| {
            let share = (batch as f64 * power / all).round().max(1.0) as usize;
            self.replica(nodes, micro_batches, share)
        });
        let replicas: Option<Vec<_>> = replicas.collect();
        let found = self.evaluate(Formation { replicas: replicas?, micro_batches })?;
        Some(found)
    }

    pub(crate) fn power(&self, nodes: &[usize]) -> f64 {
        nodes.iter().map(|n| self.problem.pool.nodes[*n].speed).sum()
    }

    /// A replica that is cut for a share of this many samples, or fewer if these do not fit.
    pub(crate) fn replica(&self, nodes: &[usize], micro_batches: usize, share: usize) -> Option<Rc<Timed>> {
        let mut share = share.clamp(1, self.problem.batch());
        loop {
            let lane =
                Lane { nodes, micro_batches: micro_batches.min(share), m: share.div_ceil(micro_batches) };
            if let Some(parts) = cuts::good(self.problem, lane) {
                let timed = Timed::new(self.problem, parts, micro_batches);
                return (timed.most > 0).then(|| Rc::new(timed));
            }
            if share == 1 {
                return None;
            }
            share /= 2;
        }
    }

    /// The same replicas, cut again for their actual shares, if that is better.
    pub(crate) fn recut(&mut self, found: Found) -> Found {
        let micro_batches = found.formation.micro_batches;
        let mut formation = found.formation.clone();
        let mut changed = false;
        for (replica, share) in formation.replicas.iter_mut().zip(&found.score.shares) {
            if replica.parts.len() == 1 {
                continue;
            }
            let nodes: Vec<usize> = replica.parts.iter().map(|p| p.node).collect();
            let Some(fresh) = self.replica(&nodes, micro_batches, *share) else { continue };
            if fresh.parts != replica.parts {
                (*replica, changed) = (fresh, true);
            }
        }
        if !changed {
            return found;
        }
        match self.evaluate(formation) {
            Some(fresh) if fresh.total() < found.total() => fresh,
            _ => found,
        }
    }
}

/// The better of two; the first if they are equal.
pub(crate) fn better(a: Option<Found>, b: Option<Found>) -> Option<Found> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.total() < a.total() { b } else { a }),
        (a, b) => a.or(b),
    }
}
