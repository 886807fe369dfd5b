//! Which trials are on the front, now or as it was at an earlier record.

use crate::table::{SearchTable, TrialResult, TrialRow};
use phalanx_search::core::objective::Objective;
use phalanx_search::core::pareto::{dominates, first_front};
use phalanx_search::core::record::TrialId;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// The trials that no other is better than.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Front {
    /// In the order of the first objective's value, the smallest first.
    pub trials: Vec<TrialId>,
    pub basis: FrontBasis,
}

/// Which results were compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "basis")]
pub enum FrontBasis {
    /// Those of trials that were trained in full: the search has finished, or has no partial trainings.
    Full { budget: f64, trials: usize },
    /// Those of all trials, each pair at the largest budget of both.
    Deepest { trials: usize },
}

impl fmt::Display for FrontBasis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontBasis::Full { trials: 1, .. } => write!(f, "of the 1 trial trained in full"),
            FrontBasis::Full { trials, .. } => write!(f, "of the {trials} trials trained in full"),
            FrontBasis::Deepest { trials: 0 } => write!(f, "no trial has a result yet"),
            FrontBasis::Deepest { trials } => {
                write!(f, "of {trials} trials, each pair compared at the largest budget of both")
            }
        }
    }
}

/// A trial with the newest result it had at a record.
#[derive(Debug, Clone)]
pub(crate) struct Standing<'a> {
    pub(crate) row: &'a TrialRow,
    pub(crate) result: &'a TrialResult,
    /// Whether its result may be on the front: it has all objectives, and the trial has not failed and is feasible.
    pub(crate) counts: bool,
}

/// The objectives at a budget, turned so that less is better.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rated {
    pub(crate) budget: f64,
    pub(crate) costs: Vec<f64>,
}

impl SearchTable {
    /// The front. Two trials are compared at the largest budget that both have reached; when the search has finished,
    /// only trials that were trained in full are compared. Of equal networks the first is on the front.
    pub fn front(&self) -> Front {
        self.front_at(u64::MAX)
    }

    /// The front as it was after a record, given by its number.
    pub fn front_at(&self, event: u64) -> Front {
        let standings = self.standings(event);
        let compared = self.compared(&standings, event);
        let rated: Vec<Vec<Rated>> =
            compared.iter().map(|standing| self.rated(standing.row, event)).collect();
        let mut members: Vec<&Standing<'_>> =
            undominated(&rated).into_iter().filter_map(|at| compared.get(at).copied()).collect();
        members.sort_by_key(|standing| standing.row.trial);
        let mut models = BTreeSet::new();
        members.retain(|standing| models.insert(standing.row.model.as_str()));
        let first = self.about().objectives.first();
        let value = |standing: &Standing<'_>| {
            first.and_then(|objective| standing.row.value_at(standing.result, &objective.name)).unwrap_or(0.0)
        };
        members.sort_by(|a, b| value(a).total_cmp(&value(b)));
        let trials = compared.len();
        let is_full =
            trials > 0 && compared.iter().all(|standing| self.about().is_full(standing.result.budget));
        let basis = match self.about().full_budget() {
            Some(budget) if is_full => FrontBasis::Full { budget, trials },
            _ => FrontBasis::Deepest { trials },
        };
        Front { trials: members.into_iter().map(|standing| standing.row.trial).collect(), basis }
    }

    /// Trials with results up to a record, in the order of their first ones.
    pub(crate) fn standings(&self, event: u64) -> Vec<Standing<'_>> {
        let of_row = |row| {
            let result = TrialRow::latest_until(row, event)?;
            let is_out = row.ruled_out.is_some_and(|out| out <= event);
            Some(Standing { row, result, counts: !is_out && self.costs(row, result).is_some() })
        };
        self.rows_with_results().filter_map(of_row).collect()
    }

    /// Those of which the front is made: all that count, or those trained in full when the search has finished.
    pub(crate) fn compared<'a, 'b>(
        &self,
        standings: &'b [Standing<'a>],
        event: u64,
    ) -> Vec<&'b Standing<'a>> {
        let mut compared: Vec<_> = standings.iter().filter(|standing| standing.counts).collect();
        let is_full = |standing: &&Standing<'_>| self.about().is_full(standing.result.budget);
        if self.finished_at().is_some_and(|end| end <= event) && compared.iter().any(is_full) {
            compared.retain(is_full);
        }
        compared
    }

    /// What a trial has to compare: all its results up to a record.
    pub(crate) fn rated(&self, row: &TrialRow, event: u64) -> Vec<Rated> {
        let results = row.results.iter().filter(|result| result.event <= event);
        let rate =
            |result: &TrialResult| Some(Rated { budget: result.budget, costs: self.costs(row, result)? });
        results.filter_map(rate).collect()
    }

    /// The objectives of a result turned so that less is better, if there are all of them.
    pub(crate) fn costs(&self, row: &TrialRow, result: &TrialResult) -> Option<Vec<f64>> {
        let cost = |objective: &Objective| {
            let value = row.value_at(result, &objective.name).filter(|value| value.is_finite())?;
            Some(objective.lower_is_better(value))
        };
        self.about().objectives.iter().map(cost).collect()
    }
}

