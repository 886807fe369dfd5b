//! The table of a search's trials, made from its records one by one.

mod row;
mod state;

pub use row::{Progress, TrialResult, TrialRow, TrialStatus};
pub use state::TableState;

use crate::about::SearchAbout;
use crate::events::EventLine;
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
use phalanx_search::core::space::Choice;
use std::collections::BTreeMap;

/// A record about a trial that no record before it proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record is about trial {trial}, which no record before it proposes")]
pub struct UnknownTrial {
    pub trial: TrialId,
}

/// The trials of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchTable {
    about: SearchAbout,
    rows: BTreeMap<TrialId, TrialRow>,
    /// Trials in the order of their first results.
    with_results: Vec<TrialId>,
    /// How many records were taken.
    events: u64,
    last_at: Option<u64>,
    end: Option<SearchEnd>,
    /// The number of the record that said so.
    ended_at: u64,
    /// Stretches of time in which the search did not go on: between its end and its resumption.
    pauses: Vec<(u64, u64)>,
}

impl SearchTable {
    pub fn new(about: SearchAbout) -> Self {
        Self {
            about,
            rows: BTreeMap::new(),
            with_results: Vec::new(),
            events: 0,
            last_at: None,
            end: None,
            ended_at: 0,
            pauses: Vec::new(),
        }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// It is about a trial that was not proposed; the table is as before.
    pub fn apply(&mut self, line: &EventLine) -> Result<(), UnknownTrial> {
        self.take(line)?;
        self.events += 1;
        if let Some(row) = trial_of(&line.record).and_then(|trial| self.rows.get_mut(&trial)) {
            row.changed = self.events;
        }
        if !matches!(line.record, SearchRecord::SearchEnded { .. })
            && self.end.take().is_some()
            && let Some(ended) = self.last_at
        {
            self.pauses.push((ended, line.at));
        }
        self.last_at = Some(line.at);
        Ok(())
    }

    fn take(&mut self, EventLine { at, record }: &EventLine) -> Result<(), UnknownTrial> {
        match record {
            SearchRecord::TrialProposed { trial, .. } => {
                if !self.rows.contains_key(trial) {
                    self.rows.extend(proposed(*at, record).map(|row| (*trial, row)));
                }
            }
            SearchRecord::TrialQueued { trial, rung, to, .. } => {
                let row = self.known(*trial)?;
                row.status = TrialStatus::Queued;
                row.rung = Some(*rung);
                row.target = Some(*to);
                row.queued.get_or_insert(*at);
                (row.ended, row.why, row.ruled_out) = (None, None, None);
            }
            SearchRecord::TrialStarted { trial, node } => {
                let row = self.known(*trial)?;
                // Its node was lost, and another goes on with it.
                row.retries += u32::from(row.status == TrialStatus::Running);
                row.status = TrialStatus::Running;
                row.node = Some(node.clone());
                row.started.get_or_insert(*at);
                row.starts += 1;
            }
            SearchRecord::TrialProgressed { trial, budget, values } => {
                self.known(*trial)?.progress = Some(Progress { budget: *budget, values: values.clone() });
            }
            SearchRecord::TrialRetried { trial, why } => {
                let row = self.known(*trial)?;
                row.status = TrialStatus::Queued;
                row.why = Some(why.clone());
                row.retries += 1;
            }
            SearchRecord::TrialReached { trial, budget, values, seconds } => {
                let event = self.events + 1;
                let (budget, seconds) = (*budget, *seconds);
                self.reach(*trial, TrialResult { event, at: *at, budget, values: values.clone(), seconds })?;
            }
            SearchRecord::TrialEnded { trial, end } => {
                let event = self.events + 1;
                let row = self.known(*trial)?;
                (row.status, row.why) = ended(end);
                row.ended = Some(*at);
                row.ruled_out = (!row.status.counts()).then_some(event);
            }
            SearchRecord::SearchEnded { end } => {
                self.end = Some(end.clone());
                // What was being trained waits for a search that goes on.
                let event = self.events + 1;
                for row in self.rows.values_mut().filter(|row| row.status == TrialStatus::Running) {
                    row.status = TrialStatus::Queued;
                    row.changed = event;
                }
                self.ended_at = self.events + 1;
            }
        }
        Ok(())
    }

    fn known(&mut self, trial: TrialId) -> Result<&mut TrialRow, UnknownTrial> {
        self.rows.get_mut(&trial).ok_or(UnknownTrial { trial })
    }

    /// A budget that was reached twice counts as it was told first: so it was told to the algorithm.
    fn reach(&mut self, trial: TrialId, result: TrialResult) -> Result<(), UnknownTrial> {
        let row = self.known(trial)?;
        let at = row.results.partition_point(|earlier| earlier.budget < result.budget);
        if row.results.get(at).is_some_and(|there| there.budget == result.budget) {
            return Ok(());
        }
        if row.target.is_none_or(|target| result.budget >= target * (1.0 - 1e-9)) {
            row.status = TrialStatus::Partial;
        }
        row.progress = None;
        row.why = None;
        let is_first = row.results.is_empty();
        row.results.insert(at, result);
        if is_first {
            self.with_results.push(trial);
        }
        Ok(())
    }

    pub fn about(&self) -> &SearchAbout {
        &self.about
    }

    /// By the number of the trial.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &TrialRow> {
        self.rows.values()
    }

