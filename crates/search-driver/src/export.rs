//! The models of trials as files of their own, each checked.

use crate::directory::{RESULTS, io, trial_path};
use crate::error::SearchError;
use crate::onnx_check::{CheckedModel, OnnxChecker};
use phalanx_search::core::record::TrialId;
use phalanx_search_results::SearchTable;
use phalanx_train::Compute;
use std::path::Path;

/// The directory of models among the results.
const MODELS: &str = "models";
/// Where the accuracy of a training is among its values.
const ACCURACY: &str = "valid.accuracy";

/// Writes models and checks them.
#[derive(Debug)]
pub struct Exporter {
    checker: OnnxChecker,
}

impl Default for Exporter {
    fn default() -> Self {
        Self::new()
    }
}

impl Exporter {
    pub fn new() -> Self {
        Self { checker: OnnxChecker::new(Compute::cpu(None)) }
    }

    /// The models of the front, in `results/models/` of the search. Directories of trials that are not on the front any
    /// more go away.
    ///
    /// # Errors
    /// A model cannot be read or written, or its ONNX file cannot be run.
    pub fn front(&self, search: &Path, table: &SearchTable) -> Result<Vec<CheckedModel>, SearchError> {
        let front = table.front().trials;
        let models = search.join(RESULTS).join(MODELS);
        for entry in std::fs::read_dir(&models).into_iter().flatten().flatten() {
            let is_of_front = front.iter().any(|trial| entry.file_name() == trial.to_string().as_str());
            if !is_of_front {
                std::fs::remove_dir_all(entry.path()).map_err(io("remove", &entry.path()))?;
            }
        }
        self.trials(search, table, &front, None)
    }

    /// The models of these trials: each in a directory with its name in `to`, or in `results/models/` of the search.
    ///
    /// # Errors
    /// A trial was not trained here; a model cannot be read or written, or its ONNX file cannot be run.
    pub fn trials(
        &self,
        search: &Path,
        table: &SearchTable,
        trials: &[TrialId],
        to: Option<&Path>,
    ) -> Result<Vec<CheckedModel>, SearchError> {
        let usual = search.join(RESULTS).join(MODELS);
        let to = to.unwrap_or(&usual);
        trials.iter().map(|trial| self.trial(search, table, *trial, to)).collect()
    }

    fn trial(
        &self,
        search: &Path,
        table: &SearchTable,
        trial: TrialId,
        to: &Path,
    ) -> Result<CheckedModel, SearchError> {
        let unknown = || SearchError::NotTrained { trial, search: search.to_owned() };
        let row = table.row(trial).ok_or_else(unknown)?;
        // An equal network that was trained before has the model.
        let trained = |trial: TrialId| trial_path(search, trial).is_dir().then_some(trial);
        let equal =
            || table.rows().filter(|other| other.model == row.model).find_map(|other| trained(other.trial));
        let holder = trained(trial).or_else(equal).ok_or_else(unknown)?;
        let run = trial_path(search, holder);
        self.checker.export((trial, &row.archid), &run, row.value(ACCURACY), &to.join(trial.to_string()))
    }
}
