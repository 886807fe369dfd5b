//! What a search is: `search.json` in its directory, written once when the search begins.

use phalanx_search::core::objective::Objective;
use phalanx_search::core::space::Space;
use phalanx_types::Seed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of this file in the directory of a search.
pub const ABOUT_FILE: &str = "search.json";
/// The search file as the user gave it. It is written last: a directory that has both is one of a search.
pub const SEARCH_FILE: &str = "search.toml";

/// What a search is, so far as its results need it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchAbout {
    pub id: String,
    pub name: String,
    /// What a trial is: `run` (a training of Phalanx), `program` or `python`.
    #[serde(default = "run")]
    pub kind: String,
    pub algorithm: String,
    pub seed: Seed,
    pub objectives: Vec<Objective>,
    /// What a candidate must keep to, by the name of the value.
    #[serde(default)]
    pub constraints: BTreeMap<String, Limits>,
    /// Budgets, ascending; the last is a full training.
    pub rungs: Vec<f64>,
    /// What budgets count.
    #[serde(default = "epochs")]
    pub budget_unit: String,
    /// How many candidates are tried.
    pub trials: u64,
    pub space: Space,
    /// How many results make the first iteration.
    #[serde(default = "ten")]
    pub init: usize,
    /// How many results make each further iteration.
    #[serde(default = "ten")]
    pub per_iteration: usize,
    /// Milliseconds since 1970.
    pub started: u64,
    /// Where paths in the search file begin.
    #[serde(default)]
    pub base: PathBuf,
}

fn run() -> String {
    "run".to_owned()
}

fn epochs() -> String {
    "epochs".to_owned()
}

fn ten() -> usize {
    10
}

/// The values that a constraint allows, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// Why `search.json` could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AboutError {
    #[error("could not read what the search is from {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} does not describe a search", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("could not write what the search is to {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

impl SearchAbout {
    /// Reads `search.json` of a search's directory.
    ///
    /// # Errors
    /// It cannot be read, or does not describe a search.
    pub fn read(dir: &Path) -> Result<Self, AboutError> {
        let path = dir.join(ABOUT_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(source) => return Err(AboutError::Read { path, source }),
        };
        serde_json::from_slice(&text).map_err(|source| AboutError::Malformed { path, source })
    }

    /// Writes `search.json` of a search's directory, as a whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), AboutError> {
        let path = dir.join(ABOUT_FILE);
        let written = serde_json::to_vec_pretty(self)
            .map_err(std::io::Error::other)
            .and_then(|text| crate::files::replace(&path, &text));
        written.map_err(|source| AboutError::Write { path, source })
    }

    /// The budget of a full training; `None` if there are no rungs.
    pub fn full_budget(&self) -> Option<f64> {
        self.rungs.last().copied()
    }

    /// Whether a trial that was trained so far was trained in full.
    pub fn is_full(&self, budget: f64) -> bool {
        // Budgets are sums of parts of epochs: the last digits may differ.
        self.full_budget().is_none_or(|full| budget >= full * (1.0 - 1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_search::core::objective::Goal;

    #[test]
    fn what_was_written_is_read_and_new_fields_have_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let objective = Objective { name: "accuracy".into(), goal: Goal::Max, cheap: false };
        let about = SearchAbout {
            id: "s1".into(),
            name: "digits".into(),
            kind: "program".into(),
            algorithm: "guided".into(),
            seed: Seed(7),
            objectives: vec![objective],
            constraints: BTreeMap::from([("params".into(), Limits { at_least: None, at_most: Some(1e6) })]),
            rungs: vec![0.1, 0.4],
            budget_unit: "seconds".into(),
            trials: 30,
            space: serde_json::from_str(r#"{"genes":[]}"#).unwrap(),
            init: 20,
            per_iteration: 5,
            started: 1_700_000_000_000,
            base: "/home/ada".into(),
        };
        about.write(dir.path()).unwrap();
        assert_eq!(SearchAbout::read(dir.path()).unwrap(), about);
        assert!(about.is_full(0.1 + 0.3) && !about.is_full(0.3));

        let older = r#"{"id":"s1","name":"digits","algorithm":"guided","seed":7,"objectives":[],"rungs":[],
            "trials":3,"space":{"genes":[]},"started":5}"#;
        std::fs::write(dir.path().join(ABOUT_FILE), older).unwrap();
        let read = SearchAbout::read(dir.path()).unwrap();
        assert_eq!((read.init, read.per_iteration, read.budget_unit.as_str()), (10, 10, "epochs"));
    }

    #[test]
    fn a_file_that_describes_no_search_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(SearchAbout::read(dir.path()), Err(AboutError::Read { .. })));
        std::fs::write(dir.path().join(ABOUT_FILE), "{}").unwrap();
        let error = SearchAbout::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains("search.json"), "{error}");
    }
}
