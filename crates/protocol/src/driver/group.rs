//! Groups: what the formation core decides, with what a group begins, and how a run goes back to a checkpoint.

use super::{
    DriverCommand, DriverCore, GroupStart, ModelRequest, Notice, Phase, SHORT_PAUSE, StageStart,
    planning::PlannedStages,
};
use crate::bugs::{RunBug, planted};
use crate::holdings::{self, newest, transfers};
use crate::progress::Place;
use crate::{FormationCommand, Seat, layout};
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use phalanx_wire::train::{Asked, Get, Give, Ops, Source, Start, ToReplica};
use phalanx_wire::train_reason::BreakReason;
use std::collections::{BTreeMap, BTreeSet};

/// A group that has begun.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) epoch: Epoch,
    /// By rank.
    pub(super) seats: Vec<NodeId>,
    /// Members that came without the state of the run.
    pub(super) joiners: Vec<NodeId>,
    /// Why it is over, once its members were told.
    pub(super) ended: Option<BreakReason>,
    /// The shell may hold a state for its members to begin with.
    pub(super) holds_start: bool,
}

/// What goes on when the records were rewound.
#[derive(Debug)]
pub(super) enum AfterRewind {
    Restore { node: NodeId },
    Begin { epoch: Epoch, seats: Vec<Seat>, planned: Box<PlannedStages> },
    Finish,
}

impl DriverCore {
    /// Does what the formation core has decided.
    pub(super) fn carry_out(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        while !self.formation_out.is_empty() && !matches!(self.phase, Phase::Over) {
            let commands: Vec<FormationCommand> = self.formation_out.drain().collect();
            commands.into_iter().for_each(|command| self.carry_out_one(now, command, out));
        }
    }

    fn carry_out_one(&mut self, now: Time, command: FormationCommand, out: &mut Outbox<DriverCommand>) {
        match command {
            FormationCommand::Enlist { node } => out.push(DriverCommand::Enlist { node }),
            FormationCommand::Restore { node } => {
                self.rewind_then(now, AfterRewind::Restore { node }, out);
            }
            FormationCommand::Prepare { epoch, members } => {
                self.preparing.clone_from(&members);
                let layout = self.staging.layout().cloned();
                out.push(DriverCommand::Prepare { epoch, members, layout });
            }
            FormationCommand::Connect { epoch, seats } if self.is_staged() => {
                self.connect_stages(now, epoch, seats, out);
            }
            FormationCommand::Connect { epoch, seats } => {
                let from_step = seats.iter().filter_map(|seat| seat.step).max().unwrap_or(0);
                self.begin_group(now, epoch, seats, from_step, None, out);
            }
            FormationCommand::Muster { ready } => self.muster(ready, out),
            FormationCommand::Weigh { waiting } => self.evaluate(waiting, out),
            FormationCommand::Abort { epoch, reason } => {
                if let Some(group) = &mut self.group {
                    group.ended = Some(reason.clone());
                }
                let seats = self.group.iter().flat_map(|group| &group.seats);
                let members: BTreeSet<NodeId> = seats.chain(&self.preparing).cloned().collect();
                out.push(DriverCommand::Abort { epoch, nodes: members.into_iter().collect(), reason });
            }
            FormationCommand::AskReform { node } => self.ask(node, Asked::Reform, out),
            FormationCommand::AskStop { node } => self.ask(node, Asked::Stop, out),
            // All nodes are dismissed when the model is here.
            FormationCommand::Dismiss { .. } => {}
            FormationCommand::Paused(pause) => self.pause = Some((pause, now + SHORT_PAUSE)),
            FormationCommand::Ended => {
                self.drop_saving(out);
                self.pause = None;
                if matches!(self.phase, Phase::Working) {
                    self.phase = Phase::Ending(ModelRequest::None);
                    if self.formation.is_stopping() {
                        self.commit_held(now, out);
                    }
                }
            }
        }
    }

    fn ask(&self, node: NodeId, wish: Asked, out: &mut Outbox<DriverCommand>) {
        let message = ToReplica::Ask { run: self.config.run, epoch: self.formation.epoch(), wish };
        out.push(DriverCommand::Send { node, message });
    }

    /// Goes back to the newest checkpoint when steps are recorded that no node holds any more, then goes on.
    pub(super) fn rewind_then(&mut self, now: Time, then: AfterRewind, out: &mut Outbox<DriverCommand>) {
        // No node holds more than a checkpoint that is here: it is written first.
        self.records.commit_whole(now, out);
        if self.records.has_begun() {
            self.after_rewind = Some(then);
            out.push(DriverCommand::Rewind);
        } else {
            self.go_on_after_rewind(now, then, out);
        }
    }

