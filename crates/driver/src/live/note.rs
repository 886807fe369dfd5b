//! `live.json`: says where a run is trained, and exists in the run directory while it is.

use super::LiveError;
use phalanx_types::{DomainName, NodeId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const FILE: &str = "live.json";

/// What stands in `live.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveNote {
    /// The domain of the nodes that train.
    pub domain: DomainName,
    /// The node that drives the run.
    pub driver: NodeId,
    /// The file with the key of the domain, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// A `live.json` that is removed with this value.
#[derive(Debug)]
pub struct LiveNoteFile(PathBuf);

impl LiveNote {
    /// Writes down where a run is trained.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, run: &Path) -> Result<LiveNoteFile, LiveError> {
        let path = run.join(FILE);
        self.key = self.key.map(|key| std::path::absolute(&key).unwrap_or(key));
        let text = serde_json::to_vec(&self).map_err(std::io::Error::from);
        let written = text.and_then(|text| std::fs::write(&path, text));
        written.map_err(|source| LiveError::WriteNote { path: path.clone(), source })?;
        Ok(LiveNoteFile(path))
    }

    /// Reads the note of a run, if it has one.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn read(run: &Path) -> Result<Option<Self>, LiveError> {
        let path = run.join(FILE);
        match std::fs::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(note) => Ok(Some(note)),
                Err(source) => Err(LiveError::MalformedNote { path, source }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LiveError::ReadNote { path, source }),
        }
    }
}

impl Drop for LiveNoteFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "could not remove a file");
        }
    }
}
