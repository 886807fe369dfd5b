//! What Python gives: models, settings, domains.

use crate::errors::Failure;
use phalanx::Error;
use phalanx::model::{Found, ModelConfig, ModelError, ModelFrom, find_model, onnx};
use phalanx::nodes::Domain;
use phalanx::train::config::{Override, RunConfig, RunFile};
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A model, as `phalanx._models.ModelSource` has it.
#[derive(FromPyObject)]
pub(crate) struct ModelInput {
    data: ModelData,
    name: String,
    /// Names of tensors that must not be trained.
    constants: BTreeSet<String>,
}

/// The bytes of an ONNX file, the path of a model's file, or the name of one of the zoo.
#[derive(FromPyObject)]
enum ModelData {
    /// Of an ONNX file.
    #[pyo3(transparent)]
    Bytes(Vec<u8>),
    /// Of a file, or a name.
    #[pyo3(transparent)]
    Path(PathBuf),
}

impl ModelInput {
    /// Reads it.
    pub(crate) fn find(self) -> Result<Found, Failure> {
        let Self { data, name, constants } = self;
        let found = match data {
            ModelData::Bytes(bytes) => {
                let path = PathBuf::from(&name);
                let options = onnx::ImportOptions { name, constants, ..Default::default() };
                let failed = |source| Error::from(ModelError::Onnx { path, source });
                let onnx::Imported { graph, weights, notes } =
                    onnx::import_bytes(bytes.into(), &options).map_err(failed)?;
                Found { graph, weights, notes }
            }
            ModelData::Path(path) => {
                let from = match path.extension().and_then(|extension| extension.to_str()) {
                    Some("onnx") => ModelFrom::Onnx(path),
                    Some("toml") => ModelFrom::Toml(path),
                    _ => ModelFrom::Zoo(path.to_string_lossy().trim_start_matches("zoo:").to_owned()),
                };
                find_model(&ModelConfig::new(from)).map_err(Error::from)?
            }
        };
        for note in &found.notes {
            tracing::info!(target: "phalanx_model", "{note}");
        }
        Ok(found)
    }
}

/// A setting: the argument that gave it, the key of a run file that it is, and its value in TOML.
pub(crate) type Setting = (String, String, String);

/// Sections that a run file must have, for a model and data that are in memory.
const IN_MEMORY: &str = "[model]\nzoo = \"mlp\"\n[data.train]\nfile = \"memory.npy\"\n[train]\n";

pub(crate) fn overrides(settings: &[Setting]) -> Vec<Override> {
    let each =
        |(argument, key, value): &Setting| Override::flag(&format!("the argument `{argument}`"), key, value);
    settings.iter().map(each).collect()
}

/// The configuration that settings make, but for model and data.
pub(crate) fn configuration(settings: &[Setting]) -> Result<RunConfig, Failure> {
    let file = RunFile::parse(Path::new("arguments"), IN_MEMORY, &overrides(settings));
    let read = file.map_err(|error| Failure::config(&error))?.config;
    let usual = RunConfig::default();
    let data = phalanx::train::config::DataConfig { train: usual.data.train, valid: None, ..read.data };
    Ok(RunConfig { model: usual.model, data, ..read })
}

/// Which domain, as `phalanx.Domain` has it.
#[derive(FromPyObject)]
pub(crate) struct DomainInput {
    name: String,
    key_file: Option<PathBuf>,
    connect: Vec<String>,
    relays: Vec<String>,
    bind: Option<String>,
}

impl DomainInput {
    /// With its key.
    pub(crate) fn domain(self) -> Result<Domain, Failure> {
        let mut domain = Domain::new(&self.name)?;
        if let Some(key) = self.key_file {
            domain = domain.key_file(key)?;
        }
        if let Some(bind) = self.bind {
            let bad =
                |_bad| Failure::input(format!("`bind` must be an address such as 0.0.0.0:7000, not {bind}"));
            domain = domain.bind(bind.parse().map_err(bad)?);
        }
        domain = self.connect.into_iter().fold(domain, Domain::connect);
        Ok(self.relays.into_iter().fold(domain, Domain::relay))
    }
}
