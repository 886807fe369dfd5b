//! Feeds the ledger from a thread of its own while a run goes on. A run never waits for it.

use super::pool::Ledger;
use super::searches::SearchSource;
use crate::error::LedgerError;
use crate::url::LedgerUrl;
use phalanx_records::with_causes;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Records of this time are written together: each look at a run costs about a millisecond.
const GATHER: Duration = Duration::from_millis(250);
/// Threads that compute go first where there is not a core for each.
const NICENESS: i32 = 10;
/// After a failure the ledger is left alone for this long, then twice as long, up to the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// How long the end of a run waits for its last records to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the threads tell each other.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// There may be something new in the files.
    dirty: bool,
    /// The run has ended: one last look.
    ending: bool,
    ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Flags are whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Feeds one run.
#[derive(Debug)]
pub struct Feeder;

/// Wakes the feeder of a run.
#[derive(Debug, Clone)]
pub struct FeederHandle {
    shared: Arc<Shared>,
}

impl Feeder {
    /// Starts to feed the run in a directory. `warn` is told once if the ledger cannot be used; the run goes on, and
    /// the ledger is tried again.
    pub fn start(url: LedgerUrl, run: PathBuf, warn: impl Fn(String) + Send + 'static) -> FeederHandle {
        Self::start_with(url, Source::Run(run), warn)
    }

    /// The same for the journal of a main node of a domain.
    pub fn start_journal(url: LedgerUrl, domain: String, journal: PathBuf) -> FeederHandle {
        Self::start_with(url, Source::Journal { domain, journal }, |warning| tracing::warn!("{warning}"))
    }

    fn start_with(url: LedgerUrl, source: Source, warn: impl Fn(String) + Send + 'static) -> FeederHandle {
        let shared = Arc::new(Shared::default());
        let handle = FeederHandle { shared: shared.clone() };
        let work = move || {
            // Of this thread alone; it also works with the usual priority.
            let _lowered = rustix::process::setpriority_process(None, NICENESS);
            Work { url, source, ledger: None, rest: FIRST_REST, warned: false, warn: Box::new(warn) }
                .serve(&shared);
            shared.state().ended = true;
            shared.changed.notify_all();
        };
        if std::thread::Builder::new().name("ledger-feeder".to_owned()).spawn(work).is_err() {
            // Without a thread the next look at the runs brings everything.
            handle.shared.state().ended = true;
        }
        handle
    }
}

impl Feeder {
    /// Feeds a run into the ledger that it belongs to; `None` if there is none.
    pub fn of_run(run: &Path) -> Option<FeederHandle> {
        match LedgerUrl::for_run(run) {
            Ok(url) => Some(Self::start(url?, run.to_owned(), |warning| tracing::warn!("{warning}"))),
            Err(error) => {
                tracing::warn!("{}", with_causes(&error));
                None
            }
        }
    }
}

impl Feeder {
    /// Feeds a search into the ledger that it belongs to, which is made if there is none; `None` if it is switched off,
    /// or the search is not in a directory of searches.
    pub fn of_search(search: &Path) -> Option<FeederHandle> {
        let whole = std::path::absolute(search).ok()?;
        let url = LedgerUrl::for_searches(whole.parent()?).unwrap_or_else(|error| {
            tracing::warn!("{}", with_causes(&error));
            None
        })?;
        if let LedgerUrl::Sqlite(file) = &url {
            // If it cannot be made, opening the file says why.
            let _made = file.parent().map(std::fs::create_dir_all);
        }
        let source = Source::Search(Box::new(SearchSource::new(search.to_owned())));
        Some(Self::start_with(url, source, |warning| tracing::warn!("{warning}")))
    }
}

impl FeederHandle {
    /// Says that something was recorded. Costs nothing worth mentioning and never blocks on the ledger.
    pub fn wake(&self) {
        let mut state = self.shared.state();
        if !state.dirty {
            state.dirty = true;
            self.shared.changed.notify_all();
        }
    }

    /// Lets the feeder bring the last records, and waits for it for a moment; `false` if it was not done by then. What
    /// is missing comes with the next look at the runs.
    pub fn finish(&self) -> bool {
        self.finish_within(LAST_WORDS)
    }

    /// The same with another limit.
    pub fn finish_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.shared.state();
        state.ending = true;
        self.shared.changed.notify_all();
        while !state.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Whose records are fed.
enum Source {
    Run(PathBuf),
    Journal { domain: String, journal: PathBuf },
    Search(Box<SearchSource>),
}

/// The work of the thread.
struct Work {
    url: LedgerUrl,
    source: Source,
    /// Opened when it is first needed, and again after a failure.
    ledger: Option<Ledger>,
    rest: Duration,
    warned: bool,
    warn: Box<dyn Fn(String) + Send>,
}

impl Work {
    fn serve(mut self, shared: &Shared) {
        loop {
            let mut state = shared.state();
            while !state.dirty && !state.ending {
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let ending = state.ending;
            state.dirty = false;
            drop(state);
            let rest = match self.feed() {
                Ok(()) => {
                    self.rest = FIRST_REST;
                    GATHER
                }
                Err(error) => self.on_failure(&error),
            };
            if ending || wait_unless_ending(shared, rest) && self.last_look() {
                return;
            }
        }
    }

    /// Brings what came while the run ended.
    fn last_look(&mut self) -> bool {
        if let Err(error) = self.feed() {
            self.on_failure(&error);
        }
        true
    }

    fn feed(&mut self) -> Result<(), LedgerError> {
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => Ledger::open(&self.url)?,
        };
        match &mut self.source {
            Source::Run(run) => ledger.feed(run)?,
            Source::Journal { domain, journal } => ledger.feed_journal(domain, journal)?,
            Source::Search(search) => ledger.feed_search_from(search)?,
        };
        self.ledger = Some(ledger);
        Ok(())
    }

    /// Says so once, and how long to leave the ledger alone.
    fn on_failure(&mut self, error: &LedgerError) -> Duration {
        if !self.warned {
            self.warned = true;
            let why = with_causes(error);
            let place = match &self.source {
                Source::Run(_) => "the run's files",
                Source::Journal { .. } => "the journal",
                Source::Search(_) => "the search's files",
            };
            (self.warn)(format!("the ledger does not take records now, they stay in {place}: {why}"));
        }
        let rest = self.rest;
        self.rest = (rest * 2).min(LONGEST_REST);
        rest
    }
}

/// Waits; `true` at once when the run ends.
fn wait_unless_ending(shared: &Shared, rest: Duration) -> bool {
    let until = Instant::now() + rest;
    let mut state = shared.state();
    while !state.ending {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    true
}
