//! Checks that a search on disk decides the same again from its records.

use crate::directory::is_search;
use crate::error::SearchError;
use crate::plan::{Overrides, SearchPlan};
use phalanx_search::core::control::ReplayReport;
use phalanx_search::core::record::SearchRecord;
use phalanx_search_results::EventReader;
use phalanx_search_results::events::EVENTS_FILE;
use std::path::Path;

/// Reads the records of a search and decides again from each of them. The search may go on meanwhile.
///
/// # Errors
/// There is no search, or its records are damaged or do not fit its file.
pub fn replay(path: &Path) -> Result<ReplayReport, SearchError> {
    if !is_search(path) {
        return Err(SearchError::NoSearch { path: path.to_owned() });
    }
    let plan = SearchPlan::of_dir(path, &Overrides::default())?;
    let mut reader = EventReader::new(path.join(EVENTS_FILE));
    let mut records: Vec<SearchRecord> = Vec::new();
    loop {
        let new = reader.read_new()?;
        if new.is_empty() {
            break;
        }
        records.extend(new.into_iter().map(|line| line.record));
    }
    plan.replay(&records)
}
