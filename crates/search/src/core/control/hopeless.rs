//! Which trials are stopped on the way to their next budget.

use super::{SearchCore, Stage, TrialState};
use crate::core::record::TrialId;
use std::collections::BTreeMap;

/// So many others must have been measured at the same budget.
const OTHERS: usize = 5;

/// A value is clearly worse than the median when it is farther behind it than this share of the best's lead.
const MARGIN: f64 = 0.5;

impl SearchCore {
    /// Whether a trial's training can be stopped by what is measured on its way: never a final full training.
    fn may_be_stopped(&self, trial: &TrialState, budget: f64) -> bool {
        let last = self.config.last_rung();
        let Stage::Queued { rung, from, to } = trial.stage else { return false };
        self.config.stop_hopeless && (rung < last || last == 0) && from < budget && budget < to
    }

    /// Whether progress is worth writing down.
    pub(super) fn is_news(&self, id: TrialId, budget: f64) -> bool {
        let Some(trial) = self.state.trials.get(&id) else { return false };
        let later = trial.progress.last().is_none_or(|(last, _)| *last < budget);
        later && self.running.contains(&id) && self.may_be_stopped(trial, budget)
    }

    /// Why a trial is not worth its next budget: its best values so far are worse in every objective than the median of
    /// the others at the same budget, and clearly so in those that are measured.
    pub(super) fn hopeless(&self, id: TrialId) -> Option<String> {
        let trial = self.state.trials.get(&id)?;
        let budget = trial.progress.last()?.0;
        if !self.may_be_stopped(trial, budget) {
            return None;
        }
        let others = self.state.trained().filter(|(other, state)| *other != id && state.is_sound());
        let others = others.filter_map(|(_, other)| {
            let at = other.progress.iter().find(|(at, _)| *at == budget)?;
            Some((other, &at.1))
        });
        let others = others.collect::<Vec<_>>();
        if others.len() < OTHERS {
            return None;
        }
        let mut worst = None;
        for objective in &self.config.objectives {
            let name = &objective.name;
            let value = |trial: &TrialState, values: &BTreeMap<String, f64>| {
                let value = trial.known.get(name).or_else(|| values.get(name))?;
                Some(objective.lower_is_better(*value))
            };
            let best = trial
                .progress
                .iter()
                .filter_map(|(_, values)| value(trial, values))
                .min_by(f64::total_cmp)?;
            let mut all =
                others.iter().filter_map(|(other, values)| value(other, values)).collect::<Vec<_>>();
            all.sort_by(f64::total_cmp);
            let (first, median) = (*all.first()?, *all.get(all.len() / 2)?);
            if trial.known.contains_key(name) {
                if best < median {
                    return None;
                }
            } else if best <= median + MARGIN * (median - first) {
                return None;
            } else {
                worst.get_or_insert_with(|| {
                    let shown = [best, median].map(|value| objective.lower_is_better(value));
                    format!("`{name}` is {} after {budget}, the median {}", shown[0], shown[1])
                });
            }
        }
        worst
    }
}
