//! A group of ranks that trains together: how it begins, what it does next, how it comes apart.

use super::cluster::{Part, Process};
use super::event::Event;
use super::pace::{Pace, Progressed, RoundTimes};
use super::world::World;
use phalanx_protocol::layout::{self, Post};
use phalanx_protocol::{Balance, Shares, better};
use phalanx_types::{Epoch, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::train::{FromReplica, Layout, LeftWhy, PartRef, StateRef};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Checkpoints of a rank that the driver has not fetched, at most.
const MOST_UNTAKEN: usize = 2;
/// Nodes that a replica gets the state from while it catches up, at most.
const MOST_HOLDERS: usize = 4;

/// How often a group that waits for a commit asks the store again.
const ONE_WAIT: Duration = Duration::from_millis(500);

/// What a group does next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Todo {
    /// A step, or several that are done as one.
    Round,
    Validate,
    Snapshot,
    /// For the next pass over a stream.
    Wait,
    /// For the store, which frees samples when it has heard of a checkpoint.
    WaitForCommit,
    /// The state is copied for a checkpoint.
    Copy,
    End(LeftBy),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LeftBy {
    Reform,
    Done,
}

/// What a group does now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) todo: Todo,
    pub(super) since: Time,
    pub(super) times: RoundTimes,
    /// Of a round.
    pub(super) steps: u64,
}

/// What a member holds when its group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The state that the group begins with.
    Level,
    /// An older one.
    Behind,
    /// None.
    New,
}

/// The members of a group, and how far they are.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) epoch: Epoch,
    /// By rank.
    pub(super) members: Vec<Process>,
    ranks: BTreeMap<Process, usize>,
    pub(super) layout: Option<Layout>,
    posts: Vec<Post>,
    /// Whether members came without the state, and with an older one.
    has_new: bool,
    has_behind: bool,
    /// Steps that all members have behind them.
    pub(super) step: u64,
    /// Steps that it began with.
    pub(super) from_step: u64,
    /// By rank: whether it holds the state.
    pub(super) level: Vec<bool>,
    /// Parts of the state that a replica needs to catch up.
    pub(super) parts: usize,
    pub(super) shares: Shares,
    pub(super) balance: Balance,
    /// By rank: seconds that it computes in the present round.
    pub(super) computes: Vec<f64>,
    joined: BTreeSet<usize>,
    pub(super) begun: bool,
    /// It has come apart, or lost a member, known or not.
    pub(super) over: bool,
    pub(super) serial: u64,
    pub(super) todo: VecDeque<Todo>,
    pub(super) work: Option<Work>,
    stalled: Option<Time>,
    /// The step before which it has looked for a pass.
    pub(super) entered: Option<u64>,
    /// Since when it waits for the store to hear of a checkpoint of its step.
    pub(super) waits_since: Option<Time>,
    /// When it last saved while the store waited for its commit.
    pub(super) saved_for_store: Option<Time>,
    /// Copies under way: their step, and the ranks whose copies have arrived.
    pub(super) copying: Option<(u64, BTreeSet<usize>)>,
}

impl Group {
    pub(super) fn new(
        epoch: Epoch,
        members: Vec<Process>,
        layout: Option<Layout>,
        step: u64,
        standings: &[Standing],
        batch: usize,
    ) -> Self {
        let ranks = members.len();
        Self {
            epoch,
            ranks: members.iter().enumerate().map(|(rank, process)| (*process, rank)).collect(),
            posts: layout.as_ref().map(layout::posts).unwrap_or_default(),
            shares: layout.as_ref().map_or_else(|| Shares::equal(batch, ranks), layout::shares),
            balance: Balance::new(batch, ranks),
            members,
            layout,
            level: standings.iter().map(|standing| *standing == Standing::Level).collect(),
            has_new: standings.contains(&Standing::New),
            has_behind: standings.contains(&Standing::Behind),
            step,
            from_step: step,
            parts: 0,
            computes: Vec::new(),
            joined: BTreeSet::new(),
            begun: false,
            over: false,
            serial: 0,
            todo: VecDeque::new(),
            work: None,
            stalled: None,
            entered: None,
            waits_since: None,
            saved_for_store: None,
            copying: None,
        }
    }

    pub(super) fn post(&self, rank: usize) -> Option<Post> {
        self.posts.get(rank).copied()
    }

