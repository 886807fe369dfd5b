//! Run directories that nodes saved in the middle of trials: a trial whose node is lost goes on from there.

use crate::bundle::{Bundle, BundleError};
use phalanx_fabric::{BlobId, Fabric};
use phalanx_types::{Parcel, ParcelHead};
use phalanx_wire::trial::{SavedFiles, TrialOrder};
use std::collections::BTreeMap;
use tempfile::TempDir;

/// The search and the number of a trial.
pub(crate) type TrialKey = (String, u64);

/// What was saved of trials that are ordered, in files that are gone with this value.
#[derive(Debug)]
pub(crate) struct SavedTrials {
    fabric: Fabric,
    ordered: BTreeMap<TrialKey, Ordered>,
}

#[derive(Debug)]
struct Ordered {
    attempt: u32,
    saved: Option<Saved>,
}

#[derive(Debug)]
struct Saved {
    blob: BlobId,
    head: ParcelHead,
    _dir: TempDir,
}

impl SavedTrials {
    pub(crate) fn new(fabric: Fabric) -> Self {
        Self { fabric, ordered: BTreeMap::new() }
    }

    /// From now on what nodes save of this trial is kept.
    pub(crate) fn begin(&mut self, order: &TrialOrder) {
        let key = (order.search.clone(), order.trial);
        self.end(&key);
        self.ordered.insert(key, Ordered { attempt: order.attempt, saved: None });
    }

    /// What was saved of this trial is not needed any more.
    pub(crate) fn end(&mut self, key: &TrialKey) {
        if let Some(Saved { blob, .. }) = self.ordered.remove(key).and_then(|ordered| ordered.saved) {
            self.fabric.release(blob);
        }
    }

    pub(crate) fn is_wanted(&self, key: &TrialKey, attempt: u32) -> bool {
        self.ordered.get(key).is_some_and(|ordered| ordered.attempt == attempt)
    }

    /// Keeps the files of a trial in the place of earlier ones.
    pub(crate) fn put(&mut self, key: &TrialKey, attempt: u32, files: &Bundle) -> Result<(), BundleError> {
        let Some(ordered) = self.ordered.get_mut(key).filter(|ordered| ordered.attempt == attempt) else {
            return Ok(());
        };
        let made = tempfile::Builder::new().prefix("phalanx-saved-").tempdir();
        let io = |source| BundleError::Io { what: "make", path: std::env::temp_dir(), source };
        let dir = made.map_err(io)?;
        files.write(dir.path())?;
        // Mapped: a large model does not stay in memory.
        let parcel = Bundle::of_dir(dir.path())?.add_to(Parcel::default())?;
        let head = parcel.head();
        let saved = Saved { blob: self.fabric.hold(parcel), head, _dir: dir };
        if let Some(Saved { blob, .. }) = ordered.saved.replace(saved) {
            self.fabric.release(blob);
        }
        Ok(())
    }

    pub(crate) fn newest(&self, key: &TrialKey, attempt: u32) -> Option<SavedFiles> {
        let ordered = self.ordered.get(key).filter(|ordered| ordered.attempt == attempt)?;
        let saved = ordered.saved.as_ref()?;
        Some(SavedFiles { head: saved.head.clone(), blob: saved.blob })
    }
}

impl Drop for SavedTrials {
    fn drop(&mut self) {
        let saved = self.ordered.values().filter_map(|ordered| ordered.saved.as_ref());
        saved.for_each(|saved| self.fabric.release(saved.blob));
    }
}
