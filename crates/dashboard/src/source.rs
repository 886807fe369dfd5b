//! Decides where runs come from: the ledger while it can be used, else their files, and says which and why.
//!
//! ```text
//!   inotify ─► Follower ─► told at once ──────────────────────► Hub ─► viewers (lines from the files)
//!                     └──► Keeper, a thread: feeds the ledger ─► Hub ─► viewers (listings from the ledger)
//! ```
//! The keeper brings the ledger up to date when the dashboard starts, and again after it could not be used.

use crate::error::ApiError;
use crate::hub::Hub;
use crate::indexed::Indexed;
use crate::run_dirs::RunDirs;
use crate::runs::{Records, lock};
use phalanx_ledger::{Ledger, LedgerError, LedgerUrl};
use phalanx_records::run_dir::is_run;
use phalanx_records::with_causes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A ledger that cannot be used is left alone for this long, then twice as long, up to the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The runs of a dashboard.
#[derive(Debug)]
pub(crate) struct Runs {
    files: Arc<RunDirs>,
    state: Mutex<State>,
    work: Arc<Work>,
}

#[derive(Debug)]
enum State {
    /// The ledger is used.
    Ready(Arc<Indexed>),
    /// It is not, and why.
    Files { why: String },
}

/// What the keeper is told.
#[derive(Debug, Default)]
struct Work {
    orders: Mutex<Orders>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    changed: BTreeSet<PathBuf>,
    /// A question to the ledger failed.
    failed: bool,
    ended: bool,
}

/// Ends the keeper when it is dropped.
#[derive(Debug)]
pub(crate) struct Kept(Arc<Work>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.orders().ended = true;
        self.0.told.notify_all();
    }
}

impl Work {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        // A set and two flags are whole at any time.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    /// Runs from their files, until a keeper has made the ledger ready.
    pub(crate) fn new(path: &Path) -> Self {
        let files = Arc::new(RunDirs::new(path));
        let why = match files.one_run() {
            Some(_) => "One run, read from its files alone.",
            None => "Runs are read from their files: no ledger is used.",
        };
        let state = Mutex::new(State::Files { why: why.to_owned() });
        Self { files, state, work: Arc::default() }
    }

    /// The directories of runs, where everything about runs of this host is.
    pub(crate) fn files(&self) -> &RunDirs {
        &self.files
    }

    /// Why the ledger is not used, if it is not.
    pub(crate) fn note(&self) -> Option<String> {
        match &*lock(&self.state) {
            State::Ready(_) => None,
            State::Files { why } => Some(why.clone()),
        }
    }

    fn ready(&self) -> Option<Arc<Indexed>> {
        match &*lock(&self.state) {
            State::Ready(indexed) => Some(Arc::clone(indexed)),
            State::Files { .. } => None,
        }
    }

    /// The ledger, while it can be used.
    pub(crate) fn ledger(&self) -> Option<Ledger> {
        self.ready().map(|indexed| indexed.ledger().clone())
    }

    /// Asks the ledger, or the files if it cannot be used.
    ///
    /// # Errors
    /// As the question.
    pub(crate) fn ask<T>(
        &self,
        question: impl Fn(&dyn Records) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if let Some(indexed) = self.ready() {
            match question(&*indexed) {
                Err(ApiError::Ledger(error)) if !error.is_usage() => self.lost(&error),
                answer => return answer,
            }
        }
        question(&*self.files)
    }

    /// The directory of a run whose files are here.
    ///
    /// # Errors
    /// There is no such run, or its files are elsewhere.
    pub(crate) fn dir(&self, id: &str) -> Result<PathBuf, ApiError> {
        let missing = match self.files.dir(id) {
            Err(missing @ ApiError::NotFound { .. }) => missing,
            found => return found,
        };
        let elsewhere = self.ready().and_then(|indexed| indexed.run(id).ok()?.elsewhere);
        Err(elsewhere.map_or(missing, |place| ApiError::Elsewhere { place }))
    }

    /// Forgets what was read about a run, and has the ledger fed.
    pub(crate) fn changed(&self, dir: &Path) {
        self.files.forget(dir);
        if self.ready().is_some() {
            self.work.orders().changed.insert(dir.to_owned());
            self.work.told.notify_all();
        }
    }

