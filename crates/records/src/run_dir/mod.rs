//! The run directory.
//!
//! ```text
//! runs/<id>/
//!   run.toml  inputs.json  formation.json  state.json  classes.json  lock  live.json (while it is driven)
//!   metrics.jsonl  losses.csv  val_accuracies.csv  events.jsonl  annotations.jsonl
//!   checkpoints/step-000200/{manifest.json, replica0-stage0.safetensors, replica0-stage0.optimizer.safetensors}
//!   model.safetensors  model.onnx  tensorboard/events.out.tfevents.*
//! ```
//! The writing process holds the lock. Everything but the records is written atomically: under a temporary name, then
//! renamed. Metrics are cut back to the checkpoint when a run is resumed; events are only added (`event_log.rs` says in
//! which order, [`crate::history`] reads them).

mod annotations;
mod checkpoint;
mod error;
mod event_log;
mod id;
mod inputs;
mod last;
mod lock;
mod records;
mod state;

pub use annotations::{ANNOTATIONS, Annotation, annotate};
pub use checkpoint::{Checkpoint, Manifest, UnusableCheckpoint};
pub use error::{RunDirError, Trained};
pub use event_log::{EVENTS, run_uid};
pub(crate) use event_log::{EventLog, unix_ms};
pub use id::new_id;
pub use inputs::{ChangedInput, INPUTS, Input, InputChange, Inputs, Look};
pub(crate) use last::{last_valid, recorded_steps};
pub use lock::{LockHolder, RunLock};
pub(crate) use records::{Line, read_lines, shorter_records};
pub use records::{
    METRICS, RecordSizes, Records, ReplicaRecord, ReplicasRecord, StageRecord, StepRecord, ValidRecord,
};
pub(crate) use state::stamp;
pub use state::{Best, RunInfo, RunState, Status, list_runs, read_run};

use error::io;
use lock::{LOCK, is_locked};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The resolved run file.
pub const RUN_FILE: &str = "run.toml";
/// The weights of a finished run.
pub const MODEL: &str = "model.safetensors";
pub(crate) const MODEL_ONNX: &str = "model.onnx";
/// The names of classes, in the order of the model's outputs.
const CLASSES: &str = "classes.json";
/// Describes where nodes train a run, while they do.
const LIVE: &str = "live.json";
const CHECKPOINTS: &str = "checkpoints";

/// A run directory with its lock: only this process may write to it while this value lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: RunLock,
}

