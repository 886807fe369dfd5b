//! One group from its beginning to its end, as one of its replicas lives it.

use super::catch_up::{CatchUp, Logged};
use super::round;
use super::spans::Spans;
use super::together::Together;
use super::worker::{Report, Worker, with_causes};
use crate::error::DistributedError;
use phalanx_data::{Batch, Loaded, Loader, Shard};
use phalanx_protocol::progress::{Due, Progress};
use phalanx_protocol::{Balance, Outcome, Shares, Standing, Vote, Wish, better, count, mark};
use phalanx_records::Sums;
use phalanx_train::config::{ExchangeOf, SharesBy};
use phalanx_train::{Cut, StepInput, loader_options};
use phalanx_train::{NotFinite, TrainError};
use phalanx_types::{Epoch, Time};
use phalanx_wire::train::{Activity, RankReport, Recorded, StepReport, ValidSums};
use std::time::{Duration, Instant};

/// How a group ends that nothing has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Somebody wants to come in.
    Reformed,
    /// The last step is done, or all agreed to stop.
    Done,
}

/// What a replica computed in a step, before the others are asked.
#[derive(Debug)]
pub(super) struct Computed {
    pub(super) vote: Vote,
    pub(super) pass: u64,
    pub(super) lr: f32,
    /// Of the step that was computed last, for whoever wants to know why it is not finite.
    pub(super) loaded: Loaded,
}

#[derive(Debug)]
pub(super) struct Session<'w> {
    pub(super) worker: &'w mut Worker,
    pub(super) epoch: Epoch,
    pub(super) together: Together,
    pub(super) spans: Spans,
    /// Steps that the group has done.
    pub(super) at: u64,
    /// By rank: whether it holds the state of the run, and so takes samples.
    pub(super) level: Vec<bool>,
    /// What this replica has of that state, when it does not hold it yet.
    pub(super) catch_up: Option<CatchUp>,
    shares: Shares,
    balance: Balance,
    progress: Option<Progress>,
    loader: Option<Loader>,
    /// When the step before ended.
    last: Instant,
    /// How long this replica waited for the votes of the step before.
    waited: Duration,
    pub(super) sent_before: u64,
}

impl<'w> Session<'w> {
    pub(super) fn new(worker: &'w mut Worker, epoch: Epoch, together: Together) -> Self {
        let batch = worker.task.config.train.batch * worker.task.config.train.accumulate;
        let ranks = together.ranks();
        let spans = Spans::new(worker.trace);
        Self {
            worker,
            epoch,
            together,
            spans,
            at: 0,
            level: vec![true; ranks],
            catch_up: None,
            shares: Shares::equal(batch, ranks),
            balance: Balance::new(batch, ranks),
            progress: None,
            loader: None,
            last: Instant::now(),
            waited: Duration::ZERO,
            sent_before: 0,
        }
    }

    /// Trains until the group is over.
    pub(super) fn run(mut self, recorded: Recorded) -> Result<Ended, DistributedError> {
        let result = self.go(recorded);
        self.worker.stepper.model().share_statistics(None);
        self.tell_spans(true);
        if let Err(error) = &result {
            // Nobody has to wait for what this replica will not do any more.
            let reason = format!("rank {} gave up: {}", self.together.rank(), with_causes(error));
            self.together.aborters().iter().for_each(|aborter| aborter.abort(reason.clone()));
        }
        result
    }

