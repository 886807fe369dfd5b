//! Files of runs in a directory, S3, Azure or Google Cloud: pushed, pulled, checked by hash.
//!
//! ```no_run
//! use phalanx::artifacts::{self, ArtifactUrl, Selection};
//! use std::path::Path;
//!
//! let url = ArtifactUrl::parse("s3://models/team")?;
//! let pushed = artifacts::push(&url, Path::new("runs/first"), Selection::All)?;
//! let pulled = artifacts::pull(&url, &pushed.uid, Path::new("copies/first"))?;
//! assert_eq!(pulled.files, pushed.files.len());
//! # Ok::<(), phalanx::artifacts::ArtifactError>(())
//! ```
//! Credentials come from the usual variables. [`ArtifactStore`] does the same in an asynchronous program, and claims names
//! in a place that several share.

use phalanx_artifacts::{pull_run, push_run};
use phalanx_ledger::Feeder;
use std::path::Path;

pub use phalanx_artifacts::{
    ARTIFACTS_VARIABLE, ArtifactError, ArtifactStore, ArtifactUrl, Claim, Claimed, Cloud, FilePath, Manifest,
    ManifestFault, ManifestFile, PathFault, Progress, Pulled, Pushed, PushedFile, Selection, StoreError,
    Transfer,
};

/// Pushes the run in a directory. What is there already is not sent again; a push that was ended goes on.
///
/// # Errors
/// There is no run, somebody trains it, or the place cannot be used.
pub fn push(url: &ArtifactUrl, run: &Path, selection: Selection) -> Result<Pushed, ArtifactError> {
    let pushed = push_run(url, run, selection, &Progress::default());
    tell_ledger(run);
    pushed
}

/// Pulls a run, by its identity or its name, into a directory that is new, empty or has this run.
///
/// # Errors
/// There is no such run, or what is received is not what was pushed.
pub fn pull(url: &ArtifactUrl, id: &str, dir: &Path) -> Result<Pulled, ArtifactError> {
    let pulled = pull_run(url, id, |_name| dir.to_owned(), &Progress::default())?;
    tell_ledger(dir);
    Ok(pulled)
}

/// Brings what was recorded into the ledger of the run; if it cannot be, the next look at the runs does.
fn tell_ledger(run: &Path) {
    if let Some(feeder) = Feeder::of_run(run) {
        feeder.wake();
        feeder.finish();
    }
}
