//! What a run tells and writes: events, summaries, predictions, run directories.
//!
//! An [`Observer`] is told everything that happens, as owned values with the run and the time. Closures are observers:
//!
//! ```
//! use phalanx::records::{Event, RunEvent};
//!
//! let mut losses = Vec::new();
//! let mut keep = |event: RunEvent| {
//!     if let Event::Step(step) = event.event {
//!         losses.push(step.loss);
//!     }
//! };
//! # let observer: &mut dyn phalanx::records::Observer = &mut keep;
//! # let event = Event::Note("a note".to_owned());
//! # observer.on(RunEvent { run: "first".to_owned(), unix_ms: 0, event });
//! ```

pub use phalanx_protocol::progress::End;
pub use phalanx_records::history;
pub use phalanx_records::run_dir::{
    Annotation, Checkpoint, RunInfo, RunState, Status, StepRecord, ValidRecord, annotate, checkpoints,
    is_run, list_runs, newest_checkpoint, read_run, run_uid,
};
pub use phalanx_records::{
    Blame, Evaluation, Event, Observer, Opening, PredictionFormat, Predictions, RunEvent, Summary,
    WritePredictionsError, params_hash,
};
