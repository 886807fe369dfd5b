//! Which trials are on the front, now or as it was at an earlier record.

use crate::table::{SearchTable, TrialResult, TrialRow};
use phalanx_search::core::pareto::first_front;
use phalanx_search::core::record::TrialId;
use serde::Serialize;
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
    /// Those of trials that were trained in full.
    Full { budget: f64, trials: usize },
    /// None was trained in full yet: the newest result of each trial, whatever its budget.
    Deepest { trials: usize },
}

impl fmt::Display for FrontBasis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontBasis::Full { trials: 1, .. } => write!(f, "of the 1 trial trained in full"),
            FrontBasis::Full { trials, .. } => write!(f, "of the {trials} trials trained in full"),
            FrontBasis::Deepest { trials: 0 } => write!(f, "no trial has a result yet"),
            FrontBasis::Deepest { trials } => {
                write!(f, "of the newest results of {trials} trials; none is trained in full yet")
            }
        }
    }
}

/// A trial with the newest result it had at a record.
#[derive(Debug, Clone)]
pub(crate) struct Standing<'a> {
    pub(crate) row: &'a TrialRow,
    pub(crate) result: &'a TrialResult,
    /// The objectives turned so that less is better; `None` if one is missing or not finite, or if the trial failed or
    /// is infeasible.
    pub(crate) costs: Option<Vec<f64>>,
}

impl SearchTable {
    /// The front.
    pub fn front(&self) -> Front {
        self.front_at(u64::MAX)
    }

    /// The front as it was after a record, given by its number.
    pub fn front_at(&self, event: u64) -> Front {
        let standings = self.standings(event);
        let compared = self.compared(&standings);
        let points: Vec<Vec<f64>> = compared.iter().filter_map(|standing| standing.costs.clone()).collect();
        let mut members: Vec<&Standing<'_>> =
            first_front(&points).into_iter().filter_map(|at| compared.get(at).copied()).collect();
        let first = self.about().objectives.first();
        let value = |standing: &Standing<'_>| {
            first.and_then(|objective| standing.row.value_at(standing.result, &objective.name)).unwrap_or(0.0)
        };
        members.sort_by(|a, b| value(a).total_cmp(&value(b)).then(a.row.trial.cmp(&b.row.trial)));
        let trials = compared.len();
        let is_full = compared.iter().any(|standing| self.about().is_full(standing.result.budget));
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
            let costs = if is_out { None } else { self.costs(row, result) };
            Some(Standing { row, result, costs })
        };
        self.rows_with_results().filter_map(of_row).collect()
    }

    /// Those of which the front is made: trained in full if any is, else all that have all objectives.
    pub(crate) fn compared<'a, 'b>(&self, standings: &'b [Standing<'a>]) -> Vec<&'b Standing<'a>> {
        let valid: Vec<_> = standings.iter().filter(|standing| standing.costs.is_some()).collect();
        let is_full = |standing: &&Standing<'_>| self.about().is_full(standing.result.budget);
        if valid.iter().any(is_full) { valid.into_iter().filter(is_full).collect() } else { valid }
    }

    /// The objectives of a result turned so that less is better, if there are all of them.
    pub(crate) fn costs(&self, row: &TrialRow, result: &TrialResult) -> Option<Vec<f64>> {
        let cost = |objective: &phalanx_search::core::objective::Objective| {
            let value = row.value_at(result, &objective.name).filter(|value| value.is_finite())?;
            Some(objective.lower_is_better(value))
        };
        self.about().objectives.iter().map(cost).collect()
    }
}
