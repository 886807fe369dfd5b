//! Why something did not work.

use phalanx_data::DataError;
use phalanx_driver::DriverError;
use phalanx_driver::live::LiveError;
use phalanx_fabric::{KeyError, StartError};
use phalanx_nodes::NodesError;
use phalanx_rank::RankError;
use phalanx_records::run_dir::RunDirError;
use phalanx_records::{Blame, RecordError};
use phalanx_train::config::ConfigError;
use phalanx_train::{FuseError, ModelError, TrainError, TrainedModelError};
use phalanx_types::{Class, IdError, TensorError};
use std::path::PathBuf;

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Of a run: its configuration, model, data, directory, nodes or training itself.
    #[error(transparent)]
    Run(Box<DriverError>),
    /// Of a trained model.
    #[error(transparent)]
    Model(#[from] Box<TrainedModelError>),
    /// Of fusing a checkpoint.
    #[error(transparent)]
    Fuse(#[from] Box<FuseError>),
    /// Of nodes that could not start.
    #[error(transparent)]
    Nodes(#[from] NodesError),
    /// A domain could not be joined.
    #[error("could not join the domain")]
    Join(#[source] Box<StartError>),
    /// The key of a domain cannot be used.
    #[error("could not use the key of the domain")]
    Key(#[source] Box<KeyError>),
    /// The name of a node or domain cannot be used.
    #[error(transparent)]
    Name(#[from] IdError),
    /// Where a run is trained could not be written down.
    #[error(transparent)]
    Live(#[from] Box<LiveError>),
    /// There is another run in the directory.
    #[error("there is another run in {}, which was told something else", path.display())]
    OtherRun {
        /// The directory.
        path: PathBuf,
    },
    /// The configuration wants nodes and does not say which.
    #[error("the configuration wants {nodes} nodes, and nothing says where they are")]
    NoNodes {
        /// How many.
        nodes: usize,
    },
    /// An own loss cannot be taken there.
    #[error("the loss `{loss}` is a function of this program: {place} cannot have it")]
    OwnLoss {
        /// What it is called.
        loss: String,
        /// Where it was wanted.
        place: &'static str,
    },
    /// Arrays do not make a tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A file could not be written.
    #[error("could not write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Errors that happen in runs.
macro_rules! of_runs {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Run(Box::new(error.into()))
            }
        })*
    };
}

of_runs!(DriverError, RankError, TrainError, ConfigError, DataError, ModelError, RecordError, RunDirError);

impl From<TrainedModelError> for Error {
    fn from(error: TrainedModelError) -> Self {
        Self::Model(Box::new(error))
    }
}

impl From<FuseError> for Error {
    fn from(error: FuseError) -> Self {
        Self::Fuse(Box::new(error))
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        Self::Join(Box::new(error))
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Key(Box::new(error))
    }
}

impl From<LiveError> for Error {
    fn from(error: LiveError) -> Self {
        Self::Live(Box::new(error))
    }
}

impl Error {
    /// What a caller may do with it.
    pub fn class(&self) -> Class {
        match self {
            Self::Run(error) => error.class(),
            Self::Model(error) => error.class(),
            Self::Nodes(error) => error.class(),
            Self::Live(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    /// Whether what was given, the training or the machine is to blame.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Run(error) => error.blame(),
            Self::Model(error) => error.blame(),
            Self::Nodes(_) | Self::Join(_) | Self::Live(_) | Self::Write { .. } => Blame::Machine,
            _ => Blame::Input,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Run(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Nodes(error) => error.hint(),
            Self::OtherRun { .. } => Some("give the run another directory".to_owned()),
            Self::NoNodes { .. } => {
                Some("say `.nodes(Nodes::Domain(…))` or `.nodes(Nodes::Local(n))`".to_owned())
            }
            Self::OwnLoss { .. } => Some(
                "train in this process without a run directory, on `Nodes::Local`, or on nodes that programs with \
                 the loss embed (`Node::start_with`)"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
