//! Searches: brings their trials into the ledger. What the records tell is decided by the table of
//! [`phalanx_search_results`]; the ledger keeps its rows, so that it gives the same table back.
//!
//! ```text
//!   events.jsonl, search.json ──► SearchFollower ──► begin ─► position ─► trials changed since ─► commit
//! ```
//! The position is the number of records taken. It changes together with the rows, so every trial is as its records say
//! up to there, whatever dies when, and however many processes do this at once.

mod ask;
mod catch_up;
mod place;
mod rows;

use super::place::host;
use super::pool::{Ledger, Transacted};
use super::sql::Sql;
use crate::error::{LedgerError, failed};
use crate::rows::Fed;
use phalanx_search_results::about::{ABOUT_FILE, SEARCH_FILE};
use phalanx_search_results::events::EVENTS_FILE;
use phalanx_search_results::follow::FollowError;
use phalanx_search_results::{SearchFollower, SearchTable};
use place::SearchPlace;
use std::path::{Path, PathBuf};

/// A search that may be fed again and again: what was read of it stays in memory.
#[derive(Debug)]
pub(super) struct SearchSource {
    dir: PathBuf,
    read: Option<ReadSearch>,
}

#[derive(Debug)]
struct ReadSearch {
    /// What `search.json` was like: it may be written anew.
    about: String,
    follower: SearchFollower,
}

impl SearchSource {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, read: None }
    }

    /// Reads the records that are new; gives what the files were like before that, and the table.
    fn refresh(&mut self) -> Result<(String, &SearchTable), FollowError> {
        // Before the records: what is written later is seen to be new.
        let stamp = stamp_of(&self.dir);
        let about = file_stamp(&self.dir.join(ABOUT_FILE));
        let read = match self.read.take() {
            Some(mut read) if read.about == about => {
                read.follower.refresh()?;
                read
            }
            _ => ReadSearch { about, follower: SearchFollower::open(&self.dir)? },
        };
        Ok((stamp, self.read.insert(read).follower.table()))
    }
}

impl Ledger {
    /// Brings everything that a search has recorded into the ledger.
    ///
    /// # Errors
    /// The search cannot be read, or the ledger does not take it.
    pub fn feed_search(&self, search: &Path) -> Result<Fed, LedgerError> {
        self.feed_search_from(&mut SearchSource::new(search.to_owned()))
    }

    pub(super) fn feed_search_from(&self, source: &mut SearchSource) -> Result<Fed, LedgerError> {
        // A process has made the directory and not begun yet.
        if !is_search(&source.dir) {
            return Ok(Fed::default());
        }
        let place = SearchPlace::of(self.url(), &source.dir)?;
        // Most of the reading is done before others have to wait.
        source.refresh()?;
        self.transaction(&place.key(), |sql| feed_once(sql, source, &place))
    }
}

fn feed_once(
    sql: &mut dyn Sql,
    source: &mut SearchSource,
    place: &SearchPlace,
) -> Result<Transacted<Fed>, LedgerError> {
    let (stamp, table) = source.refresh()?;
    let known = rows::look(sql, place, table.about())?;
    let same = known.as_ref().is_some_and(|known| known.stamp == stamp && known.host == host());
    if same {
        return Ok(Transacted::Nothing(Fed::default()));
    }
    // Files only grow. One with fewer records, or without a position, is read as if it were new.
    let since = known.as_ref().and_then(|known| known.events).filter(|known| *known <= table.events());
    rows::write(sql, place, table, (known.map(|known| known.id), since), &stamp)
        .map_err(failed("write to"))?;
    Ok(Transacted::Commit(Fed { entries: table.events() - since.unwrap_or(0), changed: true }))
}

/// Whether there is a search in a directory.
fn is_search(path: &Path) -> bool {
    path.join(SEARCH_FILE).is_file() && path.join(ABOUT_FILE).is_file()
}

/// Says whether a search was written to since: sizes, times and places on the disk of its two files.
fn stamp_of(search: &Path) -> String {
    format!("{}, {}", file_stamp(&search.join(ABOUT_FILE)), file_stamp(&search.join(EVENTS_FILE)))
}

fn file_stamp(path: &Path) -> String {
    let shown = |stat: rustix::fs::Stat| {
        format!("{} {}.{} {}", stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ino)
    };
    rustix::fs::stat(path).map_or_else(|_missing| String::new(), shown)
}
