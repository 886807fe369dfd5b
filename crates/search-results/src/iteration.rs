//! Iterations: a search without generations is cut into groups of trials as the peer's tables have them.

use crate::table::SearchTable;
use phalanx_search::core::record::TrialId;
use serde::Serialize;

/// Some trials with results, in the order of their first ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Iteration {
    /// From 0.
    pub number: usize,
    pub trials: Vec<TrialId>,
    /// The last record before the next iteration, by its number; `u64::MAX` of the last iteration, to which all that
    /// comes later belongs.
    pub last_event: u64,
}

impl SearchTable {
    /// All iterations that have begun: the first `init` trials with results, then `per_iteration` each.
    pub fn iterations(&self) -> Vec<Iteration> {
        let mut iterations: Vec<Iteration> = Vec::new();
        for (index, row) in self.rows_with_results().enumerate() {
            let number = self.iteration_of(index);
            if let Some(last) = iterations.last_mut().filter(|last| last.number == number) {
                last.trials.push(row.trial);
                continue;
            }
            let begin = row.results.iter().map(|result| result.event).min().unwrap_or(0);
            if let Some(before) = iterations.last_mut() {
                before.last_event = begin.saturating_sub(1);
            }
            iterations.push(Iteration { number, trials: vec![row.trial], last_event: u64::MAX });
        }
        iterations
    }

    /// The iteration of a trial with results, given by its place in [`SearchTable::rows_with_results`].
    pub fn iteration_of(&self, index: usize) -> usize {
        let (init, each) = (self.about().init.max(1), self.about().per_iteration.max(1));
        index.checked_sub(init).map_or(0, |later| 1 + later / each)
    }
}