    pub fn row(&self, trial: TrialId) -> Option<&TrialRow> {
        self.rows.get(&trial)
    }

    /// Trials with results, in the order of their first ones.
    pub fn rows_with_results(&self) -> impl ExactSizeIterator<Item = &TrialRow> {
        self.with_results.iter().map(|trial| &self.rows[trial])
    }

    /// How many records were taken.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// When the newest record was written, in milliseconds since 1970.
    pub fn last_at(&self) -> Option<u64> {
        self.last_at
    }

    /// How the search ended; `None` while it goes on, again after it was resumed.
    pub fn end(&self) -> Option<&SearchEnd> {
        self.end.as_ref()
    }

    /// What a trial chose of a gene; `None` if it does not use the gene.
    pub fn choice(&self, row: &TrialRow, gene: usize) -> Option<&Choice> {
        let space = &self.about.space;
        let choice = usize::from(*row.genes.0.get(gene)?);
        space.is_active(&row.genes, gene).then_some(())?;
        space.genes.get(gene)?.choices.get(choice)
    }

    /// The number of the record after which the search had finished.
    pub(crate) fn finished_at(&self) -> Option<u64> {
        matches!(self.end, Some(SearchEnd::Finished)).then_some(self.ended_at)
    }

    /// How many trials there are in each state that has some.
    pub fn counts(&self) -> BTreeMap<TrialStatus, usize> {
        let mut counts = BTreeMap::new();
        for row in self.rows.values() {
            *counts.entry(row.status).or_default() += 1;
        }
        counts
    }

    /// For how long the search had gone on at a moment, in hours, without the time between an end and a resumption.
    pub fn hours_at(&self, at: u64) -> f64 {
        let paused: u64 = self.pauses.iter().map(|(from, to)| to.min(&at).saturating_sub(*from)).sum();
        at.saturating_sub(self.about.started).saturating_sub(paused) as f64 / 3_600_000.0
    }

    /// The names of all values that trials have, measured or known, sorted.
    pub fn value_names(&self) -> Vec<String> {
        let of_row = |row: &TrialRow| {
            let measured = row.results.iter().flat_map(|result| result.values.keys());
            measured.chain(row.known.keys()).cloned().collect::<Vec<_>>()
        };
        let mut names: Vec<String> = self.rows.values().flat_map(of_row).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn proposed(at: u64, record: &SearchRecord) -> Option<TrialRow> {
    let SearchRecord::TrialProposed { trial, genes, archid, model, parents, known, .. } = record else {
        return None;
    };
    Some(TrialRow {
        trial: *trial,
        archid: archid.clone(),
        model: model.clone(),
        genes: genes.clone(),
        parents: parents.clone(),
        known: known.clone(),
        status: TrialStatus::Proposed,
        why: None,
        node: None,
        rung: None,
        target: None,
        results: Vec::new(),
        progress: None,
        starts: 0,
        retries: 0,
        proposed: at,
        queued: None,
        started: None,
        ended: None,
        changed: 0,
        ruled_out: None,
    })
}

fn trial_of(record: &SearchRecord) -> Option<TrialId> {
    match record {
        SearchRecord::TrialProposed { trial, .. }
        | SearchRecord::TrialQueued { trial, .. }
        | SearchRecord::TrialStarted { trial, .. }
        | SearchRecord::TrialProgressed { trial, .. }
        | SearchRecord::TrialRetried { trial, .. }
        | SearchRecord::TrialReached { trial, .. }
        | SearchRecord::TrialEnded { trial, .. } => Some(*trial),
        SearchRecord::SearchEnded { .. } => None,
    }
}

fn ended(end: &TrialEnd) -> (TrialStatus, Option<String>) {
    match end {
        TrialEnd::Completed => (TrialStatus::Completed, None),
        TrialEnd::Partial => (TrialStatus::Partial, None),
        TrialEnd::Stopped { why } => (TrialStatus::Stopped, Some(why.clone())),
        TrialEnd::Infeasible { why } => (TrialStatus::Infeasible, Some(why.clone())),
        TrialEnd::Failed { why } => (TrialStatus::Failed, Some(why.clone())),
    }
}
