//! Asking the algorithm for a candidate.

use super::bugs::{ControlBug, planted};
use super::{SearchCommand, SearchCore};
use crate::core::algorithm::{History, Proposal};
use crate::core::dice::Dice;
use crate::core::objective::Known;
use crate::core::record::SearchRecord;
use std::borrow::Cow;

/// How often an algorithm is asked again that proposes what was tried or must not be tried.
const TRIES: usize = 32;

impl SearchCore {
    /// Proposes one candidate, or finds that there is none.
    pub(super) fn propose(&mut self, out: &mut Vec<SearchCommand>) {
        let trial = self.state.next_trial();
        let Some(proposal) = self.ask(trial.0) else {
            // A question without an answer must leave no trace: it is not in the records.
            if let Some(state) = &self.state.algorithm {
                let _understood = self.algorithm.restore(state);
            }
            self.out_of_candidates = true;
            return;
        };
        let Some(described) = self.candidates.describe(&proposal.genes) else { return };
        let parents =
            proposal.parents.iter().filter_map(|genes| self.state.trial_of.get(genes).copied()).collect();
        let state = self.algorithm.state().filter(|state| Some(state) != self.state.algorithm.as_ref());
        let record = SearchRecord::TrialProposed {
            trial,
            genes: proposal.genes,
            archid: described.archid,
            model: described.model,
            parents,
            known: described.known,
            state,
        };
        if planted(ControlBug::RunsBeforeItRecords) {
            out.push(SearchCommand::Run { trial, from: 0.0, to: self.config.rungs[0], priority: 0 });
        }
        self.record(record, out);
    }

    fn ask(&mut self, number: u64) -> Option<Proposal> {
        let number = if planted(ControlBug::ThrowsOtherDice) { self.candidates.len() } else { number };
        let mut dice = Dice::of(self.config.seed, "ask", number);
        let (results, pending) = self.state.observations(&self.config);
        let mut seen = Cow::Borrowed(&self.state.seen);
        for _ in 0..TRIES {
            let history = History {
                space: &self.space,
                objectives: &self.config.objectives,
                results: &results,
                pending: &pending,
                seen: &seen,
                known: &self.candidates,
            };
            let proposal = self.algorithm.ask(&history, &mut dice)?;
            let is_new = self.space.contains(&proposal.genes) && !seen.contains(&proposal.genes);
            if is_new && self.candidates.known(&proposal.genes).is_some() {
                return Some(proposal);
            }
            seen.to_mut().insert(proposal.genes);
        }
        None
    }
}