    pub(super) fn on_rewound(
        &mut self,
        now: Time,
        place: Place,
        validated: u64,
        out: &mut Outbox<DriverCommand>,
    ) {
        let held = newest(&self.inventory, self.config.operators).is_some();
        let from = self.records.step();
        out.push(DriverCommand::Tell(Notice::WentBack { from, to: place.step, held }));
        self.records.rewind(place, validated, out);
        if let Some(then) = self.after_rewind.take() {
            self.go_on_after_rewind(now, then, out);
        }
    }

    fn go_on_after_rewind(&mut self, now: Time, then: AfterRewind, out: &mut Outbox<DriverCommand>) {
        match then {
            AfterRewind::Restore { node } => out.push(DriverCommand::Restore { node }),
            AfterRewind::Begin { epoch, seats, planned } => {
                let from_step = self.records.step();
                self.settle_inventory(from_step, &planned, &[]);
                let PlannedStages { ticket, layout, .. } = *planned;
                let stages = StageStart { plan: ticket, layout, starts: None };
                self.begin_group(now, epoch, seats, from_step, Some(stages), out);
            }
            AfterRewind::Finish => self.finish_on_disk(out),
        }
    }

    /// Lets a group of stages begin: from what nodes hold, or from the newest checkpoint.
    fn connect_stages(&mut self, now: Time, epoch: Epoch, seats: Vec<Seat>, out: &mut Outbox<DriverCommand>) {
        let Some(planned) = self.staging.planned().cloned() else { return };
        // A checkpoint may have been written since the plan was made that is newer than what nodes hold.
        let saved = self.records.recorded().saved;
        let Some(resume) = planned.resume.filter(|resume| resume.step >= saved) else {
            let planned = PlannedStages { resume: None, ..planned };
            let then = AfterRewind::Begin { epoch, seats, planned: Box::new(planned) };
            return self.rewind_then(now, then, out);
        };
        let posts = layout::posts(&planned.layout);
        let wanted: Vec<(NodeId, Ops)> =
            planned.members.iter().cloned().zip(posts.iter().map(|post| post.ops)).collect();
        let mut gets: BTreeMap<NodeId, Vec<Get>> = BTreeMap::new();
        for transfer in transfers(&self.inventory, resume, &wanted) {
            let (ops, to) = (transfer.ops, transfer.to.clone());
            let give = Give { ops, step: resume.step, norm: resume.norm, to };
            let message = ToReplica::Give { run: self.config.run, epoch, give };
            out.push(DriverCommand::Send { node: transfer.from.clone(), message });
            gets.entry(transfer.to).or_default().push(Get { ops, from: Source::Node(transfer.from) });
        }
        let start = |(node, _): &(NodeId, Ops)| Start {
            step: resume.step,
            norm: resume.norm,
            gets: gets.remove(node).unwrap_or_default(),
        };
        let starts: Vec<Start> = wanted.iter().map(start).collect();
        self.settle_inventory(resume.step, &planned, &starts);
        let stages = StageStart { plan: planned.ticket, layout: planned.layout, starts: Some(starts) };
        self.begin_group(now, epoch, seats, resume.step, Some(stages), out);
    }

    /// Notes what becomes of what nodes hold when a group begins.
    fn settle_inventory(&mut self, step: u64, planned: &PlannedStages, starts: &[Start]) {
        let giver = |get: &Get| match &get.from {
            Source::Node(node) => Some(node.clone()),
            Source::Driver(_) => None,
        };
        let givers = starts.iter().flat_map(|start| &start.gets).filter_map(giver);
        let told: BTreeSet<NodeId> = planned.members.iter().cloned().chain(givers).collect();
        let norm = planned.resume.and_then(|resume| resume.norm);
        holdings::settle(&mut self.inventory, step, &told, norm);
    }

    fn begin_group(
        &mut self,
        now: Time,
        epoch: Epoch,
        seats: Vec<Seat>,
        from_step: u64,
        stages: Option<StageStart>,
        out: &mut Outbox<DriverCommand>,
    ) {
        self.drop_saving(out);
        if planted(RunBug::ForgetsPendingReports) {
            self.records.forget_after(0, out);
        }
        // A replica that is ahead of the others may be lost before they have taken over its state.
        let behind = seats.iter().filter_map(|seat| seat.step).min().filter(|_| stages.is_none());
        self.commit(now, behind.unwrap_or(from_step), out);
        self.records.forget_after(from_step, out);
        self.checkpoints.begin_epoch();
        (self.pause, self.paused_told, self.stream_wait_told) = (None, None, None);
        self.holders.clear();
        let joiners = seats.iter().filter(|seat| seat.step.is_none() && stages.is_none());
        self.group = Some(Group {
            epoch,
            seats: seats.iter().map(|seat| seat.node.clone()).collect(),
            joiners: joiners.map(|seat| seat.node.clone()).collect(),
            ended: None,
            holds_start: stages.is_some(),
        });
        let recorded = self.records.recorded();
        let pass = self.records.passes().start_before(from_step);
        out.push(DriverCommand::Begin(GroupStart { epoch, seats, recorded, from_step, stages, pass }));
    }
}
