//! The driver's decisions: who is in the group, when it is formed anew, why it waits.
//!
//! ```text
//!            nodes come           all ends are there            a member is lost, or a node wants in
//!  Gathering -----------> Preparing -----------------> Running ----------------------+
//!      ^                      |  a member is lost          | all have done the last   |
//!      |                      v                            v step                     v
//!      +------------------ Leaving <---------------------------------------------- Leaving
//!        enough are left, or                              Done            until every survivor has said where
//!        more come                                                        it stands
//! ```
//! A *planned* run asks who of those that are ready is to hold what before it prepares a group (Mustering), and whether
//! taking in others pays before it lets a group come apart.
//!
//! The driver is asked only when the group changes. Between, ranks agree among themselves by their votes.
//!
//! A step has happened when a survivor has applied it. Ranks may be one step apart when a group breaks: those behind
//! are brought level by the group itself, from a rank that is ahead, before it goes on.

mod member;
mod pause;

pub use member::{Left, Seat};
pub use pause::Pause;

use member::Member;
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::train_reason::BreakReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many replicas a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// With fewer the run pauses.
    pub min: usize,
    /// The group begins at once when this many nodes are ready.
    pub wanted: usize,
    pub max: usize,
    /// How long to wait for more nodes than the fewest.
    pub patience: Duration,
}

/// What the driver's shell has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FormationCommand {
    /// Open the run on a node.
    Enlist { node: NodeId },
    /// Give a node the state that the run has on disk.
    Restore { node: NodeId },
    /// Plan who of these is in the next group: [`FormationCore::on_mustered`] hears of it.
    Muster { ready: Vec<NodeId> },
    /// Find out whether it pays to form the group anew now that these could come in:
    /// [`FormationCore::on_worth`] hears of it if it does.
    Weigh { waiting: Vec<NodeId> },
    /// Tell these nodes, in the order of their ranks, to get ready for a group.
    Prepare { epoch: Epoch, members: Vec<NodeId> },
    /// Everybody is ready: tell all of them who is who, and let them go on.
    Connect { epoch: Epoch, seats: Vec<Seat> },
    /// Tell the members of a group that it is over.
    Abort { epoch: Epoch, reason: BreakReason },
    /// Ask a member to let the group come apart at the next boundary between steps.
    AskReform { node: NodeId },
    /// Ask a member to end the run at the next boundary.
    AskStop { node: NodeId },
    /// Tell a node that it is not needed any more.
    Dismiss { node: NodeId },
    /// Say why the run waits.
    Paused(Pause),
    /// All members have done the last step, or were asked to stop: the run is over.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There is no group; `since` is when the fewest were there.
    Gathering {
        since: Option<Time>,
    },
    /// Waiting for a plan of who is in the group.
    Mustering,
    /// Waiting for the ends of a group.
    Preparing,
    Running {
        /// A member was asked to let others in.
        asked: bool,
    },
    /// A group is over; waiting for its members to say where they stand.
    Leaving,
    Ended,
}

/// What the formation core does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormationStage {
    /// There is no group: nodes are missing, or a new one is about to form.
    Gathering,
    /// A plan of the next group is being made.
    Mustering,
    /// The members of a group get ready.
    Preparing,
    /// A group trains.
    Running,
    /// A group is over, and its members have not all said where they stand.
    Leaving,
    /// The run is over.
    Ended,
}

/// Who trains together.
#[derive(Debug)]
pub struct FormationCore {
    limits: Limits,
    /// A planner decides which of the ready nodes are in a group.
    planned: bool,
    /// The ready nodes for which there was no plan: planning again needs other nodes.
    unplannable: Option<Vec<NodeId>>,
    /// The nodes that the plan is made of that was asked for last.
    mustered: Vec<NodeId>,
    /// Candidates already evaluated for this group.
    weighed: Vec<NodeId>,
    /// The nodes of the group by rank.
    order: Vec<NodeId>,
    epoch: Epoch,
    phase: Phase,
    members: BTreeMap<NodeId, Member>,
    /// Asked to end.
    stopping: bool,
    /// What was said last, so that it is said once.
    paused: Option<Pause>,
    /// The step from which the present group went on, and groups before it that broke without doing any.
    from_step: u64,
    /// Its members were told that it is over.
    aborted: bool,
    barren: u32,
    /// A group that would break again at once is not formed sooner.
    not_before: Time,
    /// The time of the last event.
    last_seen: Time,
}

