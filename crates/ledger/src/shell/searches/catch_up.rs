//! Looks at all searches of a directory, and closely only at those that were written to.

use super::place::{is_beside, path_of, root_of};
use super::{is_search, rows, stamp_of};
use crate::error::{LedgerError, failed};
use crate::rows::CaughtUpSearches;
use crate::shell::place::host;
use crate::shell::pool::{Ledger, Transacted};
use crate::shell::sql::all;
use phalanx_records::with_causes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Ledger {
    /// Brings everything that the searches of a directory have recorded into the ledger, and forgets searches whose
    /// directory is gone.
    ///
    /// # Errors
    /// The directory cannot be read, or the ledger does not take it. A search that cannot be read is only named.
    pub fn catch_up_searches(&self, searches: &Path) -> Result<CaughtUpSearches, LedgerError> {
        let mut result = CaughtUpSearches::default();
        let mut gone = self.seen_searches(searches)?;
        for path in searches_in(searches)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            result.searches += 1;
            if gone.remove(&name).is_some_and(|(_, stamp)| stamp == stamp_of(&path)) {
                continue;
            }
            match self.feed_search(&path) {
                Ok(fed) => {
                    result.changed += u64::from(fed.changed);
                    result.entries += fed.entries;
                }
                Err(error @ (LedgerError::SearchFiles(_) | LedgerError::File { .. })) => {
                    result.failed.push((path, with_causes(&error)));
                }
                Err(error) => return Err(error),
            }
        }
        for (id, _) in gone.into_values() {
            self.forget_search(id)?;
            result.removed += 1;
        }
        Ok(result)
    }

    /// Makes everything about the searches of a directory anew from their files.
    ///
    /// # Errors
    /// As [`Ledger::catch_up_searches`].
    pub fn rebuild_searches(&self, searches: &Path) -> Result<CaughtUpSearches, LedgerError> {
        let seen = self.seen_searches(searches)?;
        self.transaction("rebuild", |sql| {
            for (id, _) in seen.values() {
                let mark = "update search set events = null, stamp = '' where id = $1";
                sql.execute(mark, &[(*id).into()]).map_err(failed("write to"))?;
            }
            Ok(Transacted::Commit(()))
        })?;
        self.catch_up_searches(searches)
    }

    /// The searches of a directory by name, with their row and what their files were like.
    fn seen_searches(&self, searches: &Path) -> Result<BTreeMap<String, (i64, String)>, LedgerError> {
        let root = root_of(self.url(), searches);
        let find = "select dir, id, stamp, host from search where root = $1";
        let rows = self.with(|sql| all(sql, find, &[root.as_str().into()]).map_err(failed("read")))?;
        let ours = rows.iter().filter(|row| is_beside(&root) || row.str(3) == Some(host().as_str()));
        Ok(ours.map(|row| (row.required_text(0), (row.int(1).unwrap_or(-1), row.required_text(2)))).collect())
    }

    fn forget_search(&self, id: i64) -> Result<(), LedgerError> {
        self.transaction("forget", |sql| {
            rows::remove(sql, id).map_err(failed("write to"))?;
            Ok(Transacted::Commit(()))
        })
    }

    /// Forgets searches of this machine that are gone.
    pub(in crate::shell) fn forget_gone_searches(&self) -> Result<u64, LedgerError> {
        let find = "select id, root, dir, host from search";
        let rows = self.with(|sql| all(sql, find, &[]).map_err(failed("read")))?;
        let mut forgotten = 0;
        for row in rows {
            let (root, is_of_host) = (row.required_text(1), row.str(3) == Some(host().as_str()));
            let is_gone = || !is_search(&path_of(self.url(), &root, &row.required_text(2)));
            if (is_beside(&root) || is_of_host) && is_gone() {
                self.forget_search(row.int(0).unwrap_or(-1))?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }
}

/// The searches in a directory, in the order of their names.
fn searches_in(dir: &Path) -> Result<Vec<PathBuf>, LedgerError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(LedgerError::File { what: "list", path: dir.to_owned(), source }),
    };
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_search(path)).collect();
    paths.sort_unstable();
    Ok(paths)
}
