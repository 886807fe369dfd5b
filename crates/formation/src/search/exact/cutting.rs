//! Tries all cuts of given lists of nodes that may beat the best formation.

use super::Search;
use crate::cuts::{self, Lane};
use crate::evaluate::{Formation, Problem, StageRange, Timed, shortest_pause};
use crate::search::Patience;
use crate::search::build::Found;
use std::cmp::Reverse;
use std::rc::Rc;

/// The most replicas with cuts that are stored at a time: about a hundred megabytes.
const MOST_CUTS: usize = 100_000;
/// The most lists whose capacity is cached: about as much again.
const MOST_KNOWN: usize = 500_000;

/// A replica with its cuts, and the samples that it can process in time.
type Ready = (Rc<Timed>, usize);

impl Search<'_, '_, '_> {
    /// Tries the current lists with this many micro-batches. False when there is no more effort.
    pub(super) fn with(&mut self, micro_batches: usize, exchange: f64) -> bool {
        let bound = self.bound();
        // A lower bound of every step; contention for cores only adds to it. Slightly more, to allow for rounding.
        let limit = bound - exchange - shortest_pause(self.problem) + bound * 1e-9;
        if limit <= 0.0 {
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
        if self.lists.len() == 1 {
            return self.alone(micro_batches, limit);
        }
        for (take, list) in takes.iter_mut().zip(&self.lists) {
            *take = most_samples(self.problem, list, micro_batches, (limit, *take), self.patience);
        }
        if takes.contains(&0) || takes.iter().sum::<usize>() < batch {
            return true;
        }
        let Some(all) = self.cuts(micro_batches, limit, &takes) else { return false };
        self.combine(&all, &mut Vec::new(), micro_batches)
    }

    /// One list: the cuts that labels leave, or all cuts where labels do not tell everything.
    fn alone(&mut self, micro_batches: usize, limit: f64) -> bool {
        let (problem, most) = (self.problem, self.limit);
        let Some(list) = self.lists.first() else { return true };
        let lane = lane(list, micro_batches, problem.batch());
        let (builder, best) = (&mut *self.builder, &mut self.best);
        let mut consider = |parts: Vec<StageRange>| {
            let replicas = vec![Rc::new(Timed::new(problem, parts, micro_batches))];
            improve(best, builder.evaluate(Formation { replicas, micro_batches }));
            builder.evaluations <= most
        };
        let some = cuts::candidates(problem, lane, limit, self.patience);
        let complete = some.into_iter().all(|parts| consider(parts) && self.patience.lasts_for_one());
        let complete = complete && !self.patience.is_over();
        complete
            && (cuts::tell_all(problem, lane.nodes)
                || cuts::all(problem, lane, limit, self.patience, &mut consider))
    }

    /// Samples that a list can process within an earlier bound, wherever it is cut.
    fn takes(&mut self, list: &[usize], micro_batches: usize, bound: f64) -> usize {
        let key = (list.to_vec(), micro_batches);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.builder.evaluations += programming(self.problem, list.len());
        let limit = bound - shortest_pause(self.problem) + bound * 1e-9;
        let most = (limit, self.problem.batch());
        let most = most_samples(self.problem, list, micro_batches, most, self.patience);
        if self.known.len() < MOST_KNOWN {
            self.known.insert(key, most);
        }
        most
    }

    /// For each list all cuts that leave no more to the others than they can process. `None` if they are too many.
    fn cuts(&mut self, micro_batches: usize, limit: f64, takes: &[usize]) -> Option<Vec<Vec<Ready>>> {
        let sum: usize = takes.iter().sum();
        let mut all = Vec::with_capacity(takes.len());
        let mut room = MOST_CUTS;
        for (list, take) in self.lists.iter().zip(takes) {
            let least = self.problem.batch().saturating_sub(sum - take).max(1);
            let lane = lane(list, micro_batches, least);
            let (mut found, problem) = (Vec::new(), self.problem);
            let budget = self.limit.saturating_sub(self.builder.evaluations);
            let complete = cuts::all(problem, lane, limit, self.patience, &mut |parts: Vec<StageRange>| {
                let replica = Timed::new(problem, parts, micro_batches);
                let within = replica.samples_within(problem, limit, 0.0, Default::default());
                found.push((Rc::new(replica), within));
                found.len() < room && (found.len() as u64) < budget
            });
            self.builder.evaluations += found.len() as u64 / 4;
            if !complete {
                return None;
            }
            room -= found.len();
            found.sort_by_key(|(_, within)| Reverse(*within));
            all.push(found);
        }
        Some(all)
    }

    /// Tries all combinations that can process a batch.
    fn combine(&mut self, all: &[Vec<Ready>], chosen: &mut Vec<Ready>, micro_batches: usize) -> bool {
        let sum = |some: &[Ready]| some.iter().map(|(_, n)| *n).sum::<usize>();
        let Some(next) = all.get(chosen.len()) else {
            let replicas = chosen.iter().map(|(r, _)| r.clone()).collect();
            improve(&mut self.best, self.builder.evaluate(Formation { replicas, micro_batches }));
            return self.builder.evaluations <= self.limit && self.patience.lasts_for_one();
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
}

/// Keeps the better one.
fn improve(best: &mut Option<Found>, other: Option<Found>) {
    let bound = best.as_ref().map_or(f64::INFINITY, Found::total);
    if let Some(other) = other.filter(|f| f.total() < bound) {
        *best = Some(other);
    }
}

/// How many evaluations take as long as computing the capacity of a list.
fn programming(problem: &Problem<'_>, stages: usize) -> u64 {
    1 + (stages * problem.end().pow(2) / 12) as u64
}

fn lane(nodes: &[usize], micro_batches: usize, samples: usize) -> Lane<'_> {
    Lane { nodes, micro_batches: micro_batches.min(samples), m: samples.div_ceil(micro_batches) }
}

/// The most samples, up to `most`, that a list can process within a time, wherever it is cut.
fn most_samples(
    problem: &Problem<'_>,
    list: &[usize],
    micro_batches: usize,
    (limit, most): (f64, usize),
    patience: &mut Patience<'_>,
) -> usize {
    let mut within = |n: usize| cuts::within(problem, lane(list, micro_batches, n), limit, patience);
    // A share of whole micro-batches takes as long as a slightly smaller one.
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
