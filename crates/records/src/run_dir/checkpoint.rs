//! Checkpoints: everything a run needs to continue bit-identically.

use super::error::{RunDirError, io};
use super::records::RecordSizes;
use super::state::Best;
use crate::model_state::parameter_of;
use crate::params_hash::sha256;
use phalanx_graph::{Weights, weights};
use phalanx_protocol::SealedPass;
use phalanx_protocol::progress::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";
/// The suffix of files with optimizer state.
const OPTIMIZER: &str = ".optimizer.safetensors";
/// Manifests of this version end with a checksum over themselves.
const VERSION: u32 = 2;
/// Manifests of this version have none.
const WITHOUT_CHECKSUM: u32 = 1;
/// What stands before the checksum at the end of a manifest, and behind it.
const CHECKSUM: (&[u8], &[u8]) = (b",\n  \"checksum\": \"", b"\"\n}");
/// The digits of a checksum.
const DIGITS: usize = 64;
/// The prefix of unfinished checkpoints.
const UNFINISHED: &str = ".step-";

/// The state of a run at one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub manifest: Manifest,
    /// Parameters and buffers, as in the user's `state_dict`.
    pub weights: Weights,
    /// The optimizer's state, named `<parameter>.<state>`, elements in the user's order.
    pub optimizer: Weights,
}

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub step: u64,
    /// Complete passes.
    pub pass: u64,
    /// Batches done in the current pass.
    pub batch: u64,
    /// The current pass over a stream, if it was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<SealedPass>,
    pub optimizer_steps: u64,
    /// Seconds of training, over all processes so far.
    pub elapsed_s: f64,
    /// The loss of the last step.
    pub loss: Option<f32>,
    pub val_loss: Option<f64>,
    pub val_acc: Option<f64>,
    /// The last step after which the model was validated; missing in older checkpoints.
    #[serde(default)]
    pub validated: Option<u64>,
    pub best: Option<Best>,
    pub params_hash: String,
    pub records: RecordSizes,
    #[serde(default)]
    pub files: Vec<FileEntry>,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

impl Manifest {
    pub fn place(&self) -> Place {
        Place { step: self.step, pass: self.pass, batch: self.batch, sealed: self.stream }
    }

    /// The number of stages the model was cut into.
    pub fn stages(&self) -> usize {
        self.files.iter().filter(|file| !file.name.ends_with(OPTIMIZER)).count()
    }

    /// An empty manifest of the current version.
    pub(crate) fn at(place: Place) -> Self {
        Self {
            version: VERSION,
            step: place.step,
            pass: place.pass,
            batch: place.batch,
            stream: place.sealed,
            optimizer_steps: 0,
            elapsed_s: 0.0,
            loss: None,
            val_loss: None,
            val_acc: None,
            validated: None,
            best: None,
            params_hash: String::new(),
            records: RecordSizes::default(),
            files: Vec::new(),
        }
    }
}

impl Manifest {
    pub(super) fn read(dir: &Path) -> Result<Self, RunDirError> {
        let path = dir.join(MANIFEST);
        let text = std::fs::read(&path).map_err(io("read", &path))?;
        let damaged = |what| RunDirError::Damaged { what, path: path.clone() };
        let has_checksum = match split_checksum(&text) {
            Some((content, checksum)) if sha256(&content).as_bytes() != checksum => {
                return Err(damaged("other bytes than were written"));
            }
            found => found.is_some(),
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|source| RunDirError::Json { path: path.clone(), source })?;
        match (manifest.version, has_checksum) {
            (VERSION, true) | (WITHOUT_CHECKSUM, false) => {}
            (VERSION, false) => return Err(damaged("no checksum")),
            _ => return Err(damaged("another version")),
        }
        if step_of(dir).is_some_and(|named| named != manifest.step) {
            return Err(damaged("a step that is not that of its name"));
        }
        Ok(manifest)
    }

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        let checksum = sha256(&text);
        // Instead of the line break and the brace at the end.
        text.truncate(text.len().saturating_sub(2));
        Ok([&text[..], CHECKSUM.0, checksum.as_bytes(), CHECKSUM.1].concat())
    }
}

