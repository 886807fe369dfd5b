//! What has happened in a search: the sum of its records.

use super::SearchConfig;
use super::bugs::{ControlBug, planted};
use crate::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
use crate::core::space::{Genes, Space};
use std::collections::{BTreeMap, BTreeSet};

/// A trial as its records tell it.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialState {
    pub genes: Genes,
    pub archid: String,
    pub model: String,
    pub parents: Vec<TrialId>,
    pub known: BTreeMap<String, f64>,
    /// The first trial of an equal network. This trial is never trained: it takes over that one's results.
    pub same_as: Option<TrialId>,
    /// Ascending in rungs.
    pub results: Vec<Reached>,
    pub stage: Stage,
    /// The node that trains it, or the last that did.
    pub node: Option<String>,
    /// How often the training to the present budget was begun again.
    pub retried: u32,
    /// Values between two rungs, with their budgets, as far as they were written down.
    pub progress: Vec<(f64, BTreeMap<String, f64>)>,
}

/// A budget that a trial was trained to.
#[derive(Debug, Clone, PartialEq)]
pub struct Reached {
    pub rung: usize,
    pub budget: f64,
    pub values: BTreeMap<String, f64>,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// Not to be trained now: between two rungs, or the same as another trial.
    Waiting,
    /// To be trained, or being trained.
    Queued {
        rung: usize,
        from: f64,
        to: f64,
    },
    Ended(TrialEnd),
}

impl TrialState {
    #[must_use]
    pub fn result_at(&self, rung: usize) -> Option<&Reached> {
        self.results.iter().find(|reached| reached.rung == rung)
    }

    /// The result of the deepest rung so far.
    #[must_use]
    pub fn last_result(&self) -> Option<&Reached> {
        self.results.last()
    }

    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self.stage, Stage::Queued { .. })
    }

    /// Whether its results count: it has not failed and breaks no constraint.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !matches!(self.stage, Stage::Ended(TrialEnd::Failed { .. } | TrialEnd::Infeasible { .. }))
    }
}

/// A record that does not continue the ones before it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("record {} does not belong to this search", .index + 1)]
pub struct RestoreError {
    /// From 0.
    pub index: usize,
    #[source]
    pub what: Mismatch,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    #[error("trial {0} does not follow the last trial")]
    OutOfOrder(TrialId),
    #[error("trial {0} is no candidate of this space")]
    NotInSpace(TrialId),
    #[error("trial {0} has the genes of an earlier trial")]
    Repeated(TrialId),
    #[error("trial {0} was never proposed")]
    Unknown(TrialId),
    #[error("trial {0} is over")]
    Over(TrialId),
    #[error("trial {trial} is not to be trained to a budget of {budget}")]
    Budget { trial: TrialId, budget: f64 },
}

#[derive(Debug)]
pub(super) struct SearchState {
    rungs: Vec<f64>,
    /// The rung that only the finish fills, if there is one.
    finish_rung: Option<u32>,
    /// The finish has begun: no candidate is proposed any more, unless the search ends and goes on later.
    pub(super) finishing: bool,
    /// A trial has gone on to a further rung since the search began or went on.
    pub(super) climbing: bool,
    pub(super) trials: BTreeMap<TrialId, TrialState>,
    /// The first trial of each network.
    pub(super) first_of: BTreeMap<String, TrialId>,
    pub(super) trial_of: BTreeMap<Genes, TrialId>,
    pub(super) seen: BTreeSet<Genes>,
    /// Results in the order in which they came: trial and rung.
    pub(super) order: Vec<(TrialId, usize)>,
    /// The algorithm's state after the last proposal that changed it.
    pub(super) algorithm: Option<serde_json::Value>,
    /// Equal networks of earlier trials that have not ended.
    pub(super) open_twins: BTreeSet<TrialId>,
    /// Trials whose last result was not looked at.
    pub(super) unjudged: BTreeSet<TrialId>,
    /// The last record, if it was of progress.
    pub(super) progressed: Option<TrialId>,
    /// Trials that failed since the search began or went on, without equal networks.
    pub(super) failures: Vec<TrialId>,
    pub(super) ended: Option<SearchEnd>,
}

