use serde::{Deserialize, Serialize};

/// What a model costs in training, operator by operator, and where it may be cut.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCost {
    pub ops: Vec<OpCost>,
    /// The places where the model may be cut, in any order; others are not legal.
    pub cuts: Vec<CutCost>,
}

/// What one operator costs.
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

/// How long something takes on a node of speed 1: seconds, or floating-point operations where speeds are in those
/// per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub per_sample: f64,
    /// However many samples there are: once for every micro-batch.
    pub per_batch: f64,
}

/// A place where the model may be cut, and what is sent there.
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
