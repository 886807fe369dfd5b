//! What nodes say to the driver.

use super::group::Group;
use super::receipt::check_numbers;
use super::{AskAgain, DriverCommand, DriverCore, DriverFailure, ModelRequest, Notice, Phase};
use crate::Left;
use crate::bugs::{RunBug, planted};
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use phalanx_wire::detail::Detail;
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{FromReplica, HoldRef, LeftWhy, StepReport, ToReplica};
use phalanx_wire::train_reason::{BreakReason, RankFailure, RunRefusal};
use std::time::Duration;

/// How long other ranks may take to say more about why a step failed.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long ranks of a group that waits for samples may take to repeat reports of steps before.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);
/// How long until a node that is busy with another run is asked again.
const RETRY: Duration = Duration::from_secs(2);

impl DriverCore {
    pub(super) fn on_node_up(&mut self, now: Time, node: NodeId) {
        self.nodes.insert(node.clone());
        self.refused.remove(&node);
        self.formation.on_node(now, node, &mut self.formation_out);
    }

    pub(super) fn on_node_down(
        &mut self,
        now: Time,
        node: &NodeId,
        loss: LostReason,
        out: &mut Outbox<DriverCommand>,
    ) {
        if !self.nodes.remove(node) {
            return;
        }
        // A node that was cut off is a fault that the user should know of, also when it was not needed.
        let cut_off = matches!(loss, LostReason::Misbehaved { .. });
        if cut_off || self.formation.active().any(|active| active == node) {
            out.push(DriverCommand::Tell(Notice::NodeLost { node: node.clone(), loss: loss.clone() }));
        }
        self.forget(node, out);
        self.refused.remove(node);
        let reason = BreakReason::NodeLost { node: node.clone(), loss };
        self.formation.on_lost(now, node, reason, &mut self.formation_out);
        self.abandon_unreachable(now, node);
        self.offer_nodes(now);
    }

    /// A node holds nothing any more.
    fn forget(&mut self, node: &NodeId, out: &mut Outbox<DriverCommand>) {
        self.holders.remove(node);
        let held = self.inventory.remove(node).is_some();
        if let Phase::Ending(request) = &mut self.phase {
            request.forget(node, held, out);
        }
    }

    /// Names every node that could take part: there may be room for one that there was none for before.
    pub(super) fn offer_nodes(&mut self, now: Time) {
        for node in &self.nodes {
            match self.refused.get_mut(node) {
                Some(AskAgain::Never) => continue,
                Some(AskAgain::At(at)) if *at > now => continue,
                Some(ask) => *ask = AskAgain::AskedAgain,
                None => {}
            }
            self.formation.on_node(now, node.clone(), &mut self.formation_out);
        }
    }

