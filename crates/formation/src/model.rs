use serde::{Deserialize, Serialize};

/// The cost of training a model, operator by operator, and the places where it may be cut.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCost {
    pub ops: Vec<OpCost>,
    /// The places where the model may be cut, in any order.
    pub cuts: Vec<CutCost>,
}

/// The cost of one operator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpCost {
    pub name: String,
    pub parameter_bytes: u64,
    pub buffer_bytes: u64,
    /// Kept for the backward pass, per sample.
    pub activation_bytes: u64,
    pub forward: Work,
    pub backward: Work,
    /// Work of every update of its parameters, in the unit of [`Work`].
    #[serde(default)]
    pub update: f64,
}

/// The cost on a node of speed 1: seconds, or floating-point operations if speeds are operations per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub per_sample: f64,
    /// Per micro-batch, whatever its number of samples.
    pub per_batch: f64,
}

/// A place where the model may be cut, and the bytes sent there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutCost {
    /// The number of operators before it.
    pub at: usize,
    /// Per sample.
    pub forward_bytes: u64,
    /// Per sample.
    pub backward_bytes: u64,
}

impl ModelCost {
    pub fn parameter_bytes(&self) -> u64 {
        self.ops.iter().map(|op| op.parameter_bytes).fold(0, u64::saturating_add)
    }
}
