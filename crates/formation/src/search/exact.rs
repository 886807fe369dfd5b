//! The best formation of all, for small pools.
//!
//! Replicas are sets of ordered lists of nodes. For each list, and each number of micro-batches, dynamic programming
//! says how many samples it can take, wherever it is cut, in the time of the best formation known. Sets whose lists
//! together cannot take a batch are skipped; of the others, all cuts are tried that leave enough for the rest.

use crate::cuts::{self, Lane};
use crate::evaluate::{Formation, Part, Problem, Timed, exchange_lower_bound};
use crate::search::build::{Builder, Found};
use crate::search::{KeepGoing, symmetry};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Evaluations of the exact search for each one that the caller allows: most of its own are much cheaper.
const EVALUATIONS: u64 = 50;

/// Improves on `best`, and says whether the result is proved to be the best.
pub(crate) fn exact(
    builder: &mut Builder<'_>,
    best: Option<Found>,
    keep_going: KeepGoing<'_>,
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
        keep_going,
    };
    let proved = search.replica();
    (search.best, proved)
}

/// A replica with its cuts, and the samples that it takes in time.
type Ready = (Rc<Timed>, usize);

struct Search<'a, 'p> {
    problem: &'p Problem<'p>,
    classes: Vec<usize>,
    /// Whether nodes of one class may stand for each other also in rings of more than three.
    alike: bool,
    /// Nodes in the order they are tried: classes together.
    numbers: Vec<usize>,
    /// By list and micro-batches: samples that it can take in the time of a formation that was once the best.
    known: BTreeMap<(Vec<usize>, usize), usize>,
    best: Option<Found>,
    builder: &'a mut Builder<'p>,
    limit: u64,
    /// Sets of lists; looking at eight takes about as long as an evaluation.
    looked: u64,
    used: Vec<bool>,
    lists: Vec<Vec<usize>>,
    keep_going: KeepGoing<'a>,
}

