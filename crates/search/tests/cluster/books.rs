//! What was written, and what must be true of it, counted without the search.

use super::scenario::{Scenario, Truth};
use phalanx_search::core::control::{Finish, SearchConfig, SearchEvent};
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
use std::collections::BTreeMap;

pub(crate) struct Books {
    pub(crate) records: Vec<SearchRecord>,
    truth: Truth,
    config: SearchConfig,
    pages: BTreeMap<TrialId, Page>,
    /// Which trial trains a network.
    trainer: BTreeMap<String, TrialId>,
}

/// A trial.
#[derive(Debug, Default)]
struct Page {
    model: String,
    queued_to: Option<f64>,
    reached: Vec<f64>,
    complete: bool,
    retries: u32,
    end: Option<TrialEnd>,
}

impl Books {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            records: Vec::new(),
            truth: scenario.truth.clone(),
            config: scenario.config.clone(),
            pages: BTreeMap::new(),
            trainer: BTreeMap::new(),
        }
    }

    pub(crate) fn model(&self, trial: TrialId) -> String {
        self.pages[&trial].model.clone()
    }

    fn is_twin(&self, trial: TrialId) -> bool {
        self.trainer[&self.pages[&trial].model] != trial
    }

    /// # Errors
    /// If a record contradicts the ones before it, or what the candidates are.
    pub(crate) fn write(&mut self, record: &SearchRecord) -> Result<(), String> {
        let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
        let read = serde_json::from_str::<SearchRecord>(&text).map_err(|error| error.to_string())?;
        if read != *record {
            return Err(format!("{record:?} is not what was read: {read:?}"));
        }
        self.records.push(read);
        if let SearchRecord::TrialProposed { trial, genes, model, .. } = record {
            return self.propose(*trial, self.truth.model(genes), model);
        }
        let is_missing = |values: &BTreeMap<String, f64>| {
            let names = self.config.objectives.iter().filter(|objective| !objective.cheap);
            names.map(|objective| &objective.name).any(|name| !values.contains_key(name))
        };
        let (SearchRecord::TrialQueued { trial, .. }
        | SearchRecord::TrialStarted { trial, .. }
        | SearchRecord::TrialProgressed { trial, .. }
        | SearchRecord::TrialRetried { trial, .. }
        | SearchRecord::TrialReached { trial, .. }
        | SearchRecord::TrialEnded { trial, .. }) = record
        else {
            return Ok(());
        };
        let is_twin = self.pages.contains_key(trial) && self.is_twin(*trial);
        let page = self.pages.get_mut(trial).ok_or_else(|| format!("{record:?} of an unknown trial"))?;
        if page.end.is_some() {
            return Err(format!("{record:?} after the end of the trial"));
        }
        match record {
            SearchRecord::TrialQueued { to, .. } => page.queued_to = Some(*to),
            SearchRecord::TrialRetried { .. } => {
                page.retries += 1;
                if page.retries > self.config.retries {
                    return Err(format!("{trial} begins again too often"));
                }
            }
            SearchRecord::TrialReached { budget, values, seconds, .. } => {
                if page.reached.contains(budget) {
                    return Err(format!("{trial} reaches {budget} twice"));
                }
                if is_twin != (*seconds == 0.0) || (!is_twin && page.queued_to != Some(*budget)) {
                    return Err(format!(
                        "{trial} reaches {budget} in {seconds} s, queued to {:?}",
                        page.queued_to
                    ));
                }
                page.reached.push(*budget);
                page.queued_to = None;
                page.retries = 0;
                page.complete = !is_missing(values);
            }
            SearchRecord::TrialEnded { end, .. } => {
                if matches!(end, TrialEnd::Completed | TrialEnd::Partial) && !page.complete {
                    return Err(format!("{trial} has {end:?} without all objectives"));
                }
                page.end = Some(end.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn propose(&mut self, trial: TrialId, model: String, named: &str) -> Result<(), String> {
        let params = self.truth.params(&model);
        let too_large = |bound: &&phalanx_search::core::control::Bound| {
            bound.name == "params" && bound.at_most.is_some_and(|most| params > most)
        };
        if self.config.bounds.iter().any(|bound| too_large(&bound)) || model != named {
            return Err(format!("{trial} must not be proposed"));
        }
        self.trainer.entry(model.clone()).or_insert(trial);
        self.pages.insert(trial, Page { model, ..Page::default() });
        Ok(())
    }

    /// Whether a training follows from what is written.
    pub(crate) fn may_run(&self, trial: TrialId, from: f64, to: f64) -> Result<(), String> {
        let page = self.pages.get(&trial).ok_or_else(|| format!("{trial} runs and is not written"))?;
        if self.is_twin(trial) {
            return Err(format!("{trial} is trained, and so was the same network"));
        }
        let last = page.reached.last().copied().unwrap_or(0.0);
        if page.queued_to != Some(to) || from != last || page.end.is_some() {
            return Err(format!("{trial} runs from {from} to {to}: {page:?}"));
        }
        Ok(())
    }

    /// What had happened when this was written; `None` if it was a decision.
    pub(crate) fn event_of(&self, record: &SearchRecord) -> Option<SearchEvent> {
        match record.clone() {
            SearchRecord::TrialStarted { trial, node } => Some(SearchEvent::TrialStarted { trial, node }),
            SearchRecord::TrialProgressed { trial, budget, values } => {
                Some(SearchEvent::TrialProgress { trial, budget, values })
            }
            SearchRecord::TrialReached { trial, budget, values, seconds } => {
                let event = SearchEvent::TrialReached { trial, budget, values, seconds };
                (!self.is_twin(trial)).then_some(event)
            }
            SearchRecord::TrialRetried { trial, why } => {
                Some(SearchEvent::TrialFailed { trial, why, retry: true })
            }
            SearchRecord::TrialEnded { trial, end: TrialEnd::Failed { why } } => {
                Some(SearchEvent::TrialFailed { trial, why, retry: false })
            }
            SearchRecord::SearchEnded { end: SearchEnd::Stopped } => Some(SearchEvent::StopAsked),
            SearchRecord::TrialProposed { .. }
            | SearchRecord::TrialQueued { .. }
            | SearchRecord::TrialEnded { .. }
            | SearchRecord::SearchEnded { .. } => None,
        }
    }

    /// Whether everything was done, and each thing once.
    pub(crate) fn balance(
        &self,
        scenario: &Scenario,
        end: &SearchEnd,
        front: &[TrialId],
    ) -> Result<(), String> {
        let last = *self.config.rungs.last().unwrap();
        let sound =
            |page: &Page| !matches!(page.end, Some(TrialEnd::Failed { .. } | TrialEnd::Infeasible { .. }));
        if let SearchEnd::Failed { why } = end {
            let trained = self.trainer.values().filter(|trial| sound(&self.pages[trial]));
            let good = trained.filter(|trial| self.pages[trial].complete).count();
            return if good > 0 || why.is_empty() {
                Err(format!("it failed with results: {why}"))
            } else {
                Ok(())
            };
        }
        if let Some((trial, page)) = self.pages.iter().find(|(_, page)| page.end.is_none()) {
            return Err(format!("{trial} has no end: {page:?}"));
        }
        if (self.pages.len() as u64) < self.config.trials && !self.is_exhausted(scenario) {
            return Err(format!("only {} of {} candidates were tried", self.pages.len(), self.config.trials));
        }
        for (trial, page) in self.pages.iter().filter(|(_, page)| sound(page)) {
            let stopped = matches!(page.end, Some(TrialEnd::Stopped { .. }));
            let full = page.reached.last() == Some(&last);
            if full != (page.end == Some(TrialEnd::Completed)) {
                return Err(format!(
                    "{trial} was trained to {:?} and is {:?}",
                    page.reached.last(),
                    page.end
                ));
            }
            if self.config.finish == Finish::All && !full && !stopped {
                return Err(format!("{trial} was not trained in full"));
            }
        }
        let is_full = |trial: &TrialId| self.pages[trial].reached.last() == Some(&last);
        let any_stopped = self.pages.values().any(|page| matches!(page.end, Some(TrialEnd::Stopped { .. })));
        if self.config.finish != Finish::None
            && !any_stopped
            && !(front.iter().all(is_full) && !front.is_empty())
        {
            return Err(format!("the front was not trained in full: {front:?}"));
        }
        Ok(())
    }

    /// Careless algorithms may miss what is left; the others must have tried every candidate.
    fn is_exhausted(&self, scenario: &Scenario) -> bool {
        use super::scenario::Chosen;
        use phalanx_search::core::control::Candidates as _;
        if !matches!(scenario.algorithm, Chosen::Draw | Chosen::Walk) {
            return true;
        }
        let within = |known: &BTreeMap<String, f64>| {
            let ok = |name: &String, value: f64| {
                let mut named = self.config.bounds.iter().filter(|bound| bound.name == *name);
                named.all(|bound| bound.at_most.is_none_or(|most| value <= most))
            };
            known.iter().all(|(name, value)| ok(name, *value))
        };
        let allowed = scenario
            .space
            .candidates()
            .filter(|genes| self.truth.describe(genes).is_ok_and(|described| within(&described.known)));
        allowed.count() == self.pages.len()
    }
}
