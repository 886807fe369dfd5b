//! What follows from an event, and what is done next.

use super::bugs::{ControlBug, planted};
use super::{SearchCommand, SearchCore, SearchEvent, Stage, TrialState};
use crate::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A node without other work begins with the front when for each trial that may still change it so many have results.
const SETTLED: usize = 4;

/// What is done next.
pub(super) enum Step {
    Queue { trial: TrialId, rung: usize },
    Propose,
    Wait,
    End(SearchEnd),
}

impl SearchCore {
    /// Writes down what happened. `false` if nothing follows from it.
    pub(super) fn take(&mut self, event: SearchEvent, out: &mut Vec<SearchCommand>) -> bool {
        match event {
            SearchEvent::Capacity { slots } => return std::mem::replace(&mut self.slots, slots) != slots,
            SearchEvent::TrialStarted { trial, node } => {
                if self.running.contains(&trial) && self.node_of(trial) != Some(&node) {
                    self.record(SearchRecord::TrialStarted { trial, node }, out);
                }
                return false;
            }
            SearchEvent::TrialProgress { trial, budget, values } => {
                if !self.is_news(trial, budget) {
                    return false;
                }
                self.record(SearchRecord::TrialProgressed { trial, budget, values: finite(values) }, out);
            }
            SearchEvent::TrialReached { trial, budget, values, seconds } => {
                let Some(Stage::Queued { to, .. }) = self.state.trials.get(&trial).map(|trial| &trial.stage)
                else {
                    return false;
                };
                if *to != budget && !planted(ControlBug::TakesLateResults) {
                    return false;
                }
                self.running.remove(&trial);
                let seconds = if seconds.is_finite() { seconds } else { 0.0 };
                self.record(
                    SearchRecord::TrialReached { trial, budget, values: finite(values), seconds },
                    out,
                );
            }
            SearchEvent::TrialFailed { trial, why, retry } => {
                let is_queued = self.state.trials.get(&trial).is_some_and(TrialState::is_queued);
                if !self.running.remove(&trial) || !is_queued {
                    return false;
                }
                let retried = self.state.trials.get(&trial).map_or(0, |trial| trial.retried);
                if retry && retried < self.config.retries {
                    self.record(SearchRecord::TrialRetried { trial, why }, out);
                } else {
                    self.end_trial(trial, TrialEnd::Failed { why }, out);
                }
            }
            SearchEvent::StopAsked => {
                self.end(SearchEnd::Stopped, out);
                return false;
            }
        }
        self.out_of_candidates = false;
        true
    }

    fn node_of(&self, trial: TrialId) -> Option<&String> {
        self.state.trials.get(&trial)?.node.as_ref()
    }

    /// Does all that can be done now.
    pub(super) fn decide(&mut self, out: &mut Vec<SearchCommand>) {
        loop {
            self.settle(out);
            self.run_queued(self.slots, out);
            match self.next_step() {
                Step::Queue { trial, rung } => self.queue(trial, rung, out),
                Step::Propose => self.propose(out),
                Step::Wait => return,
                Step::End(end) => return self.end(end, out),
            }
        }
    }

    /// Writes down what follows from results without any choice.
    pub(super) fn settle(&mut self, out: &mut Vec<SearchCommand>) {
        if let Some(trial) = self.state.progressed
            && let Some(why) = self.hopeless(trial)
        {
            self.end_trial(trial, TrialEnd::Stopped { why }, out);
            if self.running.remove(&trial) {
                out.push(SearchCommand::Cancel { trial });
            }
        }
        while let Some(trial) = self.state.unjudged.pop_first() {
            if let Some(end) = self.judge(trial) {
                self.end_trial(trial, end, out);
            }
        }
        while let Some(record) = self.taken_over() {
            self.record(record, out);
        }
    }

    /// How a trial ends with its last result; `None` if it may go on.
    fn judge(&self, id: TrialId) -> Option<TrialEnd> {
        let trial = self.state.trials.get(&id).filter(|trial| trial.stage == Stage::Waiting)?;
        let reached = trial.last_result()?;
        let missing = self.config.missing_objective(trial, reached);
        if let Some(name) = missing.filter(|_| !planted(ControlBug::AcceptsMissingObjectives)) {
            let why = format!("the objective `{name}` is missing or not a finite number");
            return Some(TrialEnd::Failed { why });
        }
        let is_last = reached.rung == self.config.last_rung();
        for bound in self.config.bounds.iter().filter(|bound| !trial.known.contains_key(&bound.name)) {
            // Training improves an objective: what is too little now may be enough in the end.
            let improves = self.config.objectives.iter().any(|objective| objective.name == bound.name);
            match reached.values.get(&bound.name) {
                None if is_last => {
                    let why = format!("the constraint `{}` is missing or not a finite number", bound.name);
                    return Some(TrialEnd::Failed { why });
                }
                Some(value) if is_last || !improves => {
                    if let Some(what) = bound.broken_by(*value) {
                        return Some(TrialEnd::Infeasible { why: format!("{what}: {value}") });
                    }
                }
                Some(_) | None => {}
            }
        }
        is_last.then_some(TrialEnd::Completed)
    }

