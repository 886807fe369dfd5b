//! Which results are compared, which trials go on to the next rung, and which are trained in full at the end.

use super::state::{Reached, SearchState, TrialState};
use super::{Finish, SearchConfig, Stage};
use crate::core::algorithm::Observation;
use crate::core::pareto::{crowding, dominates, first_front, fronts};
use crate::core::record::{SearchEnd, TrialId};
use crate::core::space::Genes;

/// The algorithm sees the results of a rung once so many trials have reached it. Fewer say too little about the space.
pub const COMPARABLE: usize = 20;

impl SearchConfig {
    pub(super) fn last_rung(&self) -> usize {
        self.rungs.len().saturating_sub(1)
    }

    /// Whether the last rung is filled only at the end.
    pub(super) fn finishes(&self) -> bool {
        self.finish != Finish::None && self.last_rung() > 0
    }

    /// Rungs that trials climb while candidates are proposed.
    pub(super) fn climbed(&self) -> usize {
        if self.finishes() { self.last_rung() } else { self.rungs.len() }
    }

    /// The first objective without a value, by name.
    pub(super) fn missing_objective(&self, trial: &TrialState, reached: &Reached) -> Option<&str> {
        let missing = |name: &&str| !trial.known.contains_key(*name) && !reached.values.contains_key(*name);
        self.objectives.iter().map(|objective| objective.name.as_str()).find(missing)
    }

    /// The values of all objectives, not turned. A value that was known beforehand is not measured.
    fn values(&self, trial: &TrialState, rung: usize) -> Option<Vec<f64>> {
        let reached = trial.result_at(rung)?;
        let value = |name: &String| trial.known.get(name).or_else(|| reached.values.get(name)).copied();
        self.objectives.iter().map(|objective| value(&objective.name)).collect()
    }

    /// The values of all objectives, turned so that less is better.
    fn point(&self, trial: &TrialState, rung: usize) -> Option<Vec<f64>> {
        let values = self.values(trial, rung)?;
        Some(
            self.objectives
                .iter()
                .zip(values)
                .map(|(objective, value)| objective.lower_is_better(value))
                .collect(),
        )
    }
}

/// A trial among those that reached the same rung.
struct Member<'a> {
    id: TrialId,
    trial: &'a TrialState,
    deepest: usize,
}

impl SearchState {
    /// Trials whose results count, and that reached a rung, with their points there. Of results on rungs from `end` on
    /// nothing is seen.
    fn on_rung(&self, config: &SearchConfig, rung: usize, end: usize) -> (Vec<Member<'_>>, Vec<Vec<f64>>) {
        let members = self.trained().filter(|(_, trial)| trial.is_sound()).filter_map(|(id, trial)| {
            let deepest = trial.results.iter().map(|reached| reached.rung).filter(|at| *at < end).max()?;
            Some((Member { id, trial, deepest }, config.point(trial, rung)?))
        });
        members.unzip()
    }

    /// A trial that is in the best 1/eta of its rung and may go on to the next.
    pub(super) fn promotable(&self, config: &SearchConfig, next: usize) -> Option<TrialId> {
        let (members, points) = self.on_rung(config, next - 1, usize::MAX);
        let best = members.len() / config.eta.max(1) as usize;
        let waits = |member: &Member<'_>| member.trial.stage == Stage::Waiting && member.deepest + 1 == next;
        if best == 0 || !members.iter().any(waits) {
            return None;
        }
        let chosen = ranked(&points).into_iter().take(best).find(|at| waits(&members[*at]))?;
        Some(members[chosen].id)
    }

    /// The rung of which the algorithm sees results.
    fn compared_rung(&self, config: &SearchConfig) -> usize {
        let reached = |rung: usize| {
            self.trained().filter(|(_, trial)| trial.is_sound() && trial.result_at(rung).is_some()).count()
        };
        (1..config.rungs.len()).rev().find(|rung| reached(*rung) >= COMPARABLE).unwrap_or(0)
    }

