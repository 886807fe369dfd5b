//! A group of ranks that steps together: computing, votes, validations, checkpoints, copies.

use super::cluster::{Part, Process};
use super::world::{Event, RUN, World};
use phalanx_protocol::layout::{self, Post};
use phalanx_protocol::progress::{End, Progress};
use phalanx_protocol::{Shares, Vote, Wish, count, read_votes};
use phalanx_types::{Epoch, Time};
use phalanx_wire::train::{FromReplica, Layout, LeftWhy, RankReport, StepReport, ValidSums};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Checkpoints of a rank that the driver has not fetched, at most.
const MOST_UNTAKEN: usize = 2;
/// The part of a step after which ranks begin to vote.
const VOTES_AFTER: f64 = 0.8;

/// What a group does next.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Todo {
    Step,
    Validate,
    Snapshot,
    End(LeftBy),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum LeftBy {
    Reform,
    Done,
}

/// What a group does now.
#[derive(Debug, Clone, Copy)]
struct Work {
    todo: Todo,
    since: Time,
    takes: Duration,
}

/// Who trains together, and how far they are.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) epoch: Epoch,
    /// By rank.
    pub(super) members: Vec<Process>,
    layout: Option<Layout>,
    posts: Vec<Post>,
    /// Steps that all members have behind them.
    pub(super) step: u64,
    /// By rank: the step from which it holds the state.
    level_from: Vec<Option<u64>>,
    joined: BTreeSet<usize>,
    pub(super) begun: bool,
    /// It has come apart, or lost a member, known or not.
    pub(super) over: bool,
    serial: u64,
    todo: VecDeque<Todo>,
    work: Option<Work>,
    stalled: bool,
    /// Copies under way: their step, and the ranks whose copies have arrived.
    copying: Option<(u64, BTreeSet<usize>)>,
}

impl Group {
    pub(super) fn new(
        epoch: Epoch,
        members: Vec<Process>,
        layout: Option<Layout>,
        step: u64,
        level: &[bool],
    ) -> Self {
        Self {
            epoch,
            members,
            posts: layout.as_ref().map(layout::posts).unwrap_or_default(),
            layout,
            step,
            level_from: level.iter().map(|level| level.then_some(step)).collect(),
            joined: BTreeSet::new(),
            begun: false,
            over: false,
            serial: 0,
            todo: VecDeque::new(),
            work: None,
            stalled: false,
            copying: None,
        }
    }

    pub(super) fn post(&self, rank: usize) -> Option<Post> {
        self.posts.get(rank).copied()
    }

    pub(super) fn is_level(&self, rank: usize) -> bool {
        self.level_from[rank].is_some_and(|from| from <= self.step)
    }

    /// The rank that reports for all: the first that holds the state.
    fn speaker(&self) -> usize {
        (0..self.members.len()).find(|rank| self.is_level(*rank)).unwrap_or(0)
    }

    fn copies(&self) -> bool {
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

impl World<'_> {
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
        for rank in 0..members.len() {
            if let Some(group) = &mut self.group
                && group.level_from[rank].is_none()
            {
                // It gets the state while the others go on.
                group.level_from[rank] = Some(step + 1 + self.dice.compute.number(0..4));
            }
        }
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
        let progress = Progress::new(self.plan, self.plan.place(step), Time::ZERO);
        let (due, done) = (progress.due_here(), progress.is_done());
        let recorded = self.nodes[members[0].node].rank.recorded;
        let Some(group) = &mut self.group else { return };
        if due.validate && recorded.validated < step {
            group.todo.push_back(Todo::Validate);
        }
        if due.checkpoint && recorded.saved < step {
            group.todo.push_back(Todo::Snapshot);
        }
        group.todo.push_back(if done { Todo::End(LeftBy::Done) } else { Todo::Step });
        self.proceed();
    }

