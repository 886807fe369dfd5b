//! Which state of a run a model is, and which newer ones could not be used.

use phalanx_records::run_dir::UnusableCheckpoint;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// Which state of a run a model is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelOrigin {
    /// The steps behind it, if its file says.
    pub step: Option<u64>,
    /// What is newer in its run but damaged, newest first.
    pub damage: Vec<Damage>,
}

/// Something of a run that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The step it is of.
    pub step: u64,
    /// The checkpoint or the file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl From<UnusableCheckpoint> for Damage {
    fn from(checkpoint: UnusableCheckpoint) -> Self {
        let UnusableCheckpoint { step, path, error } = checkpoint;
        let mut why = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            why.push_str(": ");
            why.push_str(&error.to_string());
            source = error.source();
        }
        Self { step, path, why }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} cannot be used: {} ({})", self.step, self.why, self.path.display())
    }
}