impl RunDir {
    /// Creates a directory for a new run; an empty one may exist already.
    ///
    /// # Errors
    /// It contains a run or something else, or it cannot be created.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        let path = path.into();
        std::fs::create_dir_all(&path).map_err(io("make", &path))?;
        if is_run(&path) {
            return Err(RunDirError::Exists { path });
        }
        if let Some(file) = foreign_file(&path)? {
            return Err(RunDirError::NotEmpty { path, file });
        }
        let lock = RunLock::take(&path)?;
        let checkpoints = path.join(CHECKPOINTS);
        std::fs::create_dir_all(&checkpoints).map_err(io("make", &checkpoints))?;
        Ok(Self { path, _lock: lock })
    }

    /// Opens the directory of a run to continue it.
    ///
    /// # Errors
    /// There is no run in it, or another process writes to it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        let path = path.into();
        if !is_run(&path) {
            return Err(RunDirError::NotARun { path });
        }
        let lock = RunLock::take(&path)?;
        let checkpoints = path.join(CHECKPOINTS);
        std::fs::create_dir_all(&checkpoints).map_err(io("make", &checkpoints))?;
        checkpoint::tidy_up(&checkpoints);
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the run.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RunDirError> {
        let path = self.file(name);
        replace(&path, bytes).map_err(io("write", &path))
    }

    /// Writes the names of classes.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_classes(&self, names: &[String]) -> Result<(), RunDirError> {
        let json = |source| RunDirError::Json { path: self.file(CLASSES), source };
        self.write(CLASSES, &serde_json::to_vec_pretty(names).map_err(json)?)
    }

    /// Saves a checkpoint, then removes older ones until there are `keep`.
    ///
    /// # Errors
    /// It cannot be written; earlier checkpoints are unchanged.
    pub fn save(
        &self,
        checkpoint: &Checkpoint,
        stages: &[BTreeSet<String>],
        keep: usize,
    ) -> Result<PathBuf, RunDirError> {
        let path = checkpoint.save(&self.checkpoints(), stages)?;
        checkpoint::prune(&self.checkpoints(), keep, &path);
        Ok(path)
    }

    /// The newest complete checkpoint, with the errors of newer ones, which are set aside.
    ///
    /// # Errors
    /// There is no complete checkpoint.
    pub fn newest(&self) -> Result<(Checkpoint, Vec<RunDirError>), RunDirError> {
        let (checkpoint, wrong) = newest_usable(&self.path)?;
        let set_aside = |wrong: UnusableCheckpoint| {
            checkpoint::set_aside(&wrong.path);
            wrong.error
        };
        Ok((checkpoint, wrong.into_iter().map(set_aside).collect()))
    }

    /// The step of the newest checkpoint.
    pub fn steps(&self) -> u64 {
        newest_manifest(&self.path).map_or(0, |manifest| manifest.step)
    }

    /// Removes the model of a run that continues: it is outdated.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove_model(&self) -> Result<(), RunDirError> {
        for name in [MODEL, MODEL_ONNX] {
            let path = self.file(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The steps and paths of a run's checkpoints, oldest first.
pub fn checkpoints(run: &Path) -> Vec<(u64, PathBuf)> {
    checkpoint::numbered(&run.join(CHECKPOINTS))
}

/// The newest complete checkpoint of a run, with the errors of newer ones.
///
/// # Errors
/// There is no complete checkpoint.
pub fn newest_checkpoint(run: &Path) -> Result<(Checkpoint, Vec<RunDirError>), RunDirError> {
    let (checkpoint, wrong) = newest_usable(run)?;
    Ok((checkpoint, wrong.into_iter().map(|wrong| wrong.error).collect()))
}

/// The newest complete checkpoint of a run, with newer ones that cannot be used, newest first.
///
/// # Errors
/// There is no complete checkpoint.
pub fn newest_usable(run: &Path) -> Result<(Checkpoint, Vec<UnusableCheckpoint>), RunDirError> {
    let mut wrong: Vec<UnusableCheckpoint> = Vec::new();
    for (step, path) in checkpoints(run).into_iter().rev() {
        match Checkpoint::load(&path) {
            Ok(checkpoint) => return Ok((checkpoint, wrong)),
            // The run that is being trained has removed it.
            Err(_) if !path.exists() => {}
            Err(error) => wrong.push(UnusableCheckpoint { step, path, error }),
        }
    }
    // The error of the newest checkpoint is more useful than that there is none.
    match wrong.into_iter().next() {
        Some(wrong) => Err(wrong.error),
        None => Err(RunDirError::NoCheckpoint { path: run.to_owned(), trained: Trained::now(run) }),
    }
}

/// The names of a run's classes, in the order of the model's outputs; `None` if labels are numbers.
///
/// # Errors
/// They exist and cannot be read.
pub fn read_classes(run: &Path) -> Result<Option<Vec<String>>, RunDirError> {
    let path = run.join(CLASSES);
    match std::fs::read(&path) {
        Ok(text) => {
            let names = serde_json::from_slice(&text);
            names.map(Some).map_err(|source| RunDirError::Json { path, source })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("read", &path)(error)),
    }
}

/// The manifest of the newest checkpoint.
pub(crate) fn newest_manifest(run: &Path) -> Option<Manifest> {
    checkpoints(run).iter().rev().find_map(|(_, path)| Manifest::read(path).ok())
}

/// Whether this directory contains a run, and not just a file with the name of a run file.
pub fn is_run(path: &Path) -> bool {
    let begun = || path.join(LOCK).is_file() && path.join(CHECKPOINTS).is_dir();
    path.join(RUN_FILE).is_file() && (path.join(state::STATE).is_file() || begun())
}

/// A file in a directory that does not belong to a run.
fn foreign_file(dir: &Path) -> Result<Option<String>, RunDirError> {
    // Files that a process leaves when it is killed before it writes the run file.
    const OURS: [&str; 3] = [LOCK, CHECKPOINTS, "run.toml.tmp"];
    for entry in std::fs::read_dir(dir).map_err(io("read", dir))? {
        let name = entry.map_err(io("read", dir))?.file_name();
        if !OURS.iter().any(|ours| name == *ours) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

impl Trained {
    /// Where a run is being trained now.
    pub fn now(run: &Path) -> Self {
        match (is_locked(run), run.join(LIVE).is_file()) {
            (false, _) => Self::Nowhere,
            (true, false) => Self::InProcess,
            (true, true) => Self::OnNodes,
        }
    }
}

/// Writes a temporary file next to the target and renames it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let beside = path.with_file_name(name);
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests;