    /// Does the next thing.
    fn proceed(&mut self) {
        let Some(group) = self.group.as_mut().filter(|group| group.begun && !group.over) else { return };
        let Some(todo) = group.todo.pop_front() else { return };
        match todo {
            Todo::Step | Todo::Validate => {
                let part = self.dice.compute.number(500..1500) as f64 / 1e3;
                let takes = self.options.step.mul_f64(if todo == Todo::Step { part } else { 2.0 * part });
                group.serial += 1;
                group.work = Some(Work { todo, since: self.now, takes });
                let (epoch, serial) = (group.epoch, group.serial);
                self.queue.push(self.now + takes, Event::WorkEnds { epoch, serial });
            }
            Todo::Snapshot => {
                let savers: Vec<Process> = group.savers().iter().map(|rank| group.members[*rank]).collect();
                let (epoch, step, staged) = (group.epoch, group.step, group.layout.is_some());
                let full = |process: &Process| {
                    let untaken = self.nodes[process.node].rank.untaken.values();
                    untaken.filter(|(of, ..)| *of == epoch).count() >= MOST_UNTAKEN
                };
                if savers.iter().any(full) {
                    group.todo.push_front(Todo::Snapshot);
                    group.stalled = true;
                    return;
                }
                self.owed.insert((epoch, step), savers.iter().copied().collect());
                for process in savers {
                    let ops = self.nodes[process.node].rank.part.map(|part| part.ops).filter(|_| staged);
                    self.say_snapshot(process, epoch, ops);
                }
                self.proceed();
            }
            Todo::End(by) => {
                group.over = true;
                let (epoch, members) = (group.epoch, group.members.clone());
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

    /// A checkpoint was fetched: a group that waited for that goes on.
    pub(super) fn unstall(&mut self) {
        if let Some(group) = self.group.as_mut().filter(|group| group.stalled) {
            group.stalled = false;
            self.proceed();
        }
    }

    pub(super) fn on_work_ends(&mut self, epoch: Epoch, serial: u64) {
        let current = |group: &&mut Group| group.epoch == epoch && group.serial == serial && !group.over;
        let Some(work) = self.group.as_mut().filter(current).and_then(|group| group.work.take()) else {
            return;
        };
        let ranks = self.group.as_ref().map_or(0, |group| group.members.len());
        match work.todo {
            Todo::Validate => {
                self.validated(|_| true);
                self.report_validation();
            }
            _ => {
                let Some(wish) = self.step(&vec![true; ranks]) else { return };
                self.report_step();
                self.after_step(wish);
            }
        }
        self.proceed();
    }

    fn after_step(&mut self, wish: Wish) {
        let Some(group) = &mut self.group else { return };
        let step = group.step;
        let due = Progress::new(self.plan, self.plan.place(step - 1), Time::ZERO).on_step(Time::ZERO, false);
        if due.validate {
            group.todo.push_back(Todo::Validate);
        }
        if due.checkpoint && due.end.is_none() {
            group.todo.push_back(Todo::Snapshot);
        }
        let next = match (due.end, wish) {
            (Some(End::Finished | End::Interrupted), _) | (None, Wish::Stop) => Todo::End(LeftBy::Done),
            (None, Wish::Reform) => Todo::End(LeftBy::Reform),
            (None, Wish::GoOn) => Todo::Step,
        };
        group.todo.push_back(next);
        self.let_go_of_copies();
        let Some(group) = &self.group else { return };
        let every = self.options.copies;
        if group.copies() && every > 0 && step.is_multiple_of(every) && group.copying.is_none() {
            self.copy_now();
        }
    }

    /// Counts the votes of a step; the ranks that have heard them all apply it.
    fn step(&mut self, applies: &[bool]) -> Option<Wish> {
        let group = self.group.as_ref()?;
        let votes = self.votes(group);
        let bytes: Vec<u8> = votes.iter().flat_map(Vote::to_bytes).collect();
        let counted = read_votes(&bytes).and_then(|votes| count(&votes));
        let outcome = match counted {
            Ok(outcome) => outcome,
            Err(error) => {
                self.violate(format!("votes cannot be counted: {error}"));
                return None;
            }
        };
        let rank =
            |vote: &Vote| RankReport { samples: vote.samples, compute_us: 1000, ..RankReport::default() };
        let report = StepReport {
            step: group.step + 1,
            epoch: group.epoch,
            seen: outcome.seen,
            ranks: votes.iter().map(rank).collect(),
            ..StepReport::default()
        };
        let group = self.group.as_mut()?;
        group.step += 1;
        let (step, members) = (group.step, group.members.clone());
        let all = phalanx_wire::train::Ops { start: 0, end: self.options.operators };
        for (number, process) in members.iter().enumerate().filter(|(number, _)| applies[*number]) {
            let level = self.group.as_ref().is_some_and(|group| group.is_level(number));
            let rank = &mut self.nodes[process.node].rank;
            match &mut rank.part {
                Some(part) => (part.step, part.pending) = (step, false),
                None if level => rank.part = Some(Part { ops: all, step, pending: false }),
                None => {}
            }
            rank.log.on_step(report.clone(), 1);
            rank.seen_steps.insert(step);
        }
        if step <= self.tally.furthest {
            self.tally.redone += 1;
        }
        self.tally.furthest = self.tally.furthest.max(step);
        Some(outcome.wish)
    }

    /// Every sample of the batch belongs to one replica that holds the state.
    fn votes(&self, group: &Group) -> Vec<Vote> {
        let batch = self.options.batch;
        let level: Vec<bool> = (0..group.members.len()).map(|rank| group.is_level(rank)).collect();
        let shares = match &group.layout {
            Some(layout) => layout::shares(layout),
            None => Shares::equal(batch, level.iter().filter(|level| **level).count().max(1)).among(&level),
        };
        let vote = |(rank, process): (usize, &Process)| {
            let share = match group.post(rank) {
                Some(post) => post.is_last().then_some(post.replica),
                None => Some(rank),
            };
            let range = share.map_or(0..0, |share| shares.range(share, batch));
            let (of, wish) = self.nodes[process.node].rank.wish;
            Vote {
                step: group.step,
                loss: range.len() as f64 / batch as f64,
                samples: range.len() as u32,
                finite: true,
                wish: if of == group.epoch { wish } else { Wish::GoOn },
                seen: self.marks[range.end].wrapping_sub(self.marks[range.start]),
                ..Vote::default()
            }
        };
        group.members.iter().enumerate().map(vote).collect()
    }

    /// The speaker reports the step that was done last.
    fn report_step(&mut self) {
        let Some(group) = &self.group else { return };
        let (epoch, speaker, step) = (group.epoch, group.members[group.speaker()], group.step);
        if self.lives(speaker) {
            let steps = self.nodes[speaker.node].rank.log.since(step - 1);
            self.say(speaker, FromReplica::Steps { run: RUN, epoch, steps });
        }
    }

    /// The model was validated, as some ranks have heard.
    fn validated(&mut self, hears: impl Fn(usize) -> bool) {
        let Some(group) = &self.group else { return };
        let (step, members) = (group.step, group.members.clone());
        for (_, process) in members.iter().enumerate().filter(|(rank, _)| hears(*rank)) {
            let rank = &mut self.nodes[process.node].rank;
            rank.log.on_valid(step, ValidSums::default());
            rank.seen_validations.insert(step);
        }
    }

    fn report_validation(&mut self) {
        let Some(group) = &self.group else { return };
        let (epoch, step, speaker) = (group.epoch, group.step, group.members[group.speaker()]);
        if self.lives(speaker) {
            let sums = ValidSums::default();
            self.say(speaker, FromReplica::Validated { run: RUN, epoch, step, sums });
        }
    }

    /// Every stage keeps a copy of its part, and sends it to the next stage.
    fn copy_now(&mut self) {
        let Some(group) = &mut self.group else { return };
        let (epoch, step, members) = (group.epoch, group.step, group.members.clone());
        group.copying = Some((step, BTreeSet::new()));
        for (rank, process) in members.iter().enumerate() {
            let own = &mut self.nodes[process.node].rank;
            let Some(part) = own.part else { continue };
            own.copies.retain(|copy| *copy != (part.ops, step));
            own.copies.push((part.ops, step));
            let at = self.now + self.transfer();
            self.queue.push(at, Event::CopyArrives { epoch, step, rank });
        }
    }

    pub(super) fn on_copy_arrives(&mut self, epoch: Epoch, step: u64, rank: usize) {
        let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch && !group.over) else {
            return;
        };
        let Some(ops) = group.post(rank).map(|post| post.ops) else { return };
        let keeper = group.members[(rank + 1) % group.members.len()];
        if let Some((of, arrived)) = &mut group.copying
            && *of == step
        {
            arrived.insert(rank);
            let copies = &mut self.nodes[keeper.node].rank.copies;
            copies.retain(|copy| *copy != (ops, step));
            copies.push((ops, step));
        }
    }

    /// Copies are let go when newer ones have arrived everywhere.
    fn let_go_of_copies(&mut self) {
        let Some(group) = &mut self.group else { return };
        let ranks = group.members.len();
        if let Some((step, _)) = group.copying.take_if(|(_, arrived)| arrived.len() == ranks) {
            for process in &group.members {
                self.nodes[process.node].rank.copies.retain(|(_, of)| *of >= step);
            }
        }
    }

    /// A member is gone. Ranks that have heard all votes have applied the step; those that gave theirs have gradients
    /// that may be of use.
    pub(super) fn interrupt(&mut self, dead: Process) {
        let Some(group) = self.group.as_mut().filter(|group| !group.over && group.members.contains(&dead))
        else {
            return;
        };
        group.over = true;
        let Some(work) = group.work.take() else { return };
        let ranks = group.members.len();
        let elapsed = self.now.since(work.since).as_secs_f64();
        if elapsed < VOTES_AFTER * work.takes.as_secs_f64() {
            return;
        }
        let decided = self.dice.faults.chance(1, 2);
        let lucky: Vec<bool> = (0..ranks).map(|_| self.dice.faults.chance(1, 2)).collect();
        let alive = |world: &Self, rank: usize| {
            world.group.as_ref().is_some_and(|group| world.lives(group.members[rank]))
        };
        let hears: Vec<bool> = (0..ranks).map(|rank| decided && lucky[rank] && alive(self, rank)).collect();
        let speaker = self.group.as_ref().map_or(0, Group::speaker);
        match work.todo {
            Todo::Step => {
                if hears.contains(&true) && self.step(&hears).is_some() && hears[speaker] {
                    self.report_step();
                }
                self.leave_pending(decided, &hears, &lucky);
            }
            _ => {
                self.validated(|rank| hears[rank]);
                if hears[speaker] {
                    self.report_validation();
                }
            }
        }
    }

    /// Stages that gave their votes and heard no others keep their gradients.
    fn leave_pending(&mut self, decided: bool, hears: &[bool], lucky: &[bool]) {
        let Some(group) = self.group.as_ref().filter(|group| group.layout.is_some()) else { return };
        for (number, process) in group.members.iter().enumerate() {
            let voted = decided || lucky[number];
            if self.nodes[process.node].up
                && !hears[number]
                && voted
                && let Some(part) = &mut self.nodes[process.node].rank.part
            {
                part.pending = true;
            }
        }
    }

    /// Every member that lives notices sooner or later that its group is over.
    pub(super) fn break_group(&mut self, epoch: Epoch, known: Duration) {
        let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch) else { return };
        group.over = true;
        for process in group.members.clone() {
            let at = self.now + known + self.message();
            self.queue.push(at, Event::Notices { process, epoch });
        }
    }
}
