//! Training without a network: run files, the task, the trainer, evaluation.
//!
//! ```text
//! run.toml ─► RunFile ─► Task (model and data, checked against each other) ─► Trainer ─► Book, Events
//! ```
//! [`phalanx_protocol::progress`] decides what is due, a [`Stepper`] computes, here as on nodes.
//! Nothing here prints, and nothing assumes which engine computes.

pub mod config;
mod error;
mod evaluate;
mod source;
mod task;
mod trained_model;
mod trainer;

pub use error::{Culprit, Dims, NotFinite, TrainError};
pub use evaluate::{Adding, Evaluator};
pub use source::{Found, ModelError, find_model, load_model};
pub use task::{
    Compute, Fit, InMemory, MakeCompute, Task, check_input, fixed_batch, needs_several, sample_shape,
};
pub use trained_model::{FuseError, Fused, LoadOptions, TrainedModel, TrainedModelError, fuse};
pub use trainer::{
    Cut, OutputGradients, Ready, StepInput, Stepped, Stepper, StepperOptions, Trainer, loader_options,
};
