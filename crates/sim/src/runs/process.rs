//! What a simulated process does when the driver tells it something.

use super::cluster::{Part, Process, Upward};
use super::event::Event;
use super::pace::Pace;
use super::reasons;
use super::world::World;
use phalanx_protocol::layout::covers;
use phalanx_protocol::{Unheard, Wish};
use phalanx_types::{Epoch, NodeId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::train::{
    Asked, FromReplica, Get, Give, LeftWhy, Ops, Recorded, Source, Start, StateRef, ToReplica,
};
use std::time::Duration;

/// How long a rank waits for a part of the state.
const PATIENCE: Duration = Duration::from_secs(60);

impl<P: Pace> World<'_, P> {
    pub(super) fn on_hears(&mut self, process: Process, message: ToReplica) {
        let run = self.run_id();
        let rank = &mut self.nodes[process.node].rank;
        match message {
            ToReplica::Enlist { .. } => self.on_enlist(process),
            ToReplica::Restore { state, .. } => {
                let step = state.map_or(0, |state| state.step);
                let ops = self.all_ops();
                self.nodes[process.node].rank.part = Some(Part { ops, step, pending: false });
                let takes = self.pace.transfer();
                self.send_up_after(process, takes, Upward::Says(FromReplica::Restored { run, step }));
            }
            ToReplica::Prepare { epoch, .. } => {
                rank.prepared = Some(epoch);
                let (ends, takes) = (RankEnds::default(), self.pace.preparing());
                let message = FromReplica::Prepared { run, epoch, ends };
                self.send_up_after(process, takes, Upward::Says(message));
            }
            ToReplica::Connect { epoch, recorded, start, .. } => {
                self.on_connect(process, epoch, recorded, start)
            }
            ToReplica::Give { epoch, give, .. } => self.on_give(process, epoch, give),
            ToReplica::Abort { epoch, .. } => {
                rank.prepared.take_if(|prepared| *prepared <= epoch);
                self.leave_broken(process, epoch);
            }
            ToReplica::Ask { epoch, wish, .. } => {
                let wish = match wish {
                    Asked::Reform => Wish::Reform,
                    Asked::Stop => Wish::Stop,
                };
                let before = if rank.wish.0 == epoch { rank.wish.1 } else { Wish::GoOn };
                rank.wish = (epoch, wish.max(before));
            }
            ToReplica::Snapshot { .. } => self.say_snapshot(process, Epoch(0), None),
            ToReplica::Taken { blob, .. } => {
                rank.untaken.remove(&blob);
                self.unstall();
            }
            ToReplica::Part { epoch, part, .. } => {
                let at = self.now + self.pace.transfer();
                self.schedule(at, Event::Caught { process, epoch, part: part.part });
            }
            ToReplica::Compute { epoch, ask, .. } => rank.queries.push((epoch, ask.number)),
            ToReplica::Dismiss { .. } => {}
        }
    }

    fn on_enlist(&mut self, process: Process) {
        let run = self.run_id();
        let takes = self.pace.opening();
        let refuses = self.options.private && self.fails_at_first();
        let at_times = |world: &mut Self, of| {
            !world.options.private && world.options.refusals && world.dice.nodes.chance(1, of)
        };
        let busy = self.now < self.nodes[process.node].busy_until || at_times(self, 40);
        let message = if refuses {
            reasons::refused(run, false)
        } else if busy {
            reasons::refused(run, true)
        } else if self.options.cut_links && at_times(self, 60) {
            // A file is wrong there, for example: another process will do better.
            let at = self.now + takes + self.dice.nodes.millis(100..20_000);
            self.schedule(at, Event::Replaced { process });
            reasons::refused(run, false)
        } else {
            FromReplica::Enlisted { run, step: None }
        };
        self.send_up_after(process, takes, Upward::Says(message));
    }

    /// A process ends, and another one takes its place.
    pub(super) fn on_replaced(&mut self, process: Process) {
        if self.lives(process) {
            self.nodes[process.node].up = false;
            self.lose(process, Duration::ZERO);
            self.schedule(self.now, Event::Starts { node: process.node });
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
        self.say(process, FromReplica::Snapshot { run: self.run_id(), epoch, ops, state });
    }

    fn on_give(&mut self, process: Process, epoch: Epoch, give: Give) {
        let rank = &mut self.nodes[process.node].rank;
        rank.resolve(give.step, give.norm);
        rank.gives.insert((epoch, give.to, give.ops), give.step);
        if !rank.has_all(give.ops, give.step) {
            let (ops, step) = (give.ops, give.step);
            self.violate(format!("n{} is to give {ops:?} of step {step}, which it lacks", process.node));
        }
    }

    fn on_connect(&mut self, process: Process, epoch: Epoch, recorded: Recorded, start: Option<Start>) {
        let rank = &mut self.nodes[process.node].rank;
        let ready = rank.prepared.take_if(|prepared| *prepared == epoch).is_some();
        (rank.group, rank.recorded) = (Some(epoch), recorded);
        rank.caught.clear();
        rank.start.clone_from(&start);
        let group = self.group.as_ref().filter(|group| group.epoch == epoch && !group.over);
        let Some((ranks, behind)) = group.map(|group| (group.members.len(), self.takes_over(group))) else {
            return self.leave_broken(process, epoch);
        };
        if !ready {
            return self.leave_broken(process, epoch);
        }
        if let Some(start) = &start {
            self.nodes[process.node].rank.resolve(start.step, start.norm);
            self.check_start(process, start);
        }
        let takes = match start.is_some_and(|start| !start.gets.is_empty()) {
            true => self.pace.transfer(),
            false => self.pace.connecting(ranks, behind),
        };
        self.nodes[process.node].rank.waits_until = self.now + PATIENCE;
        self.schedule(self.now + takes, Event::Acquired { process, epoch });
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
                Some(false) if self.now < self.nodes[process.node].rank.waits_until => {
                    let at = self.now + Duration::from_millis(100);
                    return self.schedule(at, Event::Acquired { process, epoch });
                }
                Some(false) | None => {
                    self.leave_broken(process, epoch);
                    return self.break_group(epoch, Duration::ZERO);
                }
            }
        }
        let Some(group) = self.group.as_ref().filter(|group| group.epoch == epoch) else { return };
        let Some(number) = group.rank_of(process) else { return };
        let (post, step) = (group.post(number), group.step);
        let rank = &mut self.nodes[process.node].rank;
        if let Some(post) = post {
            rank.copies.retain(|(_, of)| *of <= step);
            // Others may have to come for it, should this group not come about.
            if let Some(old) = rank.part.filter(|old| old.step == step && !covers(post.ops, old.ops)) {
                rank.keep_copy(old.ops, step);
            }
            rank.part = Some(Part { ops: post.ops, step, pending: false });
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
    pub(super) fn leave_broken(&mut self, process: Process, epoch: Epoch) {
        if self.lives(process) && self.nodes[process.node].rank.group == Some(epoch) {
            if let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch && !group.over) {
                group.over = true;
                self.break_group(epoch, Duration::ZERO);
            }
            self.leave(process, epoch, reasons::broken());
        }
    }

    pub(super) fn leave(&mut self, process: Process, epoch: Epoch, why: LeftWhy) {
        let run = self.run_id();
        let rank = &mut self.nodes[process.node].rank;
        (rank.group, rank.start) = (None, None);
        let (step, recorded) = (rank.part.map(|part| part.step), rank.recorded);
        if let (LeftWhy::Broken { .. } | LeftWhy::Reformed | LeftWhy::Ended, Some(step)) = (&why, step) {
            self.repeat(process, epoch, recorded, step);
        }
        let staged = self.options.stages > 0;
        let holds = if staged { self.nodes[process.node].rank.holds() } else { Vec::new() };
        self.say(process, FromReplica::Left { run, epoch, step, why, holds });
    }

    /// Tells the driver what it has not recorded, of the steps up to one.
    pub(super) fn repeat(&mut self, process: Process, epoch: Epoch, recorded: Recorded, done: u64) {
        let run = self.run_id();
        let Unheard { steps, validations } = self.nodes[process.node].rank.log.unheard(recorded, done);
        if !steps.is_empty() {
            self.say(process, FromReplica::Steps { run, epoch, steps });
        }
        for (step, sums) in validations {
            self.say(process, FromReplica::Validated { run, epoch, step, sums });
        }
    }

    /// A part of the state has come to a replica that catches up.
    pub(super) fn on_caught(&mut self, process: Process, epoch: Epoch, part: u32) {
        let rank = &mut self.nodes[process.node].rank;
        if rank.group == Some(epoch) {
            rank.caught.insert(part);
        }
    }

    /// The sum of marks of some samples of the batch of a step, counted from 0.
    pub(super) fn marks_of(&self, step: u64, samples: std::ops::Range<usize>) -> u64 {
        let before = self.place(step).batch as usize * self.options.batch;
        self.marks[before + samples.end].wrapping_sub(self.marks[before + samples.start])
    }

    /// Time that has passed since a moment.
    pub(super) fn since(&self, moment: Time) -> Duration {
        self.now.since(moment)
    }
}
