//! The source of a value of a run file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(FileLocation),
    /// A command-line flag, as written: `--epochs`, `--set`.
    Flag(String),
    /// An environment variable.
    Env(String),
    /// The program that built the configuration.
    Code,
    /// Not set: the default.
    Default,
}

/// A location in a file, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLocation {
    pub file: Arc<Path>,
    pub line: usize,
    pub column: usize,
}

impl FileLocation {
    /// The location of a byte of a text.
    pub(crate) fn of(file: &Arc<Path>, text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            file: file.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(place) => place.fmt(f),
            Source::Flag(flag) => f.write_str(flag),
            Source::Env(name) => f.write_str(name),
            Source::Code => f.write_str("the program"),
            Source::Default => f.write_str("default"),
        }
    }
}

impl Source {
    /// The comment behind a value in a resolved run file.
    pub(crate) fn comment(&self) -> String {
        match self {
            Source::File(FileLocation { file, line, .. }) => {
                let name = file.file_name().unwrap_or(file.as_os_str());
                format!("from {}:{line}", name.display())
            }
            other => other.to_string(),
        }
    }
}
