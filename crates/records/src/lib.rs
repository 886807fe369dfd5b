//! Records of a run: its directory, checkpoints, state, and events.
//!
//! ```text
//!   trainer or driver ──► Book ──► RunDir: metrics.jsonl, checkpoints, state.json, formation.json, the model
//!                     └─► Events ─┬► EventLog: events.jsonl, append-only
//!                                 └► Observer: the same as typed values, with time and run
//!   ledger, dashboard, plots ◄── history: what was recorded, each entry once and in order
//! ```
//! No code here trains or prints.

mod book;
mod error;
mod evaluation;
mod events;
pub mod history;
mod model_state;
mod params_hash;
mod predictions;
pub mod run_dir;
mod table;
mod tensorboard;

pub use book::{About, Book, FormationEpoch, Opened, StageEntry, Summary};
pub use error::{Blame, RecordError};
pub use evaluation::{Evaluation, Sums};
pub use events::{Artifact, Event, Events, Observer, Opening, RunEvent};
pub use model_state::{
    ModelState, StateError, count_batches, pack_later, parameter_of, read_exactly, state_bytes_limit,
    tensor_bytes,
};
pub use params_hash::{params_hash, sha256};
pub use phalanx_types::with_causes;
pub use predictions::{PredictionFormat, Predictions, WritePredictionsError};
pub use table::{Row, RunTable, WriteTableError, write_csv, write_parquet};
pub use tensorboard::{TENSORBOARD, TensorBoard};
