//! Looks at all runs of a directory, and closely only at those that may have changed.

use super::apply::remove;
use super::feed::{STATE, stamp};
use super::place::{host, root_of};
use super::pool::{Ledger, Transacted};
use crate::error::{LedgerError, failed};
use crate::rows::CaughtUp;
use crate::value::Row;
use phalanx_records::run_dir::{ANNOTATIONS, EVENTS, METRICS, is_run};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;

/// More threads gain little.
const MOST_THREADS: usize = 4;
/// A thread costs about as much as this many directories.
const NAMES_OF_A_THREAD: usize = 200;

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
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        // Runs are named after their time: rows get the order in which runs began.
        names.sort_unstable();
        let current = current(&names, &gone, &directory);
        for (name, is_current) in names.into_iter().zip(current) {
            if let Some(known) = gone.remove(&name) {
                result.runs += 1;
                if is_current {
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
        let mut seen = BTreeMap::new();
        // Row by row: there may be many.
        let mut note = |row: &Row| {
            let known = Seen {
                id: row.int(1).unwrap_or(-1),
                ended: row.str(2).is_some_and(|state| state != "running"),
                events: row.count(3),
                annotations: row.count(4),
                state_file: row.required_text(5),
                stale: row.int(6) != Some(0),
                metrics: row.count(7),
                grows_alone: row.str(8).is_some_and(|kind| kind != "training"),
            };
            seen.insert(row.required_text(0), known);
        };
        self.with(|sql| sql.query(find, &values, &mut note).map_err(failed("read")))?;
        Ok(seen)
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

/// Of which of these directories the ledger knows everything. Most of the time that a look takes goes into asking the
/// system about files, so several threads ask where there are many runs.
fn current(names: &[String], seen: &BTreeMap<String, Seen>, directory: &OwnedFd) -> Vec<bool> {
    let ask = |names: &[String]| -> Vec<bool> {
        let is_current =
            |name: &String| seen.get(name).is_some_and(|known| known.is_current(directory, name));
        names.iter().map(is_current).collect()
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(MOST_THREADS).min(names.len() / NAMES_OF_A_THREAD);
    if threads < 2 {
        return ask(names);
    }
    std::thread::scope(|scope| {
        let parts = names.chunks(names.len().div_ceil(threads));
        let threads: Vec<_> = parts.map(|part| (part, scope.spawn(|| ask(part)))).collect();
        let answers = threads.into_iter().map(|(part, thread)| {
            // Without an answer each of them is looked at closely.
            thread.join().unwrap_or_else(|_panicked| vec![false; part.len()])
        });
        answers.flatten().collect()
    })
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