    /// What an equal network of an earlier trial takes over next.
    fn taken_over(&self) -> Option<SearchRecord> {
        self.state.open_twins.iter().find_map(|id| {
            let twin = self.state.trials.get(id)?;
            let first = self.state.trials.get(&twin.same_as?)?;
            if let Some(reached) = first.results.get(twin.results.len()) {
                let (budget, values) = (reached.budget, reached.values.clone());
                return Some(SearchRecord::TrialReached { trial: *id, budget, values, seconds: 0.0 });
            }
            let Stage::Ended(end) = &first.stage else { return None };
            Some(SearchRecord::TrialEnded { trial: *id, end: end.clone() })
        })
    }

    pub(super) fn next_step(&self) -> Step {
        if let Some(why) = self.early_failure() {
            return Step::End(SearchEnd::Failed { why });
        }
        // Proposed, and the record that queues it was lost.
        if let Some(trial) = self.unqueued() {
            return Step::Queue { trial, rung: 0 };
        }
        let queued = self.state.queued();
        let if_free = |step| if queued < self.slots { step } else { Step::Wait };
        if let Some((trial, rung)) = self.promotable() {
            return if_free(Step::Queue { trial, rung });
        }
        if self.wants_candidates() {
            return match self
                .config
                .generation
                .map(|size| self.state.trials.len() as u64 % size.max(1) as u64)
            {
                Some(0) if queued > 0 => Step::Wait,
                // A generation is chosen as a whole, before it has results.
                Some(1..) => Step::Propose,
                Some(0) | None => if_free(Step::Propose),
            };
        }
        if planted(ControlBug::EndsEarly) && queued < 2 {
            return Step::End(self.outcome());
        }
        let climbing = self.climbing();
        if climbing > 0 && self.algorithm.waits_for_rungs() {
            return Step::Wait;
        }
        if climbing > 0 && !(self.proposed_all() && climbing * SETTLED <= self.state.trials.len() - climbing)
        {
            return Step::Wait;
        }
        let settled = climbing == 0;
        let finish =
            self.state.to_finish(&self.config, settled).filter(|_| !planted(ControlBug::SkipsTheFinish));
        if let Some(trial) = finish {
            return if_free(Step::Queue { trial, rung: self.config.last_rung() });
        }
        if queued > 0 { Step::Wait } else { Step::End(self.outcome()) }
    }

    /// A trial that may go on to the next rung, and that rung. Deep rungs first; where the trials of a rung wait for each
    /// other, one rung after the other.
    fn promotable(&self) -> Option<(TrialId, usize)> {
        let to = |next: usize| Some((self.state.promotable(&self.config, next)?, next));
        let climbed = self.config.climbed();
        if !self.algorithm.waits_for_rungs() {
            return (1..climbed).rev().find_map(to);
        }
        let below = |trial: &TrialState, next: usize| matches!(trial.stage, Stage::Queued { rung, .. } if rung < next);
        let is_full = |next: &usize| !self.state.trials.values().any(|trial| below(trial, *next));
        match self.wants_candidates() {
            true => None,
            false => (1..climbed).take_while(is_full).find_map(to),
        }
    }

    pub(super) fn wants_candidates(&self) -> bool {
        !self.proposed_all() && !self.out_of_candidates && !self.chose_all()
    }

    /// Whether what follows from all candidates has begun. It is known from the records, other than that the algorithm
    /// found no candidate.
    fn chose_all(&self) -> bool {
        self.state.finishing || (self.state.climbing && self.algorithm.waits_for_rungs())
    }

    pub(super) fn proposed_all(&self) -> bool {
        self.state.trials.len() as u64 >= self.config.trials
    }

    /// Trials on their way to a rung below the last.
    pub(super) fn climbing(&self) -> usize {
        let last = self.config.last_rung();
        let climbs = |trial: &&TrialState| matches!(trial.stage, Stage::Queued { rung, .. } if rung < last);
        self.state.trials.values().filter(climbs).count()
    }

    fn unqueued(&self) -> Option<TrialId> {
        let (id, trial) = self.state.trials.last_key_value()?;
        let is_new = trial.stage == Stage::Waiting && trial.results.is_empty();
        (is_new && trial.same_as.is_none()).then_some(*id)
    }

    pub(super) fn queue(&mut self, trial: TrialId, rung: usize, out: &mut Vec<SearchCommand>) {
        let last = self.state.trials.get(&trial).and_then(TrialState::last_result);
        let from = last.map_or(0.0, |reached| reached.budget);
        let to = self.config.rungs.get(rung).copied().unwrap_or(from);
        self.record(SearchRecord::TrialQueued { trial, rung: rung as u32, from, to }, out);
    }

