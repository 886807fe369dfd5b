//! What is true of a search after every event.

use super::{SearchCore, Stage, TrialState};
use crate::core::record::{SearchEnd, TrialEnd, TrialId};
use std::collections::BTreeSet;

impl SearchCore {
    pub(super) fn find_violation(&self) -> Option<String> {
        let mut genes = BTreeSet::new();
        let mut models = BTreeSet::new();
        for (number, (id, trial)) in self.state.trials.iter().enumerate() {
            if id.0 != number as u64 + 1 {
                return Some(format!("trial {id} is number {number}"));
            }
            if !genes.insert(&trial.genes) || !self.space.contains(&trial.genes) {
                return Some(format!("trial {id} is no candidate of the space, or a second time"));
            }
            if trial.same_as.is_none() && !models.insert(&trial.model) {
                return Some(format!("trial {id} trains a network that another trial trains"));
            }
            if let Some(what) = self.violation_of(*id, trial) {
                return Some(format!("trial {id} {what}"));
            }
        }
        if self.state.trials.len() as u64 > self.config.trials {
            return Some("more candidates were proposed than wanted".to_owned());
        }
        if let Some(id) =
            self.running.iter().find(|id| !self.state.trials.get(id).is_some_and(TrialState::is_queued))
        {
            return Some(format!("trial {id} is being trained and not queued"));
        }
        let is_over = |trial: &TrialState| matches!(trial.stage, Stage::Ended(_));
        match self.state.ended {
            Some(SearchEnd::Finished) if !self.state.trials.values().all(is_over) => {
                Some("the search is finished, and a trial is not".to_owned())
            }
            Some(_) if !self.running.is_empty() => {
                Some("the search is over, and trials are trained".to_owned())
            }
            _ => None,
        }
    }

    fn violation_of(&self, id: TrialId, trial: &TrialState) -> Option<String> {
        let broken = |name: &String, value: f64| {
            self.config
                .bounds
                .iter()
                .filter(|bound| bound.name == *name)
                .find_map(|bound| bound.broken_by(value))
        };
        if let Some(what) = trial.known.iter().find_map(|(name, value)| broken(name, *value)) {
            return Some(format!("has {what}"));
        }
        let rungs = trial.results.iter().map(|reached| reached.rung).collect::<Vec<_>>();
        if !rungs.is_sorted_by(|a, b| a < b) {
            return Some("has a result twice, or out of order".to_owned());
        }
        if trial.results.iter().any(|reached| self.config.rungs.get(reached.rung) != Some(&reached.budget)) {
            return Some("has a result at a budget that is no rung".to_owned());
        }
        let last = trial.last_result();
        match (&trial.stage, trial.same_as) {
            (Stage::Queued { .. }, Some(first)) => Some(format!("is queued, and the same as {first}")),
            (Stage::Queued { rung, from, to }, None) => {
                let fits = self.config.rungs.get(*rung) == Some(to)
                    && last.map_or(0.0, |reached| reached.budget) == *from
                    && from < to;
                (!fits).then(|| format!("is queued from {from} to {to}"))
            }
            (Stage::Waiting, None) if last.is_none() => Some("is neither queued nor over".to_owned()),
            (Stage::Ended(TrialEnd::Completed), _) => {
                let complete = last.is_some_and(|reached| {
                    reached.rung == self.config.last_rung()
                        && self.config.missing_objective(trial, reached).is_none()
                });
                (!complete).then(|| "is completed without the results of a full training".to_owned())
            }
            (Stage::Waiting | Stage::Ended(TrialEnd::Partial), _) => {
                let missing = last.and_then(|reached| self.config.missing_objective(trial, reached));
                missing.map(|name| format!("counts without a value of `{name}`"))
            }
            (Stage::Ended(TrialEnd::Stopped { .. }), _) if !self.config.stop_hopeless => {
                Some(format!("was stopped: {id}"))
            }
            (Stage::Ended(_), _) => None,
        }
    }
}