    pub(super) fn on_message(
        &mut self,
        now: Time,
        node: &NodeId,
        message: FromReplica,
        out: &mut Outbox<DriverCommand>,
    ) {
        if !self.nodes.contains(node) || run_of(&message) != self.config.run {
            return;
        }
        // The shell cuts off a node that says such a thing; until its link is down nothing of it counts.
        if check_numbers(&message).is_err() {
            return;
        }
        match message {
            FromReplica::Enlisted { step, .. } => {
                self.refused.remove(node);
                self.formation.on_enlisted(now, node, step, &mut self.formation_out);
            }
            FromReplica::Refused { refusal, .. } => self.on_refused(now, node, refusal, out),
            FromReplica::Restored { step, .. } => {
                self.formation.on_restored(now, node, step, &mut self.formation_out);
            }
            FromReplica::Prepared { epoch, ends, .. } => {
                self.formation.on_prepared(node, epoch, ends, &mut self.formation_out);
            }
            FromReplica::Left { epoch, step, why, holds, .. } => {
                self.on_left(now, node, epoch, step, (why, holds), out);
            }
            FromReplica::Steps { epoch, steps, .. } => self.on_steps(now, node, epoch, steps, out),
            FromReplica::Validated { epoch, step, sums, .. } => {
                if self.is_of_present_group(node, epoch) {
                    self.records.on_valid(step, sums);
                    self.records.commit_more(now, out);
                }
            }
            FromReplica::Snapshot { epoch, ops, state, .. } => {
                let (step, is_first) = (state.step, ops.is_none_or(|ops| ops.start == 0));
                self.on_snapshot(node, epoch, ops, state, out);
                if is_first && self.is_of_present_group(node, epoch) {
                    self.save_while_stream_waits(now, step, out);
                }
            }
            FromReplica::Part { epoch, part, .. } => {
                let Some(group) = self.group_of(node, epoch) else { return };
                let run = self.config.run;
                for joiner in &group.joiners {
                    let message = ToReplica::Part { run, epoch, holder: node.clone(), part: part.clone() };
                    out.push(DriverCommand::Send { node: joiner.clone(), message });
                }
            }
            FromReplica::Waits { epoch, on, millis, .. } => {
                if let Some(on) = self.group_of(node, epoch).and_then(|group| group.seats.get(on as usize)) {
                    let (node, on, since) = (node.clone(), on.clone(), Duration::from_millis(millis));
                    out.push(DriverCommand::Tell(Notice::RankWaits { node, on, since }));
                }
            }
            FromReplica::Computed { number, shape, outputs, .. } => {
                self.on_computed(node, number, shape, outputs, out);
            }
            FromReplica::NotComputed { number, refusal, .. } => self.on_not_computed(number, refusal, out),
            FromReplica::StreamWaits { epoch, step, wait, ended, .. } => {
                if self.is_of_present_group(node, epoch) {
                    self.records.on_ended(step, ended);
                    self.on_stream_waits(now, epoch, step, wait, out);
                }
            }
            FromReplica::StreamEnded { epoch, step, ended, .. } => {
                if self.is_of_present_group(node, epoch) {
                    self.records.on_ended(step, ended);
                    self.records.on_stream_ended(step);
                    self.commit(now, step, out);
                }
            }
            // The shell keeps timelines.
            FromReplica::Spans { .. } => {}
        }
    }

    /// The group waits for samples; that is told when the reason is another one than before.
    fn on_stream_waits(
        &mut self,
        now: Time,
        epoch: Epoch,
        step: u64,
        wait: Detail,
        out: &mut Outbox<DriverCommand>,
    ) {
        if self.stream_waits.is_none_or(|(of, at, _)| (of, at) != (epoch, step)) {
            self.stream_waits = Some((epoch, step, now));
        }
        self.commit(now, step, out);
        if self.stream_wait_told.as_ref() != Some(&wait) {
            out.push(DriverCommand::Tell(Notice::StreamWaits { wait: wait.clone() }));
            self.stream_wait_told = Some(wait);
        }
    }

    /// A group that waits for samples saves without a step after it: its checkpoint is drafted at once. If it is saved
    /// already, the store has not heard of it, since the group would not save again otherwise.
    fn save_while_stream_waits(&mut self, now: Time, step: u64, out: &mut Outbox<DriverCommand>) {
        self.records.commit_more(now, out);
        let waits = self.waiting_for_samples().is_some_and(|(at, _)| at == step);
        if waits && self.records.recorded().saved == step && !planted(RunBug::CommitsOnce) {
            out.push(DriverCommand::CommitStream { step });
        }
    }

    /// The steps that the present group has done, if it waits for samples, and since when.
    fn waiting_for_samples(&self) -> Option<(u64, Time)> {
        let (epoch, step, since) = self.stream_waits?;
        (epoch == self.formation.epoch() && self.is_running()).then_some((step, since))
    }

    /// When reports are given up that hold back the checkpoint of a group that waits for samples. The store may wait
    /// for that checkpoint, so no step will follow.
    pub(super) fn gives_up_reports_at(&self) -> Option<Time> {
        let (step, since) = self.waiting_for_samples()?;
        self.records.holds_back(step).then(|| since + REPORT_PATIENCE)
    }

