//! Searches beside the runs, from their records: read on when they grow.

use crate::app::App;
use crate::endpoints::Call;
use crate::error::ApiError;
use crate::run_dirs::is_name;
use crate::runs::lock;
use phalanx_records::run_dir::{Trained, is_run};
use phalanx_search::core::record::SearchEnd;
use phalanx_search_results::about::ABOUT_FILE;
use phalanx_search_results::follow::FollowError;
use phalanx_search_results::{SearchFollower, SearchTable, TrialRow};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How many searches keep their tables in memory.
const MOST_OPEN: usize = 16;
/// The most searches in a listing.
const MOST_LISTED: usize = 200;
/// The most points of a curve.
const MOST_POINTS: usize = 400;

/// A search that is read as it grows; `None` before it is read for the first time.
type Followed = Arc<Mutex<Option<SearchFollower>>>;

/// The searches of a directory.
#[derive(Debug)]
pub(crate) struct Searches {
    root: Option<PathBuf>,
    /// The one that was looked at last is the last.
    open: Mutex<Vec<(PathBuf, Followed)>>,
    /// Summaries with the length of the records that they are of.
    summaries: Mutex<BTreeMap<PathBuf, (u64, Summary)>>,
}

/// A row of a listing.
#[derive(Debug, Clone, Serialize)]
struct Summary {
    id: String,
    name: String,
    algorithm: String,
    state: &'static str,
    why: Option<String>,
    trials: u64,
    proposed: usize,
    with_results: usize,
    front: usize,
    started_ms: u64,
    last_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Trial {
    trial: u64,
    archid: String,
    state: &'static str,
    why: Option<String>,
    node: Option<String>,
    rung: Option<u32>,
    budget: f64,
    full: bool,
    parents: Vec<u64>,
    /// In the order of the search's objectives.
    objectives: Vec<Option<f64>>,
    values: BTreeMap<String, f64>,
    seconds: f64,
    iteration: Option<usize>,
    /// The id of its run, if there is one.
    run: Option<String>,
}

impl Searches {
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        Self { root, open: Mutex::default(), summaries: Mutex::default() }
    }

    fn dir(&self, id: &str) -> Result<PathBuf, ApiError> {
        let dir = self.root.as_ref().filter(|_| is_name(id)).map(|root| root.join(id));
        let missing = || ApiError::NotFound { what: "search", name: id.to_owned() };
        dir.filter(|dir| dir.join(ABOUT_FILE).is_file()).ok_or_else(missing)
    }

    /// Calls a function with the table of a search, as far as its records go now.
    fn with<T>(&self, dir: &Path, f: impl FnOnce(&SearchTable) -> T) -> Result<T, ApiError> {
        let open = self.open(dir);
        let mut open = lock(&open);
        let follower = match open.take() {
            Some(mut follower) => follower.refresh().map_err(FollowError::from).map(|_new| follower),
            None => SearchFollower::open(dir),
        };
        // After an error it is read from the beginning.
        let follower = open.insert(follower?);
        Ok(f(follower.table()))
    }

    fn open(&self, dir: &Path) -> Followed {
        let mut all = lock(&self.open);
        let found = all.iter().position(|(path, _)| path == dir).map(|at| all.remove(at));
        let entry = found.unwrap_or_else(|| (dir.to_owned(), Arc::default()));
        let open = Arc::clone(&entry.1);
        all.push(entry);
        if all.len() > MOST_OPEN {
            all.remove(0);
        }
        open
    }

    fn summary(&self, dir: &Path) -> Result<Summary, ApiError> {
        let length = |file: std::fs::Metadata| file.len();
        let events =
            std::fs::metadata(dir.join(phalanx_search_results::events::EVENTS_FILE)).map_or(0, length);
        let known =
            lock(&self.summaries).get(dir).filter(|(of, _)| *of == events).map(|(_, known)| known.clone());
        // Whether a process works on it changes without a record.
        if let Some(known) = known.filter(|known| !matches!(known.state, "running" | "interrupted")) {
            return Ok(known);
        }
        let summary = self.with(dir, |table| summarise(dir, table))?;
        lock(&self.summaries).insert(dir.to_owned(), (events, summary.clone()));
        Ok(summary)
    }

    fn list(&self) -> Vec<Summary> {
        let entries = self.root.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten();
        let begun = |entry: std::fs::DirEntry| {
            let made = std::fs::metadata(entry.path().join(ABOUT_FILE)).ok()?.modified().ok()?;
            Some((made, entry.path()))
        };
        let mut dirs: Vec<_> = entries.filter_map(begun).collect();
        dirs.sort();
        // One that cannot be read does not hide the others.
        let mut listed: Vec<Summary> =
            dirs.into_iter().rev().take(MOST_LISTED).filter_map(|(_, dir)| self.summary(&dir).ok()).collect();
        listed.sort_by_key(|search| std::cmp::Reverse(search.started_ms));
        listed
    }
}

