//! Where a value of a run file comes from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Who said a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(FileLocation),
    /// A flag of the command line, as it is written there: `--epochs`, `--set`.
    Flag(String),
    /// A variable of the environment.
    Env(String),
    /// The program that built the configuration.
    Code,
    /// Nobody.
    Default,
}

/// A place in a file, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLocation {
    pub file: Arc<Path>,
    pub line: usize,
    pub column: usize,
}

impl FileLocation {
    /// The place of a byte of a text.
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
    /// As it stands behind a value of a resolved run file.
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