    /// Gives up what no rank has reported in time.
    pub(super) fn give_up_reports(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        if let Some((step, _)) = self.waiting_for_samples()
            && self.gives_up_reports_at().is_some_and(|at| at <= now)
        {
            self.records.commit_all(now, step, out);
        }
    }

    /// The group of an epoch, if a node is a member of it: what other nodes say of it does not count.
    fn group_of(&self, node: &NodeId, epoch: Epoch) -> Option<&Group> {
        self.group.as_ref().filter(|group| group.epoch == epoch && group.seats.contains(node))
    }

    fn is_of_present_group(&self, node: &NodeId, epoch: Epoch) -> bool {
        epoch == self.formation.epoch() && self.group_of(node, epoch).is_some()
    }

    fn on_steps(
        &mut self,
        now: Time,
        node: &NodeId,
        epoch: Epoch,
        steps: Vec<StepReport>,
        out: &mut Outbox<DriverCommand>,
    ) {
        if !self.is_of_present_group(node, epoch) {
            return;
        }
        self.stream_wait_told = None;
        // Ranks that are lost may have done these steps alone.
        let unsure = if planted(RunBug::RecordsHalfAnInterval) { steps.last() } else { steps.first() };
        let before = unsure.map(|first| first.step.saturating_sub(1));
        self.observe(epoch, &steps, out);
        steps.into_iter().for_each(|step| self.records.on_step(step));
        if let Some(before) = before {
            self.commit(now, before, out);
        }
    }

    /// Records everything up to a step: it is sure to have happened.
    pub(super) fn commit(&mut self, now: Time, step: u64, out: &mut Outbox<DriverCommand>) {
        self.records.commit(now, step, out);
        if self.is_staged()
            && self.records.has_begun()
            && let Some(group) = &mut self.group
            && std::mem::replace(&mut group.holds_start, false)
        {
            out.push(DriverCommand::ReleaseStart);
        }
    }

    /// A node cannot take part; when no node can, neither can the run.
    fn on_refused(&mut self, now: Time, node: &NodeId, refusal: RunRefusal, out: &mut Outbox<DriverCommand>) {
        let ask = if refusal.is_temporary() { AskAgain::At(now + RETRY) } else { AskAgain::Never };
        if self.refused.insert(node.clone(), ask).is_none() {
            let (node, refusal) = (node.clone(), refusal.clone());
            out.push(DriverCommand::Tell(Notice::NodeRefused { node, refusal }));
        }
        self.forget(node, out);
        let reason = BreakReason::NodeRefused { node: node.clone(), refusal: refusal.clone() };
        self.formation.on_lost(now, node, reason, &mut self.formation_out);
        self.abandon_unreachable(now, node);
        self.offer_nodes(now);
        if self.config.private_nodes.is_some_and(|nodes| nodes > 0 && self.refused.len() >= nodes) {
            self.fail(DriverFailure::AllRefuse { refusal }, out);
        }
    }

    fn on_left(
        &mut self,
        now: Time,
        node: &NodeId,
        epoch: Epoch,
        step: Option<u64>,
        (why, holds): (LeftWhy, Vec<HoldRef>),
        out: &mut Outbox<DriverCommand>,
    ) {
        let is_member = self.preparing.contains(node) || self.group_of(node, epoch).is_some();
        if matches!(why, LeftWhy::Failed(_)) && !is_member {
            return;
        }
        self.inventory.insert(node.clone(), holds);
        if let Some(step) = step {
            self.holders.insert(node.clone(), step);
        }
        let left = match (why, step) {
            (LeftWhy::Broken { reason }, Some(step)) => {
                self.tell_break(node, epoch, &reason, out);
                Left::Broken { step, reason }
            }
            (LeftWhy::Broken { reason }, None) => Left::Empty { reason: Some(reason) },
            (LeftWhy::Reformed, Some(step)) => Left::Reformed { step },
            (LeftWhy::Reformed | LeftWhy::Ended, None) => Left::Empty { reason: None },
            (LeftWhy::Ended, Some(step)) => {
                // A rank that was not asked to stop has done all steps; the message that the stream has ended may be
                // lost with the rank that sent it.
                if epoch == self.formation.epoch() && !self.formation.is_stopping() {
                    self.records.on_run_done(step);
                }
                Left::Ended { step }
            }
            (LeftWhy::Failed(failure), _) => return self.on_rank_failed(now, node, failure, step, out),
        };
        if !matches!(self.phase, Phase::Failing { .. }) {
            self.formation.on_left(now, node, epoch, left, &mut self.formation_out);
        }
    }

