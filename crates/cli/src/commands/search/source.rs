//! Where the trials of a search are read from: its files, or the ledger if these are elsewhere.

use super::{SEARCHES, Which, search_failure, search_path};
use crate::commands::ledger::{ledger_failure, ledger_of_searches};
use crate::failure::Failure;
use phalanx_ledger::{Ledger, LedgerError, SearchRow};
use phalanx_search_results::about::ABOUT_FILE;
use phalanx_search_results::{SearchFollower, SearchTable};
use std::path::Path;

/// A search that is looked at.
pub(super) enum Source {
    Files(Box<SearchFollower>),
    Ledger(Box<LedgerSource>),
}

/// A search whose files are elsewhere.
pub(super) struct LedgerSource {
    ledger: Ledger,
    row: SearchRow,
    table: SearchTable,
}

impl Source {
    /// Opens the search that was named; without a name the newest one here, else the newest of the ledger.
    pub(super) fn open(which: &Which) -> Result<Self, Failure> {
        let here = match &which.search {
            Some(said) => Ok(search_path(said)),
            None => which.path(),
        };
        match here {
            Ok(path) if path.join(ABOUT_FILE).is_file() => Self::of_files(&path),
            Ok(path) => match Self::of_ledger(which.search.as_deref())? {
                Some(source) => Ok(source),
                // Says what is missing.
                None => Self::of_files(&path),
            },
            Err(none_here) => Self::of_ledger(None)?.ok_or(none_here),
        }
    }

    fn of_files(path: &Path) -> Result<Self, Failure> {
        Ok(Self::Files(Box::new(SearchFollower::open(path).map_err(search_failure)?)))
    }

    /// The search of this name in the ledger, or the newest; `None` if there is none.
    fn of_ledger(name: Option<&Path>) -> Result<Option<Self>, Failure> {
        let Some(ledger) = ledger_of_searches(Path::new(SEARCHES)) else { return Ok(None) };
        let row = match name {
            Some(name) => match ledger.search(&name.to_string_lossy()) {
                Err(LedgerError::NoSearch { .. }) => None,
                found => Some(found.map_err(ledger_failure)?),
            },
            None => ledger.searches().map_err(ledger_failure)?.pop(),
        };
        let Some(row) = row else { return Ok(None) };
        let table = ledger.search_table(&row).map_err(ledger_failure)?;
        Ok(table.map(|table| Self::Ledger(Box::new(LedgerSource { ledger, row, table }))))
    }

    pub(super) fn table(&self) -> &SearchTable {
        match self {
            Self::Files(follower) => follower.table(),
            Self::Ledger(source) => &source.table,
        }
    }

    /// Where its files are, if not here.
    pub(super) fn elsewhere(&self) -> Option<String> {
        match self {
            Self::Files(_) => None,
            Self::Ledger(source) => Some(elsewhere(&source.row)),
        }
    }

    /// Reads what is new, and says whether anything was.
    pub(super) fn refresh(&mut self) -> Result<bool, Failure> {
        match self {
            Self::Files(follower) => Ok(follower.refresh().map_err(search_failure)? > 0),
            Self::Ledger(source) => source.refresh().map_err(ledger_failure),
        }
    }
}

impl LedgerSource {
    fn refresh(&mut self) -> Result<bool, LedgerError> {
        let events = self.ledger.search_events(&self.row)?;
        // What was forgotten meanwhile is shown as it was.
        if events.is_none_or(|events| events == self.table.events()) {
            return Ok(false);
        }
        let Some(table) = self.ledger.search_table(&self.row)? else { return Ok(false) };
        self.table = table;
        Ok(true)
    }
}

/// Where the files of a search are.
pub(super) fn elsewhere(row: &SearchRow) -> String {
    if row.here { row.path.display().to_string() } else { format!("{}:{}", row.host, row.path.display()) }
}