    fn lost(&self, error: &LedgerError) {
        self.use_files(error);
        self.work.orders().failed = true;
        self.work.told.notify_all();
    }

    fn use_files(&self, error: &LedgerError) {
        let why =
            format!("Runs are read from their files, as the ledger cannot be used: {}", with_causes(error));
        *lock(&self.state) = State::Files { why };
    }

    /// Uses a ledger as soon as it is up to date, and keeps it so. `only` limits what is shown to one directory.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn keep(
        self: &Arc<Self>,
        url: LedgerUrl,
        only: Option<PathBuf>,
        hub: Arc<Hub>,
    ) -> std::io::Result<Kept> {
        let why = "Runs are read from their files until the ledger is up to date.".to_owned();
        *lock(&self.state) = State::Files { why };
        let keeper = Keeper { runs: Arc::clone(self), url, only, hub };
        std::thread::Builder::new().name("dashboard-ledger".to_owned()).spawn(move || keeper.serve())?;
        Ok(Kept(Arc::clone(&self.work)))
    }
}

/// The work of the thread that feeds the ledger.
struct Keeper {
    runs: Arc<Runs>,
    url: LedgerUrl,
    only: Option<PathBuf>,
    hub: Arc<Hub>,
}

impl Keeper {
    fn serve(self) {
        let mut rest = FIRST_REST;
        loop {
            match self.open() {
                Ok(ledger) => {
                    rest = FIRST_REST;
                    if !self.feed(&ledger) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the ledger cannot be used");
                    self.runs.use_files(&error);
                    if rest == FIRST_REST {
                        self.hub.listing_changed();
                    }
                }
            }
            if self.ended_within(rest) {
                return;
            }
            rest = (rest * 2).min(LONGEST_REST);
        }
    }

    fn open(&self) -> Result<Ledger, LedgerError> {
        let ledger = Ledger::open(&self.url)?;
        // What changes from here on comes as an order.
        let indexed = Indexed::new(ledger.clone(), Arc::clone(&self.runs.files), self.only.clone());
        ledger.catch_up(self.runs.files.root())?;
        let mut orders = self.runs.work.orders();
        (orders.failed, orders.changed) = (false, BTreeSet::new());
        *lock(&self.runs.state) = State::Ready(Arc::new(indexed));
        drop(orders);
        // What changed while it was looked at.
        ledger.catch_up(self.runs.files.root())?;
        self.hub.listing_changed();
        // Jobs of main nodes that are gone are in the ledger.
        self.hub.domain_changed();
        Ok(ledger)
    }

    /// Feeds what changes; `false` at the end, `true` when the ledger cannot be used any more.
    fn feed(&self, ledger: &Ledger) -> bool {
        loop {
            let mut orders = self.runs.work.orders();
            while orders.changed.is_empty() && !orders.failed && !orders.ended {
                orders = self.runs.work.told.wait(orders).unwrap_or_else(PoisonError::into_inner);
            }
            if orders.ended || orders.failed {
                return !orders.ended;
            }
            let changed = std::mem::take(&mut orders.changed);
            drop(orders);
            for dir in changed {
                if let Err(error) = feed_one(ledger, &dir) {
                    self.runs.use_files(&error);
                    return true;
                }
                self.hub.run_changed(&dir);
            }
        }
    }

    fn ended_within(&self, rest: Duration) -> bool {
        let until = Instant::now() + rest;
        let mut orders = self.runs.work.orders();
        while !orders.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            orders = self.runs.work.told.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Brings one run into the ledger, or out of it if its directory is gone.
fn feed_one(ledger: &Ledger, dir: &Path) -> Result<(), LedgerError> {
    let fed = match is_run(dir) {
        true => ledger.feed(dir).map(drop),
        false => match ledger.run_in(dir)? {
            Some(row) => ledger.forget_run(&row.uid),
            None => Ok(()),
        },
    };
    match fed {
        // It is about this run, not about the ledger.
        Err(error @ (LedgerError::Records(_) | LedgerError::File { .. } | LedgerError::NoRun { .. })) => {
            tracing::debug!(%error, dir = %dir.display(), "a run is not read");
            Ok(())
        }
        other => other,
    }
}
