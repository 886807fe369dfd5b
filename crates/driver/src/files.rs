//! The files that a run names, for nodes that do not have them.

use crate::error::DriverError;
use phalanx_data::map_file;
use phalanx_fabric::Fabric;
use phalanx_train::config::RunConfig;
use phalanx_types::Parcel;
use phalanx_wire::train::FileRef;

/// Holds every file of a run ready for nodes to fetch. Folders are not among them: nodes need those themselves.
pub(super) fn offer(fabric: &Fabric, config: &RunConfig) -> Result<Vec<FileRef>, DriverError> {
    let mut files = Vec::new();
    for (key, path) in config.files().into_iter().filter(|(_, path)| path.is_file()) {
        let bytes = map_file(path)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest.as_ref());
        let (len, path) = (bytes.len() as u64, path.to_string_lossy().into_owned());
        let blob = fabric.hold(Parcel::from_bytes(bytes));
        files.push(FileRef { key: key.to_owned(), path, bytes: len, sha256, blob });
    }
    Ok(files)
}
