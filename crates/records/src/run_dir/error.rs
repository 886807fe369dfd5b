//! Why a run directory cannot be used.

use phalanx_types::Class;
use std::path::{Path, PathBuf};

/// Whether and where a run is being trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trained {
    Nowhere,
    /// In one process, which does not answer queries.
    InProcess,
    /// On nodes, which answer queries.
    OnNodes,
}

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    #[error("could not {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("another process{} trains in {}", pid.map(|pid| format!(" ({pid})")).unwrap_or_default(), path.display())]
    Locked { path: PathBuf, pid: Option<u32> },
    #[error("there already is a run in {}", path.display())]
    Exists { path: PathBuf },
    #[error("{} is not empty, and what is in it is no run: there is {file:?}", path.display())]
    NotEmpty { path: PathBuf, file: String },
    #[error("there is no run in {}", path.display())]
    NotARun { path: PathBuf },
    #[error("no checkpoint can be read in {}", path.display())]
    NoCheckpoint { path: PathBuf, trained: Trained },
    #[error("the checkpoint is damaged: {what} in {}", path.display())]
    Damaged { what: &'static str, path: PathBuf },
    #[error("weights could not be used from {}", path.display())]
    Weights { path: PathBuf, source: phalanx_graph::weights::WeightsError },
    #[error("a file of {} cannot be understood", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
}

impl RunDirError {
    pub fn class(&self) -> Class {
        match self {
            Self::Io { .. } | Self::Locked { .. } => Class::Retry,
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Locked { .. } => "wait for it to end, or stop it".to_owned(),
            Self::Exists { path } => {
                format!(
                    "`phalanx run resume {}` continues it; give another --run-dir for a new one",
                    path.display()
                )
            }
            Self::NotEmpty { .. } => "give another --run-dir, one that is empty or not there yet".to_owned(),
            Self::NotARun { .. } => "`phalanx run list` names the runs there are".to_owned(),
            Self::NoCheckpoint { trained: Trained::OnNodes, .. } => {
                "it is being trained: `eval --live` and `predict --live` ask it where it is; else wait for its first \
                 checkpoint"
                    .to_owned()
            }
            Self::NoCheckpoint { trained: Trained::InProcess, .. } => {
                "it is being trained: wait for its first checkpoint; `train.checkpoint_every` says when".to_owned()
            }
            Self::NoCheckpoint { trained: Trained::Nowhere, path } => {
                format!("`phalanx run resume {}` trains it from the beginning", path.display())
            }
            _ => return None,
        })
    }
}

/// Adds the operation and the file to an IO error.
pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RunDirError {
    let path = path.to_owned();
    move |source| RunDirError::Io { what, path, source }
}
