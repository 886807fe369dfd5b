//! How a stage acquires its part of the state when a group begins: the driver has said who gives what to whom.

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

/// What other nodes give and the driver holds, each of so many bytes at most; all at the same time: no node waits for
/// longer than it has patience.
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
    std::thread::scope(|scope| {
        let threads: Vec<_> = gets.iter().map(|get| scope.spawn(move || one(get))).collect();
        let panicked = |_: Box<dyn std::any::Any + Send>| broken("what others give was not taken".to_owned());
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}

impl Worker<'_> {
    /// What it holds of the model.
    pub(super) fn holds(&self) -> Vec<HoldRef> {
        let own = self.part.as_ref().map(|part| HoldRef {
            ops: part.ops,
            step: part.step,
            norm: part.norm,
            pending: part.pending.is_some(),
        });
        own.into_iter().chain(self.copies.holds()).collect()
    }

    /// Makes the own part that after a step: an update that was not applied is, or what half a step has left behind is
    /// undone.
    fn resolve(&mut self, step: u64, norm: Option<u64>) -> Result<(), RankError> {
        let Some(part) = &mut self.part else { return Ok(()) };
        match (part.pending, norm) {
            (Some(lr), Some(norm)) if part.step + 1 == step => part.apply(f64::from_bits(norm), lr),
            _ => part.undo()?,
        }
        Ok(())
    }

    /// What it holds of some operators after a step.
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

    /// Sends a part of what it holds to another node, on a thread of its own.
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
        let send = move || {
            if let Err(error) = connector.give(epoch, &to, ops, &bytes) {
                // Whoever waits for it in vain says so.
                tracing::debug!(%to, %error, "could not give a part of the state");
            }
        };
        let thread = std::thread::Builder::new().name("give".to_owned()).spawn(send);
        thread.map(drop).map_err(|error| StateError { what: format!("could not be sent: {error}") }.into())
    }

    /// Comes by its part of the state: what it holds, what others give, what the driver has, and at the very beginning
    /// what the seed makes.
    pub(super) fn acquire_state(
        &mut self,
        epoch: Epoch,
        ops: Ops,
        start: &Start,
        connector: &dyn Connector,
    ) -> Result<Part, RankError> {
        self.resolve(start.step, start.norm)?;
        self.copies.forget_after(start.step);
        // Whoever is to get something has not got it, whatever it held when it was in a group last.
        let holds = start.gets.is_empty();
        if let Some(part) = self.part.take_if(|part| holds && part.ops == ops && part.step == start.step) {
            return Ok(part);
        }
        let names = names_of(&self.task.graph, ops)?;
        let mut state = self.held(ops, start.step)?;
        let given = get_all(epoch, &start.gets, self.most_bytes(), connector)?;
        for bytes in given {
            // Another node may give what can be read.
            let part = ModelState::from_bytes(bytes).map_err(|error| broken(with_causes(&error)))?;
            state.extend_by(part, &names);
        }
        if start.step == 0 {
            let graph = stage_of(&self.task.graph, ops)?;
            for (name, tensor) in self.task.first_weights_of(&graph) {
                state.weights.entry(name).or_insert(tensor);
            }
        }
        // Before the old part is let go of.
        if let Some(name) = names.iter().find(|name| !state.weights.contains_key(*name)) {
            return Err(broken(format!("nobody gave {name} of step {}", start.step)));
        }
        let old = self.part.take().filter(|part| part.step == start.step);
        // What others may still have to come for, should this group not come about.
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
