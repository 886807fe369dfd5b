//! The model at the end of a run in stages: every part of it from a node that holds it, own or as a copy.

use super::super::{Driver, Fetched};
use crate::core::holdings::{self, Resume, Transfer, newest, transfers};
use crate::error::TrainError;
use crate::observer::Observer;
use crate::replica::take_part;
use crate::state::ModelState;
use bytes::Bytes;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Give, Ops, ToReplica};

impl Driver<'_> {
    /// Asks nodes that together hold all of the model for their parts; whether there are such. Where some of the last
    /// steps are lost, the run goes on.
    pub(in super::super) fn ask_for_the_parts(&mut self) -> bool {
        let operators = self.task.graph.nodes.len();
        let resume = newest(&self.staging.inventory, operators);
        if !self.core.is_stopping() && resume.is_none_or(|resume| resume.step < self.plan.steps()) {
            self.over = false;
            self.core.on_unfinished(self.now(), &mut self.out);
            self.offer_again();
            return true;
        }
        let Some(Resume { step, norm }) = resume else { return false };
        self.staging.parts.clear();
        self.staging.asked_for_parts += 1;
        let (run, epoch) = (self.run, self.core.epoch());
        let wanted = [(self.fabric.id().clone(), Ops { start: 0, end: operators as u32 })];
        let transfers = transfers(&self.staging.inventory, Resume { step, norm }, &wanted);
        let givers = transfers.iter().map(|transfer| transfer.from.clone()).collect();
        for Transfer { ops, from, to } in transfers {
            self.send(&from, &ToReplica::Give { run, epoch, give: Give { ops, step, norm, to } });
            self.take_last_part(epoch, ops, step, &from);
            self.ending = Some(from);
        }
        holdings::settle(&mut self.staging.inventory, step, &givers, norm);
        self.ending.is_some()
    }

    /// Takes a part of the model that a node was told to give.
    fn take_last_part(&self, epoch: Epoch, ops: Ops, step: u64, from: &NodeId) {
        let (fabric, run, node, back) = (self.fabric.clone(), self.run, from.clone(), self.fetched.0.clone());
        let asked = self.staging.asked_for_parts;
        tokio::spawn(async move {
            let result = take_part(&fabric, run, epoch, &node, ops).await;
            // A driver that has ended needs it no more.
            drop(back.send(Fetched::LastPart { node, ops, step, asked, result }));
        });
    }

    /// A part of the model has come at the end of the run; all of it, when it was the last.
    pub(in super::super) fn on_last_part(
        &mut self,
        node: &NodeId,
        (step, ops): (u64, Ops),
        asked: u64,
        result: Result<Bytes, String>,
        observer: &mut dyn Observer,
    ) -> Option<ModelState> {
        if asked != self.staging.asked_for_parts {
            return None;
        }
        let part = result.map_err(|reason| TrainError::Replica { reason }).and_then(ModelState::from_bytes);
        match part {
            Ok(part) => self.staging.on_part(step, ops, part, self.task.graph.nodes.len()),
            Err(error) => {
                self.not_taken(node, &error, observer);
                None
            }
        }
    }
}
