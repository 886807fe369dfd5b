//! The index of runs: find, compare and read what was run, here or by all hosts that share a database.
//!
//! ```no_run
//! use phalanx::ledger::{self, RunQuery, Window};
//! use std::path::Path;
//!
//! let ledger = ledger::of_runs(Path::new("runs"))?;
//! let best = RunQuery::parse(Some("val_acc > 0.97 and train.batch = 64"), Some("-val_acc"))?;
//! for run in ledger.runs(&best)? {
//!     let losses = ledger.curve(&run.uid, "loss", Window { buckets: Some(200), ..Window::default() })?;
//!     println!("{}: {:?}, {} points", run.name, run.val_acc, losses.points);
//! }
//! # Ok::<(), phalanx::ledger::LedgerError>(())
//! ```

pub use phalanx_ledger::{
    ArtifactRow, Axis, Bucket, CaughtUp, Curve, Detail, EventRow, Filter, FilterError, FormationRow, Ledger,
    LedgerError, LedgerInfo, LedgerUrl, NodeRow, NoteRow, RunQuery, RunRow, SearchRow, SeriesInfo, Window,
};
use std::path::Path;

/// The ledger of a directory of runs, with everything that its runs have recorded until now: what `PHALANX_LEDGER`
/// names, or the file `ledger.sqlite` in the directory.
///
/// # Errors
/// It is switched off, cannot be reached, or cannot be brought up to date.
pub fn of_runs(runs: &Path) -> Result<Ledger, LedgerError> {
    let ledger = Ledger::for_runs(runs)?;
    ledger.catch_up(runs)?;
    Ok(ledger)
}