    pub(super) fn rank_of(&self, process: Process) -> Option<usize> {
        self.ranks.get(&process).copied()
    }

    /// The rank that reports for all: the first that holds the state.
    pub(super) fn speaker(&self) -> usize {
        self.level.iter().position(|level| *level).unwrap_or(0)
    }

    /// Whether stages keep copies of each other.
    pub(super) fn copies(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.replicas.len() == 1 && self.members.len() > 1)
    }

    /// Ranks whose states make a checkpoint.
    fn savers(&self) -> Vec<usize> {
        match self.posts.is_empty() {
            true => vec![self.speaker()],
            false => (0..self.members.len()).filter(|rank| self.posts[*rank].replica == 0).collect(),
        }
    }
}

impl<P: Pace> World<'_, P> {
    /// Whether members that lack the state of a group get it while the others go on.
    fn catches_up(&self, group: &Group) -> bool {
        let worth = self.options.catch_up && self.options.average_every.is_none() && group.from_step > 0;
        worth && group.has_new && !group.has_behind
    }

    /// Whether members take over the state of a group before it goes on.
    pub(super) fn takes_over(&self, group: &Group) -> bool {
        (group.has_new || group.has_behind) && !self.catches_up(group)
    }

    /// A member is connected and has its part of the state; the group begins when all are.
    pub(super) fn join(&mut self, rank: usize) {
        let Some(group) = self.group.as_mut().filter(|group| !group.over) else { return };
        group.joined.insert(rank);
        if group.joined.len() < group.members.len() || group.begun {
            return;
        }
        group.begun = true;
        let (epoch, step, members) = (group.epoch, group.step, group.members.clone());
        let copies = group.copies() && self.options.copies > 0;
        self.level_state();
        for process in &members {
            let rank = &mut self.nodes[process.node].rank;
            if !copies {
                rank.copies.clear();
            }
            rank.log.forget_after(step);
            rank.seen_steps.split_off(&(step + 1));
            rank.seen_validations.split_off(&(step + 1));
            let recorded = rank.recorded;
            self.repeat(*process, epoch, recorded, step);
        }
        if copies {
            self.copy_now();
        }
        self.progress(Progressed::GroupBegan);
        self.make_up();
        self.proceed();
    }

    /// Members that lack the state take it over, or begin to catch up.
    fn level_state(&mut self) {
        let Some(group) = self.group.as_ref().filter(|group| group.layout.is_none()) else { return };
        let (epoch, step, members) = (group.epoch, group.step, group.members.clone());
        let catches_up = self.catches_up(group);
        let new: Vec<usize> = (0..members.len()).filter(|rank| !group.level[*rank]).collect();
        let holders: Vec<Process> =
            (0..members.len()).filter(|rank| group.level[*rank]).map(|rank| members[rank]).collect();
        let ops = self.all_ops();
        for rank in &new {
            let own = &mut self.nodes[members[*rank].node].rank;
            own.part = (!catches_up).then_some(Part { ops, step, pending: false });
        }
        let parts = holders.len().min(MOST_HOLDERS);
        if let Some(group) = &mut self.group {
            group.parts = parts;
            new.iter().for_each(|rank| group.level[*rank] = !catches_up);
        }
        self.share_out(true);
        if catches_up {
            for (part, holder) in holders.into_iter().take(parts).enumerate() {
                self.blobs += 1;
                let state = StateRef { step, bytes: 1, blob: BlobId(self.blobs) };
                let part = PartRef { part: part as u32, parts: parts as u32, state };
                self.say(holder, FromReplica::Part { run: self.run_id(), epoch, part });
            }
        }
    }

    /// Shares out batches among the replicas that hold the state, by their speed where it is known.
    pub(super) fn share_out(&mut self, known: bool) {
        let batch = self.options.batch;
        let Some(group) = self.group.as_mut().filter(|group| group.layout.is_none()) else { return };
        let levels = || group.members.iter().zip(&group.level).filter(|(_, level)| **level);
        let costs: Vec<f64> = levels().map(|(process, _)| self.nodes[process.node].rank.cost).collect();
        let equal = Shares::equal(batch, costs.len().max(1));
        let known = known && costs.iter().all(|cost| *cost > 0.0);
        let fast = known.then(|| better(batch, &costs, &equal)).flatten();
        group.shares = fast.unwrap_or(equal).among(&group.level);
        group.balance = Balance::new(batch, group.members.len());
    }

    /// Does what was due when the group before broke, then goes on.
    fn make_up(&mut self) {
        let Some(group) = &mut self.group else { return };
        let step = group.step;
        let progress = self.passes.progress(step, Time::ZERO);
        let (due, done) =
            progress.map(|progress| (progress.due_here(), progress.is_done())).unwrap_or_default();
        let recorded = self.nodes[group.members[0].node].rank.recorded;
        if due.validate && recorded.validated < step {
            group.todo.push_back(Todo::Validate);
        }
        if due.checkpoint && recorded.saved < step {
            group.todo.push_back(Todo::Snapshot);
        }
        group.todo.push_back(if done { Todo::End(LeftBy::Done) } else { Todo::Round });
    }

    /// Does the next thing.
    pub(super) fn proceed(&mut self) {
        let Some(group) = self.group.as_mut().filter(|group| group.begun && !group.over) else { return };
        let Some(todo) = group.todo.pop_front() else { return };
        match todo {
            Todo::Round => {
                if self.enter_pass() {
                    self.begin_round();
                }
            }
            Todo::Validate => {
                let takes = self.pace.validating();
                self.begin_work(todo, RoundTimes { decided: takes.mul_f64(0.8), takes }, 0);
            }
            Todo::Snapshot => self.snapshot(),
            // Begun where a pass begins.
            Todo::Wait => {}
            Todo::WaitForCommit => {
                self.begin_work(todo, RoundTimes { decided: ONE_WAIT, takes: ONE_WAIT }, 0)
            }
            Todo::Copy => {
                let takes = self.pace.copying();
                self.progress(Progressed::Saved { waited: takes });
                match takes.is_zero() {
                    true => self.proceed(),
                    false => self.begin_work(todo, RoundTimes { decided: takes, takes }, 0),
                }
            }
            Todo::End(by) => {
                group.over = true;
                let (epoch, members) = (group.epoch, group.members.clone());
                if by == LeftBy::Reform {
                    self.progress(Progressed::GroupOver);
                }
                for process in members {
                    let why = match by {
                        LeftBy::Reform => LeftWhy::Reformed,
                        LeftBy::Done => LeftWhy::Ended,
                    };
                    self.leave(process, epoch, why);
                }
            }
        }
    }

    pub(super) fn begin_work(&mut self, todo: Todo, times: RoundTimes, steps: u64) {
        let Some(group) = &mut self.group else { return };
        group.serial += 1;
        group.work = Some(Work { todo, since: self.now, times, steps });
        let (epoch, serial) = (group.epoch, group.serial);
        self.schedule(self.now + times.takes, Event::WorkEnds { epoch, serial });
    }

    /// Tells the driver of a checkpoint, unless it has not fetched those before.
    fn snapshot(&mut self) {
        let Some(group) = &mut self.group else { return };
        let savers: Vec<Process> = group.savers().iter().map(|rank| group.members[*rank]).collect();
        let (epoch, step, staged) = (group.epoch, group.step, group.layout.is_some());
        let full = |process: &Process| {
            let untaken = self.nodes[process.node].rank.untaken.values();
            untaken.filter(|(of, ..)| *of == epoch).count() >= MOST_UNTAKEN
        };
        if savers.iter().any(full) {
            group.todo.push_front(Todo::Snapshot);
            group.stalled.get_or_insert(self.now);
            return;
        }
        group.todo.push_front(Todo::Copy);
        self.owed.insert((epoch, step), savers.iter().copied().collect());
        for process in savers {
            let ops = self.nodes[process.node].rank.part.map(|part| part.ops).filter(|_| staged);
            self.say_snapshot(process, epoch, ops);
        }
        self.proceed();
    }

    /// A checkpoint was fetched: a group that waited for that goes on.
    pub(super) fn unstall(&mut self) {
        if let Some(since) = self.group.as_mut().and_then(|group| group.stalled.take()) {
            let waited = self.since(since);
            self.progress(Progressed::Saved { waited });
            self.proceed();
        }
    }

    /// Every member that lives notices sooner or later that its group is over.
    pub(super) fn break_group(&mut self, epoch: Epoch, known: Duration) {
        let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch) else { return };
        group.over = true;
        for process in group.members.clone() {
            let at = self.now + known + self.pace.message();
            self.schedule(at, Event::Notices { process, epoch });
        }
    }
}
