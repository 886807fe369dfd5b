//! One group of stages from its beginning to its end, as one of them lives it.

use super::super::asks::Ask;
use super::super::session::Ended;
use super::super::spans::Spans;
use super::super::worker::{Report, with_causes};
use super::copies::Guard;
use super::part::Part;
use super::pipe::Pipe;
use super::prepare::Joined;
use super::rings::Rings;
use super::serve::Asking;
use super::word::Words;
use super::worker::StageWorker;
use crate::error::DistributedError;
use phalanx_collective::{Group, GroupAborter};
use phalanx_data::Loader;
use phalanx_graph::Graph;
use phalanx_protocol::layout::{self, Post};
use phalanx_protocol::progress::{Due, Progress};
use phalanx_protocol::{Shares, Wish};
use phalanx_train::config::ExchangeOf;
use phalanx_types::{Epoch, Time};
use phalanx_wire::train::{Activity, Layout, RankReport, Recorded, StepReport};
use std::time::{Duration, Instant};

pub(super) struct Session<'w> {
    pub(super) worker: &'w mut StageWorker,
    pub(super) part: Part,
    pub(super) epoch: Epoch,
    pub(super) rank: usize,
    pub(super) post: Post,
    pub(super) layout: Layout,
    /// Samples that are computed at once.
    pub(super) micro: usize,
    pub(super) shares: Shares,
    pub(super) control: Group,
    pub(super) rings: Rings,
    pub(super) prev: Option<Pipe>,
    pub(super) next: Option<Pipe>,
    pub(super) guard: Guard,
    pub(super) spans: Spans,
    /// Where the squares of the gradients of all parameters of this replica are: rank and place, by name.
    norm_order: Vec<(usize, usize)>,
    pub(super) progress: Option<Progress>,
    pub(super) loader: Option<Loader>,
    /// When the step before ended.
    pub(super) last: Instant,
    /// How long this stage waited for the others' word of the step before.
    pub(super) waited: Duration,
    pub(super) sent_before: u64,
    /// What somebody asks the model, here at the first stage.
    pub(super) ask: Option<Ask>,
    /// What all were told of it.
    pub(super) asked: Option<Asking>,
    /// All were told that a checkpoint is due.
    late: bool,
    pub(super) pipes_before: u64,
}

/// What a group of stages needs besides what the worker has.
pub(super) struct Entering {
    pub(super) epoch: Epoch,
    pub(super) rank: usize,
    pub(super) layout: Layout,
    pub(super) joined: Joined,
    pub(super) guard: Guard,
}

impl<'w> Session<'w> {
    pub(super) fn new(
        worker: &'w mut StageWorker,
        mut part: Part,
        entering: Entering,
    ) -> Result<Self, DistributedError> {
        let Entering { epoch, rank, layout, mut joined, guard } = entering;
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
        let Joined { control, mut rings, .. } = joined;
        rings.place(&mut part.stepper);
        let spans = Spans::new(worker.trace);
        let shares = layout::shares(&layout);
        Ok(Self {
            worker,
            part,
            epoch,
            rank,
            post,
            layout,
            micro,
            shares,
            control,
            rings,
            prev,
            next,
            guard,
            spans,
            norm_order,
            progress: None,
            loader: None,
            last: Instant::now(),
            waited: Duration::ZERO,
            sent_before: 0,
            ask: None,
            asked: None,
            late: false,
            pipes_before: 0,
        })
    }

    /// Trains until the group is over; the part of the model goes back to the worker.
    pub(super) fn run(mut self, recorded: Recorded) -> Result<Ended, DistributedError> {
        let result = self.go(recorded);
        self.tell_spans(true);
        if let Err(error) = &result {
            // Nobody has to wait for what this stage will not do any more.
            let reason = format!("rank {} gave up: {}", self.rank, with_causes(error));
            self.aborters().for_each(|aborter| aborter.abort(reason.clone()));
        }
        self.worker.part = Some(self.part);
        result
    }

    fn aborters(&self) -> impl Iterator<Item = GroupAborter> {
        std::iter::once(self.control.aborter()).chain(self.rings.aborters())
    }

    fn go(&mut self, recorded: Recorded) -> Result<Ended, DistributedError> {
        // Everybody has the state that the group begins with, before anybody lets go of what it was made of.
        self.control.barrier("the state is there")?;
        if self.guard.is_on() {
            self.copy_now(false);
        } else {
            self.worker.copies.forget_before(u64::MAX);
        }
        self.spans.begin();
        self.report_again(recorded);
        let plan = self.worker.task.plan();
        let progress = Progress::new(plan, self.worker.place(self.part.step), Time::ZERO);
        let (due, done) = (progress.due_here(), progress.is_done());
        self.progress = Some(progress);
        let step = self.part.step;
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
        if done {
            return Ok(Ended::Done);
        }
        self.last = Instant::now();
        loop {
            let wish = if self.flows() { self.flow()? } else { self.step()? };
            let due = self.boundary()?;
            if due.end.is_some() || wish == Wish::Stop {
                return Ok(Ended::Done);
            }
            if wish == Wish::Reform {
                return Ok(Ended::Reformed);
            }
        }
    }

    /// Whether several steps are one unit: nobody hears of a step before the last of them is done.
    pub(super) fn flows(&self) -> bool {
        let config = &self.worker.task.config;
        config.formation.is_asynchronous()
            || (self.rings.any() && config.sync.exchange != ExchangeOf::Gradients)
    }

