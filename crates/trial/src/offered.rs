//! Files that run files name, held ready for nodes that do not have them.

use phalanx_data::map_open;
use phalanx_fabric::{BlobId, Fabric};
use phalanx_types::Parcel;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) type Sha256 = [u8; 32];

/// A file as it was when its bytes were looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileState {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileState {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let about = std::fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), bytes: about.len(), modified: about.modified().ok() })
    }
}

/// Files that a main node holds, mapped, until it is dropped.
#[derive(Debug)]
pub(crate) struct OfferedFiles {
    fabric: Fabric,
    hashes: BTreeMap<FileState, Sha256>,
    held: BTreeMap<Sha256, (BlobId, u64)>,
}

impl OfferedFiles {
    pub(crate) fn new(fabric: Fabric) -> Self {
        Self { fabric, hashes: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// Holds a file ready; gives its hash and length.
    pub(crate) fn offer(&mut self, path: &Path) -> io::Result<(Sha256, u64)> {
        let state = FileState::of(path)?;
        if let Some(sha256) = self.hashes.get(&state) {
            return Ok((*sha256, state.bytes));
        }
        let bytes = map_open(&File::open(path)?)?;
        let (sha256, len) = (sha256(&bytes), bytes.len() as u64);
        self.held.entry(sha256).or_insert_with(|| (self.fabric.hold(Parcel::from_bytes(bytes)), len));
        self.hashes.insert(state, sha256);
        Ok((sha256, len))
    }

    pub(crate) fn find(&self, sha256: &Sha256) -> Option<(BlobId, u64)> {
        self.held.get(sha256).copied()
    }
}

impl Drop for OfferedFiles {
    fn drop(&mut self) {
        self.held.values().for_each(|(blob, _)| self.fabric.release(*blob));
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Sha256 {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    sha256
}
