//! Which trial is trained how far, on how many nodes at once.
//!
//! ```text
//! results, capacity ──► SearchCore::on ──► Record (what happened, what was decided), Run, Cancel, Ended
//! records of earlier ──► SearchCore::restore, SearchCore::resume ──► the same decisions as if nothing had happened
//! ```
//!
//! What happened is recorded first, and every decision is made from the recorded state alone. So a search that is
//! restored from any prefix of its records decides what the undisturbed one decided, if the same events follow.
//! [`SearchCore::replay`] checks that of the records of a real search.
//! Only three things are not recorded: the number of slots, which trials were already handed to nodes, and what is
//! known of candidates, which follows from them.
//!
//! # Budgets
//! - A new trial is trained to the first rung. While candidates are proposed, a trial goes on to the next rung when it is
//!   in the best 1/eta of its rung by front and crowding (ASHA). The last rung is filled by [`Finish`] after the last
//!   candidate; with [`Finish::None`] it is filled like the others. With one rung every trial is trained in full.
//! - The algorithm sees results of one budget only: of the deepest rung that [`COMPARABLE`] trials have reached, or of
//!   the first. Results of different budgets side by side would teach it that a good candidate is one trained for long.
//! - The front compares two trials at the deepest rung that both have reached, and once trials were trained in full
//!   only those.

pub mod bugs;
mod candidates;
mod decide;
mod hopeless;
mod invariants;
mod propose;
mod reason;
mod replay;
mod rungs;
mod state;
#[cfg(test)]
mod tests;

use self::bugs::{ControlBug, planted};
use self::candidates::CandidateCache;
use self::state::SearchState;
use super::algorithm::Algorithm;
use super::objective::Objective;
use super::record::{SearchEnd, SearchRecord, TrialId};
use super::space::Space;
use phalanx_types::Seed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use self::candidates::{Candidates, Described};
pub use self::replay::{Difference, ReplayReport};
pub use self::rungs::COMPARABLE;
pub use self::state::{Mismatch, Reached, RestoreError, Stage, TrialState};

/// What a search is to do, apart from its space and its algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchConfig {
    pub seed: Seed,
    /// How many candidates are proposed.
    pub trials: u64,
    pub objectives: Vec<Objective>,
    pub bounds: Vec<Bound>,
    /// Budgets, ascending. The last is a full training; one entry trains every trial in full.
    pub rungs: Vec<f64>,
    /// One of so many trials of a rung is trained to the next.
    pub eta: u32,
    pub finish: Finish,
    /// How often a training is repeated that failed for no fault of its own, as when its node was lost.
    pub retries: u32,
    /// The search ends when so many trials have failed before any other gave a result; 0 never ends it.
    pub early_failures: u32,
    /// Stops trials between two rungs whose results on the way are clearly worse than the median of the others.
    pub stop_hopeless: bool,
    /// `Some(n)`: n candidates are chosen at once, and all are trained before the next are chosen. It leaves nodes idle,
    /// and is there to compare with.
    pub generation: Option<usize>,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self {
            seed: Seed(0),
            trials: 100,
            objectives: Vec::new(),
            bounds: Vec::new(),
            rungs: vec![1.0],
            eta: 3,
            finish: Finish::Front,
            retries: 3,
            early_failures: 5,
            stop_hopeless: false,
            generation: None,
        }
    }
}

/// Which trials are trained to the last rung at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The front, and trials that the fully trained front does not dominate even so.
    Front,
    All,
    None,
}

/// A constraint on a value, whether it follows from the candidate or has to be measured. Limits are inclusive.
///
/// A bound on an objective that training improves is judged by the full training; any other as soon as there is a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub name: String,
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

/// What the search is told. Events that are late, that come twice or name unknown trials change nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum SearchEvent {
    /// So many trials can be trained at once, now.
    Capacity {
        slots: usize,
    },
    /// A node has begun with a trial.
    TrialStarted {
        trial: TrialId,
        node: String,
    },
    /// Values on the way to the next rung.
    TrialProgress {
        trial: TrialId,
        budget: f64,
        values: BTreeMap<String, f64>,
    },
    /// A trial was trained as far as the last `Run` of it said.
    TrialReached {
        trial: TrialId,
        budget: f64,
        values: BTreeMap<String, f64>,
        seconds: f64,
    },
    /// `retry`: for no fault of its own.
    TrialFailed {
        trial: TrialId,
        why: String,
        retry: bool,
    },
    StopAsked,
}