impl SearchState {
    pub(super) fn new(config: &SearchConfig) -> Self {
        Self {
            rungs: config.rungs.clone(),
            finish_rung: config.finishes().then(|| config.last_rung() as u32),
            finishing: false,
            climbing: false,
            trials: BTreeMap::new(),
            first_of: BTreeMap::new(),
            trial_of: BTreeMap::new(),
            seen: BTreeSet::new(),
            order: Vec::new(),
            algorithm: None,
            open_twins: BTreeSet::new(),
            unjudged: BTreeSet::new(),
            progressed: None,
            failures: Vec::new(),
            ended: None,
        }
    }

    /// The next trial's number.
    pub(super) fn next_trial(&self) -> TrialId {
        TrialId(self.trials.len() as u64 + 1)
    }

    pub(super) fn queued(&self) -> usize {
        self.trials.values().filter(|trial| trial.is_queued()).count()
    }

    /// Trials that are trained for themselves, not the same as another.
    pub(super) fn trained(&self) -> impl Iterator<Item = (TrialId, &TrialState)> {
        self.trials.iter().filter(|(_, trial)| trial.same_as.is_none()).map(|(id, trial)| (*id, trial))
    }

    fn rung_of(&self, budget: f64) -> Option<usize> {
        self.rungs.iter().position(|rung| *rung == budget)
    }

    /// Whether a record can follow what was applied.
    pub(super) fn check(&self, record: &SearchRecord, space: &Space) -> Result<(), Mismatch> {
        let open = |trial: &TrialId| {
            let state = self.trials.get(trial).ok_or(Mismatch::Unknown(*trial))?;
            if matches!(state.stage, Stage::Ended(_)) { Err(Mismatch::Over(*trial)) } else { Ok(state) }
        };
        match record {
            SearchRecord::TrialProposed { trial, genes, .. } => {
                if *trial != self.next_trial() {
                    return Err(Mismatch::OutOfOrder(*trial));
                }
                if !space.contains(genes) {
                    return Err(Mismatch::NotInSpace(*trial));
                }
                if self.seen.contains(genes) { Err(Mismatch::Repeated(*trial)) } else { Ok(()) }
            }
            SearchRecord::TrialQueued { trial, rung, from, to } => {
                let state = open(trial)?;
                let last = state.last_result().map_or(0.0, |reached| reached.budget);
                let fits = state.stage == Stage::Waiting
                    && state.same_as.is_none()
                    && self.rung_of(*to) == Some(*rung as usize)
                    && last == *from
                    && from < to;
                if fits { Ok(()) } else { Err(Mismatch::Budget { trial: *trial, budget: *to }) }
            }
            SearchRecord::TrialReached { trial, budget, .. } => {
                let state = open(trial)?;
                let fits = match (&state.stage, state.same_as) {
                    (Stage::Queued { to, .. }, _) => to == budget,
                    (Stage::Waiting, Some(_)) => {
                        self.rung_of(*budget).is_some_and(|rung| state.result_at(rung).is_none())
                    }
                    (Stage::Waiting | Stage::Ended(_), _) => false,
                };
                if fits { Ok(()) } else { Err(Mismatch::Budget { trial: *trial, budget: *budget }) }
            }
            SearchRecord::TrialStarted { trial, .. }
            | SearchRecord::TrialProgressed { trial, .. }
            | SearchRecord::TrialRetried { trial, .. }
            | SearchRecord::TrialEnded { trial, .. } => open(trial).map(|_| ()),
            SearchRecord::SearchEnded { .. } => Ok(()),
        }
    }

