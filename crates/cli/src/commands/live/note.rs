//! Where a run is trained, in its directory for as long as it is.

use crate::failure::Failure;
use anyhow::Context;
use phalanx_types::{DomainName, NodeId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const FILE: &str = "live.json";

/// What stands in `live.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) domain: DomainName,
    pub(super) driver: NodeId,
    /// The file with the key of the domain, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<PathBuf>,
}

/// The file, which goes with this value.
#[derive(Debug)]
pub(crate) struct Noted(PathBuf);

impl Noted {
    /// Writes down where a run is trained.
    pub(crate) fn write(
        run: &Path,
        domain: &DomainName,
        driver: &NodeId,
        key: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let path = run.join(FILE);
        let key = key.map(|key| std::path::absolute(&key).unwrap_or(key));
        let note = Note { domain: domain.clone(), driver: driver.clone(), key };
        let text = serde_json::to_vec(&note).map_err(Failure::infrastructure)?;
        std::fs::write(&path, text)
            .with_context(|| format!("could not write {}", path.display()))
            .map_err(Failure::infrastructure)?;
        Ok(Self(path))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "could not remove a file");
        }
    }
}

impl Note {
    /// That of a run, if it has one.
    pub(super) fn read(run: &Path) -> Result<Option<Self>, Failure> {
        let path = run.join(FILE);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("could not understand {}", path.display()))
                .map_err(Failure::usage)
                .map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::infrastructure(
                anyhow::Error::new(error).context(format!("could not read {}", path.display())),
            )),
        }
    }
}
