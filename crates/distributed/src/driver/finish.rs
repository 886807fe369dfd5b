//! States that come from nodes: those of checkpoints, and the last.

use super::{Driver, Fetched, gone};
use crate::error::DistributedError;
use phalanx_protocol::progress::{End, Place};
use phalanx_records::{Event, Events, Summary};
use phalanx_records::{ModelState, state_bytes_limit};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Ops, StateRef, ToReplica};

impl Driver<'_> {
    /// Fetches a state that a node holds for this run.
    pub(super) fn fetch(
        &mut self,
        node: &NodeId,
        epoch: Epoch,
        ops: Option<Ops>,
        state: StateRef,
        last: bool,
    ) {
        let Some(peer) = self.peers.get(node).cloned() else { return };
        let (fabric, node, back) = (self.fabric.clone(), node.clone(), self.fetched.0.clone());
        let StateRef { step, bytes, blob } = state;
        let most = self.most_bytes();
        if !last {
            self.incoming.announce((epoch, step), ops);
        }
        tokio::spawn(async move {
            let result = match bytes <= most {
                true => fabric.fetch(&peer, blob, bytes).await.map_err(|error| error.to_string()),
                false => Err(format!("a state of {bytes} bytes, of {most} at most")),
            };
            // A driver that has ended needs it no more.
            drop(back.send(Fetched::State { node, epoch, ops, step, last, blob, result }));
        });
    }

    /// No state of this model has more.
    pub(super) fn most_bytes(&self) -> u64 {
        state_bytes_limit(&self.task.graph, &self.task.config.train.optimizer)
    }

    /// Takes a state that was fetched; gives back the last one.
    pub(super) fn on_fetched(
        &mut self,
        fetched: Fetched,
        events: &mut Events<'_>,
    ) -> Result<Option<ModelState>, DistributedError> {
        match fetched {
            Fetched::State { node, epoch, ops, step, last, blob, result } => {
                self.send(&node, &ToReplica::Taken { run: self.run, blob });
                let reason = |reason| DistributedError::Replica { reason };
                let state = result.map_err(reason).and_then(|bytes| Ok(ModelState::from_bytes(bytes)?));
                match state {
                    Ok(state) if last => return Ok(Some(state)),
                    Err(error) if last => self.not_taken(&node, &error, events),
                    state => self.on_checkpoint(&node, (epoch, step), ops, state, events)?,
                }
            }
            Fetched::AskedPart { node, ops, step, asked, result } => {
                let Some(whole) = self.on_asked_part(&node, (step, ops), asked, result, events) else {
                    return Ok(None);
                };
                return match self.staging.saving.take() {
                    Some(epoch) => self.save_waiting(epoch, whole, events).map(|()| None),
                    None => Ok(Some(whole)),
                };
            }
            Fetched::Measured(measured) => self.on_measured(measured, events)?,
        }
        Ok(None)
    }

    /// A part of a checkpoint has come, or does not come; those that are whole now are saved.
    fn on_checkpoint(
        &mut self,
        node: &NodeId,
        of: (Epoch, u64),
        ops: Option<Ops>,
        state: Result<ModelState, DistributedError>,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        match state {
            Ok(part) => self.incoming.insert(of, ops, part),
            Err(error) if self.incoming.fail(of) => {
                let (epoch, step) = of;
                events.on(Event::Warning(format!("no checkpoint of step {step}: {node}: {error}")));
                // A group after that one may make it again.
                if !self.is_over(epoch) {
                    self.journal.forget_draft(step);
                }
            }
            Err(_) => {}
        }
        while let Some(((epoch, step), state)) = self.incoming.next_whole() {
            let over = self.is_over(epoch);
            self.journal.on_state(step, state, over, &mut self.book, events)?;
        }
        Ok(())
    }

    /// Whether a group has begun after that one.
    fn is_over(&self, epoch: Epoch) -> bool {
        self.epochs.last().is_some_and(|begun| epoch.0 < begun.epoch)
    }

    /// The model did not come from a node at the end of the run: others may have it.
    pub(super) fn not_taken(&mut self, node: &NodeId, error: &DistributedError, events: &mut Events<'_>) {
        events.on(Event::Warning(format!("could not fetch the model from {node}: {error}")));
        self.holders.remove(node);
        self.staging.inventory.remove(node);
        self.ending = None;
    }

    /// Asks for the model at the end of the run; whether there is anybody to ask.
    pub(super) fn ask_for_the_end(&mut self) -> bool {
        match self.task.config.formation.is_staged() {
            true => self.ask_for_the_last_parts(),
            false => self.ask_for_the_model(),
        }
    }

    /// Asks a node that has done the last step for the model; whether there is one.
    fn ask_for_the_model(&mut self) -> bool {
        let most = self.holders.iter().max_by_key(|(_, step)| **step).map(|(node, _)| node.clone());
        if let Some(node) = most {
            self.send(&node, &ToReplica::Snapshot { run: self.run });
            self.ending = Some(node);
        }
        self.ending.is_some()
    }

    /// Writes the result.
    pub(super) fn finish(
        &mut self,
        last: Option<ModelState>,
        events: &mut Events<'_>,
    ) -> Result<Summary, DistributedError> {
        self.note_step_time();
        if !self.epochs.is_empty() {
            self.book.write_formation(&self.before, &self.epochs)?;
        }
        if let (Some(trace), Some(dir)) = (&self.trace, self.book.dir()) {
            dir.write("trace.json", &trace.to_json())?;
        }
        let Some(state) = last else {
            if self.over && self.journal.has_begun() {
                if !self.core.is_stopping() || self.journal.recorded().saved == 0 {
                    return Err(gone("all nodes that held the model are lost"));
                }
                self.rewind(events)?;
            }
            // As it was on disk: nothing was done since.
            let place = self.place();
            let state = match self.state.take() {
                None if place.step > 0 => self.book.rewind(events)?.1,
                state => state,
            };
            let weights = state.map_or_else(|| self.task.weights.clone(), |state| state.weights);
            return Ok(self.book.finish(place, self.end_at(place), &weights, events)?);
        };
        let step = state.steps();
        self.commit_all(step, events)?;
        if step < self.journal.step() {
            // Nobody holds what the last steps came to.
            self.book.cut_after(step)?;
        }
        let place = self.plan.place(step);
        let weights = state.weights.clone();
        let manifest = self.book.draft(place)?;
        self.book.save(manifest, state, events)?;
        Ok(self.book.finish(place, self.end_at(place), &weights, events)?)
    }

    /// Writes down everything up to a step of which nobody will say more.
    pub(super) fn commit_all(&mut self, step: u64, events: &mut Events<'_>) -> Result<(), DistributedError> {
        self.commit(step, events)?;
        self.journal.close_gaps();
        self.commit(step, events)
    }

    /// How a run ends that has come so far.
    fn end_at(&self, place: Place) -> End {
        let done = place.step >= self.plan.steps() && !self.owes_validation(place);
        if done { End::Finished } else { End::Interrupted }
    }
}
