//! Files that only their owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file with a secret was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateFileError {
    /// The system does not let this process read it.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Its group or everybody may read or write it.
    #[error("other users may read or change the file, its mode is {mode:o}: {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

impl PrivateFileError {
    /// The command that mends it, if one does.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => None,
            Self::Open { path, .. } => Some(format!("chmod 600 {}", path.display())),
        }
    }
}

/// Reads a file with a secret, if no other user may read or change it.
///
/// # Errors
/// The file cannot be read, or others may.
pub fn read_private(path: &Path) -> Result<Vec<u8>, PrivateFileError> {
    let failed = |source| PrivateFileError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    // Of the file that is open, not of what has the name by now.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::Open { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