/// The trials, by position, that no other dominates at the largest budget both have. Budgets of a trial ascend.
pub(crate) fn undominated(trials: &[Vec<Rated>]) -> Vec<usize> {
    let mut budgets: Vec<f64> = trials.iter().flatten().map(|rated| rated.budget).collect();
    budgets.sort_by(f64::total_cmp);
    budgets.dedup();
    let mut is_beaten: Vec<bool> = trials.iter().map(Vec::is_empty).collect();
    for budget in budgets {
        let there: Vec<(usize, &Rated)> = trials
            .iter()
            .enumerate()
            .filter_map(|(at, trial)| Some((at, trial.iter().find(|rated| rated.budget == budget)?)))
            .collect();
        let ends_here = |at: usize| trials[at].last().is_some_and(|last| last.budget == budget);
        // A pair meets here if the training of one of them ended here: against those that went on, a trial is compared
        // where it ended; those that went on are compared with those that ended.
        let points: Vec<Vec<f64>> = there.iter().map(|(_, rated)| rated.costs.clone()).collect();
        let best: BTreeSet<usize> = first_front(&points).into_iter().collect();
        let ended: Vec<Vec<f64>> =
            there.iter().filter(|(at, _)| ends_here(*at)).map(|(_, rated)| rated.costs.clone()).collect();
        let best_ended = first_front(&ended);
        for (place, (at, rated)) in there.iter().enumerate() {
            is_beaten[*at] |= if ends_here(*at) {
                !best.contains(&place)
            } else {
                best_ended.iter().any(|other| dominates(&ended[*other], &rated.costs))
            };
        }
    }
    (0..trials.len()).filter(|at| !is_beaten[*at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_search::core::dice::Dice;
    use phalanx_types::Seed;

    #[test]
    fn trials_are_compared_at_the_largest_budget_of_both() {
        let mut dice = Dice::new(Seed(3));
        for round in 0..300 {
            let trial = |dice: &mut Dice| {
                let depth = dice.below(4);
                let rated = |rung: usize, dice: &mut Dice| Rated {
                    budget: (rung + 1) as f64,
                    costs: vec![dice.below(7) as f64, dice.below(7) as f64],
                };
                (0..depth).map(|rung| rated(rung, dice)).collect::<Vec<_>>()
            };
            let trials: Vec<Vec<Rated>> = (0..20).map(|_| trial(&mut dice)).collect();
            let beats = |a: &Vec<Rated>, b: &Vec<Rated>| {
                let depth = a.len().min(b.len());
                depth > 0 && dominates(&a[depth - 1].costs, &b[depth - 1].costs)
            };
            let is_best = |at: &usize| {
                !trials[*at].is_empty() && !trials.iter().any(|other| beats(other, &trials[*at]))
            };
            let expected: Vec<usize> = (0..trials.len()).filter(is_best).collect();
            assert_eq!(undominated(&trials), expected, "{round}: {trials:?}");
        }
    }
}
