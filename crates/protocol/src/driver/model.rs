//! All of the model in one piece: checkpoints, what nodes hold while a run waits, and the model at its end.

use super::checkpoints::StateParts;
use super::group::AfterRewind;
use super::{CheckpointFetch, DriverCommand, DriverCore, DriverFailure, FetchFailure, Notice, Phase, Ticket};
use crate::bugs::{RunBug, planted};
use crate::holdings::{self, Resume, Transfer, newest, transfers};
use crate::progress::End;
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::train::{Give, Ops, ToReplica};
use std::collections::{BTreeMap, BTreeSet};

/// How the model is fetched at the end of a run.
#[derive(Debug, Default)]
pub(super) enum ModelRequest {
    /// No node was asked yet, or the one that was is lost.
    #[default]
    None,
    /// A replica was asked for all of it.
    Snapshot { node: NodeId, fetch: Option<(Ticket, BlobId)> },
    /// Nodes were asked for their parts.
    Parts(Gather),
}

/// Parts of the model that nodes were asked for.
#[derive(Debug)]
pub(super) struct Gather {
    /// The group before which they were asked for.
    epoch: Epoch,
    step: u64,
    parts: StateParts,
    fetches: BTreeMap<Ticket, (NodeId, Ops)>,
}

impl ModelRequest {
    /// A node holds nothing any more; another one has to be asked.
    pub(super) fn forget(&mut self, node: &NodeId, held: bool, out: &mut Outbox<DriverCommand>) {
        let lost = match self {
            Self::None => false,
            Self::Snapshot { node: asked, .. } => asked == node,
            Self::Parts(_) => held,
        };
        if lost {
            std::mem::take(self).discard(out);
        }
    }

    /// Lets go of what has come.
    pub(super) fn discard(self, out: &mut Outbox<DriverCommand>) {
        if let Self::Parts(gather) = self {
            gather.discard(out);
        }
    }
}

impl Gather {
    /// Whether a part has come that its node was told to give before: of another step.
    fn is_other_step<E>(&self, result: &Result<u64, E>) -> bool {
        result.as_ref().is_ok_and(|step| *step != self.step)
    }

    /// Lets go of such a part; the right one is still to come.
    fn fetch_again(&mut self, ticket: Ticket, tickets: &mut u64, out: &mut Outbox<DriverCommand>) {
        out.push(DriverCommand::Discard { ticket });
        let Some((node, ops)) = self.fetches.remove(&ticket) else { return };
        *tickets += 1;
        let ticket = Ticket(*tickets);
        out.push(DriverCommand::FetchPart { ticket, node: node.clone(), epoch: self.epoch, ops });
        self.fetches.insert(ticket, (node, ops));
    }

    fn discard(mut self, out: &mut Outbox<DriverCommand>) {
        self.parts.take().into_iter().for_each(|ticket| out.push(DriverCommand::Discard { ticket }));
    }
}

impl DriverCore {
    /// Something that was fetched has come, or does not come.
    pub(super) fn on_fetched(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<u64, FetchFailure>,
        out: &mut Outbox<DriverCommand>,
    ) {
        if let Some(fetch) = self.fetches.remove(&ticket) {
            return self.on_checkpoint(ticket, fetch, result, out);
        }
        if self.staging.saving.as_ref().is_some_and(|gather| gather.fetches.contains_key(&ticket)) {
            return self.on_saving_part(now, ticket, result, out);
        }
        match &mut self.phase {
            Phase::Ending(ModelRequest::Snapshot { node, fetch: Some((asked, blob)) })
                if *asked == ticket =>
            {
                let (node, blob) = (node.clone(), *blob);
                out.push(self.taken(&node, blob));
                match result {
                    Ok(step) => self.finish_with(now, step, vec![ticket], out),
                    Err(failure) => self.not_fetched(node, failure, out),
                }
            }
            Phase::Ending(ModelRequest::Parts(gather)) if gather.fetches.contains_key(&ticket) => {
                if gather.is_other_step(&result) {
                    return gather.fetch_again(ticket, &mut self.tickets, out);
                }
                let Some((node, ops)) = gather.fetches.remove(&ticket) else { return };
                if let Err(failure) = result {
                    return self.not_fetched(node, failure, out);
                }
                gather.parts.insert(ops, ticket);
                if let Some(states) = gather.parts.take_whole(self.config.operators) {
                    let step = gather.step;
                    self.finish_with(now, step, states, out);
                }
            }
            // Nobody waits for it any more.
            _ if result.is_ok() => out.push(DriverCommand::Discard { ticket }),
            _ => {}
        }
    }

