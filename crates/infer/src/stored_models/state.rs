//! Models and their requests, under one lock.

use super::gathering::{BatchRules, Gathering, Next};
use super::ready::ReadyModel;
use phalanx_store::core::{Model, ModelCall};
use phalanx_store::{ModelDone, ModelFailure};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait for other requests, whatever a client asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Models that are kept ready.
const MOST_MODELS: usize = 64;

/// A request of a client.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: Arc<ModelCall>,
    pub(super) done: ModelDone,
}

/// Something for a thread to do.
#[derive(Debug)]
pub(super) enum Work {
    /// Read this model.
    Read(Arc<Model>),
    /// Answer these requests with it.
    Compute(Arc<Model>, Arc<ReadyModel>, Vec<Asked>),
    /// Look again then, or after the next change.
    WaitUntil(Option<Instant>),
}

#[derive(Debug)]
enum Stage {
    Unread,
    Reading,
    Ready(Arc<ReadyModel>),
}

#[derive(Debug)]
struct Entry {
    /// Another one under the same key is another model.
    stored: Arc<Model>,
    stage: Stage,
    gathering: Gathering<Asked>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The model that was asked for last at the end.
    entries: Vec<Entry>,
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) is_ending: bool,
}

impl State {
    /// Takes a request in; says whether a thread should look.
    pub(super) fn push(&mut self, now: Instant, asked: Asked) -> bool {
        let samples = asked.call.inputs.first().and_then(|input| input.shape().first().copied()).unwrap_or(1);
        let known = self.entries.iter().position(|entry| Arc::ptr_eq(&entry.stored, &asked.call.model));
        let mut entry = match known {
            Some(at) => self.entries.remove(at),
            None => Entry::new(asked.call.model.clone()),
        };
        entry.gathering.push(now, asked, samples);
        let wants_thread = match entry.stage {
            Stage::Unread => true,
            Stage::Reading => false,
            Stage::Ready(_) => entry.gathering.wants_thread(now),
        };
        self.entries.push(entry);
        // Models that were replaced go this way, too.
        let mut over = self.entries.len().saturating_sub(MOST_MODELS);
        self.entries.retain(|entry| {
            let goes = over > 0 && entry.gathering.is_idle();
            over -= usize::from(goes);
            !goes
        });
        wants_thread
    }

    /// Whether there is something for another thread to do now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.entries.iter().any(|entry| match entry.stage {
            Stage::Unread => true,
            Stage::Reading => false,
            Stage::Ready(_) => entry.gathering.is_due(now),
        })
    }

    /// Decides what a thread does next.
    pub(super) fn next(&mut self, now: Instant) -> Work {
        let mut until: Option<Instant> = None;
        for entry in &mut self.entries {
            match &entry.stage {
                Stage::Unread => {
                    entry.stage = Stage::Reading;
                    return Work::Read(entry.stored.clone());
                }
                Stage::Reading => {}
                Stage::Ready(ready) => {
                    // A client that is gone, or whose time is up, needs no answer.
                    entry.gathering.retain(|asked| asked.done.is_awaited());
                    match entry.gathering.next(now) {
                        Next::Compute(batch) => {
                            return Work::Compute(entry.stored.clone(), ready.clone(), batch);
                        }
                        Next::WaitUntil(then) => until = Some(until.map_or(then, |until| until.min(then))),
                        Next::Nothing => {}
                    }
                }
            }
        }
        Work::WaitUntil(until)
    }

    /// A model was read, or could not be: then those that asked for it are told.
    pub(super) fn was_read(&mut self, stored: &Arc<Model>, read: Result<ReadyModel, ModelFailure>) {
        let Some(at) = self.entries.iter().position(|entry| Arc::ptr_eq(&entry.stored, stored)) else {
            return;
        };
        match (read, self.entries.get_mut(at)) {
            (Ok(ready), Some(entry)) => entry.stage = Stage::Ready(Arc::new(ready)),
            (Err(failure), Some(entry)) => {
                entry
                    .gathering
                    .take_all()
                    .into_iter()
                    .for_each(|asked| asked.done.tell(Err(failure.clone())));
                self.entries.remove(at);
            }
            (_, None) => {}
        }
    }

    /// Puts another model in the place of one that was read; false before it was.
    #[cfg(test)]
    pub(super) fn replace_ready(&mut self, stored: &Arc<Model>, ready: ReadyModel) -> bool {
        let entry = self.entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.stored, stored));
        let Some(entry) = entry.filter(|entry| matches!(entry.stage, Stage::Ready(_))) else { return false };
        entry.stage = Stage::Ready(Arc::new(ready));
        true
    }

    /// A batch of a model has been computed.
    pub(super) fn was_computed(&mut self, stored: &Arc<Model>) {
        let entry = self.entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.stored, stored));
        entry.into_iter().for_each(|entry| entry.gathering.computed());
    }
}

impl Entry {
    fn new(stored: Arc<Model>) -> Self {
        let rules = BatchRules {
            most: stored.batch_size,
            least: stored.min_batch_size,
            wait: Duration::from_millis(stored.min_batch_timeout).min(LONGEST_WAIT),
        };
        Self { stored, stage: Stage::Unread, gathering: Gathering::new(rules) }
    }
}
