//! Looks at all runs of a directory, and closely only at those that may have changed.

use super::apply::remove;
use super::feed::{STATE, stamp};
use super::place::{host, root_of};
use super::pool::{Ledger, Transacted};
use super::sql::all;
use crate::error::{LedgerError, failed};
use crate::rows::CaughtUp;
use phalanx_records::run_dir::{ANNOTATIONS, EVENTS, METRICS, is_run};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What the ledger knows of a run that has ended.
#[derive(Debug, Clone)]
struct Seen {
    id: i64,
    ended: bool,
    stale: bool,
    events: u64,
    annotations: u64,
    metrics: u64,
    /// Whether metrics may come without an event.
    grows_alone: bool,
    state_file: String,
}

impl Ledger {
    /// Brings everything that the runs of a directory have recorded into the ledger, and forgets runs whose directory
    /// is gone.
    ///
    /// # Errors
    /// The directory cannot be read, or the ledger does not take it. A run that cannot be read is only named.
    pub fn catch_up(&self, runs: &Path) -> Result<CaughtUp, LedgerError> {
        let seen = self.seen(runs)?;
        let failed = |source| LedgerError::File { what: "list", path: runs.to_owned(), source };
        let entries = match std::fs::read_dir(runs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(CaughtUp::default()),
            Err(error) => return Err(failed(error)),
        };
        let directory =
            rustix::fs::open(runs, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let directory = directory.map_err(|error| failed(error.into()))?;
        let mut result = CaughtUp::default();
        let mut gone = seen;
        let mut names: Vec<String> = Vec::with_capacity(gone.len());
        for entry in entries.flatten() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        // Runs are named after their time: rows get the order in which runs began.
        names.sort_unstable();
        for name in names {
            if let Some(known) = gone.remove(&name) {
                result.runs += 1;
                if known.is_current(&directory, &name) {
                    continue;
                }
                if is_run(&runs.join(&name)) {
                    self.look(&runs.join(&name), &mut result)?;
                } else {
                    gone.insert(name, known);
                    result.runs -= 1;
                }
            } else if is_run(&runs.join(&name)) {
                result.runs += 1;
                self.look(&runs.join(&name), &mut result)?;
            }
        }
        if gone.is_empty() {
            return Ok(result);
        }
        // A run that was renamed has its new name in the ledger by now.
        let left = self.seen(runs)?;
        let gone =
            gone.iter().filter(|(name, known)| left.get(*name).is_some_and(|left| left.id == known.id));
        let gone: Vec<i64> = gone.map(|(_, known)| known.id).collect();
        result.removed = self.forget(gone.into_iter())?;
        Ok(result)
    }

    fn look(&self, run: &Path, result: &mut CaughtUp) -> Result<(), LedgerError> {
        match self.feed(run) {
            Ok(fed) => {
                result.changed += u64::from(fed.changed);
                result.entries += fed.entries;
                Ok(())
            }
            Err(error @ (LedgerError::Records(_) | LedgerError::File { .. })) => {
                result.failed.push((run.to_owned(), phalanx_records::with_causes(&error)));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The runs of a directory, by name, as the ledger knows them.
    fn seen(&self, runs: &Path) -> Result<BTreeMap<String, Seen>, LedgerError> {
        let find = "select dir, id, state, events, annotations, state_file, stale, metrics, kind from run \
                    join position on position.run = run.id where root = $1 and (host = $2 or root = '')";
        let values = [root_of(self.url(), runs).into(), host().into()];
        let rows = self.with(|sql| all(sql, find, &values).map_err(failed("read")))?;
        let seen = rows.into_iter().map(|row| {
            let seen = Seen {
                id: row.int(1).unwrap_or(-1),
                ended: row.text(2).is_some_and(|state| state != "running"),
                events: row.count(3),
                annotations: row.count(4),
                state_file: row.required_text(5),
                stale: row.int(6) != Some(0),
                metrics: row.count(7),
                grows_alone: row.text(8).is_some_and(|kind| kind != "training"),
            };
            (row.required_text(0), seen)
        });
        Ok(seen.collect())
    }

    /// Removes runs by their rows.
    pub(super) fn forget(&self, ids: impl Iterator<Item = i64>) -> Result<u64, LedgerError> {
        let mut removed = 0;
        for id in ids {
            removed += self.transaction("forget", |sql| {
                remove(sql, id).map_err(failed("write to"))?;
                Ok(Transacted::Commit(1))
            })?;
        }
        Ok(removed)
    }
}

impl Seen {
    /// Whether nothing can have been recorded since the last look: files that only grow have the same size, and the
    /// state was not written.
    fn is_current(&self, directory: &OwnedFd, name: &str) -> bool {
        if !self.ended || self.stale {
            return false;
        }
        let stat =
            |file: &str| rustix::fs::statat(directory, format!("{name}/{file}"), AtFlags::empty()).ok();
        let len = |file: &str| stat(file).and_then(|stat| u64::try_from(stat.st_size).ok()).unwrap_or(0);
        len(EVENTS) == self.events
            && len(ANNOTATIONS) == self.annotations
            && stat(STATE).is_some_and(|stat| stamp(&stat) == self.state_file)
            // They become shorter when a run is taken up; metrics of some kinds of runs also grow without an event.
            && match len(METRICS) {
                now if self.grows_alone => now == self.metrics,
                now => now >= self.metrics,
            }
    }
}