    /// The first stage of the first replica speaks for the group.
    pub(super) fn speaks(&self) -> bool {
        self.rank == 0
    }

    /// Tells the driver of steps that a first rank before this one did not get to report.
    fn report_again(&mut self, recorded: Recorded) {
        let (worker, done) = (&mut *self.worker, self.part.step);
        worker.log.forget_after(done);
        let unheard = worker.log.unheard(self.epoch, recorded, done);
        unheard.into_iter().for_each(|report| worker.say(report));
    }

    /// The norm of all gradients of this replica, from what its stages said.
    pub(super) fn norm(&self, words: &Words) -> f64 {
        let square = |(rank, place): &(usize, usize)| {
            words.words.get(*rank).and_then(|word| word.squares.get(*place)).copied().unwrap_or(f64::NAN)
        };
        self.norm_order.iter().map(square).sum::<f64>().sqrt()
    }

    /// Notes that a step has happened.
    pub(super) fn done(&mut self, words: &Words, index: usize, step: u64, lr: f32, norm: f64) {
        let (votes, outcome) = (&words.votes[index], &words.outcomes[index]);
        let now = Instant::now();
        let sent = self.sent();
        let rank = |(vote, word): (&phalanx_protocol::Vote, &super::word::Word)| RankReport {
            samples: vote.samples,
            compute_us: vote.compute_us,
            exchange_us: vote.exchange_us,
            wait_us: vote.wait_us,
            stage: Some(word.report),
        };
        let steps = words.outcomes.len() as u32;
        let report = StepReport {
            step: step + 1,
            epoch: self.epoch,
            pass: self.worker.place(step).pass + 1,
            loss: outcome.loss as f32,
            lr,
            grad_norm: norm as f32,
            seen: outcome.seen,
            hash: 0,
            // Steps of one unit share its bytes and its time.
            sent: (sent - self.sent_before) / u64::from(steps.max(1)),
            took_us: super::super::session::micros(now.duration_since(self.last)) / steps.max(1),
            ranks: votes.iter().zip(&words.words).map(rank).collect(),
        };
        self.asked = words.words.first().and_then(|word| word.asking);
        self.late |= words.are_late();
        if index + 1 == words.outcomes.len() {
            (self.last, self.sent_before) = (now, sent);
        }
        self.worker.remember(report);
    }

    /// Bytes that this stage gave to others.
    pub(super) fn sent(&self) -> u64 {
        let pipes = self.prev.iter().chain(&self.next).map(|pipe| pipe.sent).sum::<u64>();
        pipes + self.rings.sent()
    }

    /// How long this stage waited for neighbours.
    pub(super) fn idle(&self) -> Duration {
        self.prev.iter().chain(&self.next).map(|pipe| pipe.waited).sum()
    }

    /// Does what is due after the steps that were done: reports, validation, snapshot.
    fn boundary(&mut self) -> Result<Due, DistributedError> {
        let (now, step) = (self.spans.now(), self.part.step);
        let Some(progress) = &mut self.progress else { return Ok(Due::default()) };
        let before = progress.place().step;
        let due = progress.on_steps_together(step, std::mem::take(&mut self.late));
        if self.speaks() {
            let steps = self.worker.log.since(before);
            self.worker.say(Report::Steps { epoch: self.epoch, steps });
        }
        let shared = due.validate || due.checkpoint || due.end.is_some();
        if shared {
            self.share_buffers()?;
        }
        if due.validate {
            self.validate(step)?;
        }
        if due.checkpoint && due.end.is_none() {
            let began = Instant::now();
            self.snapshot()?;
            self.spans.add(Activity::Snapshot, step, began);
            if let Some(progress) = &mut self.progress {
                progress.on_saved(now);
            }
        }
        if due.validate || due.checkpoint {
            self.last = Instant::now();
        }
        self.answer(shared)?;
        self.tell_spans(false);
        Ok(due)
    }

    /// Tells the driver this part of the model, if it is one of the first replica.
    fn snapshot(&self) -> Result<(), DistributedError> {
        if self.post.replica == 0 {
            self.worker.tell_state(self.epoch, &self.part)?;
        }
        Ok(())
    }

    fn tell_spans(&mut self, all: bool) {
        if let Some(spans) = self.spans.take(all) {
            let (epoch, rank) = (self.epoch, self.rank);
            self.worker.say(Report::Spans { epoch, rank, spans });
        }
    }
}

/// Where the squares of the gradients of all parameters of a replica are: rank and place, in the order of names.
fn norm_order(
    graph: &Graph,
    posts: &[Post],
    replica: usize,
) -> Result<Vec<(usize, usize)>, DistributedError> {
    let mut named = Vec::new();
    for (rank, post) in posts.iter().enumerate().filter(|(_, post)| post.replica == replica) {
        let stage = super::part::stage_of(graph, post.ops)?;
        let mut names: Vec<String> = stage.parameters().map(|(_, value)| value.name.clone()).collect();
        names.sort_unstable();
        named.extend(names.into_iter().enumerate().map(|(place, name)| (name, rank, place)));
    }
    named.sort_unstable();
    Ok(named.into_iter().map(|(_, rank, place)| (rank, place)).collect())
}
