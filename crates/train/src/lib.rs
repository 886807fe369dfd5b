//! The one trainer: run files, the loop, checkpoints, run directories.
//!
//! ```text
//! run.toml ─► RunFile ─► Task (model and data, checked against each other)
//!                          ├─► Trainer   in this process ──────────────┐
//!                          └─► drive     on nodes: driver ◄─► replica ─┴─► Book (the run directory), Observer
//! ```
//! [`core`] and [`progress`] decide, a [`Stepper`] computes, here as on nodes.
//! Nothing here prints, and nothing assumes which engine computes.

mod book;
pub mod config;
pub mod core;
pub mod costs;
mod driver;
mod error;
mod evaluate;
pub mod live;
pub mod measure;
mod observer;
mod params_hash;
pub mod progress;
pub mod replica;
pub mod run_dir;
mod source;
mod state;
mod task;
mod trainer;

pub use driver::{DriverOptions, drive};
pub use error::{Blame, Culprit, NotFinite, TrainError, shortfall_hint};
pub use evaluate::{Evaluation, Evaluator, Sums};
pub use observer::{Event, Observer};
pub use params_hash::params_hash;
pub use source::{Found, ModelError, find_model, load_model};
pub use state::{ModelState, count_batches};
pub use task::{Compute, Fit, Task, check_input, fixed_batch};
pub use trainer::{Cut, Ready, StepInput, Stepped, Stepper, StepperOptions, Summary, Trainer};