fn summarise(dir: &Path, table: &SearchTable) -> Summary {
    let about = table.about();
    let (state, why) = match table.end() {
        Some(SearchEnd::Finished) => ("finished", None),
        Some(SearchEnd::Stopped) => ("stopped", None),
        Some(SearchEnd::Failed { why }) => ("failed", Some(why.clone())),
        None if matches!(Trained::now(dir), Trained::Nowhere) => ("interrupted", None),
        None => ("running", None),
    };
    Summary {
        // The name of the directory is what others call it by.
        id: dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        name: about.name.clone(),
        algorithm: about.algorithm.clone(),
        state,
        why,
        trials: about.trials,
        proposed: table.rows().len(),
        with_results: table.rows_with_results().len(),
        front: table.front().trials.len(),
        started_ms: about.started,
        last_ms: table.last_at(),
    }
}

fn entry(dir: &Path, search: &str, table: &SearchTable, row: &TrialRow, iteration: Option<usize>) -> Trial {
    let objectives = table.about().objectives.iter();
    let newest = row.latest().map(|result| result.values.clone()).unwrap_or_default();
    let values: BTreeMap<String, f64> = row.known.clone().into_iter().chain(newest).collect();
    let name = row.trial.to_string();
    Trial {
        trial: row.trial.0,
        archid: row.archid.clone(),
        state: row.status.name(),
        why: row.why.clone(),
        node: row.node.clone(),
        rung: row.rung,
        budget: row.budget(),
        full: row.latest().is_some_and(|result| table.about().is_full(result.budget)),
        parents: row.parents.iter().map(|parent| parent.0).collect(),
        objectives: objectives.map(|objective| row.value(&objective.name)).collect(),
        values,
        seconds: row.seconds(),
        iteration,
        run: is_run(&dir.join("trials").join(&name)).then(|| format!("{search}:{name}")),
    }
}

/// Points of a curve that only rises: where it rises, and both ends.
fn covered(table: &SearchTable) -> Vec<Value> {
    let curve = table.hypervolume();
    let last = curve.len().saturating_sub(1);
    let value = |at: usize| curve.get(at).map(|point| (point.hypervolume, point.full));
    let rises =
        |at: &usize| *at == 0 || *at == last || value(*at) != value(*at - 1) || value(*at) != value(*at + 1);
    let kept: Vec<usize> = (0..curve.len()).filter(rises).collect();
    let every = kept.len().div_ceil(MOST_POINTS).max(1);
    let chosen = kept.iter().enumerate().filter(|(at, index)| at % every == 0 || **index == last);
    let point = |(_, index): (usize, &usize)| {
        let point = curve.get(*index)?;
        let (share, full) = (point.hypervolume, point.full);
        Some(json!({ "results": point.results, "hours": point.hours, "share": share, "full": full }))
    };
    chosen.filter_map(point).collect()
}

pub(crate) fn list(app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "searches": serde_json::to_value(app.searches.list()).unwrap_or_default() }))
}

pub(crate) fn show(app: &App, call: &Call) -> Result<Value, ApiError> {
    let (id, after) = (call.value("id").unwrap_or_default(), call.number("after")?.unwrap_or(0));
    let dir = app.searches.dir(id)?;
    app.searches.with(&dir, |table| {
        let (about, front) = (table.about(), table.front());
        let with_results = table.rows_with_results().enumerate();
        let iterations: BTreeMap<_, _> =
            with_results.map(|(index, row)| (row.trial, table.iteration_of(index))).collect();
        let changed = table.rows().filter(|row| row.changed > after);
        let trials: Vec<Trial> =
            changed.map(|row| entry(&dir, id, table, row, iterations.get(&row.trial).copied())).collect();
        let counts: BTreeMap<&str, usize> =
            table.counts().into_iter().map(|(status, count)| (status.name(), count)).collect();
        json!({
            "summary": summarise(&dir, table),
            "objectives": about.objectives,
            "rungs": about.rungs,
            "budget_unit": about.budget_unit,
            "events": table.events(),
            "front": front.trials.iter().map(|trial| trial.0).collect::<Vec<u64>>(),
            "compared": front.basis.to_string(),
            "counts": counts,
            "hypervolume": covered(table),
            "trials": trials,
        })
    })
}