impl Search<'_, '_> {
    fn bound(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, Found::total)
    }

    /// Tries what there is, then all ways to add one more replica. False when there is no more effort.
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

    /// Of nodes that are alike only the first that is free.
    fn may_use(&self, node: usize) -> bool {
        let earlier = |n: &usize| self.classes[*n] == self.classes[node] && *n < node && !self.used[*n];
        !self.used[node] && (self.few_rings_or_not_alike() || !(0..self.used.len()).any(|n| earlier(&n)))
    }

    /// Where four replicas are possible and rings differ, no node stands for another.
    fn few_rings_or_not_alike(&self) -> bool {
        let most = self.problem.options.replicas.unwrap_or(self.used.len());
        most > 3 && !self.alike
    }

    /// Adds a node to the last list; then goes on with the next replica, and with longer lists.
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

    /// Tries the lists as they are with every number of micro-batches.
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
            if self.builder.evaluations > self.limit || !(self.keep_going)() {
                return false;
            }
        }
        true
    }

    fn with(&mut self, micro_batches: usize, exchange: f64) -> bool {
        let bound = self.bound();
        if bound <= exchange {
            return true;
        }
        let batch = self.problem.batch();
        let mut takes = Vec::with_capacity(self.lists.len());
        for list in self.lists.clone() {
            takes.push(self.takes(&list, micro_batches, bound));
        }
        if takes.contains(&0) || takes.iter().sum::<usize>() < batch {
            return true;
        }
        let limit = (bound - exchange) * (1.0 + 1e-9);
        if let [list] = &self.lists[..] {
            let lane = lane(list, micro_batches, batch);
            let all = cuts::candidates(self.problem, lane, limit);
            for parts in all {
                let replica = Timed::new(self.problem, parts, micro_batches);
                self.consider(vec![Rc::new(replica)], micro_batches);
            }
            return true;
        }
        for (take, list) in takes.iter_mut().zip(&self.lists) {
            *take = (*take).min(most_samples(self.problem, list, micro_batches, limit, *take));
        }
        if takes.contains(&0) || takes.iter().sum::<usize>() < batch {
            return true;
        }
        let Some(all) = self.cuts(micro_batches, limit, &takes) else { return false };
        self.combine(&all, &mut Vec::new(), micro_batches)
    }

    /// Samples that a list can take within what was once the bound, wherever it is cut.
    fn takes(&mut self, list: &[usize], micro_batches: usize, bound: f64) -> usize {
        let key = (list.to_vec(), micro_batches);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.builder.evaluations += programming(self.problem, list.len());
        let limit = bound * (1.0 + 1e-9);
        let most = most_samples(self.problem, list, micro_batches, limit, self.problem.batch());
        self.known.insert(key, most);
        most
    }

    /// For each list all cuts that leave no more to the others than they can take.
    fn cuts(&mut self, micro_batches: usize, limit: f64, takes: &[usize]) -> Option<Vec<Vec<Ready>>> {
        let sum: usize = takes.iter().sum();
        let mut all = Vec::with_capacity(takes.len());
        for (list, take) in self.lists.iter().zip(takes) {
            let least = self.problem.batch().saturating_sub(sum - take).max(1);
            let lane = lane(list, micro_batches, least);
            let (mut found, problem) = (Vec::new(), self.problem);
            let budget = self.limit.saturating_sub(self.builder.evaluations);
            let complete = cuts::all(problem, lane, limit, &mut |parts: Vec<Part>| {
                let replica = Timed::new(problem, parts, micro_batches);
                let within = replica.samples_within(problem, limit, 0.0, Default::default());
                found.push((Rc::new(replica), within));
                (found.len() as u64) < budget
            });
            self.builder.evaluations += found.len() as u64 / 4;
            if !complete {
                return None;
            }
            found.sort_by_key(|(_, within)| std::cmp::Reverse(*within));
            all.push(found);
        }
        Some(all)
    }

    /// Tries all combinations that can take a batch.
    fn combine(&mut self, all: &[Vec<Ready>], chosen: &mut Vec<Ready>, micro_batches: usize) -> bool {
        let sum = |some: &[Ready]| some.iter().map(|(_, n)| *n).sum::<usize>();
        let Some(next) = all.get(chosen.len()) else {
            self.consider(chosen.iter().map(|(r, _)| r.clone()).collect(), micro_batches);
            return self.builder.evaluations <= self.limit;
        };
        let rest: usize = all[chosen.len() + 1..].iter().map(|l| l.first().map_or(0, |(_, n)| *n)).sum();
        let before = sum(chosen);
        for one in next {
            if before + one.1 + rest < self.problem.batch() {
                break;
            }
            chosen.push(one.clone());
            let on = self.combine(all, chosen, micro_batches);
            chosen.pop();
            if !on {
                return false;
            }
        }
        true
    }

    fn consider(&mut self, replicas: Vec<Rc<Timed>>, micro_batches: usize) {
        let found = self.builder.evaluate(Formation { replicas, micro_batches });
        if let Some(found) = found.filter(|f| f.total() < self.bound()) {
            self.best = Some(found);
        }
    }
}

/// How many evaluations take as long as finding out how much a list can take.
fn programming(problem: &Problem<'_>, stages: usize) -> u64 {
    1 + (stages * problem.end().pow(2) / 12) as u64
}

fn lane(nodes: &[usize], micro_batches: usize, samples: usize) -> Lane<'_> {
    Lane { nodes, micro_batches: micro_batches.min(samples), m: samples.div_ceil(micro_batches) }
}

/// The most samples, up to `most`, that a list can take within a time, wherever it is cut.
fn most_samples(
    problem: &Problem<'_>,
    list: &[usize],
    micro_batches: usize,
    limit: f64,
    most: usize,
) -> usize {
    let within = |n: usize| cuts::best(problem, lane(list, micro_batches, n), limit).is_some();
    // A share of a whole number of micro-batches takes as long as one that is a little smaller.
    let full = |m: usize| (m * micro_batches).min(most);
    let levels = most.div_ceil(micro_batches);
    if levels == 0 || !within(full(1)) {
        let (mut low, mut high) = (0, full(1));
        while high - low > 1 {
            let middle = low.midpoint(high);
            if within(middle) { low = middle } else { high = middle }
        }
        return low;
    }
    let (mut low, mut high) = (1, levels + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if within(full(middle)) { low = middle } else { high = middle }
    }
    full(low)
}
