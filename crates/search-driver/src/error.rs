//! Why a search cannot start or go on.

use phalanx_jobs::MainError;
use phalanx_records::Blame;
use phalanx_records::run_dir::RunDirError;
use phalanx_search::core::algorithm::AlgorithmKind;
use phalanx_search::core::control::RestoreError;
use phalanx_search::core::record::TrialId;
use phalanx_search::core::template::{READY, TemplateError};
use phalanx_search_results::about::AboutError;
use phalanx_search_results::follow::FollowError;
use phalanx_search_results::table::UnknownTrial;
use phalanx_search_results::{ReadEventsError, WriteResultsError};
use phalanx_train::config::ConfigError;
use phalanx_train::{TrainError, TrainedModelError};
use phalanx_trial::TrialError;
use std::path::PathBuf;

/// Why a search cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    #[error("could not {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("a file of the search cannot be understood: {}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("there already is a search in {}", path.display())]
    Exists { path: PathBuf },
    #[error("there is no search in {}", path.display())]
    NoSearch { path: PathBuf },
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("the search file does not make runs")]
    Config(#[source] ConfigError),
    #[error("{0}")]
    Algorithm(String),
    #[error("{algorithm} needs partial trainings")]
    NoRungs { algorithm: AlgorithmKind },
    #[error("{} says no objective", path.display())]
    NoObjective { path: PathBuf },
    #[error("the trials of the search in {} are functions of a program in Python", path.display())]
    OfPython { path: PathBuf },
    #[error("{name:?} is not among the search files that come with Phalanx")]
    NotReady { name: String },
    #[error("there is no {}, which `{key}` of every candidate's run names", path.display())]
    NoFile { key: String, path: PathBuf },
    #[error("there is no {}: the search file that comes with Phalanx trains on MNIST", path.display())]
    NoReadyData { path: PathBuf },
    #[error("--data is for search files that come with Phalanx, and {} names its own data", path.display())]
    OwnData { path: PathBuf },
    #[error(transparent)]
    Directory(#[from] RunDirError),
    #[error(transparent)]
    About(#[from] AboutError),
    #[error(transparent)]
    Events(#[from] ReadEventsError),
    #[error(transparent)]
    Results(#[from] WriteResultsError),
    #[error(transparent)]
    Trial(#[from] TrialError),
    #[error("the records of the search do not fit its file: {0}")]
    Records(String),
    #[error(transparent)]
    Main(#[from] MainError),
    #[error(transparent)]
    Train(Box<TrainError>),
    #[error(transparent)]
    Model(Box<TrainedModelError>),
    #[error("trial {trial} has no trained model in {}", search.display())]
    NotTrained { trial: TrialId, search: PathBuf },
    #[error("the search panicked")]
    Panicked,
    #[error("the exported model could not be run: {why} ({})", path.display())]
    Onnx { path: PathBuf, why: String },
}

impl From<FollowError> for SearchError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::About(error) => error.into(),
            FollowError::Events(error) => error.into(),
        }
    }
}

impl From<RestoreError> for SearchError {
    fn from(error: RestoreError) -> Self {
        Self::Records(error.to_string())
    }
}

impl From<UnknownTrial> for SearchError {
    fn from(error: UnknownTrial) -> Self {
        Self::Records(error.to_string())
    }
}

impl From<TrainError> for SearchError {
    fn from(error: TrainError) -> Self {
        Self::Train(Box::new(error))
    }
}

impl From<TrainedModelError> for SearchError {
    fn from(error: TrainedModelError) -> Self {
        Self::Model(Box::new(error))
    }
}

impl SearchError {
    /// Who can do something about it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Exists { .. }
            | Self::NoSearch { .. }
            | Self::About(_)
            | Self::Template(_)
            | Self::Config(_)
            | Self::Algorithm(_)
            | Self::NoRungs { .. }
            | Self::NoObjective { .. }
            | Self::NotReady { .. }
            | Self::OfPython { .. }
            | Self::NoFile { .. }
            | Self::NoReadyData { .. }
            | Self::OwnData { .. }
            | Self::NotTrained { .. }
            | Self::Records(_) => Blame::Input,
            Self::Train(error) => error.blame(),
            Self::Model(error) => error.blame(),
            Self::Onnx { .. } => Blame::Work,
            Self::Trial(TrialError::Config(_) | TrialError::Unsuitable { .. } | TrialError::Order(_)) => {
                Blame::Input
            }
            Self::Io { .. }
            | Self::Json { .. }
            | Self::Directory(_)
            | Self::Events(_)
            | Self::Results(_)
            | Self::Main(_)
            | Self::Trial(_)
            | Self::Panicked => Blame::Machine,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { path } => Some(format!(
                "`phalanx search resume {}` goes on with it; give another --dir for a new one",
                path.display()
            )),
            Self::NoSearch { .. } => Some("`phalanx search list` names the searches there are".to_owned()),
            Self::NoRungs { .. } => {
                Some("[search] rungs = { first = \"0.1 epochs\", factor = 4 } in the search file".to_owned())
            }
            Self::NoObjective { .. } => Some(
                "say what is best: [objective.accuracy] with goal = \"max\" and from = \"valid.accuracy\""
                    .to_owned(),
            ),
            Self::NotReady { .. } => {
                Some(format!("there are {}", READY.map(|name| format!("ready:{name}")).join(", ")))
            }
            Self::NotTrained { .. } => Some("`phalanx search status` says how far each trial is".to_owned()),
            Self::NoReadyData { .. } => Some(
                "--data DIR names the directory with MNIST's four files, packed or not (`cargo xtask data mnist` in \
                 the sources of Phalanx fetches them to datasets/mnist); for other data, `phalanx search space \
                 ready:NAME --write FILE` writes the search file to change"
                    .to_owned(),
            ),
            Self::OwnData { .. } => Some("[data] of the search file says where its data is".to_owned()),
            Self::NoFile { .. } => Some("paths begin at the search file".to_owned()),
            Self::Records(_) => Some("search.toml in its directory must stay as it was".to_owned()),
            Self::Directory(error) => error.hint(),
            Self::Train(error) => error.hint(),
            Self::Model(error) => error.hint(),
            _ => None,
        }
    }
}