/// What the search wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum SearchCommand {
    /// Written and lasting before anything that follows is done.
    Record(SearchRecord),
    /// Trains a trial from a recorded budget (0: from the beginning) to another. Higher priorities go first.
    Run {
        trial: TrialId,
        from: f64,
        to: f64,
        priority: i32,
    },
    Cancel {
        trial: TrialId,
    },
    /// Nothing more will come.
    Ended(SearchEnd),
}

/// A search, from its candidates to its front.
#[derive(Debug)]
pub struct SearchCore {
    config: SearchConfig,
    space: Space,
    algorithm: Box<dyn Algorithm>,
    candidates: CandidateCache,
    state: SearchState,
    /// Trials that may be trained at once.
    slots: usize,
    /// Trials that nodes were told to train, and that have not ended or reached their budget since.
    running: BTreeSet<TrialId>,
    /// The algorithm found no candidate, and nothing has changed since.
    out_of_candidates: bool,
}

impl SearchCore {
    #[must_use]
    pub fn new(
        config: SearchConfig,
        space: Space,
        algorithm: Box<dyn Algorithm>,
        candidates: Box<dyn Candidates>,
    ) -> Self {
        let state = SearchState::new(&config);
        let candidates = CandidateCache::new(candidates, &config);
        let running = BTreeSet::new();
        Self { config, space, algorithm, candidates, state, slots: 0, running, out_of_candidates: false }
    }

    /// The search after its records. Call [`SearchCore::resume`] next, and carry out what it returns.
    ///
    /// # Errors
    /// If the records are not those of a search with this configuration and this space.
    pub fn restore(
        config: SearchConfig,
        space: Space,
        algorithm: Box<dyn Algorithm>,
        candidates: Box<dyn Candidates>,
        records: &[SearchRecord],
    ) -> Result<Self, RestoreError> {
        let mut core = Self::new(config, space, algorithm, candidates);
        for (index, record) in records.iter().enumerate() {
            if !matches!(record, SearchRecord::SearchEnded { .. }) {
                core.state.reopen();
            }
            core.state.check(record, &core.space).map_err(|what| RestoreError { index, what })?;
            core.state.apply(record);
        }
        if let Some(state) = &core.state.algorithm {
            // An algorithm that does not understand its state learns from the results again.
            let _understood = core.algorithm.restore(state);
        }
        Ok(core)
    }

    /// After [`SearchCore::restore`]: a `Run` of every trial that is queued and has not reached its budget. A search
    /// that was stopped or failed goes on, and one that is finished if more candidates are wanted now; otherwise it says
    /// again that it is finished.
    pub fn resume(&mut self) -> Vec<SearchCommand> {
        let mut out = Vec::new();
        if self.state.ended == Some(SearchEnd::Finished) {
            if !self.proposed_all() {
                self.propose(&mut out);
            }
            if out.is_empty() {
                return vec![SearchCommand::Ended(SearchEnd::Finished)];
            }
        }
        self.state.reopen();
        self.decide(&mut out);
        if planted(ControlBug::ForgetsQueuedTrials) {
            self.running =
                self.state.trained().filter(|(_, trial)| trial.is_queued()).map(|(id, _)| id).collect();
        }
        if self.state.ended.is_none() {
            self.run_queued(usize::MAX, &mut out);
        }
        out
    }

    pub fn on(&mut self, event: SearchEvent) -> Vec<SearchCommand> {
        let mut out = Vec::new();
        if self.state.ended.is_none() && self.take(event, &mut out) {
            self.decide(&mut out);
        }
        out
    }

    #[must_use]
    pub fn config(&self) -> &SearchConfig {
        &self.config
    }

    #[must_use]
    pub fn trials(&self) -> &BTreeMap<TrialId, TrialState> {
        &self.state.trials
    }

    /// How the search has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&SearchEnd> {
        self.state.ended.as_ref()
    }

    /// Trials that no other dominates, of equal networks the first: those trained in full once there are any, all that
    /// have a result before.
    #[must_use]
    pub fn front(&self) -> Vec<TrialId> {
        self.state.front(&self.config)
    }

    /// Why nothing is trained, or fewer trials than could be; `None` if every slot is in use.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.explain()
    }

    /// # Errors
    /// Says which promise is broken: a mistake in this module.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.find_violation().map_or(Ok(()), Err)
    }
}
