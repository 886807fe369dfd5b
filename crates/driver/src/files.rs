//! The files that a run names, for nodes that do not have them.

use crate::error::DriverError;
use phalanx_data::map_file;
use phalanx_fabric::Fabric;
use phalanx_train::config::{ModelFrom, RunConfig};
use phalanx_types::Parcel;
use phalanx_wire::train::FileRef;
use std::path::Path;

/// Holds every file of a run ready for nodes to fetch. Folders are not among them: nodes need those themselves.
pub(super) fn offer(fabric: &Fabric, config: &RunConfig) -> Result<Vec<FileRef>, DriverError> {
    let mut files = Vec::new();
    for (key, path) in named(config).into_iter().filter(|(_, path)| path.is_file()) {
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

/// The files of a run and the keys that name them.
fn named(config: &RunConfig) -> Vec<(&'static str, &Path)> {
    let model = match &config.model.from {
        ModelFrom::Onnx(path) => Some(("model.onnx", path)),
        ModelFrom::Toml(path) => Some(("model.toml", path)),
        ModelFrom::Zoo(_) | ModelFrom::Memory => None,
    };
    let weights = config.model.weights.as_ref().map(|path| ("model.weights", path));
    let train = [
        Some(("data.train.file", &config.data.train.file)),
        config.data.train.labels_file.as_ref().map(|path| ("data.train.labels_file", path)),
    ];
    let valid = config.data.valid.as_ref().map(|valid| {
        let labels = valid.labels_file.as_ref().map(|path| ("data.valid.labels_file", path));
        [Some(("data.valid.file", &valid.file)), labels]
    });
    let all = [model, weights].into_iter().chain(train).chain(valid.into_iter().flatten());
    all.flatten().map(|(key, path)| (key, path.as_path())).collect()
}
