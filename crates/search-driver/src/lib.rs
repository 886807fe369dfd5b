//! Drives a search on nodes: candidates become trials, trials become jobs, results become files.
//!
//! ```text
//!   search.toml ──► SearchPlan ──► drive: SearchCore decides ──► TrialClient: a job for every stretch of training
//!                                   │   ▲                                │
//!                     SearchDir ◄───┘   └── results, losses, nodes ◄─────┘
//!                (events.jsonl first, then what follows from it)
//! ```
//! [`phalanx_search`] decides, [`phalanx_trial`] trains, [`phalanx_search_results`] makes tables and plots. A search whose
//! process was killed goes on from its events: see [`SearchDir::open`].

mod candidate;
mod capacity;
mod cost_program;
mod describe;
mod directory;
mod drive;
mod error;
mod export;
mod failure;
mod latency;
mod onnx_check;
mod plan;
mod replay;

pub use directory::{RESULTS, SEARCH_FILE, SearchDir, is_search, list_searches, trial_path};
pub use drive::{SearchObserver, drive};
pub use error::SearchError;
pub use export::Exporter;
pub use failure::TrialFailure;
pub use onnx_check::CheckedModel;
pub use plan::{Overrides, SearchPlan, Surveyed};
pub use replay::replay;
