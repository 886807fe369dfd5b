//! Why a trial cannot be ordered or taken in.

use crate::bundle::BundleError;
use crate::order::OrderError;
use phalanx_jobs::MainError;
use phalanx_train::config::ConfigError;
use phalanx_types::Class;
use phalanx_wire::codec::CodecError;
use std::path::PathBuf;

/// Why a trial cannot be ordered or taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error("the run file of the trial cannot be used")]
    Config(#[source] Box<ConfigError>),
    #[error("a trial is trained by one node from files of fixed length, but its run file asks for {asked}")]
    Unsuitable { asked: &'static str },
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("could not write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("the run directory of the trial cannot be used")]
    Bundle(#[from] BundleError),
    #[error("the message of the trial cannot be read")]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Main(#[from] MainError),
    #[error("the thread that prepared the trial panicked")]
    Panicked,
}

impl From<ConfigError> for TrialError {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

impl TrialError {
    pub fn class(&self) -> Class {
        match self {
            Self::Panicked => Class::Bug,
            Self::Order(_)
            | Self::Config(_)
            | Self::Unsuitable { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Bundle(_)
            | Self::Codec(_)
            | Self::Main(_) => Class::Fatal,
        }
    }
}