/// A manifest without its checksum, and the checksum, if it ends with one.
fn split_checksum(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (before, checksum) = text.strip_suffix(CHECKSUM.1)?.split_last_chunk::<DIGITS>()?;
    Some(([before.strip_suffix(CHECKSUM.0)?, b"\n}"].concat(), checksum))
}

/// The step in the name of a checkpoint's directory, whole or unfinished.
fn step_of(dir: &Path) -> Option<u64> {
    let name = dir.file_name()?.to_str()?;
    name.strip_prefix('.').unwrap_or(name).strip_prefix("step-")?.parse().ok()
}

impl Checkpoint {
    /// Writes it atomically into a directory of its own. `stages` are the names in each of several files; if empty, all
    /// are in one file.
    pub(super) fn save(
        &self,
        checkpoints: &Path,
        stages: &[BTreeSet<String>],
    ) -> Result<PathBuf, RunDirError> {
        let name = format!("step-{:06}", self.manifest.step);
        let (place, beside) = (checkpoints.join(&name), checkpoints.join(format!(".{name}")));
        let saved = self.write(&beside, stages).and_then(|()| {
            if place.exists() {
                // Replaces a checkpoint of the same step. A process that is killed here leaves the new one complete;
                // see `tidy_up`.
                std::fs::remove_dir_all(&place).map_err(io("replace", &place))?;
            }
            std::fs::rename(&beside, &place).map_err(io("write", &place))?;
            sync_dir(checkpoints)
        });
        if saved.is_err() {
            // A file that could not be written may not be removable either; the next start tries again.
            let _removed = std::fs::remove_dir_all(&beside);
        }
        saved.map(|()| place)
    }

    fn write(&self, dir: &Path, stages: &[BTreeSet<String>]) -> Result<(), RunDirError> {
        if dir.exists() {
            std::fs::remove_dir_all(dir).map_err(io("replace", dir))?;
        }
        std::fs::create_dir(dir).map_err(io("make", dir))?;
        let mut manifest = Manifest { version: VERSION, ..self.manifest.clone() };
        manifest.files.clear();
        for (name, tensors) in self.files(stages) {
            let path = dir.join(&name);
            let bytes = weights::to_bytes(&tensors)
                .map_err(|source| RunDirError::Weights { path: path.clone(), source })?;
            write_synced(&path, &bytes)?;
            let sha256 = sha256(&bytes);
            manifest.files.push(FileEntry { name, bytes: bytes.len() as u64, sha256 });
        }
        let path = dir.join(MANIFEST);
        let text = manifest.to_bytes().map_err(|source| RunDirError::Json { path: path.clone(), source })?;
        write_synced(&path, &text)?;
        sync_dir(dir)
    }

    /// The tensors of each file: one pair of files for every stage. Tensors that no stage names go with the first.
    fn files(&self, stages: &[BTreeSet<String>]) -> Vec<(String, Weights)> {
        let stage_of =
            |parameter: &str| stages.iter().position(|names| names.contains(parameter)).unwrap_or(0);
        let of_state = |key: &str| stage_of(parameter_of(key));
        let take = |all: &Weights, stage: usize, of: &dyn Fn(&str) -> usize| -> Weights {
            let own = all.iter().filter(|(name, _)| of(name) == stage);
            own.map(|(name, tensor)| (name.clone(), tensor.clone())).collect()
        };
        let pair = |stage: usize| {
            [
                (format!("replica0-stage{stage}.safetensors"), take(&self.weights, stage, &stage_of)),
                (format!("replica0-stage{stage}{OPTIMIZER}"), take(&self.optimizer, stage, &of_state)),
            ]
        };
        (0..stages.len().max(1)).flat_map(pair).collect()
    }

