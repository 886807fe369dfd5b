//! What a search hands back, from its records alone: the table of its trials, the front, hypervolume, files and plots.
//!
//! ```text
//!   events.jsonl ──EventReader──► EventLine ──SearchTable::apply──► rows ─┬─► front, hypervolume, iterations
//!   search.json ───SearchAbout────────────────────────┘                  └─► ResultsWriter ──► files of results/
//! ```
//! Everything works while the search goes on, and again after it: the same records give the same files. [`events`],
//! [`about`], [`follow`] and [`files`] read and write files; the rest is a function of the records.

pub mod about;
pub mod events;
pub mod files;
pub mod filter;
pub mod follow;
pub mod front;
mod hypervolume;
mod iteration;
pub mod table;

pub use about::{Limits, SearchAbout};
pub use events::{EventLine, EventReader, ReadEventsError};
pub use files::{ResultsWriter, WriteResultsError};
pub use filter::{Filter, FilterError, SortKey};
pub use follow::SearchFollower;
pub use front::{Front, FrontBasis};
pub use hypervolume::HypervolumePoint;
pub use iteration::Iteration;
pub use table::{Progress, SearchTable, TableState, TrialResult, TrialRow, TrialStatus};