    /// Hands out what is queued, deep rungs first, until so many trials are being trained.
    pub(super) fn run_queued(&mut self, limit: usize, out: &mut Vec<SearchCommand>) {
        if self.running.len() >= limit || self.state.queued() == self.running.len() {
            return;
        }
        let mut queued = Vec::new();
        for (id, trial) in self.state.trained().filter(|(id, _)| !self.running.contains(id)) {
            if let Stage::Queued { rung, from, to } = trial.stage {
                let from = if planted(ControlBug::RetriesFromTheBeginning) && trial.retried > 0 {
                    0.0
                } else {
                    from
                };
                queued.push((Reverse(rung), id, from, to));
            }
        }
        queued.sort_by_key(|(rung, id, ..)| (*rung, *id));
        for (Reverse(rung), trial, from, to) in queued.into_iter().take(limit - self.running.len()) {
            self.running.insert(trial);
            let priority = i32::try_from(rung).unwrap_or(i32::MAX);
            out.push(SearchCommand::Run { trial, from, to, priority });
        }
    }

    pub(super) fn record(&mut self, record: SearchRecord, out: &mut Vec<SearchCommand>) {
        self.state.apply(&record);
        out.push(SearchCommand::Record(record));
    }

    fn end_trial(&mut self, trial: TrialId, end: TrialEnd, out: &mut Vec<SearchCommand>) {
        self.record(SearchRecord::TrialEnded { trial, end }, out);
    }

    /// Ends the search. Trials that are being trained stay as they are, for a search that goes on later.
    pub(super) fn end(&mut self, end: SearchEnd, out: &mut Vec<SearchCommand>) {
        if end == SearchEnd::Finished {
            let waits = |(id, trial): (TrialId, &TrialState)| (trial.stage == Stage::Waiting).then_some(id);
            for trial in self.state.trained().filter_map(waits).collect::<Vec<_>>() {
                self.end_trial(trial, TrialEnd::Partial, out);
                // As a search does that is restored from here: equal networks first.
                self.settle(out);
            }
        }
        self.record(SearchRecord::SearchEnded { end: end.clone() }, out);
        out.extend(
            std::mem::take(&mut self.running).into_iter().map(|trial| SearchCommand::Cancel { trial }),
        );
        out.push(SearchCommand::Ended(end));
    }

    /// How the search ends when nothing is left to do.
    fn outcome(&self) -> SearchEnd {
        if self.state.trials.is_empty() && self.config.trials > 0 {
            let refusals = self.candidates.refusals();
            let why = refusals.map_or_else(
                || "the algorithm found no candidate".to_owned(),
                |refusals| format!("no candidate can be tried: {refusals}"),
            );
            return SearchEnd::Failed { why };
        }
        let is_sound = |(_, trial): (TrialId, &TrialState)| trial.is_sound();
        if self.state.trials.is_empty() || self.state.trained().any(is_sound) {
            return SearchEnd::Finished;
        }
        let (count, why) = self.most_frequent_end(self.state.trained().map(|(id, _)| id));
        let total = self.state.trained().count();
        SearchEnd::Failed {
            why: format!("none of {total} trials has a result that counts: {count} × {why}")
        }
    }

    /// Why the search is given up after its first trials.
    fn early_failure(&self) -> Option<String> {
        let failures = &self.state.failures;
        if self.config.early_failures == 0 || failures.len() < self.config.early_failures as usize {
            return None;
        }
        if self.state.trained().any(|(_, trial)| self.has_result(trial)) {
            return None;
        }
        let (count, why) = self.most_frequent_end(failures.iter().copied());
        Some(format!("the first {} trials all failed: {count} × {why}", failures.len()))
    }

    fn has_result(&self, trial: &TrialState) -> bool {
        let first = trial.results.first();
        first.is_some_and(|reached| self.config.missing_objective(trial, reached).is_none())
    }

    fn most_frequent_end(&self, trials: impl Iterator<Item = TrialId>) -> (usize, String) {
        let mut reasons = BTreeMap::<&str, usize>::new();
        for trial in trials.filter_map(|id| self.state.trials.get(&id)) {
            if let Stage::Ended(TrialEnd::Failed { why } | TrialEnd::Infeasible { why }) = &trial.stage {
                *reasons.entry(why).or_default() += 1;
            }
        }
        let most = reasons.into_iter().max_by_key(|(why, count)| (*count, Reverse(*why)));
        most.map_or_else(|| (0, String::new()), |(why, count)| (count, why.to_owned()))
    }
}

/// What can be written down: JSON has neither NaN nor infinity.
fn finite(mut values: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    values.retain(|_, value| value.is_finite());
    values
}
