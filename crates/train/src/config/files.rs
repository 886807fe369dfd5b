//! The files that a run file names.

use super::{ModelFrom, RunConfig};
use std::path::Path;

impl RunConfig {
    /// The files and folders of a run, each with the key that names it. Samples of a stream or from memory are in none.
    pub fn files(&self) -> Vec<(&'static str, &Path)> {
        let model = match &self.model.from {
            ModelFrom::Onnx(path) => Some(("model.onnx", path)),
            ModelFrom::Toml(path) => Some(("model.toml", path)),
            ModelFrom::Zoo(_) | ModelFrom::Memory => None,
        };
        let weights = self.model.weights.as_ref().map(|path| ("model.weights", path));
        let train = [
            Some(("data.train.file", &self.data.train.file)),
            self.data.train.labels_file.as_ref().map(|path| ("data.train.labels_file", path)),
        ];
        let valid = self.data.valid.as_ref().map(|valid| {
            let labels = valid.labels_file.as_ref().map(|path| ("data.valid.labels_file", path));
            [Some(("data.valid.file", &valid.file)), labels]
        });
        let all = [model, weights].into_iter().chain(train).chain(valid.into_iter().flatten());
        let named = all.flatten().map(|(key, path)| (key, path.as_path()));
        named.filter(|(_, path)| !path.as_os_str().is_empty()).collect()
    }
}
