//! States that come from nodes, kept by their tickets, and what is written of them.

use super::machines::Measured;
use super::planner::PlanReply;
use super::{Driver, gone};
use crate::error::DriverError;
use bytes::Bytes;
use phalanx_protocol::driver::{DriverEvent, FetchFailure, Ticket};
use phalanx_protocol::progress::{End, Place};
use phalanx_rank::take_part;
use phalanx_records::run_dir::Manifest;
use phalanx_records::{Event, Events, Summary, with_causes};
use phalanx_records::{ModelState, state_bytes_limit};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Ops, StateRef};

/// What comes back from a task of its own.
#[derive(Debug)]
pub(super) enum Reply {
    State { ticket: Ticket, result: Result<Bytes, FetchFailure> },
    Measured(Measured),
    Plan(PlanReply),
}

impl Driver<'_> {
    /// Fetches a state that a node holds for this run.
    pub(super) fn fetch(&self, ticket: Ticket, node: &NodeId, state: &StateRef) {
        let back = self.replies.0.clone();
        let StateRef { bytes, blob, .. } = *state;
        let most = self.most_bytes();
        let Some(peer) = self.peers.get(node).cloned() else {
            let result = Err(FetchFailure::NoLink { node: node.clone() });
            return drop(back.send(Reply::State { ticket, result }));
        };
        let fabric = self.fabric.clone();
        let failed = |detail: String| FetchFailure::Transfer { detail: detail.into() };
        tokio::spawn(async move {
            let result = match bytes <= most {
                true => fabric.fetch(&peer, blob, bytes).await.map_err(|error| failed(error.to_string())),
                false => Err(FetchFailure::TooLarge { bytes, most }),
            };
            // A driver that has ended needs it no more.
            drop(back.send(Reply::State { ticket, result }));
        });
    }

    /// Takes a part of the model that a node was told to give.
    pub(super) fn fetch_part(&self, ticket: Ticket, node: NodeId, epoch: Epoch, ops: Ops) {
        let (fabric, run, back) = (self.fabric.clone(), self.run, self.replies.0.clone());
        let most = self.most_bytes();
        tokio::spawn(async move {
            let result = take_part(&fabric, run, epoch, &node, ops, most).await;
            // A driver that has ended needs it no more.
            drop(back.send(Reply::State { ticket, result }));
        });
    }

    /// No state of this model has more.
    fn most_bytes(&self) -> u64 {
        state_bytes_limit(&self.task.graph, &self.task.config.train.optimizer)
    }

    /// Puts the parts of a state together.
    fn assemble(&mut self, step: u64, states: &[Ticket]) -> ModelState {
        let mut whole = ModelState { optimizer_steps: step, ..ModelState::default() };
        for part in states.iter().filter_map(|ticket| self.fetched.remove(ticket)) {
            whole.weights.extend(part.weights);
            whole.optimizer.extend(part.optimizer);
        }
        whole
    }

    pub(super) fn save(
        &mut self,
        step: u64,
        states: &[Ticket],
        events: &mut Events<'_>,
    ) -> Result<(), DriverError> {
        let draft = self.drafts.remove(&step).ok_or_else(|| gone("a checkpoint was not drafted"))?;
        self.write(draft, states, events)
    }

    /// Saves a checkpoint that was not drafted when its step was recorded.
    pub(super) fn save_earlier(
        &mut self,
        step: u64,
        states: &[Ticket],
        events: &mut Events<'_>,
    ) -> Result<(), DriverError> {
        let draft = self.book.draft_after(self.core.place(step)?)?;
        self.write(draft, states, events)
    }

    fn write(
        &mut self,
        draft: Manifest,
        states: &[Ticket],
        events: &mut Events<'_>,
    ) -> Result<(), DriverError> {
        let state = self.assemble(draft.step, states);
        let place = draft.place();
        self.book.save(draft, state, events)?;
        self.commit(place, events);
        Ok(())
    }

    /// What a checkpoint has, the store may free.
    pub(super) fn commit(&self, place: Place, events: &mut Events<'_>) {
        let before = self.core.pass_before(place.step);
        let committed = self.task.stream.as_ref().map_or(Ok(()), |stream| stream.commit(place, before));
        if let Err(error) = committed {
            // Later checkpoints say it again.
            events.on(Event::Warning(with_causes(&error)));
        }
    }

    /// Goes back to the newest checkpoint.
    pub(super) fn rewind(&mut self, events: &mut Events<'_>) -> Result<DriverEvent, DriverError> {
        let (place, state) = self.book.rewind(events)?;
        if let Some(stream) = &self.task.stream {
            // The store repeats passes from there on.
            stream.open_run(self.book.dir(), self.book.name(), place)?;
        }
        self.state = state;
        self.release_start();
        Ok(DriverEvent::Rewound { place, validated: self.book.validated() })
    }

    /// Writes the result.
    pub(super) fn finish(
        &mut self,
        step: u64,
        end: End,
        states: &[Ticket],
        events: &mut Events<'_>,
    ) -> Result<Summary, DriverError> {
        self.groups.note_step_time();
        if !self.groups.epochs.is_empty() {
            self.book.write_formation(&self.groups.before, &self.groups.epochs)?;
        }
        if let (Some(trace), Some(dir)) = (&self.trace, self.book.dir()) {
            dir.write("trace.json", &trace.to_json())?;
        }
        let place = self.core.place(step)?;
        let weights = if states.is_empty() {
            let state = match self.state.take() {
                None if step > 0 => self.book.rewind(events)?.1,
                state => state,
            };
            state.map_or_else(|| self.task.weights.clone(), |state| state.weights)
        } else {
            let state = self.assemble(step, states);
            let weights = state.weights.clone();
            let draft = self.book.draft(place)?;
            self.book.save(draft, state, events)?;
            self.commit(place, events);
            weights
        };
        let summary = self.book.finish(place, end, &weights, events)?;
        if let (End::Finished, Some(stream)) = (end, &self.task.stream) {
            stream.close();
        }
        Ok(summary)
    }
}