    /// Makes a search that has ended go on: it may propose further candidates, and train partial trials further.
    pub(super) fn reopen(&mut self) {
        let Some(end) = self.ended.take() else { return };
        (self.finishing, self.climbing) = (false, false);
        if end != SearchEnd::Finished {
            return;
        }
        for (id, trial) in &mut self.trials {
            if trial.stage == Stage::Ended(TrialEnd::Partial) {
                trial.stage = Stage::Waiting;
                if trial.same_as.is_some() {
                    self.open_twins.insert(*id);
                }
            }
        }
    }

    /// Takes over a record that was checked, or that was made from this state.
    pub(super) fn apply(&mut self, record: &SearchRecord) {
        self.progressed = None;
        if let SearchRecord::SearchEnded { end } = record {
            self.ended = Some(end.clone());
            self.failures.clear();
            return;
        }
        match record {
            SearchRecord::TrialProposed { trial, genes, archid, model, parents, known, state } => {
                let same_as = self.first_of.get(model).filter(|_| !planted(ControlBug::TrainsEqualNetworks));
                let same_as = same_as.copied();
                if same_as.is_some() {
                    self.open_twins.insert(*trial);
                }
                let proposed = TrialState {
                    genes: genes.clone(),
                    archid: archid.clone(),
                    model: model.clone(),
                    parents: parents.clone(),
                    known: known.clone(),
                    same_as,
                    results: Vec::new(),
                    stage: Stage::Waiting,
                    node: None,
                    retried: 0,
                    progress: Vec::new(),
                };
                self.first_of.entry(model.clone()).or_insert(*trial);
                self.trial_of.insert(genes.clone(), *trial);
                self.seen.insert(genes.clone());
                self.trials.insert(*trial, proposed);
                if state.is_some() {
                    self.algorithm.clone_from(state);
                }
            }
            SearchRecord::SearchEnded { .. } => {}
            SearchRecord::TrialQueued { trial, .. }
            | SearchRecord::TrialStarted { trial, .. }
            | SearchRecord::TrialProgressed { trial, .. }
            | SearchRecord::TrialRetried { trial, .. }
            | SearchRecord::TrialReached { trial, .. }
            | SearchRecord::TrialEnded { trial, .. } => self.apply_to(*trial, record),
        }
    }

    fn apply_to(&mut self, id: TrialId, record: &SearchRecord) {
        let Some(trial) = self.trials.get_mut(&id) else { return };
        match record {
            SearchRecord::TrialQueued { rung, from, to, .. } => {
                self.finishing |= self.finish_rung == Some(*rung);
                self.climbing |= *rung > 0;
                trial.stage = Stage::Queued { rung: *rung as usize, from: *from, to: *to };
            }
            SearchRecord::TrialStarted { node, .. } => trial.node = Some(node.clone()),
            SearchRecord::TrialProgressed { budget, values, .. } => {
                trial.progress.push((*budget, values.clone()));
                self.progressed = Some(id);
            }
            SearchRecord::TrialRetried { .. } => {
                trial.retried += 1;
                trial.node = None;
            }
            SearchRecord::TrialReached { budget, values, seconds, .. } => {
                let Some(rung) = self.rungs.iter().position(|rung| rung == budget) else { return };
                let (budget, values, seconds) = (*budget, values.clone(), *seconds);
                trial.results.push(Reached { rung, budget, values, seconds });
                trial.stage = Stage::Waiting;
                trial.retried = 0;
                self.order.push((id, rung));
                if trial.same_as.is_none() {
                    self.unjudged.insert(id);
                }
            }
            SearchRecord::TrialEnded { end, .. } => {
                trial.stage = Stage::Ended(end.clone());
                self.unjudged.remove(&id);
                self.open_twins.remove(&id);
                if matches!(end, TrialEnd::Failed { .. }) && trial.same_as.is_none() {
                    self.failures.push(id);
                }
            }
            SearchRecord::TrialProposed { .. } | SearchRecord::SearchEnded { .. } => {}
        }
    }
}
