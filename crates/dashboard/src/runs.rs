//! The runs of a directory, as the dashboard shows them: summaries, records, and what lies beside them.

use crate::entry::read_from;
use crate::error::ApiError;
use crate::view::{RunView, SeriesInfo};
use phalanx_records::history::{self, Position};
use phalanx_records::run_dir::{Annotation, RunInfo, Status, is_run, read_run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many runs keep their records in memory.
const MOST_VIEWS: usize = 16;

/// A run in listings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunSummary {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) waiting: Option<String>,
    pub(crate) model: String,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) wall_s: f64,
    pub(crate) steps: u64,
    pub(crate) total_steps: Option<u64>,
    /// The last value of each name.
    pub(crate) last: BTreeMap<String, f64>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Which runs are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunsQuery {
    /// Words that name, model, state or tags must have.
    pub(crate) words: Vec<String>,
    /// A name of a column, with `-` in front for the greatest first.
    pub(crate) sort: String,
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunsPage {
    pub(crate) total: usize,
    pub(crate) runs: Vec<RunSummary>,
}

/// Where the dashboard gets runs from.
pub(crate) trait Records: Send + Sync {
    /// # Errors
    /// They cannot be read.
    fn runs(&self, query: &RunsQuery) -> Result<RunsPage, ApiError>;
    /// # Errors
    /// There is no such run.
    fn run(&self, id: &str) -> Result<RunSummary, ApiError>;
    /// The directory of a run.
    ///
    /// # Errors
    /// There is no such run.
    fn dir(&self, id: &str) -> Result<PathBuf, ApiError>;
}

/// Runs straight from their directories.
#[derive(Debug)]
pub(crate) struct RunDirs {
    place: Place,
    /// Summaries of runs that have ended, with the time of their state file.
    ended: Mutex<BTreeMap<PathBuf, (SystemTime, RunSummary)>>,
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
        Self { place, ended: Mutex::default() }
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
        summary.tags = tags(dir);
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
        let found = self.dirs().into_iter().filter_map(|dir| self.summary(&dir).ok());
        let mut runs: Vec<RunSummary> =
            found.filter(|run| query.words.iter().all(|word| has(run, word))).collect();
        sort(&mut runs, &query.sort);
        let total = runs.len();
        let runs = runs.into_iter().skip(query.offset).take(query.limit).collect();
        Ok(RunsPage { total, runs })
    }

    fn run(&self, id: &str) -> Result<RunSummary, ApiError> {
        self.summary(&self.dir(id)?)
    }

    fn dir(&self, id: &str) -> Result<PathBuf, ApiError> {
        let dir = match &self.place {
            Place::One(path) => path.clone(),
            // A name, not a path.
            Place::Directory(path) if is_name(id) => path.join(id),
            Place::Directory(_) => PathBuf::new(),
        };
        let named = dir.file_name().is_some_and(|name| name.to_string_lossy() == id);
        if named && is_run(&dir) {
            Ok(dir)
        } else {
            Err(ApiError::NotFound { what: "run", name: id.to_owned() })
        }
    }
}

/// The tags that users gave a run.
fn tags(dir: &Path) -> BTreeMap<String, String> {
    // Only annotations: the other files count as read.
    let end = |name: &str| std::fs::metadata(dir.join(name)).map_or(0, |file| file.len());
    let mut position =
        Position { events: end("events.jsonl"), metrics: end("metrics.jsonl"), annotations: 0 };
    let mut tags = BTreeMap::new();
    while let Ok(batch) = history::read_from(dir, &position) {
        if batch.position == position {
            break;
        }
        position = batch.position;
        for entry in batch.entries {
            match entry {
                history::Entry::Annotation { annotation: Annotation::Set(set), .. } => tags.extend(set),
                history::Entry::Annotation { annotation: Annotation::Remove(key), .. } => {
                    drop(tags.remove(&key));
                }
                _ => {}
            }
        }
    }
    tags
}

fn is_name(id: &str) -> bool {
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
        "wall" => Some(run.wall_s),
        "steps" => Some(run.steps as f64),
        _ => run.last.get(name).copied(),
    }
}

fn unix_ms(stamp: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(stamp).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

fn summarise(info: RunInfo) -> RunSummary {
    let RunInfo { id, state, .. } = info;
    let numbers = [
        ("loss", state.loss.map(f64::from)),
        ("val_loss", state.val_loss),
        ("val_acc", state.val_acc),
        ("samples_per_s", state.samples_per_s),
    ];
    let finite =
        |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value.filter(|v| v.is_finite())?));
    RunSummary {
        id,
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
        last: numbers.into_iter().filter_map(finite).collect(),
        tags: BTreeMap::new(),
    }
}

/// Records of runs that are looked at, kept in memory and read on when files grow.
#[derive(Debug, Default)]
pub(crate) struct Views {
    views: Mutex<Vec<(PathBuf, Arc<Mutex<Open>>)>>,
}

#[derive(Debug, Default)]
struct Open {
    view: RunView,
    position: Position,
}

impl Views {
    /// Calls a function with all that a run recorded so far.
    pub(crate) fn with<T>(&self, dir: &Path, f: impl FnOnce(&RunView) -> T) -> Result<T, ApiError> {
        let open = self.open(dir);
        let mut open = lock(&open);
        let Open { view, position } = &mut *open;
        while let Some(entries) = read_from(dir, position)? {
            entries.into_iter().for_each(|entry| view.push(entry));
        }
        Ok(f(view))
    }

    pub(crate) fn series(&self, dir: &Path) -> Result<Vec<SeriesInfo>, ApiError> {
        self.with(dir, RunView::infos)
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

/// Locks; a thread that panicked leaves only what can be read again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
