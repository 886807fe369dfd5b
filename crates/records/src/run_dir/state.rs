//! The state of a run, for observers.

use super::error::{RunDirError, io};
use super::last::{last_step, last_valid};
use super::lock::is_locked;
use super::records::METRICS;
use super::{is_run, newest_manifest, replace};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(super) const STATE: &str = "state.json";

/// Whether a run is running, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Running,
    Finished,
    Interrupted,
    Failed,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Status::Running => "running",
            Status::Finished => "finished",
            Status::Interrupted => "interrupted",
            Status::Failed => "failed",
        })
    }
}

/// The best validation so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    pub step: u64,
    pub val_loss: f64,
    pub val_acc: Option<f64>,
}

/// The content of `state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    pub state: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it waits, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// When it began (RFC 3339).
    pub started: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    pub model: String,
    /// The number of steps when it is finished, if that is known.
    pub total_steps: Option<u64>,
    #[serde(default)]
    pub steps: u64,
    #[serde(default)]
    pub loss: Option<f32>,
    #[serde(default)]
    pub val_loss: Option<f64>,
    #[serde(default)]
    pub val_acc: Option<f64>,
    #[serde(default)]
    pub samples_per_s: Option<f64>,
    #[serde(default)]
    pub wall_s: f64,
    #[serde(default)]
    pub params_hash: Option<String>,
}

/// The current time, as written in files.
pub(crate) fn stamp() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

impl RunState {
    /// Steps done, and of how many if that is known: `120/600`.
    pub fn progress(&self) -> String {
        match self.total_steps {
            Some(total) => format!("{}/{total}", self.steps),
            None => self.steps.to_string(),
        }
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), RunDirError> {
        let path = dir.join(STATE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| RunDirError::Json { path: path.clone(), source })?;
        replace(&path, &text).map_err(io("write", &path))
    }

    pub(crate) fn read(dir: &Path) -> Result<Self, RunDirError> {
        let path = dir.join(STATE);
        let text = std::fs::read(&path).map_err(io("read", &path))?;
        serde_json::from_slice(&text).map_err(|source| RunDirError::Json { path, source })
    }
}

/// A run in listings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunInfo {
    pub id: String,
    pub path: PathBuf,
    #[serde(flatten)]
    pub state: RunState,
}

/// Reads the state of a run.
///
/// # Errors
/// There is no run, or its state cannot be read.
pub fn read_run(dir: &Path) -> Result<RunInfo, RunDirError> {
    if !is_run(dir) {
        return Err(RunDirError::NotARun { path: dir.to_owned() });
    }
    let mut state = RunState::read(dir)?;
    if state.state == Status::Running {
        if !is_locked(dir) {
            state.waiting = None;
            // It was killed before it could record its end.
            state.state = Status::Interrupted;
        }
        fill_in(&mut state, dir);
    }
    let path = dir.to_owned();
    let id = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(RunInfo { id, path, state })
}

/// The runs in a directory, sorted by name, and so by time.
pub fn list_runs(runs: &Path) -> Vec<RunInfo> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found: Vec<RunInfo> = entries.filter_map(|entry| read_run(&entry.path()).ok()).collect();
    found.sort_by(|a, b| (&a.state.started, &a.id).cmp(&(&b.state.started, &b.id)));
    found
}

/// Completes the state of a run that has not written it since it was opened: running, or killed.
fn fill_in(state: &mut RunState, dir: &Path) {
    let spent_s = state.wall_s + since_taken_up(dir, state.state == Status::Running);
    if let Some(manifest) = newest_manifest(dir) {
        state.steps = manifest.step;
        state.loss = manifest.loss;
        state.val_loss = manifest.val_loss;
        state.val_acc = manifest.val_acc;
        state.wall_s = manifest.elapsed_s;
    }
    state.wall_s = state.wall_s.max(spent_s);
    if let Some(last) = last_step(dir).filter(|last| last.step >= state.steps) {
        state.steps = last.step;
        state.loss = Some(last.loss);
        state.samples_per_s = Some(last.samples_per_s);
    }
    if let Some(valid) = last_valid(dir) {
        (state.val_loss, state.val_acc) = (Some(valid.val_loss), valid.val_acc);
    }
}

/// Seconds since a process opened a run, or until it recorded something last.
fn since_taken_up(dir: &Path, goes_on: bool) -> f64 {
    let changed = |name: &str| std::fs::metadata(dir.join(name)).and_then(|file| file.modified()).ok();
    let until = if goes_on { Some(SystemTime::now()) } else { changed(METRICS) };
    let spent = changed(STATE).zip(until).and_then(|(from, until)| until.duration_since(from).ok());
    spent.unwrap_or_default().as_secs_f64()
}
