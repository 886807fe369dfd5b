//! Where the directory of a run is, as the ledger knows it.

use crate::error::LedgerError;
use crate::url::LedgerUrl;
use phalanx_records::sha256;
use std::path::{Path, PathBuf};

/// A run directory by the directory that it is in and its name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The path of the directory of runs; empty if the ledger is a file in it, so that both can be moved together.
    pub(super) root: String,
    pub(super) dir: String,
    /// The run directory, as this process reaches it.
    pub(super) path: PathBuf,
}

impl Place {
    pub(super) fn of(url: &LedgerUrl, run: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::File { what: "find", path: run.to_owned(), source };
        let path = run.canonicalize().map_err(failed)?;
        let dir = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let root = root_of(url, path.parent().unwrap_or(Path::new("/")));
        Ok(Self { root, dir, path })
    }

    /// A row with this place, seen from here.
    pub(super) fn path_of(url: &LedgerUrl, root: &str, dir: &str) -> PathBuf {
        match (url, root) {
            (LedgerUrl::Sqlite(file), "") => file.parent().unwrap_or(Path::new("")).join(dir),
            _ => Path::new(root).join(dir),
        }
    }

    /// The uid of a copy of a run that is there already.
    pub(super) fn uid_of_copy(&self, uid: &str) -> String {
        let mut hex = sha256(format!("{uid}\n{}\n{}", self.root, self.dir).as_bytes());
        hex.truncate(32);
        hex
    }
}

/// How the ledger names a directory of runs.
pub(super) fn root_of(url: &LedgerUrl, runs: &Path) -> String {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_missing| path.to_owned());
    let runs = canonical(runs);
    let beside = match url {
        LedgerUrl::Sqlite(file) => {
            let parent =
                file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            canonical(parent) == runs
        }
        LedgerUrl::Postgres(_) => false,
    };
    if beside { String::new() } else { runs.to_string_lossy().into_owned() }
}

/// The name of this machine.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
