use crate::error::{OpenError, SnapshotError, SpillError};
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a file that the system refused.
#[derive(Debug)]
pub(crate) struct FileError {
    pub(crate) doing: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

impl FileError {
    /// For `map_err`.
    pub(crate) fn when<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self { doing, path: path.to_owned(), source: source.into() }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        Self::Io { doing: error.doing, path: error.path, source: error.source }
    }
}

impl From<FileError> for SnapshotError {
    fn from(error: FileError) -> Self {
        Self::Io { doing: error.doing, path: error.path, source: error.source }
    }
}

impl From<FileError> for SpillError {
    fn from(error: FileError) -> Self {
        Self::Io { doing: error.doing, path: error.path, source: error.source }
    }
}
