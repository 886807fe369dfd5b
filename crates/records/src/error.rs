//! Why a run cannot be recorded.

use crate::run_dir::RunDirError;
use phalanx_types::Class;

/// Why a run cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error(transparent)]
    RunDir(Box<RunDirError>),
    /// JSON has no such number, and the model is useless.
    #[error("the validation loss is {value} at step {step}, in pass {pass}")]
    ValidationNotFinite { value: f64, step: u64, pass: u64 },
}

impl From<RunDirError> for RecordError {
    fn from(error: RunDirError) -> Self {
        Self::RunDir(Box::new(error))
    }
}

impl RecordError {
    pub fn class(&self) -> Class {
        match self {
            Self::RunDir(error) => error.class(),
            Self::ValidationNotFinite { .. } => Class::Fatal,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::RunDir(error) if matches!(**error, RunDirError::Io { .. }) => Blame::Machine,
            Self::RunDir(_) => Blame::Input,
            Self::ValidationNotFinite { .. } => Blame::Work,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::RunDir(error) => error.hint(),
            Self::ValidationNotFinite { .. } => {
                Some("try a smaller learning rate, or `clip_norm` in [train]".to_owned())
            }
        }
    }
}

/// The cause of an error, which determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The user's input.
    Input,
    /// The training itself.
    Work,
    /// Disk, memory, processes.
    Machine,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validation_is_named_with_its_step_and_pass() {
        let error = RecordError::ValidationNotFinite { value: f64::NAN, step: 7, pass: 2 };
        assert_eq!(error.to_string(), "the validation loss is NaN at step 7, in pass 2");
    }
}
