//! What is written down of a search, in the order in which it was decided: lines of `events.jsonl` in its directory.
//! The state of a search follows from its records alone.

use super::space::Genes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The number of a trial in its search, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrialId(pub u64);

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// A decision or a result, as it is written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event", content = "value")]
pub enum SearchRecord {
    /// A candidate will be tried.
    TrialProposed {
        trial: TrialId,
        genes: Genes,
        /// As a person reads it: `(1, 3, 32)`.
        archid: String,
        /// Equal for candidates whose training gives the same: see `control::Described`.
        model: String,
        parents: Vec<TrialId>,
        /// Values that follow from the candidate alone: cheap objectives and constraints, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        known: BTreeMap<String, f64>,
        /// The state of the algorithm after this, if it has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<serde_json::Value>,
    },
    /// A trial will be trained from one budget to another. 0 is the beginning.
    TrialQueued { trial: TrialId, rung: u32, from: f64, to: f64 },
    /// A node has begun to train a trial, or goes on with it.
    TrialStarted { trial: TrialId, node: String },
    /// Values on the way to the next budget; only written where hopeless trials are stopped, because that follows from them.
    TrialProgressed { trial: TrialId, budget: f64, values: BTreeMap<String, f64> },
    /// A training failed for no fault of its own, as when its node was lost, and begins again at its last budget.
    TrialRetried { trial: TrialId, why: String },
    /// A trial was trained so far; in no time if it is an equal network of an earlier trial, whose values it takes over.
    /// Values that are not finite are left out. `values` has objectives and other metrics, by name.
    TrialReached { trial: TrialId, budget: f64, values: BTreeMap<String, f64>, seconds: f64 },
    /// A trial is over.
    TrialEnded { trial: TrialId, end: TrialEnd },
    /// The search is over; a search that was resumed may have several.
    SearchEnded { end: SearchEnd },
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum TrialEnd {
    /// It was trained to the last budget that was wanted.
    Completed,
    /// It was trained partially, and others were better: it will not be trained further.
    Partial,
    /// It was stopped between two budgets because it was hopeless.
    Stopped {
        why: String,
    },
    /// It breaks a constraint that had to be measured.
    Infeasible {
        why: String,
    },
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SearchEnd {
    Finished,
    Stopped,
    Failed { why: String },
}
