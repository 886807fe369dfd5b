//! One group from its beginning to its end, as one of its ranks lives it: the one loop that takes steps.
//!
//! ```text
//!   state_sync   ranks agree where they begin, a new rank catches up       (or acquire_state, where the driver planned)
//!   step         exact: gradients of all replicas, then a ballot, then all apply
//!   round        several steps as one: replicas that learn alone, asynchronous stages; then a ballot
//!   boundary     reports, validation, checkpoint, live queries
//! ```
//! What differs between formations is held in values: the post of this rank in the layout, pipes to neighbours or none,
//! rings with other replicas or none, how a batch is cut. How ranks learn together is a value, too: see [`crate::sync`].
//! A step or a round happens on all ranks or on none.

mod ballot;
mod catch_up;
mod diagnose;
mod live_queries;
mod micro_batches;
mod round;
mod state_sync;
mod step;
mod stream_pass;
mod validate;

use self::ballot::{Ballot, Ballots};
use self::catch_up::CatchUp;
#[cfg(test)]
pub(super) use self::live_queries::is_sound;
use self::micro_batches::{Cutting, MicroBatches};
use super::control_lane::ControlLane;
use super::copies::Guard;
use super::group_setup::Joined;
use super::live_query::LiveQuery;
use super::part::Part;
use super::pipe::Pipe;
use super::rings::Rings;
use super::spans::Spans;
use super::sync::{GroupFacts, Statistics, SyncStrategy};
use super::worker::{Report, Worker, with_causes};
use crate::error::RankError;
use phalanx_collective::GroupAborter;
use phalanx_data::{Loaded, Loader};
use phalanx_graph::{Graph, Value};
use phalanx_protocol::layout::{self, Post};
use phalanx_protocol::progress::{Due, Place, Progress};
use phalanx_protocol::{Balance, NotSealed, SealedPass, Shares, Vote, Wish};
use phalanx_train::config::SharesBy;
use phalanx_train::loader_options;
use phalanx_types::{DType, Epoch, Time};
use phalanx_wire::ballot::Asking;
use phalanx_wire::train::{Activity, Layout, RankReport, Recorded, StepReport};
use phalanx_wire::train_reason::StepFailure;
use std::time::{Duration, Instant};

/// How a group ends that nothing has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A node wants to come in.
    Reformed,
    /// The last step is done, or all agreed to stop.
    Done,
}

pub(crate) struct Session<'w, 'a> {
    pub(super) worker: &'w mut Worker<'a>,
    pub(super) part: Part,
    epoch: Epoch,
    rank: usize,
    posts: Vec<Post>,
    pub(super) post: Post,
    /// The driver planned who holds what; else replicas agree among themselves.
    is_planned: bool,
    cutting: Cutting,
    sync: SyncStrategy,
    /// Statistics of batch norm of the whole model: how many values each has.
    buffers: Vec<(String, usize)>,
    shares: Shares,
    /// Moves samples from slow replicas to fast ones.
    balance: Option<Balance>,
    pub(super) lane: ControlLane,
    pub(super) rings: Rings,
    pub(super) prev: Option<Pipe>,
    pub(super) next: Option<Pipe>,
    pub(super) guard: Guard,
    spans: Spans,
    /// Where the squares of the gradients of all parameters of this replica are: rank and place, by name.
    norm_order: Vec<(usize, usize)>,
    /// Steps that the group has done.
    at: u64,
    /// By rank: whether it holds the state of the run, and so takes samples.
    level: Vec<bool>,
    /// What this rank has of that state, when it does not hold it yet.
    catch_up: Option<CatchUp>,
    progress: Option<Progress>,
    loader: Option<Loader>,
    /// The next pass over a stream, with which the loader was told to go on.
    ahead: Option<SealedPass>,
    /// When the step before ended.
    last: Instant,
    /// How long this rank waited for the ballots of the step before.
    waited: Duration,
    sent_before: u64,
    pipes_before: u64,
    /// A live query that this rank was asked.
    query: Option<LiveQuery>,
    /// What all ranks were told of it.
    asked: Option<Asking>,
    /// All ranks were told that a checkpoint is due by time.
    late: bool,
    /// The last step after which the model was validated.
    validated: u64,
}

