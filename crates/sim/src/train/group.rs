//! A group of replicas that steps together: computing, exchange, votes, and what follows from them.

use super::event::Event;
use super::node::Process;
use super::step::{Rhythm, Round};
use super::tally::Done;
use super::world::World;
use phalanx_protocol::{Balance, Left, Shares, Vote, Wish, better, count, read_votes};
use phalanx_types::{Epoch, Time};
use std::time::Duration;

/// With what the first rank copies its state for a checkpoint, while all wait.
const COPIED_BYTES_PER_SEC: f64 = 2e9;

/// Who trains together, and how far they are.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) epoch: Epoch,
    /// By rank.
    pub(super) members: Vec<Process>,
    /// Steps that all members have behind them.
    pub(super) step: u64,
    pub(super) begun: bool,
    /// It has come apart, or lost a member, known or not.
    pub(super) over: bool,
    pub(super) shares: Shares,
    balance: Balance,
    /// Ranks that were asked to let others in.
    asked: Vec<usize>,
    rounds: u64,
    round: Option<Underway>,
}

/// A round that is being computed.
#[derive(Debug)]
struct Underway {
    since: Time,
    steps: u64,
    parts: Round,
    /// By rank: seconds.
    computes: Vec<f64>,
}

impl World<'_> {
    /// A group is to begin with these members.
    pub(super) fn form(&mut self, epoch: Epoch, members: &[Process], step: u64) {
        for process in members {
            if self.lives(*process) {
                self.nodes[process.node].epoch = Some(epoch);
            }
        }
        let over = !members.iter().all(|process| self.lives(*process));
        let (batch, ranks) = (self.options.batch, members.len());
        if !self.rhythms.contains_key(&ranks) {
            let rhythm = Rhythm::new(self.work, self.options, &mut self.network, ranks);
            self.rhythms.insert(ranks, rhythm);
        }
        self.group = Some(Group {
            epoch,
            members: members.to_vec(),
            step,
            begun: false,
            over,
            shares: Shares::equal(batch, ranks),
            balance: Balance::new(batch, ranks),
            asked: Vec::new(),
            rounds: 0,
            round: None,
        });
    }

    pub(super) fn on_begins(&mut self, epoch: Epoch) {
        let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch && !group.over) else {
            return;
        };
        group.begun = true;
        let step = group.step;
        for process in &group.members {
            self.nodes[process.node].holds = Some(step);
        }
        // Those who know how fast they are say so when they come together.
        let costs: Vec<f64> = group.members.iter().map(|process| self.nodes[process.node].cost).collect();
        if costs.iter().all(|cost| *cost > 0.0)
            && let Some(shares) = better(self.options.batch, &costs, &group.shares)
        {
            group.shares = shares;
        }
        if let Some(since) = self.idle_since.take() {
            self.tally.reforming += self.now.since(since).as_secs_f64();
        }
        self.began.get_or_insert(self.now);
        self.check_group();
        self.next_round();
    }

    pub(super) fn on_asked(&mut self, process: Process, epoch: Epoch) {
        if let Some(group) = self.group.as_mut().filter(|group| group.epoch == epoch) {
            group.asked.extend(group.members.iter().position(|member| *member == process));
        }
    }

    /// Starts the next round of the group.
    fn next_round(&mut self) {
        self.check_shares();
        let per_sample = self.work.seconds_per_sample(self.options);
        let Some(group) = &mut self.group else { return };
        let left = self.options.steps.saturating_sub(group.step);
        let steps = u64::from(self.options.sync.every()).min(left);
        let jitter = self.options.jitter;
        let mut computes = Vec::with_capacity(group.members.len());
        for (rank, process) in group.members.iter().enumerate() {
            let noise =
                1.0 + jitter * (self.dice.compute.number(0..1 << 20) as f64 / f64::from(1 << 19) - 1.0);
            let samples = group.shares.count(rank) as f64 * steps as f64;
            computes.push(samples * per_sample * self.nodes[process.node].slow * noise);
        }
        let slowest = computes.iter().copied().fold(0.0, f64::max);
        let Some(rhythm) = self.rhythms.get(&group.members.len()) else { return };
        let parts = rhythm.round(slowest, steps);
        group.rounds += 1;
        group.round = Some(Underway { since: self.now, steps, parts, computes });
        let ends = Event::RoundEnds { epoch: group.epoch, round: group.rounds };
        let takes = Duration::try_from_secs_f64(parts.seconds()).unwrap_or(Duration::MAX);
        self.queue.push(self.now + takes, ends);
    }

    pub(super) fn on_round_ends(&mut self, epoch: Epoch, round: u64) {
        let of = |group: &&mut Group| group.epoch == epoch && group.rounds == round && !group.over;
        let Some(underway) = self.group.as_mut().filter(of).and_then(|group| group.round.take()) else {
            return;
        };
        let Some(wish) = self.finish(&underway, |_| true) else { return };
        self.check_group();
        let Some(group) = &self.group else { return };
        let step = group.step;
        let due = |every: u64| step / every != (step - underway.steps) / every;
        match wish {
            _ if step >= self.options.steps => self.come_apart(Left::Ended { step }),
            Wish::Stop => self.come_apart(Left::Ended { step }),
            // The copy is on its way before anybody leaves.
            Wish::Reform => {
                if self.options.checkpoint_every.is_some_and(|every| due(every.max(1))) {
                    self.save(step);
                }
                self.come_apart(Left::Reformed { step });
            }
            Wish::GoOn if self.options.checkpoint_every.is_some_and(|every| due(every.max(1))) => {
                let takes = self.save(step);
                self.queue.push(self.now + takes, Event::GoesOn { epoch, round });
            }
            Wish::GoOn => self.next_round(),
        }
    }

    /// The first rank copies its state, and sends it to the driver while it goes on.
    fn save(&mut self, step: u64) -> Duration {
        let bytes = self.work.state_bytes() as f64;
        let copies = bytes / COPIED_BYTES_PER_SEC;
        self.tally.saving += copies;
        let (copies, sends) = (Duration::from_secs_f64(copies), self.options.link.seconds(bytes));
        let at = self.now + copies + Duration::from_secs_f64(sends) + self.message();
        let process = self.group.as_ref().and_then(|group| group.members.first()).copied();
        if let Some(process) = process {
            self.queue.push(at, Event::Saved { process, step });
        }
        copies
    }

    /// The driver has a checkpoint, unless its sender died on the way.
    pub(super) fn on_saved(&mut self, process: Process, step: u64) {
        if self.lives(process) {
            self.saved = self.saved.max(step);
        }
    }

    pub(super) fn on_goes_on(&mut self, epoch: Epoch, round: u64) {
        let of = |group: &Group| group.epoch == epoch && group.rounds == round && !group.over;
        if self.group.as_ref().is_some_and(of) {
            self.next_round();
        }
    }

    /// All members leave at a boundary between steps.
    fn come_apart(&mut self, left: Left) {
        let Some(group) = &mut self.group else { return };
        group.over = true;
        let epoch = group.epoch;
        let all = group.members.iter().map(|process| (*process, left.clone())).collect();
        if matches!(left, Left::Reformed { .. }) {
            self.idle_since = Some(self.now);
        }
        self.leave(epoch, all);
    }

    /// A member is gone in the middle of a round. Those that have counted all votes apply the round; the others
    /// cannot any more.
    pub(super) fn interrupt(&mut self, epoch: Option<Epoch>) {
        let Some(group) = self.group.as_mut().filter(|group| Some(group.epoch) == epoch && !group.over)
        else {
            return;
        };
        group.over = true;
        let underway = group.round.take();
        self.idle_since.get_or_insert(self.now);
        let Some(underway) = underway else { return };
        let elapsed = self.now.since(underway.since).as_secs_f64();
        let (decided, latency) = (underway.parts.decided(), self.latency().as_secs_f64());
        // Votes come in one after the other; the last of them within the time of a message.
        let part = if latency > 0.0 { (elapsed - decided + latency) / latency } else { elapsed - decided };
        let mut applied = vec![false; underway.computes.len()];
        for applied in &mut applied {
            let at = self.dice.network.number(0..1_000_000) as f64 / 1e6;
            *applied = part >= 1.0 || part > at;
        }
        let survives = |rank: usize| {
            let member = self.group.as_ref().and_then(|group| group.members.get(rank));
            applied[rank] && member.is_some_and(|process| self.lives(*process))
        };
        let applied: Vec<bool> = (0..applied.len()).map(survives).collect();
        if applied.iter().any(|applied| *applied) {
            self.finish(&underway, |rank| applied[rank]);
        } else {
            let Some(group) = &self.group else { return };
            let computed = |(rank, seconds): (usize, &f64)| {
                let samples = group.shares.count(rank) as f64 * underway.steps as f64;
                if *seconds > 0.0 { samples * (elapsed / seconds).min(1.0) } else { samples }
            };
            self.tally.lost_samples += underway.computes.iter().enumerate().map(computed).sum::<f64>();
        }
    }

    /// Counts the votes of a round and applies it on the ranks that have heard them all.
    fn finish(&mut self, underway: &Underway, applies: impl Fn(usize) -> bool) -> Option<Wish> {
        let mut wish = Wish::GoOn;
        for index in 0..underway.steps {
            wish = wish.max(self.count_step(underway, index)?);
        }
        let group = self.group.as_mut()?;
        let before = group.step;
        group.step += underway.steps;
        for (rank, process) in group.members.iter().enumerate() {
            if applies(rank) {
                let node = &mut self.nodes[process.node];
                node.holds = Some(group.step);
                let samples = group.shares.count(rank).max(1) as f64 * underway.steps as f64;
                node.cost = underway.computes[rank] * 1e6 / samples;
            }
        }
        let step = group.step;
        if self.committed != before {
            self.violate(format!("step {before} is done again after step {}", self.committed));
        }
        self.committed = step;
        self.tally.futile = 0;
        self.tally.rounds.push(Done { steps: underway.steps, round: underway.parts });
        self.trace.line(self.now, format_args!("step {step}, {wish:?}"));
        self.trace.mix(step);
        Some(wish)
    }

    /// Counts the votes on one step of a round; all samples of its batch must have been computed once.
    fn count_step(&mut self, underway: &Underway, index: u64) -> Option<Wish> {
        let group = self.group.as_mut()?;
        let votes = votes(group, underway, index, &self.marks);
        let bytes: Vec<u8> = votes.flat_map(|vote| vote.to_bytes()).collect();
        let counted = read_votes(&bytes).and_then(|votes| Ok((count(&votes)?, votes)));
        let (outcome, votes) = match counted {
            Ok(counted) => counted,
            Err(error) => {
                self.violate(format!("votes cannot be counted: {error}"));
                return None;
            }
        };
        // Shares may only change between rounds, when all have computed with the same ones.
        if let Some(shares) = group.balance.on_votes(&votes, &group.shares)
            && index + 1 == underway.steps
        {
            self.trace.line(self.now, format_args!("rank {} was slowest, other shares", outcome.slowest));
            group.shares = shares;
        }
        let wanted = (self.options.batch as u64, self.marks.last().copied().unwrap_or(0));
        if (outcome.samples, outcome.seen) != wanted || outcome.differs.is_some() {
            self.violate(format!("a batch of {} was computed as {outcome:?}", wanted.0));
            return None;
        }
        Some(outcome.wish)
    }
}

/// What every rank says of one step of a round.
fn votes(group: &Group, underway: &Underway, index: u64, marks: &[u64]) -> impl Iterator<Item = Vote> {
    let micros = |seconds: f64| (seconds.max(0.0) * 1e6) as u32;
    let batch = group.shares.batch();
    underway.computes.iter().enumerate().map(move |(rank, seconds)| {
        let range = group.shares.range(rank, batch);
        let seconds = seconds / underway.steps as f64;
        Vote {
            step: group.step + index,
            loss: range.len() as f64 / batch as f64,
            samples: u32::try_from(range.len()).unwrap_or(u32::MAX),
            finite: true,
            wish: if group.asked.contains(&rank) { Wish::Reform } else { Wish::GoOn },
            compute_us: micros(seconds),
            exchange_us: micros(underway.parts.exposed),
            wait_us: micros(underway.parts.compute / underway.steps as f64 - seconds),
            seen: marks[range.end].wrapping_sub(marks[range.start]),
            ..Vote::default()
        }
    })
}
