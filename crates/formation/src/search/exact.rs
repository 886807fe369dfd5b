//! Exact search: the best of all formations, for small pools.
//!
//! Replicas are sets of ordered lists of nodes. For each list, and each number of micro-batches, dynamic programming
//! gives the samples that it can process, wherever it is cut, in the time of the best formation so far. Sets whose
//! lists together cannot process a batch are skipped; for the others, all cuts are tried that leave enough for the
//! rest.

mod cutting;
#[cfg(test)]
mod tests;

use crate::evaluate::{Problem, exchange_lower_bound};
use crate::search::build::{Builder, Found};
use crate::search::{Patience, symmetry};
use std::collections::BTreeMap;

/// Evaluations of the exact search for each one that the caller allows: most of them are much cheaper.
const EVALUATIONS: u64 = 50;

/// Improves on `best`, and returns whether the result is proved to be the best.
pub(crate) fn exact(
    builder: &mut Builder<'_>,
    best: Option<Found>,
    patience: &mut Patience<'_>,
) -> (Option<Found>, bool) {
    let problem = builder.problem;
    let count = problem.pool.nodes.len();
    if count > 12 {
        return (best, false);
    }
    let classes = symmetry::classes(problem);
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by_key(|n| (classes[*n], *n));
    let limit = builder.problem.options.effort.evaluations.saturating_mul(EVALUATIONS);
    let mut search = Search {
        problem,
        alike: symmetry::rings_are_alike(problem),
        classes,
        numbers,
        known: BTreeMap::new(),
        best,
        builder,
        limit,
        looked: 0,
        used: vec![false; count],
        lists: Vec::new(),
        patience,
    };
    let proved = search.replica();
    (search.best, proved)
}

struct Search<'a, 'p, 'k> {
    problem: &'p Problem<'p>,
    classes: Vec<usize>,
    /// Whether nodes of one class are interchangeable also in rings of more than three.
    alike: bool,
    /// Nodes in the order in which they are tried, grouped by class.
    numbers: Vec<usize>,
    /// By list and micro-batches: the samples it can process in the time of an earlier best formation.
    known: BTreeMap<(Vec<usize>, usize), usize>,
    best: Option<Found>,
    builder: &'a mut Builder<'p>,
    limit: u64,
    /// Sets of lists that were examined; eight of them take about as long as an evaluation.
    looked: u64,
    used: Vec<bool>,
    lists: Vec<Vec<usize>>,
    patience: &'a mut Patience<'k>,
}

impl Search<'_, '_, '_> {
    fn bound(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, Found::total)
    }

    /// Tries the current lists, then all ways to add one more replica. False when there is no more effort.
    fn replica(&mut self) -> bool {
        if !self.lists.is_empty() && !self.complete() {
            return false;
        }
        let given = self.problem.options.replicas;
        if self.lists.len() >= given.unwrap_or(usize::MAX).min(self.problem.batch()) {
            return true;
        }
        let last = self.lists.last().map(|list| self.rank(list[0]));
        for rank in last.map_or(0, |r| r + 1)..self.numbers.len() {
            let node = self.numbers[rank];
            if !self.may_use(node) {
                continue;
            }
            self.lists.push(Vec::new());
            let on = self.extend(node);
            self.lists.pop();
            if !on {
                return false;
            }
        }
        true
    }

    fn rank(&self, node: usize) -> usize {
        self.numbers.iter().position(|n| *n == node).unwrap_or(usize::MAX)
    }

    /// Of interchangeable nodes only the first free one is used.
    fn may_use(&self, node: usize) -> bool {
        let earlier = |n: &usize| self.classes[*n] == self.classes[node] && *n < node && !self.used[*n];
        !self.used[node] && (self.none_stands_for_another() || !(0..self.used.len()).any(|n| earlier(&n)))
    }

    /// Whether all nodes have to be tried: four replicas are possible, and rings depend on their order.
    fn none_stands_for_another(&self) -> bool {
        let most = self.problem.options.replicas.unwrap_or(self.used.len());
        most > 3 && !self.alike
    }

    /// Adds a node to the last list; then continues with the next replica, and with longer lists.
    fn extend(&mut self, node: usize) -> bool {
        self.used[node] = true;
        if let Some(list) = self.lists.last_mut() {
            list.push(node);
        }
        let on = self.longer();
        if let Some(list) = self.lists.last_mut() {
            list.pop();
        }
        self.used[node] = false;
        on
    }

    fn longer(&mut self) -> bool {
        let length = self.lists.last().map_or(0, Vec::len);
        let stages = self.problem.options.stages;
        if stages.is_none_or(|s| s == length) && !self.replica() {
            return false;
        }
        if length >= stages.unwrap_or(usize::MAX).min(self.problem.end()) {
            return true;
        }
        for rank in 0..self.numbers.len() {
            let node = self.numbers[rank];
            if self.may_use(node) && !self.extend(node) {
                return false;
            }
        }
        true
    }

    /// Tries the current lists with every number of micro-batches.
    fn complete(&mut self) -> bool {
        if self.problem.options.replicas.is_some_and(|r| r != self.lists.len()) {
            return true;
        }
        let exchange = exchange_lower_bound(self.problem, &self.lists);
        let exchange = exchange / self.problem.options.exchange.every as f64;
        for micro_batches in self.problem.options.micro_batch_choices() {
            self.looked += 1;
            self.builder.evaluations += u64::from(self.looked.is_multiple_of(8));
            if !self.with(micro_batches, exchange) {
                return false;
            }
            if self.builder.evaluations > self.limit || !self.patience.lasts() {
                return false;
            }
        }
        true
    }
}
