//! Loading models from files, the zoo or memory.

use crate::config::{ModelConfig, ModelFrom};
use phalanx_data::Limit;
use phalanx_graph::layers::{self, LayersError};
use phalanx_graph::onnx::{self, ImportOptions, OnnxError};
use phalanx_graph::{Graph, Op, Weights, weights, zoo};
use phalanx_types::{Class, Seed};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    #[error(transparent)]
    Zoo(#[from] zoo::ZooError),
    #[error("could not import the model of {}", path.display())]
    Onnx { path: PathBuf, source: OnnxError },
    #[error("could not read the model of {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the layers of {} do not make a model", path.display())]
    Layers { path: PathBuf, source: LayersError },
    #[error("weights could not be used from {}", path.display())]
    Weights { path: PathBuf, source: weights::WeightsError },
    #[error("the model is in memory, and no file names it")]
    Memory,
    #[error("the model does not say with which values it begins")]
    Incomplete { source: weights::WeightsError },
}

impl ModelError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Onnx { source: OnnxError::Dimension { dim, .. }, .. } => {
                Some(format!("say its size in [model]: dims = {{ {dim} = 128 }}"))
            }
            Self::Onnx { source: OnnxError::Read { .. }, .. } => {
                Some("paths begin at the run file".to_owned())
            }
            Self::Onnx { source, .. } => source.hint(),
            _ => None,
        }
    }
}

/// A loaded model.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub graph: Graph,
    /// The weights that came with it.
    pub weights: Weights,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Loads the graph of a model, and the weights that come with it.
///
/// # Errors
/// It cannot be read or built.
pub fn find_model(config: &ModelConfig) -> Result<Found, ModelError> {
    let mut found = find(config)?;
    for node in &mut found.graph.nodes {
        if let (Op::Dropout { ratio }, Some(wanted)) = (&mut node.op, config.dropout) {
            *ratio = wanted;
        }
    }
    Ok(found)
}

fn find(config: &ModelConfig) -> Result<Found, ModelError> {
    match &config.from {
        ModelFrom::Memory => Err(ModelError::Memory),
        ModelFrom::Zoo(name) => {
            let options = zoo::ZooOptions { input: config.input.clone(), classes: config.classes };
            Ok(Found { graph: zoo::build(name, &options)?, weights: Weights::new(), notes: Vec::new() })
        }
        ModelFrom::Onnx(path) => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let limit = Some(config.limit.unwrap_or_else(|| Limit::default().size()));
            let options =
                ImportOptions { name, dims: config.dims.clone(), limit, ..ImportOptions::default() };
            let wrong = |source| ModelError::Onnx { path: path.clone(), source };
            let onnx::Imported { graph, weights, notes } = onnx::import(path, &options).map_err(wrong)?;
            Ok(Found { graph, weights, notes })
        }
        ModelFrom::Toml(path) => {
            let read = |source| ModelError::Read { path: path.clone(), source };
            // Opening a pipe waits for a writer, and devices have no end.
            if !std::fs::metadata(path).map_err(read)?.is_file() {
                return Err(read(Error::new(ErrorKind::InvalidInput, "it is no regular file")));
            }
            let text = std::fs::read_to_string(path).map_err(read)?;
            let wrong = |source| ModelError::Layers { path: path.clone(), source };
            let graph = layers::parse(&text).map_err(wrong)?;
            Ok(Found { graph, weights: Weights::new(), notes: Vec::new() })
        }
    }
}

/// Loads a model with all its initial weights: from a file, or those that come with it, otherwise made from the seed.
///
/// # Errors
/// It cannot be read or built, or the weights do not match.
pub fn load_model(config: &ModelConfig, seed: Seed) -> Result<Found, ModelError> {
    first_weights(find_model(config)?, config, seed)
}

/// Adds the initial weights to a model.
pub(crate) fn first_weights(mut found: Found, config: &ModelConfig, seed: Seed) -> Result<Found, ModelError> {
    if let Some(path) = &config.weights {
        let loaded = weights::load(path, &found.graph);
        found.weights = loaded.map_err(|source| ModelError::Weights { path: path.clone(), source })?;
        return Ok(found);
    }
    let mut all = found.graph.initialise(seed.derive("init"));
    all.append(&mut found.weights);
    weights::check(&found.graph, &all).map_err(|source| ModelError::Incomplete { source })?;
    found.weights = all;
    Ok(found)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn models_are_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe, PathBuf::from("/dev/zero")] {
            for from in [ModelFrom::Toml(path.clone()), ModelFrom::Onnx(path.clone())] {
                let (done, result) = mpsc::channel();
                std::thread::spawn(move || done.send(find_model(&ModelConfig::new(from)).map(|_| ())));
                let error = result.recv_timeout(Duration::from_secs(60)).expect("it hangs").unwrap_err();
                assert!(
                    matches!(error, ModelError::Read { .. } | ModelError::Onnx { .. }),
                    "{}: {error}",
                    path.display()
                );
            }
        }
    }
}
