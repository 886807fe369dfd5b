//! What must hold after every event, and at the end.

use super::cluster::{Process, Upward};
use super::pace::{Pace, Progressed};
use super::world::{SMALL, World};
use phalanx_protocol::driver::DriverPhase;
use phalanx_protocol::progress::End;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{FromReplica, Get, Start};
use std::collections::BTreeSet;

impl<P: Pace> World<'_, P> {
    /// Checks after every event.
    pub(super) fn check(&mut self) {
        if self.nodes.len() > SMALL {
            return;
        }
        let Some(group) = self.group.as_ref().filter(|group| group.begun && !group.over) else {
            return self.check_waits();
        };
        let mut wrong = None;
        for (rank, process) in group.members.iter().enumerate() {
            let part = self.nodes[process.node].rank.part;
            if !self.lives(*process) || self.nodes[process.node].rank.group != Some(group.epoch) {
                wrong = Some(format!("n{} trains in group {} and is not in it", process.node, group.epoch.0));
            } else if group.level[rank] && part.is_none_or(|part| part.step != group.step || part.pending) {
                wrong = Some(format!("n{} holds {part:?}, its group step {}", process.node, group.step));
            }
        }
        if let Some(what) = wrong {
            self.violate(what);
        }
    }

    /// The driver waits for members of a group only while they are in it, or something is on its way.
    fn check_waits(&mut self) {
        if !self.driver.up
            || !matches!(self.driver.core.phase(), DriverPhase::Running | DriverPhase::Leaving)
            || self.now < self.driver.slow_until
        {
            return;
        }
        let epoch = self.driver.core.epoch();
        let idle = |process: &Process| {
            let told = self.downlinks.get(process).is_some_and(|(_, last)| *last >= self.now);
            let says = self.uplinks.get(process).is_some_and(|uplink| !uplink.queue.is_empty());
            let trains = self.lives(*process) && self.nodes[process.node].rank.group == Some(epoch);
            !told && !says && !trains
        };
        let forgotten =
            self.driver.core.active().find(|node| self.linked.get(*node).is_none_or(idle)).cloned();
        if let Some(node) = forgotten {
            self.violate(format!("the driver waits for {node}, which is not in group {}", epoch.0));
        }
    }

    /// A group has a newer epoch than the one before, every member once, and the members that the driver counts.
    pub(super) fn check_members(&mut self, epoch: Epoch, seats: &[NodeId]) {
        if let Some(last) = self.group.as_ref().map(|group| group.epoch).filter(|last| *last >= epoch) {
            self.violate(format!("group {} begins after group {}", epoch.0, last.0));
        }
        let members: BTreeSet<&NodeId> = seats.iter().collect();
        if members.len() < seats.len() {
            self.violate(format!("a node has two seats in group {}", epoch.0));
        }
        let active: BTreeSet<&NodeId> = self.driver.core.active().collect();
        if members != active {
            let what = format!("group {} is {members:?}, the driver counts {active:?}", epoch.0);
            self.violate(what);
        }
    }

    /// A group must go on from the newest step that is held or on disk.
    pub(super) fn check_from(&mut self, from: u64, held: bool) {
        let newest = self.book.newest();
        if from < newest || (self.options.stages > 0 && !held && from != newest) {
            self.violate(format!("a group begins with step {from}; {newest} is on disk"));
        }
        if from > self.tally.furthest {
            self.violate(format!("a group begins with step {from}, which no rank has done"));
        }
        if !self.round_ends.contains(&from) {
            self.violate(format!("a group begins with step {from}, in the middle of an interval"));
        }
        if self.options.stages == 0 {
            let held = self.nodes.iter().filter_map(|node| node.rank.part).map(|part| part.step).max();
            let recorded = self.book.step();
            if held.is_some_and(|held| from < held) || from < recorded {
                self.violate(format!(
                    "a group begins with step {from}; {held:?} is held, {recorded} recorded"
                ));
            }
        }
        // Every node that held more is lost.
        if let Some(steps) = self.committed.checked_sub(from).filter(|steps| *steps > 0) {
            self.progress(Progressed::StepsLost { steps });
        }
        (self.committed, self.last_round) = (from, from..from);
    }

    /// Steps of an interval are recorded when all of it is sure to have happened, not before.
    pub(super) fn check_records(&mut self) {
        let step = self.book.step();
        // An interval that is done again may have been another one before.
        if self.last_round.start < step && step < self.last_round.end && !self.round_ends.contains(&step) {
            let (start, end) = (self.last_round.start, self.last_round.end);
            self.violate(format!(
                "the records end with step {step}, and steps {start} to {end} are done as one"
            ));
        }
    }

    /// A stage holds every operator of its part, or gets it.
    pub(super) fn check_start(&mut self, process: Process, start: &Start) {
        let group = self.group.as_ref();
        let rank = group.and_then(|group| group.members.iter().position(|member| *member == process));
        let Some(post) = rank.and_then(|rank| group.and_then(|group| group.post(rank))) else { return };
        let gets = |get: &Get, operator: u32| get.ops.start <= operator && operator < get.ops.end;
        let own = &self.nodes[process.node].rank;
        let lacks = (post.ops.start..post.ops.end).find(|operator| {
            !own.has(*operator, start.step) && !start.gets.iter().any(|get| gets(get, *operator))
        });
        if let Some(operator) = lacks.filter(|_| start.step > 0) {
            let step = start.step;
            self.violate(format!("n{} begins with step {step} and lacks operator {operator}", process.node));
        }
    }

    /// A checkpoint that is made again after more was recorded is not written, nor one of a group that is over.
    pub(super) fn excuse_redone(&mut self, message: &FromReplica) {
        if let FromReplica::Snapshot { epoch, state, .. } = message
            && (state.step < self.driver.core.recorded().step || *epoch != self.driver.core.epoch())
        {
            self.owed.remove(&(*epoch, state.step));
        }
    }

    /// A process that can still report a step.
    pub(super) fn knows_step(&self, step: u64) -> Option<Process> {
        let remembers = |process: &Process| {
            self.lives(*process) && self.nodes[process.node].rank.seen_steps.contains(&step)
        };
        let says = |upward: &Upward| match upward {
            Upward::Says(FromReplica::Steps { steps, .. }) => steps.iter().any(|report| report.step == step),
            _ => false,
        };
        self.knows(remembers, says)
    }

    /// A process that can still report a validation.
    pub(super) fn knows_validation(&self, step: u64) -> Option<Process> {
        let remembers = |process: &Process| {
            self.lives(*process) && self.nodes[process.node].rank.seen_validations.contains(&step)
        };
        let says = |upward: &Upward| match upward {
            Upward::Says(FromReplica::Validated { step: of, .. }) => *of == step,
            _ => false,
        };
        self.knows(remembers, says)
    }

    fn knows(&self, remembers: impl Fn(&Process) -> bool, says: impl Fn(&Upward) -> bool) -> Option<Process> {
        let linked = self.linked.values().find(|process| remembers(process));
        let sent =
            self.uplinks.iter().find(|(_, uplink)| uplink.queue.iter().any(|(_, upward)| says(upward)));
        linked.or(sent.map(|(process, _)| process)).copied()
    }

    /// Everything is recorded when the run ends. A run that is interrupted may owe its last validation: it is made up
    /// for when the run is resumed.
    pub(super) fn check_end(&self, step: u64, end: End) -> Result<(), String> {
        let validated = if end == End::Finished { step } else { step.saturating_sub(1) };
        if let Some(what) = self.book.missing(step, validated) {
            return Err(what);
        }
        let owed = self.owed.keys().find(|(_, step)| !self.book.saved.contains(step));
        if let Some((epoch, step)) = owed {
            return Err(format!("the checkpoint of step {step} of group {} is not written", epoch.0));
        }
        match self.book.fetched.keys().next() {
            Some(ticket) => Err(format!("{ticket:?} is still kept at the end")),
            None => Ok(()),
        }
    }
}
