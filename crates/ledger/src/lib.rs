//! The ledger: one index of runs, their configuration, metrics, events, nodes, formations and files, of jobs and of searches.
//!
//! ```text
//!   run directories ──► history::read_from ──► core::fold ──► rows + position, one transaction ──► SQLite, PostgreSQL
//!                                                             --where ──► core::filter ──► SQL with bound values
//!   journals of main nodes ──► read_journal_from ──► jobs + position, one transaction ──► the same
//!   searches ──► SearchFollower ──► trials + position, one transaction ──► the same
//! ```
//! Files are the truth: the ledger is a function of them, whichever process feeds them, and can be made anew at any time.
//! SQLite lies beside the runs, in `runs/ledger.sqlite`; `PHALANX_LEDGER=postgres://…` is shared by hosts.

pub mod core;
mod error;
mod postgres_url;
mod rows;
mod shell;
#[cfg(test)]
mod tests;
mod url;
mod value;

pub use core::filter::{Column, Filter, FilterError, FilterProblem, SortKey, parse_sort};
pub use core::lower_is_better;
pub use core::reduce::{Axis, Bucket, Curve, Point, Reducer, Window};
pub use error::{LedgerError, SqlError, TlsError};
pub use rows::{
    ArtifactRow, CaughtUp, CaughtUpJournals, CaughtUpSearches, Detail, EventRow, Fed, FormationRow, JobRow,
    JournalRow, LedgerInfo, Migrated, NodeRow, NoteRow, Pruned, RunQuery, RunRow, SearchRow, SeriesInfo,
};
pub use shell::{Feeder, FeederHandle, Ledger, SCHEMA, set_aside};
pub use url::{LEDGER_FILE, LEDGER_VARIABLE, LedgerUrl, searches_beside};
