//! Training without a network: run files, the task, the model that takes steps, evaluation, trained models.
//!
//! ```text
//! run.toml ─► RunFile ─► Task (model and data, checked against each other) ─► Stepper: one step of a model or a part
//! ```
//! [`phalanx_protocol::progress`] decides what is due, a [`Stepper`] computes, in one process as on nodes. No code here
//! prints or assumes a particular engine.

pub mod config;
mod error;
mod evaluate;
pub mod round;
mod source;
pub mod stream;
mod task;
mod trained_model;
mod trainer;

pub use error::{Culprit, Dims, NotFinite, TrainError};
pub use evaluate::{Adding, Evaluator, evaluation};
pub use source::{Found, ModelError, find_model, load_model};
pub use task::{
    Compute, Fit, InMemory, Losses, MakeCompute, MissingLoss, Task, check_input, fixed_batch, needs_several,
    sample_shape,
};
pub use trained_model::{
    Damage, FuseError, Fused, LoadOptions, ModelOrigin, TrainedModel, TrainedModelError, fuse,
};
pub use trainer::{Cut, OutputGradients, Ready, StepInput, Stepped, Stepper, StepperOptions, loader_options};
