//! A trial of a search: what its main node orders, what the node that computes it asks and tells meanwhile, and what it
//! gives back.
//!
//! ```text
//!   main node ── job: TrialTask, and the files of a run directory ──► computing node
//!             ◄── ToTrials: File, Report, Saved, Newest ──            (requests of the fabric)
//!             ── FromTrials ──────────────────────────────────────►
//!             ◄── solution: TrialSolution, and the files of the run directory ──
//! ```
//! Files are tensors of the job and of its solution, so they never ride in a message.

use crate::bulk::BlobId;
use phalanx_types::{ByteSize, ParcelHead};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The service of main nodes with trials.
pub const TRIAL_SERVICE: &str = "trials";

/// A trial, trained from one budget to another. Budgets are passes over the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialOrder {
    /// The search that it belongs to.
    pub search: String,
    /// Its number in the search.
    pub trial: u64,
    /// Counts how often the search has ordered it.
    pub attempt: u32,
    /// What is done.
    pub work: TrialWork,
    /// The budget that it has reached; 0 at the beginning.
    pub from: f64,
    /// The budget at which it is measured.
    pub to: f64,
    /// The budget of a whole training, over which schedules such as that of the learning rate extend.
    pub full: f64,
    /// What to measure: `valid.accuracy`, `valid.loss`, `train.loss`, `latency`, `onnx_latency`, `seconds`, a metric of
    /// validation as `valid.NAME`; for a program the names of its results.
    pub values: Vec<String>,
    /// How many times the model is run to find its latency.
    pub latency_trials: u32,
    /// Cores that it uses.
    pub cores: u32,
    /// Memory that it needs; 0 if that is not known.
    pub memory: ByteSize,
    /// Whether the run directory comes back.
    pub keep: bool,
}

/// What is done for a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TrialWork {
    /// Train a model of our own.
    Train {
        /// The text of a run file.
        run: String,
        /// The text of a file of layers, which the run file names `model.toml`.
        model: Option<String>,
    },
    /// Run a program.
    Program {
        /// The program and its arguments.
        argv: Vec<String>,
        /// The names of the genes that are in use, and what was chosen.
        genes: BTreeMap<String, String>,
    },
}

/// The payload of a trial's job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialTask {
    pub order: TrialOrder,
    /// The files that its run file names.
    pub files: Vec<TrialFile>,
}

/// A file that a run file names, as the main node has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFile {
    /// The key of the run file that names it.
    pub key: String,
    /// Where the main node has it.
    pub path: String,
    pub bytes: u64,
    pub sha256: [u8; 32],
}

/// The bytes of the solution of a trial's job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialSolution {
    pub search: String,
    pub trial: u64,
    pub result: TrialResult,
}

/// What was measured of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// By name, at the budget that was ordered. What is no number stays none.
    pub values: BTreeMap<String, f64>,
    /// What was measured on the way, by ascending budget.
    pub curve: Vec<TrialPoint>,
    /// How long it trained for this order.
    pub seconds: f64,
}

/// Values of a trial at a budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialPoint {
    pub budget: f64,
    pub values: BTreeMap<String, f64>,
}

/// From a node that computes a trial to its main node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToTrials {
    /// The node does not have this file.
    File { sha256: [u8; 32] },
    /// How far a trial is.
    Report(TrialReport),
    /// The run directory of a trial at a checkpoint, in case that its node is lost. The node holds it until the answer.
    Saved { report: TrialReport, files: SavedFiles },
    /// The run directory that was saved last by the nodes that had this trial before.
    Newest { search: String, trial: u64, attempt: u32 },
}

/// The files of a run directory, held by who says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFiles {
    pub head: ParcelHead,
    pub blob: BlobId,
}

/// How far a trial is. The first report of a node has no values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialReport {
    pub search: String,
    pub trial: u64,
    pub attempt: u32,
    pub budget: f64,
    pub values: BTreeMap<String, f64>,
}

/// The answer to a [`ToTrials`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromTrials {
    /// The file can be fetched.
    File { blob: BlobId, bytes: u64 },
    /// No order named such a file.
    NoFile,
    /// What was told has arrived.
    Noted,
    /// The run directory can be fetched.
    Newest(SavedFiles),
    /// No node has saved one.
    NothingSaved,
}
