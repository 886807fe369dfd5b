//! How a stage acquires its part of the state when a group begins. The driver decides which node sends what.

use super::connector::{Connector, broken};
use super::part::{Part, names_of, stage_of};
use super::worker::Worker;
use super::worker::with_causes;
use crate::error::RankError;
use bytes::Bytes;
use phalanx_protocol::layout::covers;
use phalanx_records::ModelState;
use phalanx_records::StateError;
use phalanx_types::Epoch;
use phalanx_wire::train::{Get, Give, HoldRef, Ops, Source, Start};
use std::sync::Arc;

/// Parts of the state that one part is made of, at most: each is fetched by a thread.
const MOST_GETS: usize = 48;
/// Parts of the state that a rank sends at once, at most.
const MOST_GIVES: usize = 16;

/// Fetches parts of the state from nodes and from the driver, each of at most `most` bytes. All are fetched at once, so
/// that no sender runs into its time limit.
fn get_all(
    epoch: Epoch,
    gets: &[Get],
    most: u64,
    connector: &dyn Connector,
) -> Result<Vec<Bytes>, RankError> {
    let one = |get: &Get| match &get.from {
        Source::Node(from) => Ok(connector.get(epoch, from, get.ops, most)?),
        Source::Driver(state) if state.bytes > most => {
            Err(broken(format!("the driver has {} bytes of a state, of {most} at most", state.bytes)))
        }
        Source::Driver(state) => Ok(connector.fetch(epoch, state)?),
    };
    if gets.len() > MOST_GETS {
        return Err(broken(format!("{} parts are to make one part of the state", gets.len())));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = gets.iter().map(|get| scope.spawn(move || one(get))).collect();
        let panicked = |_: Box<dyn std::any::Any + Send>| broken("what others give was not taken".to_owned());
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}

impl Worker<'_> {
    /// What this node holds of the model: its own part and copies of other parts.
    pub(super) fn holds(&self) -> Vec<HoldRef> {
        let own = self.part.as_ref().map(|part| HoldRef {
            ops: part.ops,
            step: part.step,
            norm: part.norm,
            pending: part.pending.is_some(),
        });
        own.into_iter().chain(self.copies.holds()).collect()
    }

    /// Brings the node's part to the state after a step: applies the update that is pending, or undoes what an
    /// unfinished step has changed.
    fn resolve(&mut self, step: u64, norm: Option<u64>) -> Result<(), RankError> {
        let Some(part) = &mut self.part else { return Ok(()) };
        match (part.pending, norm) {
            (Some(lr), Some(norm)) if part.step + 1 == step => part.apply(f64::from_bits(norm), lr),
            _ => part.undo()?,
        }
        Ok(())
    }

    /// The state of some operators after a step, as far as this node holds it.
    fn held(&self, ops: Ops, step: u64) -> Result<ModelState, RankError> {
        let names = names_of(&self.task.graph, ops)?;
        let mut state = ModelState { optimizer_steps: step, ..ModelState::default() };
        for copy in self.copies.of_step(step)? {
            state.extend_by(copy, &names);
        }
        if let Some(part) = self.part.as_ref().filter(|part| part.step == step) {
            state.extend_by(part.state()?, &names);
        }
        Ok(state)
    }

    /// Sends a part of the state to another node, on a separate thread.
    pub(super) fn give(
        &mut self,
        epoch: Epoch,
        give: &Give,
        connector: Box<dyn Connector>,
    ) -> Result<(), RankError> {
        self.resolve(give.step, give.norm)?;
        let whole = self.part.as_ref().filter(|part| part.step == give.step && part.ops == give.ops);
        let bytes: Bytes = match whole {
            Some(part) => part.packed()?,
            None => self.held(give.ops, give.step)?.to_bytes()?.into(),
        };
        let (to, ops) = (give.to.clone(), give.ops);
        // The receiver reports that it did not get what is not sent.
        if Arc::strong_count(&self.gives) > MOST_GIVES {
            return Err(broken(format!("{MOST_GIVES} parts of the state are being sent already")));
        }
        let sending = self.gives.clone();
        let send = move || {
            let _sending = sending;
            if let Err(error) = connector.give(epoch, &to, ops, &bytes) {
                // The receiver reports that it did not get it.
                tracing::debug!(%to, %error, "could not give a part of the state");
            }
        };
        let thread = std::thread::Builder::new().name("give".to_owned()).spawn(send);
        thread.map(drop).map_err(|error| StateError { what: format!("could not be sent: {error}") }.into())
    }

    /// Acquires the state of a part from what this node holds, from other nodes and from the driver. Before the first
    /// step, missing weights are made from the seed.
    pub(super) fn acquire_state(
        &mut self,
        epoch: Epoch,
        ops: Ops,
        start: &Start,
        connector: &dyn Connector,
    ) -> Result<Part, RankError> {
        self.resolve(start.step, start.norm)?;
        self.copies.forget_after(start.step);
        // If the driver sends something, it has decided that this node lacks it, whatever the node held before.
        let holds = start.gets.is_empty();
        if let Some(part) = self.part.take_if(|part| holds && part.ops == ops && part.step == start.step) {
            return Ok(part);
        }
        let names = names_of(&self.task.graph, ops)?;
        let mut state = self.held(ops, start.step)?;
        let given = get_all(epoch, &start.gets, self.most_bytes(), connector)?;
        for bytes in given {
            // A part that cannot be read ends the group, as a lost link does.
            let part = ModelState::from_bytes(bytes).map_err(|error| broken(with_causes(&error)))?;
            state.extend_by(part, &names);
        }
        if start.step == 0 {
            let graph = stage_of(&self.task.graph, ops)?;
            for (name, tensor) in self.task.first_weights_of(&graph) {
                state.weights.entry(name).or_insert(tensor);
            }
        }
        // Checked while the old part is still here.
        if let Some(name) = names.iter().find(|name| !state.weights.contains_key(*name)) {
            return Err(broken(format!("no node gave {name} of step {}", start.step)));
        }
        let old = self.part.take().filter(|part| part.step == start.step);
        // Other nodes may need the old part if this group fails to begin.
        if let Some(part) = old.filter(|part| !covers(ops, part.ops)) {
            match part.packed() {
                Ok(packed) => self.copies.add(part.step, part.ops, packed),
                Err(error) => {
                    tracing::warn!(
                        error = with_causes(&error),
                        "keeps nothing of the part that it had before"
                    )
                }
            }
        }
        Part::new(&self.task, &self.compute, ops, &state)
    }
}
