//! Why a trained model could not be loaded or saved.

use crate::error::TrainError;
use phalanx_graph::onnx::OnnxError;
use phalanx_graph::weights::WeightsError;
use phalanx_records::Blame;
use phalanx_types::Class;
use std::path::PathBuf;

/// Why a trained model could not be loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainedModelError {
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error("could not use the weights of {}", path.display())]
    Weights { path: PathBuf, source: WeightsError },
    #[error("which model are the weights of {} of?", path.display())]
    WhichModel { path: PathBuf },
    #[error("there is no {}", path.display())]
    Missing { path: PathBuf },
    #[error("cannot tell what {} is", path.display())]
    Unknown { path: PathBuf },
    #[error("could not write {}", path.display())]
    WriteWeights { path: PathBuf, source: WeightsError },
    #[error("could not write {}", path.display())]
    WriteOnnx { path: PathBuf, source: OnnxError },
}

impl TrainedModelError {
    pub fn class(&self) -> Class {
        match self {
            Self::Train(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Train(error) => error.blame(),
            Self::WriteWeights { .. } | Self::WriteOnnx { .. } => Blame::Machine,
            _ => Blame::Input,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Train(error) => error.hint(),
            Self::Missing { .. } => Some("`phalanx run list` names the runs there are".to_owned()),
            Self::Unknown { .. } => Some(
                "give a run directory, a checkpoint in one, or a file that ends in .onnx or .safetensors"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
