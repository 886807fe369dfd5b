//! The files that a run names, for nodes that do not have them.

use crate::error::DriverError;
use phalanx_data::{DataError, map_file};
use phalanx_fabric::Fabric;
use phalanx_rank::{FileCache, FilesOfRun, MOST_FILES, files_of};
use phalanx_train::config::RunConfig;
use phalanx_types::Parcel;
use phalanx_wire::train::FileRef;

/// Holds every file of a run ready for nodes to fetch, also those in folders; says which folders nodes need
/// themselves.
pub(super) fn offer(fabric: &Fabric, config: &RunConfig) -> Result<(Vec<FileRef>, Vec<String>), DriverError> {
    let unreadable = |source| DataError::Read { file: "the folders of the run".into(), source };
    let FilesOfRun { files: named, left_out } = files_of(config).map_err(unreadable)?;
    let cache = FileCache::usual();
    let mut files = Vec::new();
    for (key, path) in named {
        let bytes = map_file(&path)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest.as_ref());
        cache.share(&path, &sha256);
        let (len, path) = (bytes.len() as u64, path.to_string_lossy().into_owned());
        let blob = fabric.hold(Parcel::from_bytes(bytes));
        files.push(FileRef { key: key.to_owned(), path, bytes: len, sha256, blob });
    }
    let note = |(key, path): (&str, std::path::PathBuf)| {
        format!(
            "`{key}` has more than {MOST_FILES} files, which are not sent to nodes: each needs them as {}, in a \
             directory of its --data-root",
            path.display()
        )
    };
    Ok((files, left_out.into_iter().map(note).collect()))
}
