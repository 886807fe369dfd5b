//! A table in parts that a database can keep: its rows, and what it knows beside them.

use super::{SearchTable, TrialRow};
use crate::about::SearchAbout;
use phalanx_search::core::record::{SearchEnd, TrialId};
use serde::{Deserialize, Serialize};

/// What a table knows beside its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableState {
    /// How many records were taken.
    pub events: u64,
    /// When the newest of them was written, in milliseconds since 1970.
    pub last_at: Option<u64>,
    pub end: Option<SearchEnd>,
    ended_at: u64,
    pauses: Vec<(u64, u64)>,
}

impl SearchTable {
    /// What the table knows beside its rows.
    pub fn state(&self) -> TableState {
        TableState {
            events: self.events,
            last_at: self.last_at,
            end: self.end.clone(),
            ended_at: self.ended_at,
            pauses: self.pauses.clone(),
        }
    }

    /// The table that these parts were taken from.
    pub fn of_parts(about: SearchAbout, state: TableState, rows: Vec<TrialRow>) -> Self {
        // The first result of a trial is the one with the lowest number, whatever its budget.
        let first = |row: &TrialRow| row.results.iter().map(|result| result.event).min();
        let mut order: Vec<(u64, TrialId)> =
            rows.iter().filter_map(|row| Some((first(row)?, row.trial))).collect();
        order.sort_unstable();
        Self {
            about,
            rows: rows.into_iter().map(|row| (row.trial, row)).collect(),
            with_results: order.into_iter().map(|(_, trial)| trial).collect(),
            events: state.events,
            last_at: state.last_at,
            end: state.end,
            ended_at: state.ended_at,
            pauses: state.pauses,
        }
    }
}