    /// The model did not come from a node at the end of the run: others may have it.
    fn not_fetched(&mut self, node: NodeId, failure: FetchFailure, out: &mut Outbox<DriverCommand>) {
        self.holders.remove(&node);
        self.inventory.remove(&node);
        out.push(DriverCommand::Tell(Notice::NoModel { node, failure }));
        if let Phase::Ending(request) = &mut self.phase {
            std::mem::take(request).discard(out);
        }
    }

    /// A part of a checkpoint has come, or does not come; those that are complete now are saved.
    fn on_checkpoint(
        &mut self,
        ticket: Ticket,
        fetch: CheckpointFetch,
        result: Result<u64, FetchFailure>,
        out: &mut Outbox<DriverCommand>,
    ) {
        let CheckpointFetch { node, key, ops, blob } = fetch;
        out.push(self.taken(&node, blob));
        match result {
            Ok(_) => self.checkpoints.insert(key, ops, ticket),
            Err(failure) => {
                if self.checkpoints.fail(key) {
                    let (epoch, step) = key;
                    out.push(DriverCommand::Tell(Notice::NoCheckpoint { step, node, failure }));
                    // A later group may make it again.
                    if !self.is_over(epoch) {
                        self.records.forget_draft(step, out);
                    }
                }
            }
        }
        while let Some(((epoch, step), states)) = self.checkpoints.next_whole() {
            let over = self.is_over(epoch);
            self.records.on_state(step, states, over, out);
        }
    }

    /// Whether a group has begun after that one.
    fn is_over(&self, epoch: Epoch) -> bool {
        self.group.as_ref().is_some_and(|group| epoch < group.epoch)
    }

    /// Records what is held when a run was stopped, by nodes or in a checkpoint that has come: no group will do those
    /// steps again. The checkpoint is written then, whatever becomes of the nodes.
    pub(super) fn commit_held(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        let held = match self.is_staged() {
            true => self.held_by_nodes().map(|resume| resume.step),
            false => self.holders.values().max().copied(),
        };
        if let Some(step) = held {
            self.commit(now, step, out);
        }
        self.records.commit_whole(now, out);
    }

    /// Asks for the model, or ends the run, when all ranks have done the last step; returns whether the run goes on
    /// after all.
    pub(super) fn advance_end(&mut self, now: Time, out: &mut Outbox<DriverCommand>) -> bool {
        // Checkpoints that were made before the end are written before it.
        let idle = matches!(self.phase, Phase::Ending(ModelRequest::None));
        if !idle || !self.checkpoints.is_quiet() || self.after_rewind.is_some() {
            return false;
        }
        if self.formation.is_stopping() {
            self.commit_held(now, out);
            if planted(RunBug::StopsWithoutACheckpoint) {
                self.finish_on_disk(out);
                return false;
            }
        }
        if self.is_staged() { self.ask_for_last_parts(now, out) } else { self.ask_for_model(now, out) }
    }

    /// Asks a node that has done the last step for the model; where that is lost with its holders, the run goes on.
    fn ask_for_model(&mut self, now: Time, out: &mut Outbox<DriverCommand>) -> bool {
        let most = self.holders.iter().max_by_key(|(_, step)| **step);
        let saved = self.records.recorded().saved;
        let most = most.map(|(node, step)| (node.clone(), *step)).filter(|(_, step)| *step >= saved);
        let held = most.as_ref().map_or(saved, |(_, step)| *step);
        if !self.formation.is_stopping() && !self.records.passes().is_done(held) {
            self.go_on(now);
            return true;
        }
        let Some((node, _)) = most else {
            self.finish_from_disk(now, out);
            return false;
        };
        let message = ToReplica::Snapshot { run: self.config.run };
        out.push(DriverCommand::Send { node: node.clone(), message });
        self.phase = Phase::Ending(ModelRequest::Snapshot { node, fetch: None });
        false
    }

    /// Asks nodes for the parts of the model; where some of the last steps are lost, the run goes on.
    fn ask_for_last_parts(&mut self, now: Time, out: &mut Outbox<DriverCommand>) -> bool {
        let resume = self.held_by_nodes();
        let stopping = self.formation.is_stopping();
        if !stopping && resume.is_none_or(|resume| !self.records.passes().is_done(resume.step)) {
            self.go_on(now);
            return true;
        }
        match resume.map(|resume| self.gather(resume, out)) {
            Some(gather) if !gather.fetches.is_empty() => {
                self.phase = Phase::Ending(ModelRequest::Parts(gather))
            }
            _ => self.finish_from_disk(now, out),
        }
        false
    }

    /// What the last steps came to is lost: they are done again.
    fn go_on(&mut self, now: Time) {
        self.phase = Phase::Working;
        self.formation.on_unfinished(now, &mut self.formation_out);
        self.offer_nodes(now);
    }

