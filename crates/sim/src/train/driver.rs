//! A model of the driver's shell and of the nodes it speaks with, around the real core.

use super::event::Event;
use super::network::Call;
use super::node::Process;
use super::world::{SMALL, World};
use phalanx_protocol::{FormationCommand, Left, Seat};
use phalanx_types::{Epoch, NodeId, Time};
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::node::LostReason;
use phalanx_wire::train_reason::BreakReason;
use std::time::Duration;

/// What a node takes to open model and data.
const OPENS: Duration = Duration::from_secs(2);
/// What a node takes to get its end of a group ready.
const PREPARES: Duration = Duration::from_millis(20);
/// Round trips in which the ranks of a group connect.
const CONNECTS: u32 = 2;
/// One death in so many freezes the node: its connections stay open, and nobody knows before the heartbeat.
const FROZEN: u32 = 4;

impl World<'_> {
    pub(super) fn on_starts(&mut self, node: usize) {
        self.nodes[node].start();
        let process = self.process(node);
        self.tally.joins += u64::from(self.began.is_some());
        if let Some(faults) = self.options.faults {
            let lives = self.exponential(faults.mtbf);
            self.queue.push(self.now + lives, Event::Dies { process });
        }
        let at = self.now + self.message();
        self.queue.push(at, Event::Seen { process });
    }

    pub(super) fn on_dies(&mut self, process: Process) {
        let Some(faults) = self.options.faults else { return };
        if !self.lives(process) || self.tally.deaths >= faults.most {
            return;
        }
        self.tally.deaths += 1;
        let frozen = self.dice.faults.chance(1, FROZEN);
        self.trace
            .line(self.now, format_args!("n{} {}", process.node, if frozen { "freezes" } else { "dies" }));
        let epoch = self.nodes[process.node].epoch;
        self.nodes[process.node].die();
        self.interrupt(epoch);
        let known = if frozen { self.options.heartbeat } else { Duration::ZERO };
        if let Some(epoch) = epoch {
            let at = self.now + known + self.message();
            self.queue.push(at, Event::Stops { epoch });
        }
        let heard = self.now + known + self.message();
        self.queue.push(heard, Event::Lost { process });
        let back = self.exponential(faults.mttr);
        self.queue.push(self.now + back, Event::Starts { node: process.node });
    }

    pub(super) fn on_seen(&mut self, process: Process) {
        if self.lives(process) {
            self.processes.insert(process.id(), process);
            self.core.on_node(self.now, process.id(), &mut self.out);
        }
    }

    pub(super) fn on_lost(&mut self, process: Process) {
        // One that died before it was heard of was never there.
        if self.processes.remove(&process.id()).is_some() {
            let (node, loss) = (
                process.id(),
                LostReason::Silent { heartbeat_ms: self.options.heartbeat.as_millis() as u64 },
            );
            let reason = BreakReason::NodeLost { node: node.clone(), loss };
            self.core.on_lost(self.now, &node, reason, &mut self.out);
        }
    }

    pub(super) fn on_enlisted(&mut self, process: Process) {
        if self.lives(process) {
            self.core.on_enlisted(self.now, &process.id(), None, &mut self.out);
        }
    }

    pub(super) fn on_restored(&mut self, process: Process, step: u64) {
        if self.lives(process) {
            self.nodes[process.node].holds = Some(step);
            self.core.on_restored(self.now, &process.id(), step, &mut self.out);
        }
    }

    pub(super) fn on_prepared(&mut self, epoch: Epoch, processes: &[Process]) {
        for process in processes {
            if self.lives(*process) {
                self.core.on_prepared(&process.id(), epoch, RankEnds::default(), &mut self.out);
            }
        }
    }

    pub(super) fn on_left(&mut self, epoch: Epoch, left: Vec<(Process, Left)>) {
        for (process, left) in left {
            if self.lives(process) {
                self.core.on_left(self.now, &process.id(), epoch, left, &mut self.out);
            }
        }
    }

    /// Processes leave a group; the driver hears of it.
    pub(super) fn leave(&mut self, epoch: Epoch, mut left: Vec<(Process, Left)>) {
        for (process, _) in &left {
            self.nodes[process.node].epoch = None;
        }
        if left.len() > SMALL {
            // The last first: the core looks for the first one that is still in the group.
            left.reverse();
            let at = self.now + self.message();
            self.queue.push(at, Event::Left { epoch, left });
            return;
        }
        for one in left {
            let at = self.now + self.message();
            self.queue.push(at, Event::Left { epoch, left: vec![one] });
        }
    }

    /// Members hear that their group is over, or see it themselves.
    pub(super) fn on_stops(&mut self, epoch: Epoch) {
        if let Some(group) = &mut self.group
            && group.epoch == epoch
        {
            group.over = true;
        }
        let mut left = Vec::new();
        for node in 0..self.nodes.len() {
            if self.nodes[node].up && self.nodes[node].epoch == Some(epoch) {
                let reason = BreakReason::Failed { detail: "a rank is gone".into() };
                let why = match self.nodes[node].holds {
                    Some(step) => Left::Broken { step, reason },
                    None => Left::Empty { reason: Some(reason) },
                };
                left.push((self.process(node), why));
            }
        }
        self.leave(epoch, left);
    }

    /// Does what the core wants.
    pub(super) fn carry_all(&mut self) {
        while !self.out.is_empty() {
            let commands: Vec<FormationCommand> = self.out.drain().collect();
            for command in commands {
                self.carry(command);
            }
        }
    }

    fn carry(&mut self, command: FormationCommand) {
        match command {
            FormationCommand::Enlist { node } => {
                let Some(process) = self.heard_of(&node) else { return };
                let at = self.now + self.message() + OPENS + self.message();
                self.queue.push(at, Event::Enlisted { process });
            }
            FormationCommand::Restore { node } => {
                let Some(process) = self.heard_of(&node) else { return };
                let seconds = self.options.link.seconds(self.work.state_bytes() as f64);
                let at = self.now + self.message() + Duration::from_secs_f64(seconds) + self.message();
                self.trace.line(self.now, format_args!("{node} takes step {} from disk", self.saved));
                self.queue.push(at, Event::Restored { process, step: self.saved });
            }
            FormationCommand::Prepare { epoch, members } => self.prepare(epoch, &members),
            FormationCommand::Connect { epoch, seats } => self.connect(epoch, &seats),
            FormationCommand::Abort { epoch, reason } => {
                self.trace.line(self.now, format_args!("group {} is over: {reason}", epoch.0));
                let at = self.now + self.message();
                self.queue.push(at, Event::Stops { epoch });
            }
            FormationCommand::AskReform { node } => {
                let Some(process) = self.heard_of(&node) else { return };
                let (at, epoch) = (self.now + self.message(), self.core.epoch());
                self.queue.push(at, Event::Asked { process, epoch });
            }
            FormationCommand::Paused(pause) => self.trace.line(self.now, format_args!("{pause}")),
            FormationCommand::AskStop { .. }
            | FormationCommand::Dismiss { .. }
            | FormationCommand::Muster { .. }
            | FormationCommand::Weigh { .. } => {}
            FormationCommand::Ended => self.ended = true,
        }
    }

    fn heard_of(&mut self, node: &NodeId) -> Option<Process> {
        let process = self.processes.get(node).copied();
        if process.is_none() {
            self.violate(format!("the driver speaks of {node}, which is gone"));
        }
        process
    }

    fn prepare(&mut self, epoch: Epoch, members: &[NodeId]) {
        let mut processes: Vec<Process> = Vec::with_capacity(members.len());
        for node in members {
            processes.extend(self.heard_of(node));
        }
        if processes.len() > SMALL {
            // The last rank first: the core looks for the first one that is missing.
            processes.reverse();
            let at = self.now + self.message() + PREPARES + self.message();
            self.queue.push(at, Event::Prepared { epoch, processes });
            return;
        }
        for process in processes {
            let at = self.now + self.message() + PREPARES + self.message();
            self.queue.push(at, Event::Prepared { epoch, processes: vec![process] });
        }
    }

    fn connect(&mut self, epoch: Epoch, seats: &[Seat]) {
        self.tally.groups += 1;
        self.tally.futile += 1;
        let step = seats.iter().filter_map(|seat| seat.step).max();
        let mut members = Vec::with_capacity(seats.len());
        for seat in seats {
            members.extend(self.heard_of(&seat.node));
        }
        self.trace.line(self.now, format_args!("group {} of {}: {step:?}", epoch.0, members.len()));
        self.trace.mix(epoch.0);
        let Some(step) = self.check_connect(epoch, &members, step) else { return };
        let level = seats.iter().all(|seat| seat.step == Some(step));
        let bytes = usize::try_from(self.work.state_bytes()).unwrap_or(usize::MAX);
        let levels =
            if level { 0.0 } else { self.network.cost(Call::Broadcast { bytes }, seats.len()).seconds };
        let connects = self.latency() * 2 * CONNECTS;
        let at: Time = self.now + self.message() + connects + Duration::from_secs_f64(levels);
        self.form(epoch, &members, step);
        self.queue.push(at, Event::Begins { epoch });
    }
}
