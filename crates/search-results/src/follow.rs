//! A search's directory, followed while it is written.

use crate::about::{AboutError, SearchAbout};
use crate::events::{EVENTS_FILE, EventReader, ReadEventsError};
use crate::table::SearchTable;
use std::path::Path;

/// Why a search cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error(transparent)]
    About(#[from] AboutError),
    #[error(transparent)]
    Events(#[from] ReadEventsError),
}

/// The table of a search, kept up to date from its directory.
#[derive(Debug)]
pub struct SearchFollower {
    reader: EventReader,
    table: SearchTable,
}

impl SearchFollower {
    /// Reads all records of a search that there are.
    ///
    /// # Errors
    /// The directory is not that of a search, or a record is damaged.
    pub fn open(dir: &Path) -> Result<Self, FollowError> {
        let table = SearchTable::new(SearchAbout::read(dir)?);
        let mut follower = Self { reader: EventReader::new(dir.join(EVENTS_FILE)), table };
        follower.refresh()?;
        Ok(follower)
    }

    /// Reads the records that are new, and says how many there were.
    ///
    /// # Errors
    /// A record is damaged, or about a trial that no record before it proposes. Those before it were taken.
    pub fn refresh(&mut self) -> Result<usize, ReadEventsError> {
        let mut taken = 0;
        loop {
            let events = self.reader.read_new()?;
            if events.is_empty() {
                return Ok(taken);
            }
            for event in &events {
                // Lines and records are numbered alike.
                let line = self.table.events() + 1;
                self.table.apply(event).map_err(|unknown| ReadEventsError::UnknownTrial {
                    path: self.reader.path().to_owned(),
                    line,
                    trial: unknown.trial,
                })?;
                taken += 1;
            }
        }
    }

    pub fn table(&self) -> &SearchTable {
        &self.table
    }
}