    /// Reads a checkpoint, and checks it against its manifest.
    ///
    /// # Errors
    /// It cannot be read, or a file does not match the manifest.
    pub fn load(dir: &Path) -> Result<Self, RunDirError> {
        let manifest = Manifest::read(dir)?;
        let read = |entry: &FileEntry| -> Result<Weights, RunDirError> {
            let path = dir.join(&entry.name);
            let damaged = |what| RunDirError::Damaged { what, path: path.clone() };
            if entry.name.contains(['/', '\\']) {
                return Err(damaged("a name that is no file of its directory"));
            }
            let meta = std::fs::metadata(&path).map_err(io("read", &path))?;
            if !meta.is_file() || meta.len() != entry.bytes {
                return Err(damaged("a file of another length than was written"));
            }
            let bytes = std::fs::read(&path).map_err(io("read", &path))?;
            if bytes.len() as u64 != entry.bytes || sha256(&bytes) != entry.sha256 {
                return Err(damaged("other bytes than were written"));
            }
            weights::from_bytes(bytes.into())
                .map_err(|source| RunDirError::Weights { path: path.clone(), source })
        };
        let (mut weights, mut optimizer) = (Weights::new(), Weights::new());
        for entry in &manifest.files {
            let into = if entry.name.ends_with(OPTIMIZER) { &mut optimizer } else { &mut weights };
            into.extend(read(entry)?);
        }
        if weights.is_empty() {
            return Err(RunDirError::Damaged { what: "no weights", path: dir.join(MANIFEST) });
        }
        Ok(Self { weights, optimizer, manifest })
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
}

/// A checkpoint that cannot be used.
#[derive(Debug)]
pub struct UnusableCheckpoint {
    /// The step in its name.
    pub step: u64,
    /// Its directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub error: RunDirError,
}

/// The steps and paths of checkpoints, oldest first.
pub(super) fn numbered(checkpoints: &Path) -> Vec<(u64, PathBuf)> {
    let step = |path: &Path| step_of(path).filter(|_| !is_unfinished(path));
    let entries = std::fs::read_dir(checkpoints).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> =
        entries.filter_map(|entry| Some((step(&entry.path())?, entry.path()))).collect();
    found.sort();
    found
}

/// The checkpoints of a run, oldest first.
pub(super) fn list(checkpoints: &Path) -> Vec<PathBuf> {
    numbered(checkpoints).into_iter().map(|(_, path)| path).collect()
}

/// Removes all but the newest `keep` and the one that was just saved.
pub(super) fn prune(checkpoints: &Path, keep: usize, saved: &Path) {
    let others: Vec<PathBuf> = list(checkpoints).into_iter().filter(|path| path != saved).collect();
    for path in others.iter().take(others.len().saturating_sub(keep.saturating_sub(1))) {
        // A checkpoint that cannot be removed only takes space.
        let _removed = std::fs::remove_dir_all(path);
    }
}

/// Moves an unreadable checkpoint out of the way of new ones.
pub(super) fn set_aside(path: &Path) {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".damaged");
    let aside = path.with_file_name(name);
    // If it stays, it is replaced when the run reaches its step.
    let _removed = std::fs::remove_dir_all(&aside);
    let _moved = std::fs::rename(path, &aside);
}

/// Repairs what a killed process left: completes the replacement of a checkpoint of the same step, and removes
/// unfinished ones.
pub(super) fn tidy_up(checkpoints: &Path) {
    for entry in std::fs::read_dir(checkpoints).into_iter().flatten().flatten() {
        let (beside, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().filter(|name| name.starts_with(UNFINISHED)) else { continue };
        let place = checkpoints.join(name.trim_start_matches('.'));
        if Checkpoint::load(&place).is_err() && Checkpoint::load(&beside).is_ok() {
            let _removed = std::fs::remove_dir_all(&place);
            let _moved = std::fs::rename(&beside, &place);
        }
        let _removed = std::fs::remove_dir_all(&beside);
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(io("write", path))
}

fn sync_dir(path: &Path) -> Result<(), RunDirError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io("write", path))
}
