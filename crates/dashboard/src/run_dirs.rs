//! Runs straight from their directories.

use crate::curve::{Curve, SeriesInfo};
use crate::entry::{Note, annotations, read_from};
use crate::error::ApiError;
use crate::files::{self, ConfigValue};
use crate::runs::{EventsPage, Records, RunSummary, RunsPage, RunsQuery, lock, no_run};
use crate::tail::Seen;
use crate::view::RunView;
use phalanx_ledger::Window;
use phalanx_records::history::Position;
use phalanx_records::run_dir::{RunInfo, Status, is_run, read_run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many runs keep their records in memory.
const MOST_VIEWS: usize = 16;

/// Runs straight from their directories.
#[derive(Debug)]
pub(crate) struct RunDirs {
    place: Place,
    /// Summaries of runs that have ended, with the time of their state file.
    ended: Mutex<BTreeMap<PathBuf, (SystemTime, RunSummary)>>,
    views: Views,
}

#[derive(Debug)]
enum Place {
    /// All runs in a directory.
    Directory(PathBuf),
    /// One run.
    One(PathBuf),
}

impl RunDirs {
    /// The runs in a directory, or the one run that the directory is.
    pub(crate) fn new(path: &Path) -> Self {
        // A path like `.` has no name of its own.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_missing| path.to_owned());
        let place = if is_run(&path) { Place::One(path) } else { Place::Directory(path) };
        Self { place, ended: Mutex::default(), views: Views::default() }
    }

    /// The directory whose changes are followed.
    pub(crate) fn root(&self) -> &Path {
        match &self.place {
            Place::Directory(path) | Place::One(path) => path,
        }
    }

    /// The name of the run, if there is only one.
    pub(crate) fn one_run(&self) -> Option<String> {
        match &self.place {
            Place::Directory(_) => None,
            Place::One(path) => path.file_name().map(|name| name.to_string_lossy().into_owned()),
        }
    }

    /// Where searches are: beside the directory of runs.
    pub(crate) fn searches(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Directory(path) => Some(path.parent()?.join("searches")),
            Place::One(_) => None,
        }
    }

    /// The directory of the run of a search's trial, which has the id `SEARCH:TRIAL`.
    fn trial_dir(&self, id: &str) -> Option<PathBuf> {
        let (search, trial) =
            id.split_once(':').filter(|(search, trial)| is_name(search) && is_name(trial))?;
        Some(self.searches()?.join(search).join("trials").join(trial)).filter(|dir| is_run(dir))
    }

    /// Whether an id is that of a trial's run.
    pub(crate) fn is_trial(&self, id: &str) -> bool {
        self.trial_dir(id).is_some()
    }

    /// The directories of all runs.
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        match &self.place {
            Place::One(path) => vec![path.clone()],
            Place::Directory(path) => {
                let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
                entries.map(|entry| entry.path()).filter(|path| is_run(path)).collect()
            }
        }
    }

    /// The directory of a run.
    ///
    /// # Errors
    /// There is no such run.
    pub(crate) fn dir(&self, id: &str) -> Result<PathBuf, ApiError> {
        if let Some(dir) = self.trial_dir(id) {
            return Ok(dir);
        }
        let dir = match &self.place {
            Place::One(path) => path.clone(),
            // A name, not a path.
            Place::Directory(path) if is_name(id) => path.join(id),
            Place::Directory(_) => PathBuf::new(),
        };
        let named = dir.file_name().is_some_and(|name| name.to_string_lossy() == id);
        if named && is_run(&dir) { Ok(dir) } else { Err(no_run(id)) }
    }

    fn summary(&self, dir: &Path) -> Result<RunSummary, ApiError> {
        let changed = std::fs::metadata(dir.join("state.json")).and_then(|file| file.modified()).ok();
        if let Some((at, known)) = lock(&self.ended).get(dir)
            && Some(*at) == changed
        {
            return Ok(known.clone());
        }
        let info = read_run(dir)?;
        let running = info.state.state == Status::Running;
        let mut summary = summarise(info);
        summary.tags = annotations(dir).0;
        if let (false, Some(changed)) = (running, changed) {
            lock(&self.ended).insert(dir.to_owned(), (changed, summary.clone()));
        }
        Ok(summary)
    }

    /// Reads a run anew when it is asked for again.
    pub(crate) fn forget(&self, dir: &Path) {
        lock(&self.ended).remove(dir);
    }
}

impl Records for RunDirs {
    fn runs(&self, query: &RunsQuery) -> Result<RunsPage, ApiError> {
        if query.filter.is_some() {
            return Err(ApiError::NeedsLedger { what: "a filter" });
        }
        let found = self.dirs().into_iter().filter_map(|dir| self.summary(&dir).ok());
        let mut runs: Vec<RunSummary> =
            found.filter(|run| query.words.iter().all(|word| has(run, word))).collect();
        sort(&mut runs, &query.sort);
        let total = runs.len();
        let runs = runs.into_iter().skip(query.offset).take(query.limit).collect();
        Ok(RunsPage { total, runs })
    }

    fn run(&self, id: &str) -> Result<RunSummary, ApiError> {
        let mut summary = self.summary(&self.dir(id)?)?;
        if self.is_trial(id) {
            (summary.id, summary.name) = (id.to_owned(), id.to_owned());
        }
        Ok(summary)
    }

