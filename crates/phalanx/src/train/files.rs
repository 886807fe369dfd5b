//! A model and data in memory, as files that a run file can name: for run directories and for nodes.

use super::Given;
use crate::error::Error;
use phalanx_data::{Batch, Columns, Dataset, SourceSpec, Target};
use phalanx_graph::{Graph, Weights, onnx, weights};
use phalanx_records::run_dir::{RUN_FILE, RunDir, is_run};
use phalanx_train::config::{ModelConfig, ModelFrom, RunConfig, RunFile};
use phalanx_train::{ModelError, TrainedModelError};
use phalanx_types::{DType, Tensor};
use std::path::{Path, PathBuf};

/// Where the files are, in the directory of a run.
const INPUTS: &str = "inputs";
/// Samples that are read at once.
const BLOCK: usize = 1024;

/// The directory of a run, new or to go on with, and the configuration with the files that it names.
pub(super) fn open(
    path: &Path,
    given: Option<&Given>,
    mut config: RunConfig,
) -> Result<(RunDir, RunConfig), Error> {
    let inputs = absolute(path).join(INPUTS);
    if let Some(given) = given {
        given.name_in(&inputs, &mut config);
    }
    if is_run(path) {
        let there = RunFile::load(&path.join(RUN_FILE), &[])?;
        let same = there.config.told() == config.told();
        let other = || Error::OtherRun { path: path.to_owned() };
        if !same || !given.map_or(Ok(true), |given| given.is_in(&config))? {
            return Err(other());
        }
        return Ok((RunDir::open(path)?, config));
    }
    let resolved = config.resolve()?;
    let dir = RunDir::create(path)?;
    if let Some(given) = given {
        std::fs::create_dir_all(&inputs).map_err(|source| Error::Write { path: inputs, source })?;
        given.write(&config)?;
    }
    dir.write(RUN_FILE, resolved.to_toml().as_bytes())?;
    Ok((dir, config))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_empty| path.to_owned())
}

impl Given {
    /// Names the files that this is written as.
    fn name_in(&self, inputs: &Path, config: &mut RunConfig) {
        let fine = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = self.graph.name.chars().map(fine).collect();
        config.model = ModelConfig {
            dropout: config.model.dropout,
            ..ModelConfig::new(ModelFrom::Onnx(inputs.join(format!("{name}.onnx"))))
        };
        config.data.train = spec(&self.train, inputs.join("train.safetensors"));
        config.data.valid = self.valid.as_ref().map(|valid| spec(valid, inputs.join("valid.safetensors")));
    }

    /// Writes model and data where the configuration names them.
    fn write(&self, config: &RunConfig) -> Result<(), Error> {
        if let ModelFrom::Onnx(path) = &config.model.from {
            let all = self.first_weights(config)?;
            let failed = |source| TrainedModelError::WriteOnnx { path: path.clone(), source };
            onnx::export_for_training(&self.graph, &all, path).map_err(failed)?;
        }
        for (data, spec) in self.sources(config) {
            let failed = |source| TrainedModelError::WriteWeights { path: spec.file.clone(), source };
            weights::save(&spec.file, &arrays(data)?).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether the files that a configuration names hold these data.
    fn is_in(&self, config: &RunConfig) -> Result<bool, Error> {
        for (data, spec) in self.sources(config) {
            let there = Dataset::open(spec, Path::new(""))?;
            if arrays(&there)? != arrays(data)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn sources<'a>(&'a self, config: &'a RunConfig) -> impl Iterator<Item = (&'a Dataset, &'a SourceSpec)> {
        let valid = self.valid.as_ref().zip(config.data.valid.as_ref());
        [(&self.train, &config.data.train)].into_iter().chain(valid)
    }

    fn first_weights(&self, config: &RunConfig) -> Result<Weights, Error> {
        let mut all = self.graph.initialise(config.train.seed.derive("init"));
        all.extend(self.weights.clone());
        let incomplete = |source| ModelError::Incomplete { source };
        weights::check(&self.graph, &all).map_err(incomplete)?;
        Ok(all)
    }
}

fn spec(data: &Dataset, file: PathBuf) -> SourceSpec {
    let y = (data.target() != Target::None).then(|| "y".to_owned());
    SourceSpec { x: Some(Columns::One("x".to_owned())), y, ..SourceSpec::file(file) }
}

/// All samples and labels of a dataset.
fn arrays(data: &Dataset) -> Result<Weights, Error> {
    let len = data.fixed_len()?;
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let mut batch = Batch::default();
    let indices: Vec<usize> = (0..len).collect();
    for block in indices.chunks(BLOCK) {
        data.read(block, &mut batch)?;
        x.extend_from_slice(&batch.x);
        y.extend_from_slice(&batch.y);
    }
    let shape = |of: &[usize]| -> Vec<u64> { [&[len], of].concat().iter().map(|d| *d as u64).collect() };
    let mut all = Weights::new();
    all.insert("x".to_owned(), Tensor::from_f32(shape(data.x_shape()), &x)?);
    let y_shape = shape(data.y_shape().unwrap_or_default());
    match data.target() {
        Target::None => {}
        Target::Values => {
            all.insert("y".to_owned(), Tensor::from_f32(y_shape, &y)?);
        }
        Target::Classes => {
            // Classes are whole numbers, held as floats.
            let bytes: Vec<u8> = y.iter().flat_map(|class| (*class as i64).to_le_bytes()).collect();
            all.insert("y".to_owned(), Tensor::new(DType::I64, y_shape, bytes.into())?);
        }
    }
    Ok(all)
}

/// Whether the weights are those of a graph as it was built.
pub(super) fn fits(graph: &Graph, all: &Weights) -> bool {
    weights::check(graph, all).is_ok()
}
