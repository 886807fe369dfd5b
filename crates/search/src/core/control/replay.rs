//! Checks recorded decisions: the core decides again from every recorded state, and its answer is compared with the
//! record that followed.
//!
//! ```text
//! record n is an event (a result, a node, a stop)  ──► nothing may be due before it; it is taken over
//! record n is a decision                           ──► the core decides from records 1..n; the answer must be record n
//! ```
//! After a difference the check goes on from the recorded state, so one difference does not hide the next.

use super::candidates::Candidates;
use super::decide::Step;
use super::state::{RestoreError, SearchState, TrialState};
use super::{SearchCommand, SearchConfig, SearchCore};
use crate::core::algorithm::Algorithm;
use crate::core::record::{SearchEnd, SearchRecord, TrialEnd};
use crate::core::space::Space;
use serde::Serialize;
use std::collections::VecDeque;

/// What a check of recorded decisions found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReplayReport {
    pub records: usize,
    /// Candidates that were proposed.
    pub candidates: usize,
    /// Records that are decisions of the core; the others are events that it was told.
    pub decisions: usize,
    pub differences: Vec<Difference>,
}

/// A record that the core would not have written there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// From 1, as lines of a file are counted.
    pub line: usize,
    pub recorded: SearchRecord,
    /// What the core decides from the records before; `None`: nothing.
    pub decided: Option<SearchRecord>,
}

impl SearchCore {
    /// Decides again from every recorded state, and compares. `algorithm` makes one that has chosen nothing yet.
    ///
    /// # Errors
    /// If the records are not those of a search with this configuration and this space.
    pub fn replay(
        config: SearchConfig,
        space: Space,
        algorithm: &dyn Fn() -> Box<dyn Algorithm>,
        candidates: Box<dyn Candidates>,
        records: &[SearchRecord],
    ) -> Result<ReplayReport, RestoreError> {
        let mut core = Self::new(config, space, algorithm(), candidates);
        let mut report = ReplayReport { records: records.len(), ..ReplayReport::default() };
        let mut due = VecDeque::new();
        for (index, record) in records.iter().enumerate() {
            let mut is_event = false;
            if due.is_empty() {
                core.state.check(record, &core.space).map_err(|what| RestoreError { index, what })?;
                is_event = core.is_event(record);
                due = core.due(is_event);
            }
            report.candidates += usize::from(matches!(record, SearchRecord::TrialProposed { .. }));
            let decided = due.pop_front();
            if decided.is_none() && is_event {
                core.state.apply(record);
                continue;
            }
            report.decisions += 1;
            if decided.as_ref() != Some(record) {
                report.differences.push(Difference { line: index + 1, recorded: record.clone(), decided });
                due.clear();
                core.rewind(algorithm(), &records[..=index])?;
            }
        }
        Ok(report)
    }

    /// Whether a record tells of something that happened to the search, not of something that it decided.
    fn is_event(&self, record: &SearchRecord) -> bool {
        let is_queued = |trial| self.state.trials.get(trial).is_some_and(TrialState::is_queued);
        match record {
            SearchRecord::TrialStarted { .. }
            | SearchRecord::TrialProgressed { .. }
            | SearchRecord::TrialRetried { .. }
            | SearchRecord::SearchEnded { end: SearchEnd::Stopped } => true,
            SearchRecord::TrialReached { trial, .. }
            | SearchRecord::TrialEnded { trial, end: TrialEnd::Failed { .. } } => is_queued(trial),
            SearchRecord::TrialProposed { .. }
            | SearchRecord::TrialQueued { .. }
            | SearchRecord::TrialEnded { .. }
            | SearchRecord::SearchEnded { .. } => false,
        }
    }

    /// What the core writes down next: one choice, or all that follows without any. Before an event this is only what is
    /// decided even if no node is free.
    fn due(&mut self, before_event: bool) -> VecDeque<SearchRecord> {
        let mut out = Vec::new();
        self.running.clear();
        self.out_of_candidates = false;
        // For a decision a node was free: for one trial more, which is all that is asked here.
        self.slots = if before_event { 0 } else { self.state.queued() + 1 };
        self.settle(&mut out);
        while out.is_empty() {
            match self.next_step() {
                Step::Queue { trial, rung } => self.queue(trial, rung, &mut out),
                Step::Propose => self.propose(&mut out),
                Step::Wait => break,
                Step::End(end) => self.end(end, &mut out),
            }
        }
        let records = out.into_iter().filter_map(|command| match command {
            SearchCommand::Record(record) => Some(record),
            SearchCommand::Run { .. } | SearchCommand::Cancel { .. } | SearchCommand::Ended(_) => None,
        });
        records.collect()
    }

    /// Goes back to what was recorded.
    fn rewind(
        &mut self,
        algorithm: Box<dyn Algorithm>,
        records: &[SearchRecord],
    ) -> Result<(), RestoreError> {
        self.state = SearchState::new(&self.config);
        self.algorithm = algorithm;
        for (index, record) in records.iter().enumerate() {
            self.state.check(record, &self.space).map_err(|what| RestoreError { index, what })?;
            self.state.apply(record);
        }
        if let Some(state) = &self.state.algorithm {
            // An algorithm that does not understand its state learns from the results again.
            let _understood = self.algorithm.restore(state);
        }
        Ok(())
    }
}
