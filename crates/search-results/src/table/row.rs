//! A trial, as its records tell it.

use phalanx_search::core::record::TrialId;
use phalanx_search::core::space::Genes;
use phalanx_types::Seed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What became of a trial so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialStatus {
    Proposed,
    /// Waits for a node.
    Queued,
    Running,
    /// Trained partially: it waits to be chosen for more, or will not be trained further.
    Partial,
    Completed,
    /// Stopped because it was hopeless.
    Stopped,
    /// Breaks a constraint.
    Infeasible,
    Failed,
}

impl TrialStatus {
    pub const ALL: [TrialStatus; 8] = [
        TrialStatus::Proposed,
        TrialStatus::Queued,
        TrialStatus::Running,
        TrialStatus::Partial,
        TrialStatus::Completed,
        TrialStatus::Stopped,
        TrialStatus::Infeasible,
        TrialStatus::Failed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TrialStatus::Proposed => "proposed",
            TrialStatus::Queued => "queued",
            TrialStatus::Running => "running",
            TrialStatus::Partial => "partial",
            TrialStatus::Completed => "completed",
            TrialStatus::Stopped => "stopped",
            TrialStatus::Infeasible => "infeasible",
            TrialStatus::Failed => "failed",
        }
    }

    /// Whether the trial's results may be on the front.
    pub fn counts(self) -> bool {
        !matches!(self, TrialStatus::Infeasible | TrialStatus::Failed)
    }
}

impl fmt::Display for TrialStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a trial had reached at a budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// The number of its record, from 1: results of all trials are ordered by it.
    pub event: u64,
    /// When, in milliseconds since 1970.
    pub at: u64,
    pub budget: f64,
    pub values: BTreeMap<String, f64>,
    /// How long the training since the trial's result before took.
    pub seconds: f64,
}

/// Values of a trial on the way to the next budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub budget: f64,
    pub values: BTreeMap<String, f64>,
}

/// All that is known of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRow {
    pub trial: TrialId,
    /// As a person reads it: `(1, 3, 32)`.
    pub archid: String,
    /// Equal for equal networks.
    pub model: String,
    pub genes: Genes,
    pub parents: Vec<TrialId>,
    /// Values that follow from the candidate alone.
    pub known: BTreeMap<String, f64>,
    pub status: TrialStatus,
    /// Why it was stopped, is infeasible or failed, or why it must be begun again.
    pub why: Option<String>,
    /// The node that trains it, or did last.
    pub node: Option<String>,
    /// The rung it was queued for last.
    pub rung: Option<u32>,
    /// The budget it was queued for last.
    pub target: Option<f64>,
    /// With ascending budgets.
    pub results: Vec<TrialResult>,
    /// The newest values on the way to the next budget, of searches that write them down.
    pub progress: Option<Progress>,
    /// How often a node began with it or went on with it.
    pub starts: u32,
    /// How often its training failed for no fault of its own and was begun again.
    pub retries: u32,
    /// Times in milliseconds since 1970: of the proposal, of the first time in the queue, of the first start, of the end.
    pub proposed: u64,
    pub queued: Option<u64>,
    pub started: Option<u64>,
    pub ended: Option<u64>,
    /// The number of the newest record about it, from 1.
    pub changed: u64,
    /// The number of the record that said that it failed or is infeasible.
    pub(crate) ruled_out: Option<u64>,
}

impl TrialRow {
    /// The result with the largest budget.
    pub fn latest(&self) -> Option<&TrialResult> {
        self.results.last()
    }

    /// The result with the largest budget among the records up to one.
    pub fn latest_until(&self, event: u64) -> Option<&TrialResult> {
        self.results.iter().rev().find(|result| result.event <= event)
    }

    /// The budget it was trained to; 0 without results.
    pub fn budget(&self) -> f64 {
        self.latest().map_or(0.0, |result| result.budget)
    }

    /// The newest value of this name, measured or known.
    pub fn value(&self, name: &str) -> Option<f64> {
        let measured = self.results.iter().rev().find_map(|result| result.values.get(name));
        measured.or_else(|| self.known.get(name)).copied()
    }

    /// The value of this name at the budget of a result, or known.
    pub fn value_at(&self, result: &TrialResult, name: &str) -> Option<f64> {
        result.values.get(name).or_else(|| self.known.get(name)).copied()
    }

    /// How long it was trained.
    pub fn seconds(&self) -> f64 {
        // The sum of nothing would be -0.
        self.results.iter().fold(0.0, |sum, result| sum + result.seconds)
    }

    /// A name that no trial of another search has: `id_` and a UUID with underscores, as the peer's. The same search
    /// gives the same name.
    pub fn unique_name(&self, search: &str) -> String {
        let purpose = format!("{search}/{}", self.trial);
        let high = Seed(0).derive(&purpose).0 & !0xf000 | 0x8000;
        let low = Seed(1).derive(&purpose).0 & !(0b11 << 62) | 0b10 << 62;
        let (start, middle, version) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
        let (variant, node) = (low >> 48, low & 0xffff_ffff_ffff);
        format!("id_{start:08x}_{middle:04x}_{version:04x}_{variant:04x}_{node:012x}")
    }
}
