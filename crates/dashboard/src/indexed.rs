//! Runs from the ledger: listings, filters and reduced curves by SQL. Runs of other hosts that share the ledger are
//! among them; of those there are no files here.

use crate::curve::{Curve, SeriesInfo, bounded, finite};
use crate::entry::Note;
use crate::error::ApiError;
use crate::files::ConfigValue;
use crate::run_dirs::{RunDirs, last_values};
use crate::runs::{EventsPage, Records, RunSummary, RunsPage, RunsQuery, no_run};
use crate::tail::Seen;
use phalanx_ledger::{
    Detail, EventRow, Filter, FilterProblem, Ledger, LedgerError, RunQuery, RunRow, Window, parse_sort,
};
use phalanx_records::history::{LoggedEvent, end_of};
use phalanx_records::run_dir::run_uid;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More metrics than this that the ledger has not read yet are read by its thread; a viewer does not wait for them.
const MOST_BEHIND: u64 = 4 << 20;

/// Runs from the ledger.
#[derive(Debug)]
pub(crate) struct Indexed {
    ledger: Ledger,
    files: Arc<RunDirs>,
    /// Only runs of this directory.
    only: Option<PathBuf>,
}

/// Where a run is.
enum Found {
    /// A run of this directory that the ledger knows as far as its files go.
    Known(Known),
    /// A run of this directory of which the ledger lacks much.
    Unknown,
    Elsewhere(Known),
}

struct Known {
    uid: String,
    /// Up to where the ledger has everything.
    seen: Seen,
}

impl Indexed {
    pub(crate) fn new(ledger: Ledger, files: Arc<RunDirs>, only: Option<PathBuf>) -> Self {
        Self { ledger, files, only }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The directory of a row, if it is one of those that are shown here.
    fn dir_of(&self, row: &RunRow) -> Option<PathBuf> {
        let name = row.dir.file_name()?.to_str()?;
        let beside = row.dir.parent().is_some_and(|runs| is_same(runs, self.files.root()));
        let dir = if beside { self.files.dir(name).ok()? } else { return None };
        // Another host may have another run under the same path.
        let same = || run_uid(&dir).is_ok_and(|uid| uid == row.uid);
        (row.here || same()).then_some(dir)
    }

    fn summary(&self, row: RunRow) -> RunSummary {
        let here = self.dir_of(&row);
        let name = here.as_ref().and_then(|dir| Some(dir.file_name()?.to_string_lossy().into_owned()));
        let last = last_values([
            ("loss", row.loss),
            ("val_loss", row.val_loss),
            ("val_acc", row.val_acc),
            ("samples_per_s", row.samples_per_s),
        ]);
        RunSummary {
            elsewhere: here.is_none().then(|| place_of(&row)),
            id: name.unwrap_or(row.uid),
            name: row.name,
            kind: row.kind,
            state: row.state,
            reason: row.reason,
            waiting: row.waiting,
            model: row.model,
            started_ms: row.started_ms,
            ended_ms: row.ended_ms,
            wall_s: if row.wall_s.is_finite() { row.wall_s } else { 0.0 },
            steps: row.steps,
            total_steps: row.total_steps,
            last,
            tags: row.tags,
        }
    }

    /// A run whose files are elsewhere.
    fn elsewhere(&self, id: &str) -> Result<RunRow, ApiError> {
        let row = self.ledger.run_of_uid(id)?.ok_or_else(|| no_run(id))?;
        let shown = |only: &PathBuf| row.dir.parent().is_some_and(|runs| is_same(runs, only));
        if self.only.as_ref().is_none_or(shown) { Ok(row) } else { Err(no_run(id)) }
    }

    /// A run, with the ledger brought to where its files are.
    fn find(&self, id: &str) -> Result<Found, ApiError> {
        if self.files.is_trial(id) {
            // The ledger has runs of people, not the many of a search.
            return Ok(Found::Unknown);
        }
        let Ok(dir) = self.files.dir(id) else {
            let uid = self.elsewhere(id)?.uid;
            let seen = self.ledger.position(&uid)?.unwrap_or_default().into();
            return Ok(Found::Elsewhere(Known { uid, seen }));
        };
        let known = |ledger: &Ledger| -> Result<Option<Known>, LedgerError> {
            let Some(row) = ledger.run_in(&dir)? else { return Ok(None) };
            let position = ledger.position(&row.uid)?;
            Ok(position.map(|position| Known { uid: row.uid, seen: position.into() }))
        };
        let end: Seen = end_of(&dir)?.into();
        let before = known(&self.ledger)?;
        let lacks = end.metrics.saturating_sub(before.as_ref().map_or(0, |known| known.seen.metrics));
        match before {
            Some(known) if known.seen == end => return Ok(Found::Known(known)),
            _ if lacks > MOST_BEHIND => return Ok(Found::Unknown),
            _ => {}
        }
        match self.ledger.feed(&dir) {
            // It is about this run, not about the ledger.
            Err(LedgerError::Records(_) | LedgerError::File { .. }) => return Ok(Found::Unknown),
            fed => fed?,
        };
        Ok(known(&self.ledger)?.map_or(Found::Unknown, Found::Known))
    }
}

/// Whether two paths are the same directory.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| a == b)
}