    /// Nodes cannot go on, but may hold together what is not on disk yet: it is saved before more of them are lost.
    pub(super) fn save_while_waiting(&mut self, out: &mut Outbox<DriverCommand>) {
        let held = newest(&self.inventory, self.config.operators);
        if let Some(resume) = held.filter(|resume| resume.step > self.records.recorded().saved) {
            self.drop_saving(out);
            let gather = self.gather(resume, out);
            self.staging.saving = Some(gather);
        }
    }

    /// Nobody waits any more for what nodes hold.
    pub(super) fn drop_saving(&mut self, out: &mut Outbox<DriverCommand>) {
        if let Some(gather) = self.staging.saving.take() {
            gather.discard(out);
        }
    }

    fn on_saving_part(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<u64, FetchFailure>,
        out: &mut Outbox<DriverCommand>,
    ) {
        let Some(gather) = &mut self.staging.saving else { return };
        if gather.is_other_step(&result) {
            return gather.fetch_again(ticket, &mut self.tickets, out);
        }
        let Some((_, ops)) = gather.fetches.remove(&ticket) else { return };
        if result.is_err() {
            // The other parts are of no use then; that a node is lost is told of anyway.
            return self.drop_saving(out);
        }
        gather.parts.insert(ops, ticket);
        let Some(states) = gather.parts.take_whole(self.config.operators) else { return };
        let (epoch, step) = (gather.epoch, gather.step);
        self.staging.saving = None;
        if epoch != self.formation.epoch() || !matches!(self.phase, Phase::Working) {
            return states.into_iter().for_each(|ticket| out.push(DriverCommand::Discard { ticket }));
        }
        self.records.commit_all(now, step, out);
        if self.records.recorded().saved >= step {
            // A checkpoint of it was on its way.
            return states.into_iter().for_each(|ticket| out.push(DriverCommand::Discard { ticket }));
        }
        self.records.on_saved(step);
        out.push(DriverCommand::SaveEarlier { step, states });
    }

    /// Asks nodes that together hold the model after some step for their parts.
    fn gather(&mut self, resume: Resume, out: &mut Outbox<DriverCommand>) -> Gather {
        let Resume { step, norm } = resume;
        let (run, epoch) = (self.config.run, self.formation.epoch());
        let all = Ops { start: 0, end: self.config.operators as u32 };
        let wanted = [(self.config.driver.clone(), all)];
        let transfers = transfers(&self.inventory, resume, &wanted);
        let givers: BTreeSet<NodeId> = transfers.iter().map(|transfer| transfer.from.clone()).collect();
        let mut fetches = BTreeMap::new();
        for Transfer { ops, from, to } in transfers {
            let give = ToReplica::Give { run, epoch, give: Give { ops, step, norm, to } };
            out.push(DriverCommand::Send { node: from.clone(), message: give });
            let ticket = self.ticket();
            out.push(DriverCommand::FetchPart { ticket, node: from.clone(), epoch, ops });
            fetches.insert(ticket, (from, ops));
        }
        holdings::settle(&mut self.inventory, step, &givers, norm);
        Gather { epoch, step, parts: StateParts::default(), fetches }
    }

    /// Ends the run with the model that nodes gave.
    fn finish_with(&mut self, now: Time, step: u64, states: Vec<Ticket>, out: &mut Outbox<DriverCommand>) {
        self.records.commit_all(now, step, out);
        if step < self.records.step() {
            // No node holds what the last steps came to.
            out.push(DriverCommand::CutRecords { after: step });
        }
        self.finish(step, states, out);
    }

    /// Ends the run with what is on disk: no node holds more.
    pub(super) fn finish_from_disk(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        let ending = matches!(self.phase, Phase::Ending(_));
        if ending && self.records.has_begun() {
            if !self.formation.is_stopping() || self.records.recorded().saved == 0 {
                return self.fail(DriverFailure::ModelLost, out);
            }
            return self.rewind_then(now, AfterRewind::Finish, out);
        }
        self.finish_on_disk(out);
    }

    /// Ends the run as it is on disk.
    pub(super) fn finish_on_disk(&mut self, out: &mut Outbox<DriverCommand>) {
        self.finish(self.records.step(), Vec::new(), out);
    }

    fn finish(&mut self, step: u64, states: Vec<Ticket>, out: &mut Outbox<DriverCommand>) {
        let done = self.records.passes().is_done(step) && !self.records.owes_validation(step);
        let end = if done { End::Finished } else { End::Interrupted };
        self.phase = Phase::Over;
        self.checkpoints.end();
        for ticket in self.checkpoints.take_dropped() {
            out.push(DriverCommand::Discard { ticket });
        }
        out.push(DriverCommand::Finish { step, end, states });
    }
}
