//! What a simulated process does when the driver tells it something.

use super::cluster::{Part, Process, Upward};
use super::world::{Event, RUN, World};
use phalanx_protocol::{Unheard, Wish};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::train::{
    Asked, FromReplica, Get, LeftWhy, Ops, Recorded, Source, Start, StateRef, ToReplica,
};
use phalanx_wire::train_reason::{BreakReason, RunRefusal};
use std::time::Duration;

impl World<'_> {
    pub(super) fn on_hears(&mut self, process: Process, message: ToReplica) {
        if !self.lives(process) {
            return;
        }
        match message {
            ToReplica::Enlist { .. } => {
                let takes = self.dice.compute.millis(100..3000);
                let message = match self.dice.faults.chance(1, 40) {
                    true => FromReplica::Refused { run: RUN, refusal: RunRefusal::OtherDriver },
                    false => FromReplica::Enlisted { run: RUN, step: None },
                };
                self.send_up_after(process, takes, Upward::Says(message));
            }
            ToReplica::Restore { state, .. } => {
                let step = state.map_or(0, |state| state.step);
                let ops = self.all_ops();
                self.nodes[process.node].rank.part = Some(Part { ops, step, pending: false });
                let takes = self.transfer();
                self.send_up_after(process, takes, Upward::Says(FromReplica::Restored { run: RUN, step }));
            }
            ToReplica::Prepare { epoch, .. } => {
                self.nodes[process.node].rank.prepared = Some(epoch);
                let ends = RankEnds::default();
                let takes = self.dice.compute.millis(1..200);
                self.send_up_after(
                    process,
                    takes,
                    Upward::Says(FromReplica::Prepared { run: RUN, epoch, ends }),
                );
            }
            ToReplica::Connect { epoch, recorded, start, .. } => {
                self.on_connect(process, epoch, recorded, start)
            }
            ToReplica::Give { epoch, give, .. } => {
                let rank = &mut self.nodes[process.node].rank;
                rank.resolve(give.step, give.norm);
                rank.gives.insert((epoch, give.to, give.ops), give.step);
                if !rank.has_all(give.ops, give.step) {
                    let (ops, step) = (give.ops, give.step);
                    self.violate(format!(
                        "n{} is to give {ops:?} of step {step}, which it lacks",
                        process.node
                    ));
                }
            }
            ToReplica::Abort { epoch, .. } => {
                self.nodes[process.node].rank.prepared.take_if(|prepared| *prepared <= epoch);
                self.leave_broken(process, epoch, "the driver says so");
            }
            ToReplica::Ask { epoch, wish, .. } => {
                let wish = match wish {
                    Asked::Reform => Wish::Reform,
                    Asked::Stop => Wish::Stop,
                };
                self.nodes[process.node].rank.wish = (epoch, wish);
            }
            ToReplica::Snapshot { .. } => self.say_snapshot(process, Epoch(0), None),
            ToReplica::Taken { blob, .. } => {
                self.nodes[process.node].rank.untaken.remove(&blob);
                self.unstall();
            }
            ToReplica::Part { .. } | ToReplica::Dismiss { .. } | ToReplica::Compute { .. } => {}
        }
    }

    pub(super) fn all_ops(&self) -> Ops {
        Ops { start: 0, end: self.options.operators }
    }

    /// Tells the driver what it holds.
    pub(super) fn say_snapshot(&mut self, process: Process, epoch: Epoch, ops: Option<Ops>) {
        let Some(part) = self.nodes[process.node].rank.part else { return };
        self.blobs += 1;
        let blob = BlobId(self.blobs);
        self.nodes[process.node].rank.untaken.insert(blob, (epoch, part.ops, part.step));
        let state = StateRef { step: part.step, bytes: 1, blob };
        self.say(process, FromReplica::Snapshot { run: RUN, epoch, ops, state });
    }

    fn on_connect(&mut self, process: Process, epoch: Epoch, recorded: Recorded, start: Option<Start>) {
        let rank = &mut self.nodes[process.node].rank;
        let ready = rank.prepared.take_if(|prepared| *prepared == epoch).is_some();
        (rank.group, rank.recorded) = (Some(epoch), recorded);
        rank.start.clone_from(&start);
        let over = self.group.as_ref().is_none_or(|group| group.epoch != epoch || group.over);
        if !ready || over {
            return self.leave_broken(process, epoch, "the group is over");
        }
        if let Some(start) = &start {
            self.nodes[process.node].rank.resolve(start.step, start.norm);
            self.check_start(process, start);
        }
        let gets = start.is_some_and(|start| !start.gets.is_empty());
        let takes = if gets { self.transfer() } else { self.message() };
        self.queue.push(self.now + takes, Event::Acquired { process, epoch });
    }

    /// A member has its part of the state, unless a giver is gone.
    pub(super) fn on_acquired(&mut self, process: Process, epoch: Epoch) {
        let rank = &self.nodes[process.node].rank;
        if !self.lives(process) || rank.group != Some(epoch) {
            return;
        }
        let gets: Vec<Get> = rank.start.iter().flat_map(|start| start.gets.clone()).collect();
        for Get { ops, from } in gets {
            let Source::Node(from) = from else { continue };
            match self.is_given(epoch, &from, &process.id(), ops) {
                Some(true) => {}
                Some(false) => {
                    let at = self.now + Duration::from_millis(100);
                    return self.queue.push(at, Event::Acquired { process, epoch });
                }
                None => {
                    self.leave_broken(process, epoch, "a part of the state did not come");
                    return self.break_group(epoch, Duration::ZERO);
                }
            }
        }
        let Some(group) = self.group.as_ref().filter(|group| group.epoch == epoch) else { return };
        let Some(number) = group.members.iter().position(|member| *member == process) else { return };
        let (post, step) = (group.post(number), group.step);
        let level = group.is_level(number);
        let rank = &mut self.nodes[process.node].rank;
        match post {
            Some(post) => {
                rank.part = Some(Part { ops: post.ops, step, pending: false });
                rank.copies.retain(|(_, of)| *of <= step);
            }
            None if !level => rank.part = None,
            None => {}
        }
        self.join(number);
    }

    /// Whether a node gives a part of the state already; nothing when it is gone.
    fn is_given(&self, epoch: Epoch, from: &NodeId, to: &NodeId, ops: Ops) -> Option<bool> {
        let giver = *self.linked.get(from)?;
        let rank = self.lives(giver).then(|| &self.nodes[giver.node].rank)?;
        Some(rank.gives.contains_key(&(epoch, to.clone(), ops)))
    }

    /// A process leaves a broken group: it repeats what the driver may not have heard, and says what it holds.
    pub(super) fn leave_broken(&mut self, process: Process, epoch: Epoch, reason: &str) {
        if self.lives(process) && self.nodes[process.node].rank.group == Some(epoch) {
            if let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch && !group.over) {
                group.over = true;
                self.break_group(epoch, Duration::ZERO);
            }
            self.leave(
                process,
                epoch,
                LeftWhy::Broken { reason: BreakReason::Failed { detail: reason.into() } },
            );
        }
    }

    pub(super) fn leave(&mut self, process: Process, epoch: Epoch, why: LeftWhy) {
        let rank = &mut self.nodes[process.node].rank;
        (rank.group, rank.start) = (None, None);
        let (step, recorded) = (rank.part.map(|part| part.step), rank.recorded);
        if let Some(step) = step {
            self.repeat(process, epoch, recorded, step);
        }
        let staged = self.options.stages > 0;
        let holds = if staged { self.nodes[process.node].rank.holds() } else { Vec::new() };
        self.say(process, FromReplica::Left { run: RUN, epoch, step, why, holds });
    }

    /// Tells the driver what it has not recorded, of the steps up to one.
    pub(super) fn repeat(&mut self, process: Process, epoch: Epoch, recorded: Recorded, done: u64) {
        let Unheard { steps, validations } = self.nodes[process.node].rank.log.unheard(recorded, done);
        if !steps.is_empty() {
            self.say(process, FromReplica::Steps { run: RUN, epoch, steps });
        }
        for (step, sums) in validations {
            self.say(process, FromReplica::Validated { run: RUN, epoch, step, sums });
        }
    }
}