fn place_of(row: &RunRow) -> String {
    format!("{}:{}", row.host, row.dir.display())
}

/// The names that the page has for columns, as the ledger knows them.
fn sort_text(sort: &str) -> String {
    let (sign, name) = sort.strip_prefix('-').map_or(("", sort), |name| ("-", name));
    let name = if name == "wall" { "wall_s" } else { name };
    format!("{sign}{name},{sign}started")
}

impl Records for Indexed {
    fn runs(&self, query: &RunsQuery) -> Result<RunsPage, ApiError> {
        let filter = query.filter.as_deref();
        let mut asked = RunQuery {
            filter: filter.map(Filter::parse).transpose().map_err(LedgerError::from)?,
            filter_text: filter.unwrap_or_default().to_owned(),
            words: query.words.clone(),
            sort: parse_sort(&sort_text(&query.sort)),
            limit: Some(query.limit),
            offset: query.offset,
            kind: None,
            runs: self.only.clone(),
            with: Detail { tags: true, ..Detail::default() },
        };
        let found = match self.ledger.runs(&asked) {
            Err(LedgerError::Filter(error))
                if matches!(error.problem, FilterProblem::UnknownColumn { .. })
                    && Some(error.text.as_str()) != filter =>
            {
                // No run has a value of the column that they are sorted by.
                asked.sort = parse_sort("-started");
                self.ledger.runs(&asked)?
            }
            found => found?,
        };
        asked.sort.clear();
        let total = usize::try_from(self.ledger.count(&asked)?).unwrap_or(usize::MAX);
        Ok(RunsPage { total, runs: found.into_iter().map(|row| self.summary(row)).collect() })
    }

    /// From its files if they are here: they are small, and newer than anything.
    fn run(&self, id: &str) -> Result<RunSummary, ApiError> {
        match self.files.run(id) {
            Err(ApiError::NotFound { .. }) => Ok(self.summary(self.elsewhere(id)?)),
            other => other,
        }
    }

    fn notes(&self, id: &str) -> Result<Vec<Note>, ApiError> {
        match self.files.notes(id) {
            Err(ApiError::NotFound { .. }) => {
                let notes = self.ledger.notes(&self.elsewhere(id)?.uid)?;
                Ok(notes.into_iter().map(|note| Note { unix_ms: note.unix_ms, text: note.text }).collect())
            }
            other => other,
        }
    }

    fn series(&self, id: &str) -> Result<Vec<SeriesInfo>, ApiError> {
        let known = match self.find(id)? {
            Found::Known(known) | Found::Elsewhere(known) => known,
            Found::Unknown => return self.files.series(id),
        };
        let info = |series: phalanx_ledger::SeriesInfo| SeriesInfo {
            name: series.name,
            points: series.points,
            last: series.last.and_then(finite),
            min: series.min,
            max: series.max,
        };
        Ok(self.ledger.series(&known.uid)?.into_iter().map(info).collect())
    }

    fn curves(&self, id: &str, names: &[&str], window: Window) -> Result<(Vec<Curve>, Seen), ApiError> {
        let known = match self.find(id)? {
            Found::Known(known) | Found::Elsewhere(known) => known,
            Found::Unknown => return self.files.curves(id, names, window),
        };
        let mut curves = Vec::with_capacity(names.len());
        for name in names {
            match self.ledger.curve(&known.uid, name, bounded(window)) {
                Ok(curve) => curves.push(Curve::new(name, curve)),
                Err(LedgerError::NoSeries { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((curves, known.seen))
    }

    fn events(&self, id: &str, after: usize, limit: usize) -> Result<EventsPage, ApiError> {
        let known = match self.find(id)? {
            Found::Known(known) | Found::Elsewhere(known) => known,
            Found::Unknown => return self.files.events(id, after, limit),
        };
        let event = |row: EventRow| LoggedEvent {
            seq: row.seq,
            unix_ms: row.unix_ms,
            event: row.event,
            value: row.value,
        };
        let total = usize::try_from(self.ledger.event_count(&known.uid)?).unwrap_or(usize::MAX);
        // Events are numbered from 0.
        let last = (after as u64).checked_sub(1);
        let events = self.ledger.events(&known.uid, last, limit)?;
        Ok(EventsPage { total, events: events.into_iter().map(event).collect(), seen: known.seen })
    }

    fn config(&self, id: &str) -> Result<Vec<ConfigValue>, ApiError> {
        match self.files.config(id) {
            Err(ApiError::NotFound { .. }) => {
                let params = self.ledger.params(&self.elsewhere(id)?.uid)?;
                let value = |(key, value)| ConfigValue { key, value, source: String::new() };
                Ok(params.into_iter().map(value).collect())
            }
            other => other,
        }
    }
}
