//! The ledger over real files and real databases. Tests that say nothing else run against both.

mod files;
mod jobs;
mod kills;
mod many;
mod migrations;
mod model;
mod queries;
mod searches;
mod server;
mod tls;
mod values;

use crate::{Ledger, LedgerUrl};
use files::RunFiles;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory of runs, and where its ledger is.
struct Workplace {
    url: LedgerUrl,
    runs: PathBuf,
    _dir: TempDir,
}

impl Workplace {
    fn new(url: impl FnOnce(&Path) -> LedgerUrl) -> Self {
        // In memory where there is such a place: thousands of databases are made.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_missing| tempfile::tempdir()).unwrap();
        let runs = dir.path().join("runs");
        std::fs::create_dir(&runs).unwrap();
        Self { url: url(&runs), runs, _dir: dir }
    }

    fn sqlite() -> Self {
        Self::new(|runs| LedgerUrl::Sqlite(runs.join(crate::LEDGER_FILE)))
    }

    fn postgres() -> Self {
        Self::new(|_runs| LedgerUrl::Postgres(server::new_database()))
    }

    fn ledger(&self) -> Ledger {
        Ledger::open(&self.url).unwrap()
    }

    fn run(&self, name: &str) -> RunFiles {
        RunFiles::create(&self.runs, name)
    }
}

/// Does the same with both databases.
fn on_both(test: impl Fn(Workplace)) {
    test(Workplace::sqlite());
    test(Workplace::postgres());
}