    fn notes(&self, id: &str) -> Result<Vec<Note>, ApiError> {
        Ok(annotations(&self.dir(id)?).1)
    }

    fn series(&self, id: &str) -> Result<Vec<SeriesInfo>, ApiError> {
        self.views.with(&self.dir(id)?, |view, _| view.infos())
    }

    fn curves(&self, id: &str, names: &[&str], window: Window) -> Result<(Vec<Curve>, Seen), ApiError> {
        self.views.with(&self.dir(id)?, |view, seen| {
            (names.iter().filter_map(|name| view.curve(name, window)).collect(), seen)
        })
    }

    fn events(&self, id: &str, after: usize, limit: usize) -> Result<EventsPage, ApiError> {
        self.views.with(&self.dir(id)?, |view, seen| {
            let events = view.events.iter().skip(after).take(limit).cloned().collect();
            EventsPage { total: view.events.len(), events, seen }
        })
    }

    fn config(&self, id: &str) -> Result<Vec<ConfigValue>, ApiError> {
        files::config(&self.dir(id)?)
    }
}

pub(crate) fn is_name(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '\\', '\0'])
}

fn has(run: &RunSummary, word: &str) -> bool {
    let word = word.to_lowercase();
    let texts = [&run.id, &run.model, &run.state, &run.kind].into_iter();
    let tags = run.tags.iter().flat_map(|(key, value)| [key, value]);
    texts.chain(tags).chain(&run.reason).any(|text| text.to_lowercase().contains(&word))
}

/// Sorts by a column; runs without a value come last in both directions.
fn sort(runs: &mut [RunSummary], by: &str) {
    let (name, down) = by.strip_prefix('-').map_or((by, false), |name| (name, true));
    let directed = |ordering: std::cmp::Ordering| if down { ordering.reverse() } else { ordering };
    runs.sort_by(|a, b| {
        let ordering = match name {
            "name" | "id" => directed(a.id.cmp(&b.id)),
            "model" => directed(a.model.cmp(&b.model)),
            "state" => directed(a.state.cmp(&b.state)),
            _ => match (number(a, name), number(b, name)) {
                (Some(a), Some(b)) => directed(a.total_cmp(&b)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        };
        ordering.then_with(|| a.id.cmp(&b.id))
    });
}

fn number(run: &RunSummary, name: &str) -> Option<f64> {
    match name {
        "started" => run.started_ms.map(|ms| ms as f64),
        "ended" => run.ended_ms.map(|ms| ms as f64),
        "wall" | "wall_s" => Some(run.wall_s),
        "steps" => Some(run.steps as f64),
        _ => run.last.get(name).copied(),
    }
}

fn unix_ms(stamp: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(stamp).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// The numbers of a listing that are finite, by name.
pub(crate) fn last_values(numbers: [(&str, Option<f64>); 4]) -> BTreeMap<String, f64> {
    let finite =
        |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value.filter(|v| v.is_finite())?));
    numbers.into_iter().filter_map(finite).collect()
}

fn summarise(info: RunInfo) -> RunSummary {
    let RunInfo { id, state, .. } = info;
    let last = last_values([
        ("loss", state.loss.map(f64::from)),
        ("val_loss", state.val_loss),
        ("val_acc", state.val_acc),
        ("samples_per_s", state.samples_per_s),
    ]);
    RunSummary {
        name: id.clone(),
        id,
        elsewhere: None,
        kind: "training".to_owned(),
        state: state.state.to_string(),
        reason: state.reason,
        waiting: state.waiting,
        model: state.model,
        started_ms: unix_ms(&state.started),
        ended_ms: state.ended.as_deref().and_then(unix_ms),
        wall_s: if state.wall_s.is_finite() { state.wall_s } else { 0.0 },
        steps: state.steps,
        total_steps: state.total_steps,
        last,
        tags: BTreeMap::new(),
    }
}

/// Records of runs that are looked at, kept in memory and read on when files grow.
#[derive(Debug, Default)]
struct Views {
    views: Mutex<Vec<(PathBuf, Arc<Mutex<Open>>)>>,
}

#[derive(Debug, Default)]
struct Open {
    view: RunView,
    position: Position,
}

impl Views {
    /// Calls a function with all that a run recorded so far, and up to where that is.
    fn with<T>(&self, dir: &Path, f: impl FnOnce(&RunView, Seen) -> T) -> Result<T, ApiError> {
        let open = self.open(dir);
        let mut open = lock(&open);
        let Open { view, position } = &mut *open;
        while let Some(entries) = read_from(dir, position)? {
            entries.into_iter().for_each(|entry| view.push(entry));
        }
        Ok(f(view, (*position).into()))
    }

    fn open(&self, dir: &Path) -> Arc<Mutex<Open>> {
        let mut views = lock(&self.views);
        let found = views.iter().position(|(path, _)| path == dir).map(|at| views.remove(at));
        let entry = found.unwrap_or_else(|| (dir.to_owned(), Arc::default()));
        let open = Arc::clone(&entry.1);
        views.push(entry);
        // The one that was not looked at for the longest time.
        if views.len() > MOST_VIEWS {
            views.remove(0);
        }
        open
    }
}
