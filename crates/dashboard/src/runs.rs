//! Runs as the dashboard shows them, and where it gets them from: their files, or the ledger and their files.

use crate::curve::{Curve, SeriesInfo};
use crate::entry::Note;
use crate::error::ApiError;
use crate::files::ConfigValue;
use crate::tail::Seen;
use phalanx_ledger::Window;
use phalanx_records::history::LoggedEvent;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A run in listings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunSummary {
    /// The name of its directory; the uid of a run whose directory is not here.
    pub(crate) id: String,
    pub(crate) name: String,
    /// Where its files are, if they are not here: `host:/directory`.
    pub(crate) elsewhere: Option<String>,
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) waiting: Option<String>,
    pub(crate) model: String,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) wall_s: f64,
    pub(crate) steps: u64,
    pub(crate) total_steps: Option<u64>,
    /// The last value of each name.
    pub(crate) last: BTreeMap<String, f64>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Which runs are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunsQuery {
    /// Words that name, model, state or tags must have.
    pub(crate) words: Vec<String>,
    /// A filter in the language of the ledger.
    pub(crate) filter: Option<String>,
    /// A name of a column, with `-` in front for the greatest first.
    pub(crate) sort: String,
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

impl RunsQuery {
    /// Takes what a user typed: a filter if there is a comparison in it, else words.
    pub(crate) fn search(self, typed: &str) -> Self {
        if typed.contains(['=', '<', '>', '~']) {
            return Self { filter: Some(typed.trim().to_owned()), ..self };
        }
        Self { words: typed.split_whitespace().map(str::to_owned).collect(), ..self }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunsPage {
    pub(crate) total: usize,
    pub(crate) runs: Vec<RunSummary>,
}

/// Events of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EventsPage {
    pub(crate) total: usize,
    pub(crate) events: Vec<LoggedEvent>,
    /// All events up to here are known; the last ones may be, too.
    pub(crate) seen: Seen,
}

/// Where the dashboard gets runs from.
pub(crate) trait Records {
    /// # Errors
    /// They cannot be read.
    fn runs(&self, query: &RunsQuery) -> Result<RunsPage, ApiError>;

    /// # Errors
    /// There is no such run.
    fn run(&self, id: &str) -> Result<RunSummary, ApiError>;

    /// What users said about a run, oldest first.
    ///
    /// # Errors
    /// There is no such run.
    fn notes(&self, id: &str) -> Result<Vec<Note>, ApiError>;

    /// The names under which a run recorded values.
    ///
    /// # Errors
    /// There is no such run, or it cannot be read.
    fn series(&self, id: &str) -> Result<Vec<SeriesInfo>, ApiError>;

    /// Curves of those of the names that the run has, and up to where they have everything; they may have more.
    ///
    /// # Errors
    /// There is no such run, or it cannot be read.
    fn curves(&self, id: &str, names: &[&str], window: Window) -> Result<(Vec<Curve>, Seen), ApiError>;

    /// Events in their order, without as many as `after` says.
    ///
    /// # Errors
    /// There is no such run, or it cannot be read.
    fn events(&self, id: &str, after: usize, limit: usize) -> Result<EventsPage, ApiError>;

    /// The resolved configuration.
    ///
    /// # Errors
    /// There is no such run, or it cannot be read.
    fn config(&self, id: &str) -> Result<Vec<ConfigValue>, ApiError>;
}

pub(crate) fn no_run(id: &str) -> ApiError {
    ApiError::NotFound { what: "run", name: id.to_owned() }
}

/// Locks; a thread that panicked leaves only what can be read again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_makes_a_search_a_filter() {
        let words = RunsQuery::default().search(" digits  failed ");
        assert_eq!((words.words.join("|"), words.filter), ("digits|failed".to_owned(), None));
        let filter = RunsQuery::default().search(" val_acc > 0.9 ");
        assert_eq!((filter.words.len(), filter.filter.as_deref()), (0, Some("val_acc > 0.9")));
    }
}
