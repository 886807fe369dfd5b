//! Errors of compiling and running.

use phalanx_graph::CutError;
use phalanx_types::Class;

/// The graph contains something that this engine cannot compute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    #[error("{op} `{node}` cannot be computed: {why}")]
    Unsupported { node: String, op: &'static str, why: &'static str },
    #[error("value `{value}` has too many elements")]
    TooLarge { value: String },
    #[error("value `{value}` has no elements")]
    Empty { value: String },
}

impl CompileError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// A part of a model cannot be compiled as a stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    #[error(transparent)]
    Cut(#[from] CutError),
    #[error(transparent)]
    Compile(#[from] CompileError),
}

impl StageError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// Weights do not match a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    #[error("there are no values for `{name}`")]
    Missing { name: String },
    #[error("`{name}` has shape {got:?}, the model has {wanted:?}")]
    Shape { name: String, got: Vec<u64>, wanted: Vec<usize> },
    #[error("`{name}` is not of 32-bit floats")]
    DType { name: String },
}

impl WeightsError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// A batch could not be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    #[error("input `{input}` has {got} elements, a batch of {batch} needs {wanted}")]
    InputSize { input: String, got: usize, wanted: usize, batch: usize },
    #[error("the model has {wanted} inputs, got {got}")]
    Inputs { wanted: usize, got: usize },
    #[error("the gradient of output {output} has {got} elements, not {wanted}")]
    GradientSize { output: usize, got: usize, wanted: usize },
    #[error("{op} `{node}` was asked for index {index}, there are {size}")]
    Index { node: String, op: &'static str, index: i64, size: usize },
    #[error("backward was asked for without a training forward in slot {slot}")]
    NoForward { slot: usize },
    #[error("the model was compiled for forward only")]
    ForwardOnly,
    #[error("{op} `{node}` needs more than one value per channel in training, the batch has one")]
    BatchTooSmall { node: String, op: &'static str },
    #[error("{op} `{node}` could not be computed together with the other replicas: {reason}")]
    Together { node: String, op: &'static str, reason: String },
    #[error(transparent)]
    Compile(#[from] CompileError),
}

impl RunError {
    pub fn class(&self) -> Class {
        match self {
            RunError::Together { .. } => Class::Retry,
            _ => Class::Fatal,
        }
    }
}

/// The first operator whose result is NaN or infinite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagnoseReport {
    /// The node of the graph.
    pub node: String,
    /// The operator.
    pub op: String,
    /// Whether it was in backward.
    pub backward: bool,
    /// Which value: `NaN`, `inf`, `-inf`.
    pub found: &'static str,
    /// The sample of the batch it was found in, where the result has a batch dimension.
    pub sample: Option<usize>,
}