    /// Says why a group broke, once; a loss is told of anyway.
    fn tell_break(
        &mut self,
        node: &NodeId,
        epoch: Epoch,
        reason: &BreakReason,
        out: &mut Outbox<DriverCommand>,
    ) {
        let aborted = self.group.as_ref().is_some_and(|group| group.epoch == epoch && group.ended.is_some());
        if !aborted && !reason.is_from_driver() && self.break_told < epoch {
            self.break_told = epoch;
            let (node, reason) = (node.clone(), reason.clone());
            out.push(DriverCommand::Tell(Notice::NodeLeft { node, reason }));
        }
    }

    fn on_rank_failed(
        &mut self,
        now: Time,
        node: &NodeId,
        failure: RankFailure,
        step: Option<u64>,
        out: &mut Outbox<DriverCommand>,
    ) {
        let cause = failure.is_cause();
        // All ranks had done that step when they tried the next one.
        self.commit(now, step.unwrap_or(0), out);
        let until = now + if cause { Duration::ZERO } else { LAST_WORDS };
        match &self.phase {
            Phase::Failing { cause: known, .. } if *known || !cause => {}
            _ => {
                if let Phase::Ending(request) = &mut self.phase {
                    std::mem::take(request).discard(out);
                }
                let failure = DriverFailure::Rank { node: node.clone(), failure };
                self.phase = Phase::Failing { failure, cause, until };
            }
        }
    }

    fn on_snapshot(
        &mut self,
        node: &NodeId,
        epoch: Epoch,
        ops: Option<phalanx_wire::train::Ops>,
        state: phalanx_wire::train::StateRef,
        out: &mut Outbox<DriverCommand>,
    ) {
        let ticket = self.ticket();
        if epoch == Epoch(0)
            && let Phase::Ending(ModelRequest::Snapshot { node: asked, fetch }) = &mut self.phase
            && asked == node
        {
            *fetch = Some((ticket, state.blob));
            return out.push(DriverCommand::Fetch { ticket, node: node.clone(), state });
        }
        if !self.is_of_present_group(node, epoch) {
            // Of a group that is over: nobody comes for it.
            return out.push(self.taken(node, state.blob));
        }
        // Of parts, the first one announces the checkpoint.
        if ops.is_none_or(|ops| ops.start == 0) {
            self.records.on_snapshot(state.step);
        }
        let key = (epoch, state.step);
        self.checkpoints.announce(key, ops);
        let fetch = super::CheckpointFetch { node: node.clone(), key, ops, blob: state.blob };
        self.fetches.insert(ticket, fetch);
        out.push(DriverCommand::Fetch { ticket, node: node.clone(), state });
    }
}

fn run_of(message: &FromReplica) -> phalanx_types::RunId {
    match message {
        FromReplica::Enlisted { run, .. }
        | FromReplica::Refused { run, .. }
        | FromReplica::Restored { run, .. }
        | FromReplica::Prepared { run, .. }
        | FromReplica::Left { run, .. }
        | FromReplica::Steps { run, .. }
        | FromReplica::Validated { run, .. }
        | FromReplica::Snapshot { run, .. }
        | FromReplica::Part { run, .. }
        | FromReplica::Spans { run, .. }
        | FromReplica::Waits { run, .. }
        | FromReplica::Computed { run, .. }
        | FromReplica::NotComputed { run, .. }
        | FromReplica::StreamWaits { run, .. }
        | FromReplica::StreamEnded { run, .. } => *run,
    }
}
