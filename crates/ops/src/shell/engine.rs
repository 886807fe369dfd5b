//! One rank's part in all operations. One thread at a time drives it: a caller that waits, or the background thread.

mod farewell;

use super::channel::Channel;
use super::completion::{Completion, Outcome};
use super::connect::locked;
use super::execute::{Executor, Work};
use super::shared::{Request, Shared};
use super::tuning_log::TuningLog;
use crate::core::leader::{Leader, LeaderCommand};
use crate::core::local::{DuplicateName, LocalRank, RankCommand, RunUnit};
use crate::core::messages::{OpKey, ToLeader, ToRank};
use crate::core::tuner::BucketTuner;
use crate::error::OpsError;
use crate::shell::api::Stall;
use phalanx_types::{Outbox, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a rank waits to hear which rank is lost, after a collective has failed.
const BLAME: Duration = Duration::from_secs(2);

/// What only the leader has.
#[derive(Debug)]
pub(super) struct LeaderSide {
    core: Leader,
    out: Outbox<LeaderCommand>,
    tuner: Option<BucketTuner>,
    log: Option<TuningLog>,
    /// When to look again for what waits too long.
    next_look: Time,
}

impl LeaderSide {
    pub(super) fn new(core: Leader, tuner: Option<BucketTuner>, log: Option<TuningLog>) -> Self {
        Self { core, out: Outbox::default(), tuner, log, next_look: Time::ZERO }
    }
}

/// What this rank does next, in the leader's order.
#[derive(Debug)]
enum Next {
    Batch(Vec<Work>),
    AllJoined { last: u32 },
    LeaderLeft,
}

#[derive(Debug)]
pub(super) struct Engine {
    rank: u32,
    size: u32,
    local: LocalRank,
    leader: Option<LeaderSide>,
    channels: BTreeMap<u32, Channel>,
    executor: Executor,
    issued: BTreeMap<OpKey, Work>,
    queue: VecDeque<Next>,
    join: Option<Arc<Completion>>,
    origin: Instant,
    over: Option<OpsError>,
    /// Whether streams may have something although rings carry the messages.
    look_at_streams: bool,
    /// Ranks that know that this rank leaves.
    farewells: BTreeSet<u32>,
    /// This rank leaves, and decides nothing more.
    leaving: bool,
}

impl Engine {
    pub(super) fn new(
        rank: u32,
        size: u32,
        leader: Option<LeaderSide>,
        channels: BTreeMap<u32, Channel>,
        executor: Executor,
    ) -> Self {
        Self {
            rank,
            size,
            local: LocalRank::default(),
            leader,
            channels,
            executor,
            issued: BTreeMap::new(),
            queue: VecDeque::new(),
            join: None,
            origin: Instant::now(),
            over: None,
            look_at_streams: false,
            farewells: BTreeSet::new(),
            leaving: false,
        }
    }

    /// Does what can be done without waiting, and one batch if `compute`. `false` if there was nothing to do.
    pub(super) fn turn(&mut self, shared: &Shared, compute: bool) -> bool {
        let mut progress = false;
        for request in shared.take_requests() {
            progress = true;
            self.take_request(shared, request);
        }
        progress |= self.hear(shared);
        self.lead(shared);
        if self.over.is_some() {
            self.fail_all(shared);
            return false;
        }
        if compute && let Some(next) = self.queue.pop_front() {
            progress = true;
            // A collective waits for the other ranks, which must know that it has begun.
            self.ring_bells();
            self.perform(shared, next);
        }
        progress
    }

    fn take_request(&mut self, shared: &Shared, request: Request) {
        if let Some(over) = &self.over {
            return request.completion().finish(Err(over.clone()));
        }
        match request {
            Request::Operate(work) => {
                match self.local.issue(&work.name, &work.signature) {
                    Ok(message) => {
                        self.issued.insert((work.signature.set, work.name.clone()), work);
                        self.say(shared, message);
                    }
                    Err(DuplicateName) => {
                        if let Some(completion) = work.completion {
                            completion.finish(Err(OpsError::Duplicate { name: work.name }));
                        }
                    }
                };
            }
            Request::Join(completion) => match self.local.join() {
                Some(message) => {
                    self.join = Some(completion);
                    self.say(shared, message);
                }
                None => completion.finish(Err(OpsError::Duplicate { name: "join".to_owned() })),
            },
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// Tells the leader, which may be this rank.
    fn say(&mut self, shared: &Shared, message: ToLeader) {
        let now = self.now();
        if let Some(leader) = &mut self.leader {
            leader.core.on_message(now, self.rank, message, &mut leader.out);
            self.carry_out(shared);
        } else if let Some(channel) = self.channels.get_mut(&0)
            && let Err(error) = channel.send(&message)
        {
            // The stream closes, and then the leader is lost.
            tracing::debug!(%error, "could not tell the leader");
        }
    }

    /// Takes what other ranks have said.
    fn hear(&mut self, shared: &Shared) -> bool {
        shared.set_hearing(true);
        let progress = self.hear_channels(shared);
        shared.set_hearing(false);
        progress
    }

    fn hear_channels(&mut self, shared: &Shared) -> bool {
        let stream = std::mem::take(&mut self.look_at_streams) | shared.hung_up.swap(false, Ordering::AcqRel);
        let mut progress = false;
        let ranks: Vec<u32> = self.channels.keys().copied().collect();
        for rank in ranks {
            let Some(channel) = self.channels.get_mut(&rank) else { continue };
            let received = channel.flush().and_then(|()| channel.receive(stream));
            let mut broken = received.is_err();
            while !broken {
                let heard = if self.leader.is_some() {
                    self.hear_rank(shared, rank)
                } else {
                    self.hear_leader(shared)
                };
                match heard {
                    Ok(true) => progress = true,
                    Ok(false) => break,
                    Err(_not_a_message) => broken = true,
                }
            }
            if broken && self.over.is_none() {
                self.over = Some(OpsError::Protocol { rank });
            }
            let closed = self.channels.get(&rank).is_some_and(Channel::is_closed);
            if closed && self.over.is_none() && !shared.has_left(rank) {
                self.lose(shared, rank);
            }
        }
        progress
    }

    fn hear_rank(&mut self, shared: &Shared, rank: u32) -> std::io::Result<bool> {
        let Some(channel) = self.channels.get_mut(&rank) else { return Ok(false) };
        let Some(message) = channel.next::<ToLeader>()? else { return Ok(false) };
        if message == ToLeader::Leave {
            shared.set_left(rank);
            self.farewells.insert(rank);
        }
        let now = self.now();
        if let Some(leader) = self.leader.as_mut().filter(|_| !self.leaving) {
            leader.core.on_message(now, rank, message, &mut leader.out);
            self.carry_out(shared);
        }
        Ok(true)
    }

    fn hear_leader(&mut self, shared: &Shared) -> std::io::Result<bool> {
        let Some(channel) = self.channels.get_mut(&0) else { return Ok(false) };
        let Some(message) = channel.next::<ToRank>()? else { return Ok(false) };
        self.on_message(shared, message);
        Ok(true)
    }

    /// Sends what the leader's core wants said; what is for this rank it hears at once.
    fn carry_out(&mut self, shared: &Shared) {
        loop {
            let Some(leader) = &mut self.leader else { return };
            let commands: Vec<LeaderCommand> = leader.out.drain().collect();
            if commands.is_empty() {
                return;
            }
            for LeaderCommand { to, message } in commands {
                for rank in to.iter().filter(|rank| **rank != self.rank) {
                    let Some(channel) = self.channels.get_mut(rank) else { continue };
                    if let Err(error) = channel.send(&message) {
                        tracing::debug!(rank, %error, "could not tell a rank");
                    }
                }
                if to.contains(&self.rank) {
                    self.on_message(shared, message);
                }
            }
        }
    }

    fn on_message(&mut self, shared: &Shared, message: ToRank) {
        let Some(command) = self.local.on_message(message) else { return };
        match command {
            RankCommand::Run(units) => self.on_run(units),
            RankCommand::Fail(set, failure) => {
                let work = self.issued.remove(&(set, failure.name().to_owned()));
                if let Some(completion) = work.and_then(|work| work.completion) {
                    completion.finish(Err(OpsError::Failed(failure)));
                }
            }
            RankCommand::Send(message) => self.say(shared, message),
            RankCommand::Report { name, missing, waited } => {
                tracing::warn!(
                    name,
                    ?missing,
                    ?waited,
                    "an operation waits for ranks that have not issued it"
                );
                shared.note_stall(Stall { name, missing, waited });
            }
            RankCommand::AllJoined { last } => self.queue.push_back(Next::AllJoined { last }),
            RankCommand::Lost { rank } => self.over = Some(OpsError::PeerLost { rank }),
            RankCommand::LeaderLeft => {
                shared.set_left(0);
                self.queue.push_back(Next::LeaderLeft);
                self.say(shared, ToLeader::Leave);
            }
            RankCommand::Goodbye => {
                shared.set_left(0);
                self.farewells.insert(0);
            }
            RankCommand::Broken => self.over = Some(OpsError::Protocol { rank: 0 }),
        }
    }

    fn on_run(&mut self, units: Vec<RunUnit>) {
        let mut works = Vec::with_capacity(units.len());
        for unit in units {
            match unit {
                RunUnit::Issued { key } => match self.issued.remove(&key) {
                    Some(work) => works.push(work),
                    None => self.over = Some(OpsError::Protocol { rank: 0 }),
                },
                RunUnit::Joined { name, signature } => works.push(Work {
                    name,
                    signature,
                    tensors: None,
                    splits: None,
                    completion: None,
                    issued: Instant::now(),
                }),
            }
        }
        self.queue.push_back(Next::Batch(works));
    }

    /// The leader decides what is next when it has nothing left to do.
    fn lead(&mut self, shared: &Shared) {
        let (now, idle) = (self.now(), self.queue.is_empty());
        let Some(leader) = &mut self.leader else { return };
        if now >= leader.next_look {
            leader.core.on_time(now, &mut leader.out);
            leader.next_look = now + shared.look_interval;
        }
        if idle {
            leader.core.dispatch(now, &mut leader.out);
        }
        if !leader.out.is_empty() {
            self.carry_out(shared);
        }
    }

    fn perform(&mut self, shared: &Shared, next: Next) {
        match next {
            Next::Batch(works) => self.compute(shared, works),
            Next::AllJoined { last } => {
                let outcome = Outcome { last_joined: Some(last), ..Outcome::default() };
                if let Some(join) = self.join.take() {
                    join.finish(Ok(outcome));
                }
            }
            Next::LeaderLeft => self.over = Some(OpsError::ShutDown { rank: 0 }),
        }
    }

    fn compute(&mut self, shared: &Shared, mut works: Vec<Work>) {
        let began = shared.timeline.is_on().then(Instant::now);
        let result = self.executor.run(&mut works);
        if let (Some(began), ended) = (began, Instant::now()) {
            for work in &works {
                shared.timeline.note(&work.name, "wait", work.issued, began);
                shared.timeline.note(&work.name, work.signature.kind.word(), began, ended);
            }
        }
        match result {
            Ok(outcomes) => {
                self.tune(&works);
                for (work, outcome) in works.into_iter().zip(outcomes) {
                    if let Some(completion) = work.completion {
                        completion.finish(Ok(outcome));
                    }
                }
            }
            Err(error) => {
                // All ranks refuse what none can compute, and go on with the next.
                let alike = matches!(
                    error,
                    OpsError::Unsupported { .. } | OpsError::NoRank { .. } | OpsError::Length { .. }
                );
                if !alike {
                    self.blame(shared, error.clone());
                }
                let error = self.over.clone().unwrap_or(error);
                for completion in works.into_iter().filter_map(|work| work.completion) {
                    completion.finish(Err(error.clone()));
                }
            }
        }
    }

    fn tune(&mut self, works: &[Work]) {
        let now = self.now();
        let Some(LeaderSide { core, tuner: Some(tuner), log, .. }) = &mut self.leader else { return };
        let bytes = works.iter().map(|work| work.signature.bytes()).sum();
        let Some(sample) = tuner.on_batch(now, bytes) else { return };
        if let Some(log) = log.as_mut().filter(|_| sample.chosen) {
            tuner.samples().iter().for_each(|sample| log.note(sample));
        }
        if let Some(bytes) = tuner.bucket_bytes() {
            core.set_bucket_bytes(bytes);
        }
        tracing::debug!(?sample, "measured a bucket size");
    }

    /// A collective has failed: finds out which rank is lost.
    fn blame(&mut self, shared: &Shared, error: OpsError) {
        let until = Instant::now() + BLAME;
        while self.over.is_none() {
            self.look_at_streams = true;
            self.hear(shared);
            if Instant::now() >= until {
                self.over = Some(error.clone());
            } else if self.over.is_none() {
                self.ring_bells();
                shared.sleep_on(self.channels.values(), Duration::from_millis(20));
            }
        }
        self.fail_all(shared);
    }

    /// A rank is lost without a word: all others hear of it, and everything ends.
    fn lose(&mut self, shared: &Shared, rank: u32) {
        if let Some(leader) = &mut self.leader {
            leader.core.on_lost(rank, &mut leader.out);
            self.carry_out(shared);
        }
        self.over = Some(OpsError::PeerLost { rank });
        self.fail_all(shared);
    }

    /// Ends every operation, and tells those that wait in a collective.
    fn fail_all(&mut self, shared: &Shared) {
        let Some(error) = self.over.clone() else { return };
        shared.set_over(&error);
        if !matches!(error, OpsError::ShutDown { .. }) {
            for aborter in locked(&self.executor.aborters).iter() {
                aborter.abort(error.to_string());
            }
            self.ring_bells();
            self.close_channels();
        }
        let issued = std::mem::take(&mut self.issued).into_values();
        let queued = self.queue.drain(..).flat_map(|next| match next {
            Next::Batch(works) => works,
            Next::AllJoined { .. } | Next::LeaderLeft => Vec::new(),
        });
        for completion in issued.chain(queued).filter_map(|work| work.completion).chain(self.join.take()) {
            completion.finish(Err(error.clone()));
        }
    }

    /// A rank that has said that it leaves is not lost to the others, whatever ends its operations after that.
    fn close_channels(&mut self) {
        let in_order = self.leaving || matches!(self.over, Some(OpsError::ShutDown { .. }));
        let close = if in_order { Channel::close_in_order } else { Channel::close };
        self.channels.values_mut().for_each(close);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Whether a thread must go on driving.
    pub(super) fn has_work(&self) -> bool {
        self.over.is_none() && (!self.queue.is_empty() || self.channels.values().any(Channel::has_unsent))
    }

    /// Says that no thread drives. `false` if something has come meanwhile.
    pub(super) fn doze(&self) -> bool {
        self.over.is_some() || self.channels.values().all(Channel::doze)
    }

    /// Wakes ranks that sleep and have not read what was said.
    pub(super) fn ring_bells(&mut self) {
        self.channels.values_mut().for_each(Channel::ring_if_due);
    }

    pub(super) fn rouse(&self) {
        self.channels.values().for_each(Channel::rouse);
    }

    /// How long collectives look for other ranks before they sleep.
    pub(super) fn set_spin(&mut self, spin: std::time::Duration) {
        self.executor.sets.values_mut().for_each(|set| set.group.set_spin(spin));
    }

    pub(super) fn look_at_streams(&mut self) {
        self.look_at_streams = true;
    }

    pub(super) fn channels(&self) -> &BTreeMap<u32, Channel> {
        &self.channels
    }

    /// How long until the leader has something to do by itself.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        let next = self.leader.as_ref().filter(|_| self.over.is_none())?.core.next_time()?;
        Some(next.since(self.now()))
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.local.has_outstanding() && self.queue.is_empty()
    }

    pub(super) fn tuned(&self) -> Vec<crate::core::tuner::TunedSample> {
        let tuner = self.leader.as_ref().and_then(|leader| leader.tuner.as_ref());
        tuner.map(|tuner| tuner.samples().to_vec()).unwrap_or_default()
    }

    /// The ranks of a set, as this rank knows them.
    pub(super) fn set_members(&self, set: crate::core::signature::SetId) -> Option<Vec<u32>> {
        self.executor.sets.get(&set).map(|set| set.members.clone())
    }
}