/// The longest pause between groups that do no step.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl FormationCore {
    pub fn new(limits: Limits) -> Self {
        let phase = Phase::Gathering { since: None };
        let (epoch, members) = (Epoch(0), BTreeMap::new());
        let (stopping, paused, from_step, barren) = (false, None, 0, 0);
        let (not_before, last_seen, aborted) = (Time::ZERO, Time::ZERO, false);
        Self {
            limits,
            planned: false,
            unplannable: None,
            mustered: Vec::new(),
            weighed: Vec::new(),
            order: Vec::new(),
            epoch,
            phase,
            members,
            stopping,
            paused,
            from_step,
            aborted,
            barren,
            not_before,
            last_seen,
        }
    }

    /// The same for a run in which a plan says who holds what.
    pub fn planned(limits: Limits) -> Self {
        Self { planned: true, ..Self::new(limits) }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The nodes that are in the group, in no order.
    pub fn active(&self) -> impl Iterator<Item = &NodeId> {
        self.members.iter().filter(|(_, member)| member.is_in_group()).map(|(node, _)| node)
    }

    /// What the core does now.
    pub fn stage(&self) -> FormationStage {
        match self.phase {
            Phase::Gathering { .. } => FormationStage::Gathering,
            Phase::Mustering => FormationStage::Mustering,
            Phase::Preparing => FormationStage::Preparing,
            Phase::Running { .. } => FormationStage::Running,
            Phase::Leaving => FormationStage::Leaving,
            Phase::Ended => FormationStage::Ended,
        }
    }

    /// Why no group forms, as it was said last.
    pub fn pause(&self) -> Option<&Pause> {
        self.paused.as_ref()
    }

    /// A group that gets ready cannot begin: another one has to be formed.
    pub fn abandon(&mut self, now: Time, reason: BreakReason, out: &mut Outbox<FormationCommand>) {
        if self.phase == Phase::Preparing {
            self.break_up(reason, out);
            self.consider(now, out);
        }
    }

    /// A node that could take part has come.
    pub fn on_node(&mut self, now: Time, node: NodeId, out: &mut Outbox<FormationCommand>) {
        if self.phase == Phase::Ended
            || self.members.contains_key(&node)
            || self.members.len() >= self.limits.max
        {
            return;
        }
        out.push(FormationCommand::Enlist { node: node.clone() });
        self.members.insert(node, Member::Opening);
        self.consider(now, out);
    }

    /// A node has opened the run; `step` is what it still holds of it.
    pub fn on_enlisted(
        &mut self,
        now: Time,
        node: &NodeId,
        step: Option<u64>,
        out: &mut Outbox<FormationCommand>,
    ) {
        if let Some(member @ Member::Opening) = self.members.get_mut(node) {
            *member = Member::Standby { step };
            self.consider(now, out);
        }
    }

    /// A node holds the state that was on disk.
    pub fn on_restored(&mut self, now: Time, node: &NodeId, step: u64, out: &mut Outbox<FormationCommand>) {
        if let Some(member @ Member::Restoring) = self.members.get_mut(node) {
            *member = Member::Standby { step: Some(step) };
            self.consider(now, out);
        }
    }

    /// There is a plan of who is in the next group, by rank; or why there can be none.
    pub fn on_mustered(
        &mut self,
        now: Time,
        plan: Result<Vec<NodeId>, String>,
        out: &mut Outbox<FormationCommand>,
    ) {
        if self.phase != Phase::Mustering {
            return;
        }
        self.phase = Phase::Gathering { since: None };
        match plan {
            Ok(members) if members.iter().all(|node| self.is_ready(node)) => self.prepare(members, out),
            // A node was lost meanwhile.
            Ok(_) => self.consider(now, out),
            Err(shortfall) => {
                self.unplannable = Some(std::mem::take(&mut self.mustered));
                if self.unplannable.as_ref() != Some(&self.ready()) {
                    // Others have come while the plan was made.
                    return self.consider(now, out);
                }
                let coming = self.members.len() - self.ready().len();
                self.say(Pause::Shortfall { shortfall, coming }, out);
            }
        }
    }

    /// More is known than when a plan was asked for, which was not made.
    pub fn muster_again(&mut self, out: &mut Outbox<FormationCommand>) {
        if self.phase == Phase::Mustering {
            self.muster(out);
        }
    }

    fn muster(&mut self, out: &mut Outbox<FormationCommand>) {
        self.mustered = self.ready();
        out.push(FormationCommand::Muster { ready: self.mustered.clone() });
    }

    /// Those who wait may have become faster.
    pub fn weigh_again(&mut self, now: Time, out: &mut Outbox<FormationCommand>) {
        self.weighed.clear();
        self.consider(now, out);
    }

    /// It pays to form the group anew.
    pub fn on_worth(&mut self, out: &mut Outbox<FormationCommand>) {
        let first = self.active().next().cloned();
        if let (Phase::Running { asked: false }, Some(node)) = (self.phase, first.filter(|_| !self.stopping))
        {
            out.push(FormationCommand::AskReform { node });
            self.phase = Phase::Running { asked: true };
        }
    }

    fn is_ready(&self, node: &NodeId) -> bool {
        matches!(self.members.get(node), Some(Member::Standby { .. }))
    }

    fn ready(&self) -> Vec<NodeId> {
        self.members.keys().filter(|node| self.is_ready(node)).cloned().collect()
    }

    /// A member has its end of the group ready.
    pub fn on_prepared(
        &mut self,
        node: &NodeId,
        epoch: Epoch,
        ends: RankEnds,
        out: &mut Outbox<FormationCommand>,
    ) {
        if epoch != self.epoch || self.phase != Phase::Preparing {
            return;
        }
        if let Some(Member::Preparing { ends: place, .. }) = self.members.get_mut(node) {
            *place = Some(ends);
            self.connect(out);
        }
    }

    /// A member has left the group, by itself or because it is over, and stands by.
    pub fn on_left(
        &mut self,
        now: Time,
        node: &NodeId,
        epoch: Epoch,
        left: Left,
        out: &mut Outbox<FormationCommand>,
    ) {
        let Some(member) = self.members.get_mut(node) else { return };
        if epoch != self.epoch || !member.is_in_group() {
            return;
        }
        let step = left.step();
        *member = Member::Standby { step };
        match left {
            Left::Ended { .. } => {
                *member = Member::Ended;
                self.phase = Phase::Leaving;
            }
            Left::Broken { reason, .. } | Left::Empty { reason: Some(reason) } => {
                self.note_broken(now, step);
                self.break_up(reason, out);
            }
            Left::Reformed { .. } | Left::Empty { reason: None } => self.phase = Phase::Leaving,
        }
        self.consider(now, out);
    }

    /// A node is gone, or wants to go. A group that it is in is over for this reason.
    pub fn on_lost(
        &mut self,
        now: Time,
        node: &NodeId,
        reason: BreakReason,
        out: &mut Outbox<FormationCommand>,
    ) {
        let Some(member) = self.members.remove(node) else { return };
        if member.is_in_group() {
            self.break_up(reason, out);
        }
        self.consider(now, out);
    }

    /// The user wants the run to end.
    pub fn on_stop(&mut self, now: Time, out: &mut Outbox<FormationCommand>) {
        if self.stopping || self.phase == Phase::Ended {
            return;
        }
        self.stopping = true;
        if let (Phase::Running { .. }, Some(node)) = (self.phase, self.active().next().cloned()) {
            out.push(FormationCommand::AskStop { node });
        }
        self.consider(now, out);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The results of the last steps were lost with the only node that had them: these steps are done again.
    pub fn on_unfinished(&mut self, now: Time, out: &mut Outbox<FormationCommand>) {
        if self.phase == Phase::Ended {
            for member in self.members.values_mut().filter(|member| matches!(member, Member::Ended)) {
                *member = Member::Standby { step: None };
            }
            self.phase = Phase::Gathering { since: None };
            self.consider(now, out);
        }
    }

    /// Time has passed.
    pub fn on_tick(&mut self, now: Time, out: &mut Outbox<FormationCommand>) {
        self.consider(now, out);
    }

    /// When [`FormationCore::on_tick`] is due, if ever.
    pub fn next_tick(&self) -> Option<Time> {
        match self.phase {
            Phase::Gathering { .. } if self.members.values().any(|m| matches!(m, Member::Restoring)) => None,
            Phase::Gathering { .. } if self.not_before > self.last_seen => Some(self.not_before),
            Phase::Gathering { since: Some(since) } => Some(since + self.limits.patience),
            _ => None,
        }
    }

    /// Waits ever longer with the next group when one after the other breaks before it has done a step: its members
    /// may not reach each other.
    fn note_broken(&mut self, now: Time, step: Option<u64>) {
        if !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        if step.is_some_and(|step| step > self.from_step) {
            self.barren = 0;
        } else {
            self.barren += 1;
            if self.barren > 2 {
                let pause = Duration::from_millis(100) * 2u32.saturating_pow((self.barren - 3).min(10));
                self.not_before = now + pause.min(LONGEST_PAUSE);
            }
        }
    }

    fn break_up(&mut self, reason: BreakReason, out: &mut Outbox<FormationCommand>) {
        // Members that are about to leave by agreement may wait for the one that is lost.
        let forsaken = self.phase == Phase::Leaving && !self.aborted && self.active().next().is_some();
        if forsaken || matches!(self.phase, Phase::Running { .. } | Phase::Preparing) {
            self.aborted = true;
            out.push(FormationCommand::Abort { epoch: self.epoch, reason });
            // Those that were getting ready have nothing to leave.
            for member in self.members.values_mut() {
                if let Member::Preparing { step, .. } = member {
                    *member = Member::Standby { step: *step };
                }
            }
            self.phase = Phase::Leaving;
        }
    }

    /// Does what is due.
    fn consider(&mut self, now: Time, out: &mut Outbox<FormationCommand>) {
        self.last_seen = now;
        if self.phase == Phase::Leaving && self.active().next().is_none() {
            self.phase = Phase::Gathering { since: None };
        }
        match self.phase {
            Phase::Gathering { .. } => self.gather(now, out),
            Phase::Running { asked: false } => self.let_in(out),
            Phase::Mustering if self.stopping => self.gather(now, out),
            Phase::Running { .. } | Phase::Mustering | Phase::Preparing | Phase::Leaving | Phase::Ended => {}
        }
    }

    /// Asks the group to come apart when a node could come in.
    fn let_in(&mut self, out: &mut Outbox<FormationCommand>) {
        if self.planned {
            let waiting = self.ready();
            if !waiting.is_empty() && waiting != self.weighed && !self.stopping {
                self.weighed.clone_from(&waiting);
                out.push(FormationCommand::Weigh { waiting });
            }
            return;
        }
        let waiting = self.members.values().any(|member| matches!(member, Member::Standby { .. }));
        let first = self.active().next().cloned();
        if let Some(node) = first.filter(|_| waiting && !self.stopping) {
            out.push(FormationCommand::AskReform { node });
            self.phase = Phase::Running { asked: true };
        }
    }

    fn gather(&mut self, now: Time, out: &mut Outbox<FormationCommand>) {
        if self.stopping || self.members.values().any(|member| matches!(member, Member::Ended)) {
            self.phase = Phase::Ended;
            for node in self.members.keys() {
                out.push(FormationCommand::Dismiss { node: node.clone() });
            }
            out.push(FormationCommand::Ended);
            return;
        }
        let ready = self.members.values().filter(|member| matches!(member, Member::Standby { .. })).count();
        let coming = self.members.len() - ready;
        if self.unplannable.as_ref().is_some_and(|tried| *tried == self.ready()) {
            return;
        }
        if ready < self.limits.min {
            self.phase = Phase::Gathering { since: None };
            let (have, want) = (ready, self.limits.wanted);
            let pause = match self.planned {
                true => Pause::Gathering { have, want, coming },
                false => Pause::TooFew { have, need: self.limits.min, coming },
            };
            return self.say(pause, out);
        }
        let since = match self.phase {
            Phase::Gathering { since: Some(since) } => since,
            _ => now,
        };
        self.phase = Phase::Gathering { since: Some(since) };
        // A run that has begun does not wait for more than it needs: they are let in when they come.
        let begun = self.epoch > Epoch(0);
        if ready < self.limits.wanted && !begun && now.since(since) < self.limits.patience {
            return self.say(Pause::Gathering { have: ready, want: self.limits.wanted, coming }, out);
        }
        if now < self.not_before {
            return;
        }
        if self.planned {
            self.phase = Phase::Mustering;
            self.unplannable = None;
            self.muster(out);
        } else {
            self.form(out);
        }
    }

    /// Says why the run waits, when that has changed.
    fn say(&mut self, pause: Pause, out: &mut Outbox<FormationCommand>) {
        if self.paused.as_ref() != Some(&pause) {
            out.push(FormationCommand::Paused(pause.clone()));
            self.paused = Some(pause);
        }
    }

    /// Forms a group of all who stand by, if one of them holds the state of the run.
    fn form(&mut self, out: &mut Outbox<FormationCommand>) {
        let held = |member: &Member| matches!(member, Member::Standby { step: Some(_) });
        if !self.members.values().any(held) {
            if self.members.values().any(|member| matches!(member, Member::Restoring)) {
                return;
            }
            let standby = self.members.iter_mut().find(|(_, m)| matches!(m, Member::Standby { .. }));
            if let Some((node, member)) = standby {
                out.push(FormationCommand::Restore { node: node.clone() });
                *member = Member::Restoring;
            }
            return;
        }
        self.prepare(self.ready(), out);
    }

    /// Tells these to get ready for a group.
    fn prepare(&mut self, members: Vec<NodeId>, out: &mut Outbox<FormationCommand>) {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.aborted = false;
        self.paused = None;
        self.weighed.clear();
        for node in &members {
            if let Some(member) = self.members.get_mut(node) {
                *member = Member::Preparing { step: member.step(), ends: None };
            }
        }
        self.order.clone_from(&members);
        self.phase = Phase::Preparing;
        out.push(FormationCommand::Prepare { epoch: self.epoch, members });
    }

    /// Lets the group begin when every end is there.
    fn connect(&mut self, out: &mut Outbox<FormationCommand>) {
        let mut seats = Vec::new();
        for node in &self.order {
            let Some(member) = self.members.get(node) else { continue };
            match member {
                Member::Preparing { step, ends: Some(ends) } => {
                    seats.push(Seat { node: node.clone(), ends: ends.clone(), step: *step });
                }
                Member::Preparing { ends: None, .. } => return,
                _ => {}
            }
        }
        for member in self.members.values_mut() {
            if let Member::Preparing { .. } = member {
                *member = Member::Active;
            }
        }
        self.phase = Phase::Running { asked: false };
        self.from_step = seats.iter().filter_map(|seat| seat.step).max().unwrap_or(0);
        out.push(FormationCommand::Connect { epoch: self.epoch, seats });
        if let Some(node) = self.active().next().filter(|_| self.stopping).cloned() {
            out.push(FormationCommand::AskStop { node });
        }
        self.let_in(out);
    }
}

#[cfg(test)]
mod tests;