    /// What the algorithm learns from, in the order in which it came, and the candidates that are being tried.
    pub(super) fn observations(&self, config: &SearchConfig) -> (Vec<Observation>, Vec<Genes>) {
        let rung = self.compared_rung(config);
        let results = self.order.iter().filter(|(_, reached)| *reached == rung).filter_map(|(id, _)| {
            let trial = self.trials.get(id).filter(|trial| trial.is_sound())?;
            Some(Observation { genes: trial.genes.clone(), values: config.values(trial, rung)? })
        });
        let is_pending = |trial: &&TrialState| match trial.stage {
            Stage::Queued { .. } => trial.result_at(rung).is_none(),
            // An equal network of a trial that has no result yet, or a candidate that is about to be queued.
            Stage::Waiting => trial.results.is_empty(),
            Stage::Ended(_) => false,
        };
        let pending = self.trials.values().filter(is_pending).map(|trial| trial.genes.clone());
        (results.collect(), pending.collect())
    }

    /// Trials that no other dominates at the deepest rung below `end` that both have reached.
    ///
    /// A front of the deepest results of all would be unfair to trials that were not trained as far as others, and a
    /// front of the deepest rung alone has hardly a member if there are many rungs.
    fn fair_front(&self, config: &SearchConfig, end: usize) -> Vec<TrialId> {
        let mut best = Vec::new();
        let mut beaten = std::collections::BTreeSet::new();
        for rung in 0..end {
            let (members, points) = self.on_rung(config, rung, end);
            // Those that went further are compared here only with those that did not.
            let stayed = (0..members.len()).filter(|at| members[*at].deepest == rung).collect::<Vec<_>>();
            let rivals = stayed.iter().map(|at| points[*at].clone()).collect::<Vec<_>>();
            let rivals = first_front(&rivals).into_iter().map(|at| &rivals[at]).collect::<Vec<_>>();
            let all_here = first_front(&points);
            for (at, member) in members.iter().enumerate() {
                if member.deepest > rung {
                    if rivals.iter().any(|rival| dominates(rival, &points[at])) {
                        beaten.insert(member.id);
                    }
                } else if all_here.binary_search(&at).is_ok() {
                    best.push(member.id);
                }
            }
        }
        best.retain(|id| !beaten.contains(id));
        best.sort_unstable();
        best
    }

    pub(super) fn front(&self, config: &SearchConfig) -> Vec<TrialId> {
        if self.ended == Some(SearchEnd::Finished) {
            let (members, points) = self.on_rung(config, config.last_rung(), usize::MAX);
            if !members.is_empty() {
                return first_front(&points).into_iter().map(|at| members[at].id).collect();
            }
        }
        self.fair_front(config, config.rungs.len())
    }

    /// The next trial to be trained in full at the end. `settled`: no trial is on its way to a lower rung. Before that, a
    /// node that has nothing else to do begins with a trial that is on the front now.
    pub(super) fn to_finish(&self, config: &SearchConfig, settled: bool) -> Option<TrialId> {
        let last = config.last_rung();
        if !config.finishes() {
            return None;
        }
        let waits = |id: &TrialId| self.trials.get(id).is_some_and(|trial| trial.stage == Stage::Waiting);
        let front = self.fair_front(config, last);
        if let Some(next) = front.iter().find(|id| waits(id)) {
            return Some(*next);
        }
        let partial = self.trained().filter(|(_, trial)| trial.stage == Stage::Waiting && trial.is_sound());
        if config.finish == Finish::All {
            return partial.map(|(id, _)| id).next();
        }
        let is_queued = |id: &TrialId| self.trials.get(id).is_some_and(TrialState::is_queued);
        if !settled || front.iter().any(is_queued) {
            return None;
        }
        // A trial that is not dominated even by others that were trained longer is worth a full training. There are as
        // many of them as the front has members, at most.
        let (_, full) = self.on_rung(config, last, usize::MAX);
        if full.len() + self.queued() >= 2 * front.len() {
            return None;
        }
        let undominated = |trial: &TrialState| {
            let point = trial.last_result().and_then(|reached| config.point(trial, reached.rung));
            point.is_some_and(|point| !full.iter().any(|rival| rival == &point || dominates(rival, &point)))
        };
        partial.filter(|(_, trial)| undominated(trial)).map(|(id, _)| id).next()
    }
}

/// Positions from the best to the worst, by front and then by crowding.
fn ranked(points: &[Vec<f64>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(points.len());
    for front in fronts(points) {
        let distances = crowding(points, &front);
        let mut members = front.into_iter().zip(distances).collect::<Vec<_>>();
        // Stable: of equally crowded ones, the earlier trial.
        members.sort_by(|a, b| b.1.total_cmp(&a.1));
        order.extend(members.into_iter().map(|(member, _)| member));
    }
    order
}