    fn go(&mut self, recorded: Recorded) -> Result<Ended, DistributedError> {
        self.bring_level()?;
        self.report_again(recorded);
        let shared = self.worker.task.config.sync.shared_statistics;
        let sum = (shared && self.together.ranks() > 1).then(|| self.together.sum_over());
        self.worker.stepper.model().share_statistics(sum);
        let plan = self.worker.task.plan();
        let progress = Progress::new(plan, self.worker.place(self.at), Time::ZERO);
        let (due, done) = (progress.due_here(), progress.is_done());
        self.progress = Some(progress);
        self.make_up(due, recorded)?;
        if done {
            return Ok(Ended::Done);
        }
        self.last = Instant::now();
        loop {
            let wish = match self.worker.task.config.sync.exchange {
                ExchangeOf::Gradients => self.step()?,
                ExchangeOf::Parameters | ExchangeOf::Outer => round::run(self)?,
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

    /// Tells the driver of steps that a first rank before this one did not get to report.
    fn report_again(&mut self, recorded: Recorded) {
        let worker = &mut *self.worker;
        worker.log.forget_after(self.at);
        // All of them: the one that speaks now may have taken the state over, and not remember how it came about.
        let unheard = worker.log.unheard(self.epoch, recorded, self.at);
        unheard.into_iter().for_each(|report| worker.say(report));
    }

    /// Does what was due when the group before broke.
    fn make_up(&mut self, due: Due, recorded: Recorded) -> Result<(), DistributedError> {
        let step = self.at;
        if due.validate && recorded.validated < step {
            self.validate(step)?;
        }
        if due.checkpoint && recorded.saved < step && self.speaks() {
            self.worker.snapshot(self.epoch)?;
        }
        Ok(())
    }

    /// Whether this replica speaks for the group: the first that holds the state.
    pub(super) fn speaks(&self) -> bool {
        self.speaker() == self.together.rank()
    }

    pub(super) fn speaker(&self) -> usize {
        self.level.iter().position(|level| *level).unwrap_or(0)
    }

    fn is_level(&self) -> bool {
        self.level[self.together.rank()]
    }

    fn by_speed(&self) -> bool {
        self.worker.task.config.formation.shares == SharesBy::Speed
    }

    /// Shares out batches among those who hold the state; `costs` are microseconds for a sample, where known.
    pub(super) fn share_out(&mut self, costs: &[f64]) {
        let batch = self.shares.batch();
        let levels = self.level.iter().filter(|level| **level).count();
        let equal = Shares::equal(batch, levels.max(1));
        let of_levels: Vec<f64> =
            costs.iter().zip(&self.level).filter(|(_, level)| **level).map(|(cost, _)| *cost).collect();
        let known = self.by_speed() && of_levels.len() == levels && of_levels.iter().all(|cost| *cost > 0.0);
        let fast = known.then(|| better(batch, &of_levels, &equal)).flatten();
        self.set_shares(Some(fast.unwrap_or(equal).among(&self.level)));
        self.balance = Balance::new(batch, self.level.len());
    }

    fn set_shares(&mut self, shares: Option<Shares>) {
        if let Some(shares) = shares.filter(|shares| *shares != self.shares) {
            self.shares = shares;
            // Its batches were cut otherwise.
            self.loader = None;
        }
    }

    /// The next batch of this replica.
    fn load(&mut self) -> Result<Loaded, DistributedError> {
        let began = Instant::now();
        if self.loader.is_none() {
            let task = &self.worker.task;
            let mut options = loader_options(task, self.worker.place(self.at));
            options.part = Some(self.shares.part(self.together.rank()));
            self.loader = Some(Loader::new(task.train.clone(), &task.config.data.transform, options)?);
        }
        let next = self.loader.as_mut().and_then(Iterator::next);
        self.spans.add(Activity::Data, self.at, began);
        let ended = || DistributedError::Replica { reason: "there are no more samples".to_owned() };
        Ok(next.ok_or_else(ended)??)
    }

    pub(super) fn recycle(&mut self, batch: Batch) {
        if let Some(loader) = &mut self.loader {
            loader.recycle(batch);
        }
    }

    /// Computes the gradients of the next step. They are sent on their way when `exchange` is set, and then are part
    /// of those of the whole batch; otherwise they are this replica's alone.
    pub(super) fn compute(&mut self, exchange: bool) -> Result<Computed, DistributedError> {
        let loaded = self.load()?;
        let began = Instant::now();
        let (step, rank) = (self.at, self.together.rank());
        let (config, plan) = (&self.worker.task.config, self.worker.task.plan());
        let lr = config.lr(step, plan.steps());
        let batch = &loaded.batch;
        let absent = batch.len == 0;
        self.together.begin_step(absent);
        // A replica without samples goes through the motions with one that counts for nothing: the others wait for
        // its gradients, and for its part of their statistics.
        let parts = self.parts(loaded.whole);
        let nothing = Nothing::of(&self.worker.task, if absent { parts } else { 0 });
        let len = if absent { parts } else { batch.len };
        let input = StepInput {
            x: if absent { &nothing.x } else { &batch.x },
            y: if absent { &nothing.y } else { &batch.y },
            y_shape: &self.worker.task.y_shape,
            len,
            whole: if exchange { loaded.whole } else { len },
            first: self.shares.range(rank, loaded.whole).start,
            cut: Cut::Parts(parts),
            step,
        };
        let standing = self.standing();
        let holds = standing == Standing::Level;
        let verify = config.sync.verify > 0 && exchange && holds && step.is_multiple_of(config.sync.verify);
        let hash = if verify { self.worker.stepper.parameters_hash() } else { 0 };
        let lane = &mut self.together.exchange;
        let mut given = Ok(());
        let mut ready = |parameter: usize, gradient: &[f32]| {
            if exchange && given.is_ok() {
                given = lane.give(parameter, gradient, !absent);
            }
        };
        let loss = self.worker.stepper.compute(&input, &mut ready)?;
        given?;
        let loss = if absent { 0.0 } else { loss };
        let compute = began.elapsed().saturating_sub(self.together.waited());
        self.spans.add(Activity::Compute, step, began);
        let vote = Vote {
            step,
            loss,
            samples: u32::try_from(batch.len).unwrap_or(u32::MAX),
            finite: loss.is_finite(),
            wish: self.worker.control.wish(self.epoch),
            compute_us: micros(compute),
            exchange_us: 0,
            wait_us: micros(self.waited),
            seen: batch.indices.iter().fold(0, |seen, sample| seen.wrapping_add(mark(*sample))),
            hash,
            standing,
        };
        Ok(Computed { vote, pass: loaded.pass, lr, loaded })
    }

    /// In how many parts a batch is computed: in equally many by all replicas, which wait for each other's
    /// statistics in each.
    fn parts(&self, whole: usize) -> usize {
        let counts = (0..self.together.ranks()).map(|rank| self.shares.range(rank, whole).len());
        let least = counts.filter(|count| *count > 0).min();
        self.worker.task.config.train.accumulate.min(least.unwrap_or(1)).max(1)
    }

    /// One step of all replicas together: it happens on all of them, or on none.
    fn step(&mut self) -> Result<Wish, DistributedError> {
        let mut computed = self.compute(true)?;
        let began = Instant::now();
        self.together.exchange.wait()?;
        computed.vote.exchange_us = micros(began.elapsed());
        self.spans.add(Activity::Exchange, computed.vote.step, began);
        for (number, (began, ended)) in self.together.exchange.times().iter().enumerate() {
            let what = Activity::Bucket { number: number as u32 };
            self.spans.add_between(what, computed.vote.step, *began, *ended);
        }
        let began = Instant::now();
        let votes = self.together.vote(&[computed.vote])?.swap_remove(0);
        self.waited = began.elapsed();
        self.spans.add(Activity::Vote, computed.vote.step, began);
        let began = Instant::now();
        let outcome = count(&votes)?;
        self.check(&outcome, &computed)?;
        let mut taken = Ok(());
        let lane = &self.together.exchange;
        self.worker.stepper.model().update(&mut |parameter, _, gradient| match lane.sum(parameter) {
            Ok(sum) => gradient.copy_from_slice(sum),
            Err(error) => taken = Err(error),
        });
        taken?;
        let norm = self.worker.stepper.grad_norm();
        if !norm.is_finite() {
            return Err(self.not_finite("norm of the gradients", norm, &computed));
        }
        match &mut self.catch_up {
            Some(catch_up) if computed.vote.standing != Standing::Level => {
                let mut sums = Vec::new();
                let model = self.worker.stepper.model();
                model.update(&mut |_, _, gradient| sums.extend_from_slice(gradient));
                catch_up.remember(Logged { sums, norm, lr: computed.lr });
            }
            _ => self.worker.stepper.apply(norm, computed.lr),
        }
        self.spans.add(Activity::Update, computed.vote.step, began);
        self.done(&computed, &votes, &outcome, norm);
        self.let_land(&votes)?;
        self.catch_up()?;
        if self.by_speed() {
            let shares = self.balance.on_votes(&votes, &self.shares);
            self.set_shares(shares);
        }
        self.recycle(computed.loaded.batch);
        if computed.vote.samples > 0 {
            self.worker.cost = Some(f64::from(computed.vote.compute_us) / f64::from(computed.vote.samples));
        }
        Ok(outcome.wish)
    }

    /// Stops a step that must not be applied.
    pub(super) fn check(&mut self, outcome: &Outcome, computed: &Computed) -> Result<(), DistributedError> {
        if let Some(rank) = outcome.differs {
            return Err(DistributedError::Differs { rank, step: computed.vote.step + 1 });
        }
        match outcome.not_finite {
            Some(rank) if rank == self.together.rank() => {
                Err(self.not_finite("loss", computed.vote.loss, computed))
            }
            Some(rank) => {
                Err(DistributedError::Replica { reason: format!("the loss of rank {rank} is not finite") })
            }
            None => Ok(()),
        }
    }

    /// Says what is not finite, and where it comes from, if it comes from here.
    fn not_finite(&mut self, what: &'static str, value: f64, computed: &Computed) -> DistributedError {
        self.worker.stepper.model().share_statistics(None);
        let Loaded { pass, index, ref batch, whole } = computed.loaded;
        let y_shape = self.worker.task.y_shape.clone();
        let (len, step) = (batch.len, computed.vote.step);
        let cut = Cut::Parts(1);
        let (x, y) = (&batch.x[..], &batch.y[..]);
        let input = StepInput { x, y, y_shape: &y_shape, len, whole, first: 0, cut, step };
        let found = self.worker.stepper.diagnose(&input).map(|(_, report)| report);
        if found.is_none() && what != "loss" && !self.speaks() {
            return DistributedError::Replica { reason: format!("the {what} of all replicas is {value}") };
        }
        let samples = batch.indices.clone();
        let (step, pass) = (step + 1, pass + 1);
        let found = found.into();
        TrainError::NotFinite(Box::new(NotFinite { what, value, step, pass, batch: index, samples, found }))
            .into()
    }

    /// Notes that a step has happened.
    pub(super) fn done(&mut self, computed: &Computed, votes: &[Vote], outcome: &Outcome, norm: f64) {
        let step = computed.vote.step + 1;
        self.at = step;
        if self.is_level() {
            self.worker.step = Some(step);
        }
        let now = Instant::now();
        let sent = self.together.exchange.sent();
        let rank = |vote: &Vote| RankReport {
            samples: vote.samples,
            compute_us: vote.compute_us,
            exchange_us: vote.exchange_us,
            wait_us: vote.wait_us,
            stage: None,
        };
        let report = StepReport {
            step,
            epoch: self.epoch,
            pass: computed.pass + 1,
            loss: outcome.loss as f32,
            lr: computed.lr,
            grad_norm: norm as f32,
            seen: outcome.seen,
            hash: votes.iter().map(|vote| vote.hash).find(|hash| *hash != 0).unwrap_or(0),
            sent: sent - self.sent_before,
            took_us: micros(now.duration_since(self.last)),
            ranks: votes.iter().map(rank).collect(),
        };
        (self.last, self.sent_before) = (now, sent);
        self.worker.remember(report);
    }

    /// Does what is due after the steps that were done: reports, validation, snapshot.
    fn boundary(&mut self) -> Result<Due, DistributedError> {
        let (now, first) = (self.spans.now(), self.speaks());
        let step = self.at;
        let Some(progress) = &mut self.progress else { return Ok(Due::default()) };
        let before = progress.place().step;
        let due = progress.on_steps(step, now);
        // Time does not make another due while the driver has not taken the last: they would pile up.
        let early = progress.is_late(now) && self.worker.control.is_saving(self.epoch);
        if first {
            let steps = self.worker.log.since(before);
            self.worker.say(Report::Steps { epoch: self.epoch, steps });
        }
        if due.validate {
            self.validate(step)?;
        }
        if first && due.checkpoint && !early && due.end.is_none() {
            let began = Instant::now();
            self.worker.snapshot(self.epoch)?;
            self.spans.add(Activity::Snapshot, step, began);
            if let Some(progress) = &mut self.progress {
                progress.on_saved(now);
            }
        }
        if due.validate || due.checkpoint {
            self.last = Instant::now();
        }
        self.answer();
        self.tell_spans(false);
        Ok(due)
    }

    /// Computes what somebody asks the model: one replica that holds the state can, and the others wait for it.
    fn answer(&mut self) {
        if !self.is_level() {
            return;
        }
        let Some(ask) = self.worker.control.take_ask(self.epoch) else { return };
        let (began, step) = (Instant::now(), self.at);
        let task = &self.worker.task;
        let values = phalanx_train::sample_shape(&task.graph).map_or(0, |shape| shape.iter().product());
        let most = task.config.train.batch;
        let report = if ask.has(values) {
            match ask.compute(self.worker.stepper.model(), most) {
                Ok(answer) => answer.into_report(ask.number, step),
                Err(error) => ask.refuse(with_causes(&error)),
            }
        } else {
            ask.refuse(format!("a sample of this model has {values} values"))
        };
        self.worker.say(report);
        self.spans.add(Activity::Answer, step, began);
        self.last = Instant::now();
    }

    /// Measures the model on the validation data, every replica on its part of it.
    fn validate(&mut self, step: u64) -> Result<(), DistributedError> {
        let Some(valid) = self.worker.task.valid.clone() else { return Ok(()) };
        let began = Instant::now();
        let (rank, levels) = (self.together.rank(), self.level.iter().filter(|level| **level).count());
        let evaluator = self.worker.task.evaluator(&self.worker.compute.threads);
        let own = if self.is_level() {
            let before = self.level[..rank].iter().filter(|level| **level).count();
            let shard = Shard::new(valid.fixed_len()?, before, levels)?;
            evaluator.sums(self.worker.stepper.model(), &valid, Some(shard))?
        } else {
            let metrics = vec![(0.0, 0); self.worker.task.metrics.len()];
            Sums { metrics, ..Sums::default() }
        };
        let mut flat = own.to_flat();
        self.together.all_reduce(&mut flat, "validation")?;
        self.spans.add(Activity::Validate, step, began);
        let sums: ValidSums = Sums::from_flat(&flat).into();
        self.worker.log.on_valid(step, sums.clone());
        if self.speaks() {
            self.worker.say(Report::Validated { epoch: self.epoch, step, sums });
        }
        Ok(())
    }

    fn tell_spans(&mut self, all: bool) {
        if let Some(spans) = self.spans.take(all) {
            let (epoch, rank) = (self.epoch, self.together.rank());
            self.worker.say(Report::Spans { epoch, rank, spans });
        }
    }
}

/// Samples of zeros, for a replica that has none.
#[derive(Debug, Default)]
struct Nothing {
    x: Vec<f32>,
    y: Vec<f32>,
}

impl Nothing {
    fn of(task: &phalanx_train::Task, samples: usize) -> Self {
        let input = task.graph.inputs.first().filter(|_| samples > 0);
        let size: usize = input.map_or(0, |input| task.graph.shape(*input).at(1).iter().product());
        let label: usize = task.y_shape.iter().product();
        Self { x: vec![0.0; samples * size], y: vec![0.0; samples * label] }
    }
}

pub(super) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
