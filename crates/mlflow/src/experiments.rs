//! Experiments: a file of lines beside the runs.

use crate::error::MlflowError;
use crate::messages::KeyValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file, in the directory of the runs.
const FILE: &str = "mlflow-experiments.jsonl";
/// The experiment that is always there.
const DEFAULT: (&str, &str) = ("0", "Default");
/// Longer names are refused.
const NAME_BYTES: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Experiment {
    pub(crate) experiment_id: String,
    pub(crate) name: String,
    pub(crate) created_unix_ms: i64,
    #[serde(default)]
    pub(crate) tags: Vec<KeyValue>,
}

impl Experiment {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "experiment_id": self.experiment_id,
            "name": self.name,
            "artifact_location": "mlflow-artifacts:/",
            "lifecycle_stage": "active",
            "creation_time": self.created_unix_ms,
            "last_update_time": self.created_unix_ms,
            "tags": self.tags,
        })
    }
}

/// The experiments of a directory of runs.
#[derive(Debug)]
pub(crate) struct Experiments {
    path: PathBuf,
}

impl Experiments {
    pub(crate) fn of(runs: &Path) -> Self {
        Self { path: runs.join(FILE) }
    }

    /// All experiments, the oldest first. A line that cannot be read is left out.
    pub(crate) fn all(&self) -> Result<Vec<Experiment>, MlflowError> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(MlflowError::io("read the experiments")(error)),
        };
        let (id, name) = DEFAULT;
        let default = Experiment {
            experiment_id: id.to_owned(),
            name: name.to_owned(),
            created_unix_ms: 0,
            tags: Vec::new(),
        };
        let mut all = vec![default];
        all.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        Ok(all)
    }

    pub(crate) fn by_id(&self, id: &str) -> Result<Experiment, MlflowError> {
        let id = if id.is_empty() { DEFAULT.0 } else { id };
        self.find("experiment", id, |experiment| experiment.experiment_id == id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Result<Experiment, MlflowError> {
        self.find("experiment", name, |experiment| experiment.name == name)
    }

    fn find(
        &self,
        what: &'static str,
        name: &str,
        is: impl Fn(&Experiment) -> bool,
    ) -> Result<Experiment, MlflowError> {
        let missing = || MlflowError::NotFound { what, name: name.to_owned() };
        self.all()?.into_iter().find(is).ok_or_else(missing)
    }

    /// Adds an experiment. The caller holds the lock, so that no other request adds one meanwhile.
    pub(crate) fn create(
        &self,
        name: &str,
        tags: Vec<KeyValue>,
        unix_ms: i64,
    ) -> Result<Experiment, MlflowError> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(MlflowError::Invalid(format!(
                "the name of an experiment has 1 to {NAME_BYTES} bytes"
            )));
        }
        let all = self.all()?;
        if all.iter().any(|experiment| experiment.name == name) {
            return Err(MlflowError::ExperimentExists { name: name.to_owned() });
        }
        let ids = all.iter().filter_map(|experiment| experiment.experiment_id.parse::<u64>().ok());
        let next = ids.max().unwrap_or(0).saturating_add(1);
        let experiment = Experiment {
            experiment_id: next.to_string(),
            name: name.to_owned(),
            created_unix_ms: unix_ms,
            tags,
        };
        let line = json!(experiment).to_string() + "\n";
        let what = "write the experiments";
        if let Some(runs) = self.path.parent() {
            std::fs::create_dir_all(runs).map_err(MlflowError::io(what))?;
        }
        let file = File::options().append(true).create(true).open(&self.path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(MlflowError::io(what))?;
        Ok(experiment)
    }
}