/// What a session needs besides what the worker has.
pub(super) struct Entering {
    pub(super) epoch: Epoch,
    pub(super) rank: usize,
    pub(super) layout: Layout,
    pub(super) joined: Joined,
    pub(super) guard: Guard,
    pub(super) is_planned: bool,
}

impl<'w, 'a> Session<'w, 'a> {
    pub(super) fn new(
        worker: &'w mut Worker<'a>,
        mut part: Part,
        entering: Entering,
    ) -> Result<Self, RankError> {
        let Entering { epoch, rank, layout, mut joined, guard, is_planned } = entering;
        let posts = layout::posts(&layout);
        let post = posts[rank];
        let micro = layout.replicas[post.replica].micro as usize;
        let batch = (micro + 1).max(worker.task.config.train.batch);
        let pipes = joined.pipes(worker.queue(&layout), part.most_bytes(batch));
        let opened =
            pipes.and_then(|pipes| Ok((pipes, norm_order(&worker.task.graph, &posts, post.replica)?)));
        let ([prev, next], norm_order) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                worker.part = Some(part);
                return Err(error);
            }
        };
        let Joined { lane, mut rings, .. } = joined;
        rings.place(&mut part.stepper);
        let config = &worker.task.config;
        let shares = layout::shares(&layout);
        let (graph, has_driver) = (&worker.task.graph, worker.outlet.is_driver());
        let floats = graph.buffers().filter(|(_, value)| value.dtype == DType::F32);
        let size = |value: &Value| (value.name.clone(), value.shape.at(1).iter().product());
        let buffers: Vec<(String, usize)> = floats.map(|(_, value)| size(value)).collect();
        let (has_rings, has_buffers) = (rings.any(), !buffers.is_empty());
        let by_speed = !is_planned && posts.len() > 1 && config.formation.shares == SharesBy::Speed;
        Ok(Self {
            spans: Spans::new(has_driver, worker.trace),
            sync: SyncStrategy::new(config, GroupFacts { has_rings, is_planned, has_driver, has_buffers }),
            buffers,
            cutting: match (is_planned, has_driver) {
                (true, _) => Cutting::Size(micro),
                (false, true) => Cutting::Parts(config.train.accumulate),
                (false, false) => Cutting::Batches(config.train.batch),
            },
            balance: by_speed.then(|| Balance::new(shares.batch(), posts.len())),
            level: vec![true; posts.len()],
            at: part.step,
            worker,
            part,
            epoch,
            rank,
            posts,
            post,
            is_planned,
            shares,
            lane,
            rings,
            prev,
            next,
            guard,
            norm_order,
            catch_up: None,
            progress: None,
            loader: None,
            ahead: None,
            last: Instant::now(),
            waited: Duration::ZERO,
            sent_before: 0,
            pipes_before: 0,
            query: None,
            asked: None,
            late: false,
            validated: 0,
        })
    }

    /// A run in this process: a formation of one rank that holds the whole model.
    pub(crate) fn alone(worker: &'w mut Worker<'a>, part: Part) -> Result<Self, RankError> {
        let batch = worker.task.config.train.batch * worker.task.config.train.accumulate;
        let layout = layout::replicas(worker.whole_model(), batch, 1);
        let (epoch, rank, is_planned) = (Epoch(0), 0, false);
        let entering =
            Entering { epoch, rank, layout, joined: Joined::alone(), guard: Guard::default(), is_planned };
        Self::new(worker, part, entering)
    }

    /// Trains until the group is over; the part of the model goes back to the worker.
    pub(crate) fn run(mut self, recorded: Recorded) -> Result<Ended, RankError> {
        let result = self.go(recorded);
        self.part.stepper.model().share_statistics(None);
        self.tell_spans(true);
        if let Err(error) = &result {
            // No rank has to wait for what this one will not do any more.
            let reason = format!("rank {} gave up: {}", self.rank, with_causes(error));
            self.aborters().for_each(|aborter| aborter.abort(reason.clone()));
        }
        self.worker.part = Some(self.part);
        result
    }

    fn aborters(&self) -> impl Iterator<Item = GroupAborter> {
        self.lane.aborter().into_iter().chain(self.rings.aborters())
    }

    fn go(&mut self, recorded: Recorded) -> Result<Ended, RankError> {
        if self.is_planned {
            // All ranks have the state that the group begins with, before one lets go of what it was made of.
            self.lane.barrier("the state is there")?;
            if self.guard.is_on() {
                self.copy_if_due(false);
            } else {
                self.worker.copies.forget_before(u64::MAX);
            }
            self.spans.begin();
        } else {
            self.level_state()?;
        }
        self.locate()?;
        self.validated = recorded.validated;
        self.report_again(recorded);
        let sum = if self.sync.statistics() == Statistics::Shared { self.lane.sum_over() } else { None };
        self.part.stepper.model().share_statistics(sum);
        let progress = self.progress_here()?;
        let (due, done) = (progress.due_here(), progress.is_done());
        self.progress = Some(progress);
        self.make_up(due, recorded)?;
        self.worker.outlet.check()?;
        if done {
            self.tell_end_of_stream();
            return Ok(Ended::Done);
        }
        self.last = Instant::now();
        loop {
            if let Some(ended) = self.enter_pass()? {
                return Ok(ended);
            }
            let wish = match self.sync {
                SyncStrategy::Gradients { .. } => self.step()?,
                SyncStrategy::Rounds(round) => self.round(round)?,
            };
            let due = self.boundary()?;
            if due.end.is_some() || wish == Wish::Stop {
                return Ok(Ended::Done);
            }
            if wish == Wish::Reform {
                return Ok(Ended::Reformed);
            }
        }
    }

    /// Does what was due when the group before broke.
    fn make_up(&mut self, due: Due, recorded: Recorded) -> Result<(), RankError> {
        let step = self.at;
        if due.validate || due.checkpoint {
            // The group before may not have got that far.
            self.share_buffers()?;
        }
        if due.validate && recorded.validated < step {
            self.validate(step)?;
        }
        if due.checkpoint && recorded.saved < step {
            self.snapshot()?;
        }
        Ok(())
    }

    /// Where the run stands after the steps of this group, as far as it does not depend on time.
    fn progress_here(&self) -> Result<Progress, NotSealed> {
        self.worker.passes.progress(self.at, Time::ZERO)
    }

    /// Whether every replica is on one rank.
    fn is_uncut(&self) -> bool {
        self.posts.iter().all(|post| post.stages == 1)
    }

    /// The rank that speaks for the group: the first that holds the state of the run.
    fn speaker(&self) -> usize {
        self.level.iter().position(|level| *level).unwrap_or(0)
    }

    fn speaks(&self) -> bool {
        self.speaker() == self.rank
    }

    /// Whether this rank's replica speaks for the group.
    fn is_first_replica(&self) -> bool {
        self.posts[self.speaker()].replica == self.post.replica
    }

    fn is_level(&self) -> bool {
        self.level[self.rank]
    }

    /// Tells the driver of steps that a speaker before this group did not get to report. All ranks do: the one that
    /// speaks now may have taken the state over, and not know how it came about.
    fn report_again(&mut self, recorded: Recorded) {
        self.worker.log.forget_after(self.at);
        self.worker.say_unheard(self.epoch, recorded, self.at);
    }

    fn set_shares(&mut self, shares: Option<Shares>) {
        if let Some(shares) = shares.filter(|shares| *shares != self.shares) {
            self.shares = shares;
            // Its batches were cut otherwise.
            (self.loader, self.ahead) = (None, None);
        }
    }

    /// The samples of this rank's replica in a step, and how they are cut.
    fn micro_batches(&self, step: u64) -> Result<MicroBatches, NotSealed> {
        let task = &self.worker.task;
        let batch = task.config.train.batch * task.config.train.accumulate;
        let place = self.worker.passes.place(step)?;
        let samples = place.sealed.map_or(task.samples, |pass| pass.samples as usize);
        let whole = batch.min(samples.saturating_sub(place.batch as usize * batch));
        let own = self.shares.range(self.post.replica, whole);
        let counts = (0..self.shares.ranks()).map(|replica| self.shares.range(replica, whole).len());
        Ok(MicroBatches::new(step, whole, own, self.cutting.among(counts)))
    }

    /// The samples of a step, where they are needed: at the first stage, and, for their labels, at the last.
    fn load(&mut self, step: u64) -> Result<Option<Loaded>, RankError> {
        if !self.post.is_first() && !self.post.is_last() {
            return Ok(None);
        }
        let began = self.spans.if_traced();
        if self.loader.is_none() {
            self.loader = Some(self.loader_at(self.worker.passes.place(step)?)?);
        }
        let next = self.loader.as_mut().and_then(Iterator::next);
        self.spans.end(Activity::Data, step, began);
        let ended = || RankError::Step(StepFailure::NoSamples);
        let loaded = next.ok_or_else(ended)??;
        self.look_ahead(step);
        Ok(Some(loaded))
    }

    /// Reads this rank's samples from a place on.
    fn loader_at(&self, place: Place) -> Result<Loader, RankError> {
        let task = &self.worker.task;
        let mut options = loader_options(task, place);
        options.part = (self.shares.ranks() > 1).then(|| self.shares.part(self.post.replica));
        let (data, transform) = (task.train.clone(), &task.config.data.transform);
        Ok(match (&task.stream, place.sealed) {
            (Some(stream), Some(pass)) => {
                Loader::of_pass(data, transform, options, Box::new(stream.batches(pass)?))?
            }
            _ => Loader::new(data, transform, options)?,
        })
    }

    fn recycle(&mut self, loaded: Option<Loaded>) {
        if let (Some(loader), Some(loaded)) = (&mut self.loader, loaded) {
            loader.recycle(loaded.batch);
        }
    }

    fn lr(&self, step: u64) -> f32 {
        // Schedules that follow from the length of the run are refused where it is not known.
        self.worker.task.config.lr(step, self.worker.passes.plan().steps().unwrap_or(u64::MAX))
    }

    /// The norm of all gradients of this replica, from what its stages said; `own` is the norm of this rank's.
    fn norm(&self, ballots: &Ballots, own: f64) -> f64 {
        if self.post.stages == 1 {
            return own;
        }
        let square = |(rank, place): &(usize, usize)| {
            ballots.all.get(*rank).and_then(|ballot| ballot.squares.get(*place)).copied().unwrap_or(f64::NAN)
        };
        self.norm_order.iter().map(square).sum::<f64>().sqrt()
    }

    /// Notes that a step has happened.
    fn done(
        &mut self,
        ballots: &Ballots,
        index: usize,
        step: u64,
        (lr, norm): (f32, f64),
    ) -> Result<(), RankError> {
        let place = self.worker.passes.place(step)?;
        let (votes, outcome) = (&ballots.votes[index], &ballots.outcomes[index]);
        let now = Instant::now();
        let sent = self.sent();
        let rank = |(vote, ballot): (&Vote, &Ballot)| RankReport {
            samples: vote.samples,
            compute_us: vote.compute_us,
            exchange_us: vote.exchange_us,
            wait_us: vote.wait_us,
            stage: self.is_planned.then_some(ballot.report),
        };
        let steps = ballots.outcomes.len() as u32;
        let report = StepReport {
            step: step + 1,
            epoch: self.epoch,
            pass: place.pass + 1,
            loss: outcome.loss as f32,
            lr,
            grad_norm: norm as f32,
            seen: outcome.seen,
            hash: votes.iter().map(|vote| vote.hash).find(|hash| *hash != 0).unwrap_or(0),
            // Steps of one round share its bytes and its time.
            sent: (sent - self.sent_before) / u64::from(steps.max(1)),
            took_us: micros(now.duration_since(self.last)) / steps.max(1),
            ranks: votes.iter().zip(&ballots.all).map(rank).collect(),
            sealed: place.sealed,
        };
        let speaker = self.speaker();
        self.asked = ballots.all.get(speaker).and_then(|ballot| ballot.asking);
        self.late |= ballots.are_late(speaker);
        if index + 1 == ballots.outcomes.len() {
            (self.last, self.sent_before) = (now, sent);
        }
        self.at = step + 1;
        self.worker.remember(report);
        Ok(())
    }

    /// Bytes that this rank gave to others.
    fn sent(&self) -> u64 {
        self.pipe_bytes() + self.rings.sent()
    }

    fn pipe_bytes(&self) -> u64 {
        self.prev.iter().chain(&self.next).map(|pipe| pipe.sent).sum()
    }

    /// How long this rank waited for neighbouring stages.
    fn idle(&self) -> Duration {
        self.prev.iter().chain(&self.next).map(|pipe| pipe.waited).sum()
    }

    /// Does what is due after the steps that were done: reports, validation, snapshot, live queries.
    fn boundary(&mut self) -> Result<Due, RankError> {
        let step = self.at;
        let Some(progress) = &mut self.progress else { return Ok(Due::default()) };
        let before = progress.place().step;
        let due = progress.on_steps_together(step, std::mem::take(&mut self.late));
        if self.speaks() {
            let steps = self.worker.reports_since(before);
            self.worker.say(Report::Steps { epoch: self.epoch, steps });
        }
        let began = due.checkpoint.then(|| self.spans.now());
        let shared = due.validate || due.checkpoint || due.end.is_some();
        if shared {
            self.share_buffers()?;
        }
        if due.validate {
            self.validate(step)?;
        }
        if due.checkpoint && due.end.is_none() {
            let traced = self.spans.if_traced();
            self.snapshot()?;
            self.spans.end(Activity::Snapshot, step, traced);
            if let Some((progress, now)) = self.progress.as_mut().zip(began) {
                progress.on_saved(now);
            }
        }
        if due.validate || due.checkpoint {
            self.last = Instant::now();
        }
        self.answer(shared)?;
        self.tell_spans(false);
        self.worker.outlet.check()?;
        Ok(due)
    }

    /// Tells the driver this part of the model, if its replica speaks for the group.
    fn snapshot(&self) -> Result<(), RankError> {
        match self.is_first_replica() {
            true => self.worker.tell_part(self.epoch, &self.part),
            false => Ok(()),
        }
    }

    /// Keeps a copy of this stage on a neighbour when one is due.
    fn copy_if_due(&mut self, missed: bool) {
        // Without a pass there is no next step, and so nothing that a copy must be there before.
        let Ok(progress) = self.progress_here() else { return };
        let next = self.sync.steps(progress);
        self.guard.copy_if_due(&self.worker.copies, &self.part, next, missed);
    }

    /// The same after ballots: not before all ranks have sent the copy before. All ranks decide alike.
    fn copy_after(&mut self, ballots: &Ballots) {
        if self.guard.is_on() && !ballots.all.iter().any(|ballot| ballot.copying) {
            self.copy_if_due(ballots.all.iter().any(|ballot| ballot.missed));
        }
    }

    fn tell_spans(&mut self, all: bool) {
        if let Some(spans) = self.spans.take(all) {
            let (epoch, rank) = (self.epoch, self.rank);
            self.worker.say(Report::Spans { epoch, rank, spans });
        }
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Where the squares of the gradients of all parameters of a replica are: rank and place, in the order of names.
fn norm_order(graph: &Graph, posts: &[Post], replica: usize) -> Result<Vec<(usize, usize)>, RankError> {
    let mut named = Vec::new();
    let own = posts.iter().enumerate().filter(|(_, post)| post.replica == replica && post.stages > 1);
    for (rank, post) in own {
        let stage = super::part::stage_of(graph, post.ops)?;
        let mut names: Vec<String> = stage.parameters().map(|(_, value)| value.name.clone()).collect();
        names.sort_unstable();
        named.extend(names.into_iter().enumerate().map(|(place, name)| (name, rank, place)));
    }
    named.sort_unstable();
    Ok(named.into_iter().map(|(_, rank, place)| (rank, place)).collect())
}
