//! Files that run files name, held ready for nodes that do not have them.

use phalanx_data::map_open;
use phalanx_fabric::{BlobId, Fabric};
use phalanx_own_files::open_regular;
use phalanx_rank::{FileCache, FileHash, FileHashes};
use phalanx_types::Parcel;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Files that a main node holds, mapped, until it is dropped.
#[derive(Debug)]
pub(crate) struct OfferedFiles {
    fabric: Fabric,
    hashes: FileHashes,
    /// Where nodes of this user on this host find the files without a copy.
    cache: FileCache,
    held: BTreeMap<FileHash, (BlobId, u64)>,
}

impl OfferedFiles {
    pub(crate) fn new(fabric: Fabric) -> Self {
        Self { fabric, hashes: FileHashes::default(), cache: FileCache::usual(), held: BTreeMap::new() }
    }

    /// Holds a file ready; gives its hash and length.
    pub(crate) fn offer(&mut self, path: &Path) -> io::Result<(FileHash, u64)> {
        let (hash, bytes) = self.hashes.of(path)?;
        if !self.held.contains_key(&hash) {
            let mapped = map_open(&open_regular(path)?)?;
            self.cache.share(path, &hash);
            self.held.insert(hash, (self.fabric.hold(Parcel::from_bytes(mapped)), bytes));
        }
        Ok((hash, bytes))
    }

    pub(crate) fn find(&self, hash: &FileHash) -> Option<(BlobId, u64)> {
        self.held.get(hash).copied()
    }
}

impl Drop for OfferedFiles {
    fn drop(&mut self) {
        self.held.values().for_each(|(blob, _)| self.fabric.release(*blob));
    }
}
