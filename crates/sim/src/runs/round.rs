//! Rounds of a group: one step, or several that are done as one. A round happens on all ranks or on none.

use super::cluster::{Part, Process};
use super::group::{Group, LeftBy, Todo, Work};
use super::pace::{Heard, Pace, Progressed, RoundAhead};
use super::reasons;
use super::world::{SMALL, World};
use phalanx_protocol::progress::End;
use phalanx_protocol::{Vote, Wish, count, read_votes};
use phalanx_types::{Epoch, Time};
use phalanx_wire::train::{FromReplica, RankReport, StepReport, ValidSums};

/// Steps after which a replica that has not caught up gets the state while all wait.
const LATE: u64 = 20;

impl<P: Pace> World<'_, P> {
    /// Whether a group does several steps as one: replicas that learn alone, or stages that overlap.
    fn has_intervals(&self, group: &Group) -> bool {
        match &group.layout {
            Some(layout) if layout.replicas.len() == 1 => self.options.overlap.is_some(),
            _ => self.options.average_every.is_some(),
        }
    }

    /// Steps of the next round. An interval ends early where the model is validated; of stages that overlap also where
    /// it is saved, and no later than a copy of them is due.
    fn round_steps(&self, group: &Group) -> u64 {
        let Ok(progress) = self.passes.progress(group.step, Time::ZERO) else { return 1 };
        let single = group.layout.as_ref().is_some_and(|layout| layout.replicas.len() == 1);
        match (single, self.options.average_every, self.options.overlap) {
            (true, _, Some(unit)) => {
                let unit = if self.options.copies > 0 { self.options.copies } else { unit };
                progress.until_saved(unit)
            }
            (false, Some(every), _) => progress.until_looked_at(every),
            (true, _, None) | (false, None, _) => 1,
        }
    }

    pub(super) fn begin_round(&mut self) {
        let Some(group) = &self.group else { return };
        let steps = self.round_steps(group);
        let (epoch, ranks) = (group.epoch, group.members.len());
        let nodes: Vec<usize> = group.members.iter().map(|process| process.node).collect();
        let samples: Vec<usize> = (0..ranks).map(|rank| samples_of(group, rank)).collect();
        let mut computes = Vec::with_capacity(ranks);
        let times = self.pace.round(RoundAhead { nodes: &nodes, samples: &samples, steps }, &mut computes);
        if let Some(group) = &mut self.group {
            group.computes = computes;
        }
        self.begin_work(Todo::Round, times, steps);
        if ranks > 1 && ranks <= SMALL && self.options.refusals && self.dice.nodes.chance(1, 100) {
            let (on, waits) = (self.dice.nodes.index(ranks), self.dice.nodes.index(ranks));
            let process = self.group.as_ref().map(|group| group.members[waits]);
            let message = FromReplica::Waits { run: self.run_id(), epoch, on: on as u32, millis: 3000 };
            process.into_iter().for_each(|process| self.say(process, message.clone()));
        }
    }

    pub(super) fn on_work_ends(&mut self, epoch: Epoch, serial: u64) {
        let current = |group: &&mut Group| group.epoch == epoch && group.serial == serial && !group.over;
        let Some(work) = self.group.as_mut().filter(current).and_then(|group| group.work.take()) else {
            return;
        };
        match work.todo {
            Todo::Validate => {
                self.validated(|_| true);
                self.report_validation();
            }
            Todo::Round if self.fails_here() => return self.fail_group(),
            Todo::Round => {
                let Some(wish) = self.finish_round(&work, |_| true) else { return };
                self.report_steps(work.steps);
                self.let_land();
                self.after_round(wish, work.steps);
            }
            Todo::Wait => self.waited(),
            Todo::WaitForCommit => self.waited_for_commit(),
            Todo::Copy | Todo::Snapshot | Todo::End(_) => {}
        }
        self.proceed();
    }

    fn after_round(&mut self, wish: Wish, steps: u64) {
        let Some(group) = &mut self.group else { return };
        let step = group.step;
        let Ok(mut progress) = self.passes.progress(step - steps, Time::ZERO) else { return };
        let due = progress.on_steps(step, Time::ZERO);
        if due.validate {
            group.todo.push_back(Todo::Validate);
        }
        if due.checkpoint && due.end.is_none() {
            group.todo.push_back(Todo::Snapshot);
        }
        let next = match (due.end, wish) {
            (Some(End::Finished | End::Interrupted), _) | (None, Wish::Stop) => Todo::End(LeftBy::Done),
            (None, Wish::Reform) => Todo::End(LeftBy::Reform),
            (None, Wish::GoOn) => Todo::Round,
        };
        group.todo.push_back(next);
        self.copy_after_round(steps);
        self.answer_queries();
    }

    /// Counts the votes of a round; the ranks that have heard them all apply it.
    fn finish_round(&mut self, work: &Work, applies: impl Fn(usize) -> bool) -> Option<Wish> {
        let mut wish = Wish::GoOn;
        let mut reports = Vec::new();
        for index in 0..work.steps {
            let (report, wished) = self.count_step(work.steps, index)?;
            reports.push(report);
            wish = wish.max(wished);
        }
        let group = self.group.as_mut()?;
        group.step += work.steps;
        let (step, epoch, steps) = (group.step, group.epoch, work.steps);
        for rank in (0..group.members.len()).filter(|rank| applies(*rank)) {
            let cost = group.computes[rank] * 1e6 / (samples_of(group, rank).max(1) as f64 * steps as f64);
            let own = &mut self.nodes[group.members[rank].node].rank;
            if let Some(part) = &mut own.part {
                (part.step, part.pending) = (step, false);
            }
            own.cost = cost;
            for report in &reports {
                own.log.on_step(report.clone(), steps as usize);
            }
            if self.options.nodes <= SMALL {
                reports.iter().for_each(|report| own.see_step(report.step, steps as usize));
            }
        }
        if step <= self.tally.furthest {
            self.tally.redone += steps;
        }
        self.tally.futile = 0;
        self.tally.intervals += u64::from(steps > 1);
        self.tally.furthest = self.tally.furthest.max(step);
        (self.committed, self.last_round) = (step, step - steps..step);
        self.round_ends.insert(step);
        self.trace.line(self.now, format_args!("group {} has done step {step}, {wish:?}", epoch.0));
        self.progress(Progressed::RoundDone { steps });
        Some(wish)
    }

    /// Counts the votes on one step of a round; all samples of its batch must have been computed once.
    fn count_step(&mut self, steps: u64, index: u64) -> Option<(StepReport, Wish)> {
        let group = self.group.as_ref()?;
        let (step, epoch) = (group.step + index, group.epoch);
        let votes = self.votes(group, steps, index);
        let bytes: Vec<u8> = votes.iter().flat_map(Vote::to_bytes).collect();
        let counted = read_votes(&bytes).and_then(|votes| count(&votes));
        let outcome = match counted {
            Ok(outcome) => outcome,
            Err(error) => {
                self.violate(format!("votes cannot be counted: {error}"));
                return None;
            }
        };
        let wanted = (self.options.batch as u64, self.marks_of(step, 0..self.options.batch));
        if (outcome.samples, outcome.seen) != wanted {
            self.violate(format!("a batch of {} was computed as {outcome:?}", wanted.0));
            return None;
        }
        let rank =
            |vote: &Vote| RankReport { samples: vote.samples, compute_us: 1000, ..RankReport::default() };
        let small = votes.len() <= SMALL;
        let ranks = if small { votes.iter().map(rank).collect() } else { Vec::new() };
        let group = self.group.as_mut()?;
        // Shares change between rounds only, when all have computed with the same ones.
        if group.layout.is_none()
            && let Some(shares) = group.balance.on_votes(&votes, &group.shares)
            && index + 1 == steps
        {
            group.shares = shares;
        }
        let sealed = self.passes.pass_of(step);
        Some((
            StepReport { step: step + 1, epoch, seen: outcome.seen, ranks, sealed, ..StepReport::default() },
            outcome.wish,
        ))
    }

    /// Every sample of the batch belongs to one replica that holds the state.
    fn votes(&self, group: &Group, steps: u64, index: u64) -> Vec<Vote> {
        let batch = self.options.batch;
        let vote = |(rank, process): (usize, &Process)| {
            let share = match group.post(rank) {
                Some(post) => post.is_last().then_some(post.replica),
                None => Some(rank),
            };
            let range = share.map_or(0..0, |share| group.shares.range(share, batch));
            let (of, wish) = self.nodes[process.node].rank.wish;
            let step = group.step + index;
            Vote {
                step,
                loss: range.len() as f64 / batch as f64,
                samples: u32::try_from(range.len()).unwrap_or(u32::MAX),
                finite: true,
                wish: if of == group.epoch { wish } else { Wish::GoOn },
                compute_us: (group.computes[rank] / steps as f64 * 1e6) as u32,
                seen: self.marks_of(step, range),
                ..Vote::default()
            }
        };
        group.members.iter().enumerate().map(vote).collect()
    }

    /// The speaker reports the steps of the last round.
    fn report_steps(&mut self, steps: u64) {
        let Some(group) = &self.group else { return };
        let (epoch, speaker, before) = (group.epoch, group.members[group.speaker()], group.step - steps);
        if self.lives(speaker) {
            let steps = self.nodes[speaker.node].rank.log.since(before);
            self.say(speaker, FromReplica::Steps { run: self.run_id(), epoch, steps });
        }
    }

    /// Replicas that have caught up, or are late, hold the state from now on.
    fn let_land(&mut self) {
        let Some(group) = &mut self.group else { return };
        let (step, late) = (group.step, group.step >= group.from_step + LATE);
        let ops = phalanx_wire::train::Ops { start: 0, end: self.options.operators };
        let mut landed = false;
        for (level, process) in group.level.iter_mut().zip(&group.members).filter(|(level, _)| !**level) {
            let rank = &mut self.nodes[process.node].rank;
            if late || rank.caught.len() >= group.parts {
                rank.part = Some(Part { ops, step, pending: false });
                (*level, landed) = (true, true);
            }
        }
        if landed {
            self.share_out(false);
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
            self.say(speaker, FromReplica::Validated { run: self.run_id(), epoch, step, sums });
        }
    }

    /// A member is gone. Ranks that have heard all votes have done the round; those that gave theirs have gradients
    /// that may be of use.
    pub(super) fn interrupt(&mut self, dead: Process) {
        let member = |group: &&mut Group| !group.over && group.rank_of(dead).is_some();
        let Some(group) = self.group.as_mut().filter(member) else { return };
        group.over = true;
        let (work, members) = (group.work.take(), group.members.clone());
        let (speaker, anchor) = (group.speaker(), group.step);
        self.progress(Progressed::GroupOver);
        let Some(work) = work else { return };
        let after = self.since(work.since);
        let heard = self.pace.heard(after, work.times, members.len());
        let hears = |world: &Self, rank: usize| {
            heard[rank] == Heard::All && members[rank] != dead && world.lives(members[rank])
        };
        let hears: Vec<bool> = (0..members.len()).map(|rank| hears(self, rank)).collect();
        match work.todo {
            Todo::Round if hears.contains(&true) => {
                if self.finish_round(&work, |rank| hears[rank]).is_some() && hears[speaker] {
                    self.report_steps(work.steps);
                }
                self.leave_divided(anchor, &heard, &hears);
            }
            Todo::Round => {
                self.progress(Progressed::RoundLost { after });
                self.leave_divided(anchor, &heard, &hears);
            }
            Todo::Validate => {
                self.validated(|rank| hears[rank]);
                if hears[speaker] {
                    self.report_validation();
                }
            }
            Todo::Copy | Todo::Snapshot | Todo::Wait | Todo::WaitForCommit | Todo::End(_) => {}
        }
    }

    /// What stages keep of a round that some may not have done: gradients of a step that they voted on, or the state
    /// before an interval that they have done.
    fn leave_divided(&mut self, anchor: u64, heard: &[Heard], hears: &[bool]) {
        let Some(group) = self.group.as_ref().filter(|group| group.layout.is_some()) else { return };
        let intervals = self.has_intervals(group);
        for (number, process) in group.members.iter().enumerate() {
            let node = &mut self.nodes[process.node];
            let Some(part) = node.rank.part.as_mut().filter(|_| node.up) else { continue };
            let ops = part.ops;
            match (intervals, hears[number]) {
                (true, true) => node.rank.keep_copy(ops, anchor),
                (false, false) if heard[number] != Heard::Nothing => part.pending = true,
                (true | false, _) => {}
            }
        }
    }

    fn fails_here(&self) -> bool {
        let step = self.group.as_ref().map(|group| group.step);
        !self.has_failed && step.is_some() && self.options.fails_after == step
    }

    /// A rank has found that the run cannot go on; all ranks say so.
    fn fail_group(&mut self) {
        let Some(group) = &mut self.group else { return };
        group.over = true;
        self.has_failed = true;
        let (epoch, members) = (group.epoch, group.members.clone());
        let culprit = self.dice.nodes.index(members.len());
        let wrong_input = self.dice.nodes.chance(1, 3);
        for (rank, process) in members.into_iter().enumerate() {
            let why = match rank == culprit {
                true if wrong_input => reasons::wrong_input(),
                is_culprit => reasons::failed(is_culprit),
            };
            self.leave(process, epoch, why);
        }
    }
}

/// Samples of a rank in a step.
fn samples_of(group: &Group, rank: usize) -> usize {
    match group.post(rank) {
        Some(post) => group.shares.count(post.replica),
        None => group.shares.count(rank),
    }
}
