//! What the driver's core is told when a run begins.

use crate::Limits;
use crate::progress::{Place, Plan};
use phalanx_types::{NodeId, RunId};
use serde::{Deserialize, Serialize};

/// A run and how it is to be driven.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DriverConfig {
    /// The driver's own name in the domain.
    pub driver: NodeId,
    /// Names the run in messages.
    pub run: RunId,
    /// How long it is, and when it is validated and saved.
    pub plan: Plan,
    /// Whether there is data to validate with.
    pub validates: bool,
    /// How many nodes it may have.
    pub limits: Limits,
    /// Operators of the model.
    pub operators: usize,
    /// Whether nodes hold parts of the model, as a planner decides.
    pub staged: Option<StagedConfig>,
    /// Nodes that this process started, when no other node can join.
    pub private_nodes: Option<usize>,
    /// The place after the last step that is recorded.
    pub place: Place,
    /// The last step of which a validation is recorded.
    pub validated: u64,
}

/// How a run with stages is driven.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct StagedConfig {
    /// Whether nodes are measured; those that this process started are all alike.
    pub measures: bool,
    /// Whether costs are corrected by what ranks report: only exact stages give the same numbers wherever they are.
    pub calibrates: bool,
    /// Parts that batches were cut into by a driver before this one.
    pub micro_batches: Option<usize>,
}
