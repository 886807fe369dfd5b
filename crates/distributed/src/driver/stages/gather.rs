//! All of the model in one piece: every part of it from a node that holds it, own or as a copy. At the end of a run,
//! and when it waits for nodes.

use super::super::incoming::Parts;
use super::super::{Driver, Fetched};
use crate::error::DistributedError;
use crate::rank::take_part;
use bytes::Bytes;
use phalanx_protocol::FormationEvent;
use phalanx_protocol::holdings::{self, Resume, Transfer, newest, transfers};
use phalanx_records::Events;
use phalanx_records::ModelState;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Give, Ops, ToReplica};
use std::collections::BTreeSet;

impl Driver<'_> {
    /// Asks for the model at the end of the run; whether there are nodes that hold it. Where some of the last steps are
    /// lost, the run goes on.
    pub(in super::super) fn ask_for_the_last_parts(&mut self) -> bool {
        self.staging.saving = None;
        let resume = self.held_by_nodes();
        if !self.core.is_stopping() && resume.is_none_or(|resume| resume.step < self.plan.steps()) {
            self.over = false;
            self.core.feed(self.now(), FormationEvent::Unfinished, &mut self.out);
            self.offer_again();
            return true;
        }
        let Some(resume) = resume else { return false };
        self.ending = self.ask_for_the_parts(resume).pop_last();
        self.ending.is_some()
    }

    /// Nodes cannot go on, but may hold together what is not on disk yet: it is saved before more of them are lost.
    pub(in super::super) fn save_while_waiting(&mut self) {
        let newer = |resume: &Resume| resume.step > self.journal.recorded().saved;
        let held = newest(&self.staging.inventory, self.task.graph.nodes.len());
        if let Some(resume) = held.filter(newer) {
            self.staging.saving = Some(self.core.epoch());
            self.ask_for_the_parts(resume);
        }
    }

    /// Writes a checkpoint of what nodes held that wait since that epoch, unless they go on meanwhile.
    pub(in super::super) fn save_waiting(
        &mut self,
        epoch: Epoch,
        state: ModelState,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        if epoch != self.core.epoch() || self.over {
            return Ok(());
        }
        let step = state.steps();
        self.commit_all(step, events)?;
        let manifest = self.book.draft_after(self.plan.place(step))?;
        self.journal.on_saved(step);
        Ok(self.book.save(manifest, state, events)?)
    }

    /// Asks nodes that together hold the model after some step for their parts; whom.
    fn ask_for_the_parts(&mut self, resume: Resume) -> BTreeSet<NodeId> {
        let Resume { step, norm } = resume;
        let operators = self.task.graph.nodes.len();
        self.staging.parts = Parts::default();
        self.staging.asked_for_parts += 1;
        let (run, epoch) = (self.run, self.core.epoch());
        let wanted = [(self.fabric.id().clone(), Ops { start: 0, end: operators as u32 })];
        let transfers = transfers(&self.staging.inventory, resume, &wanted);
        let givers = transfers.iter().map(|transfer| transfer.from.clone()).collect();
        for Transfer { ops, from, to } in transfers {
            self.send(&from, &ToReplica::Give { run, epoch, give: Give { ops, step, norm, to } });
            self.take_asked_part(epoch, ops, step, &from);
        }
        holdings::settle(&mut self.staging.inventory, step, &givers, norm);
        givers
    }

    /// Takes a part of the model that a node was told to give.
    fn take_asked_part(&self, epoch: Epoch, ops: Ops, step: u64, from: &NodeId) {
        let (fabric, run, node, back) = (self.fabric.clone(), self.run, from.clone(), self.fetched.0.clone());
        let (asked, most) = (self.staging.asked_for_parts, self.most_bytes());
        tokio::spawn(async move {
            let result = take_part(&fabric, run, epoch, &node, ops, most).await;
            // A driver that has ended needs it no more.
            drop(back.send(Fetched::AskedPart { node, ops, step, asked, result }));
        });
    }

    /// A part of the model has come that was asked for; all of it, when it was the last.
    pub(in super::super) fn on_asked_part(
        &mut self,
        node: &NodeId,
        (step, ops): (u64, Ops),
        asked: u64,
        result: Result<Bytes, String>,
        events: &mut Events<'_>,
    ) -> Option<ModelState> {
        if asked != self.staging.asked_for_parts {
            return None;
        }
        let part = result
            .map_err(|reason| DistributedError::Replica { reason })
            .and_then(|bytes| Ok(ModelState::from_bytes(bytes)?));
        match part {
            Ok(part) => {
                self.staging.parts.insert(ops, part);
                self.staging.parts.take_whole(step, self.task.graph.nodes.len())
            }
            // Whoever is lost is told of anyway.
            Err(error) if self.staging.saving.take().is_some() => {
                // The other parts are of no use then, and that they fail, too, says nothing of who holds what.
                self.staging.asked_for_parts += 1;
                self.staging.parts = Parts::default();
                tracing::debug!(%node, %error, "a part of the model did not come");
                None
            }
            Err(error) => {
                self.not_taken(node, &error, events);
                None
            }
        }
    }
}
