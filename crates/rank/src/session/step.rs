//! One step of all ranks together: it happens on all of them, or on none.

use super::ballot::Ballot;
use super::catch_up::Logged;
use super::micro_batches::MicroBatches;
use super::{Session, micros};
use crate::error::RankError;
use crate::frame::{Carries, Frame, Head};
use crate::sync::Statistics;
use phalanx_data::Loaded;
use phalanx_protocol::pipeline::{Move, ahead_in_batch, moves};
use phalanx_protocol::{Standing, Vote, Wish, mark};
use phalanx_wire::train::{Activity, StageReport};
use phalanx_wire::train_reason::StepFailure;
use std::time::Duration;

/// The samples of a step that a rank has loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Samples<'a> {
    pub(super) x: &'a [f32],
    pub(super) y: &'a [f32],
    pub(super) indices: &'a [u64],
}

impl<'a> Samples<'a> {
    pub(super) fn of(loaded: &'a Loaded) -> Self {
        let batch = &loaded.batch;
        Self { x: &batch.x, y: &batch.y, indices: &batch.indices }
    }
}

/// What steps that are done together need besides.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// For what they can be taken back to, and for parameters as they were.
    pub(super) bytes: u64,
    /// Updates between the forward and the backward of a batch, at most.
    pub(super) staleness: u32,
}

impl Session<'_, '_> {
    pub(super) fn step(&mut self) -> Result<Wish, RankError> {
        let step = self.at;
        let micro = self.micro_batches(step)?;
        let lr = self.lr(step);
        if self.is_planned {
            self.part.keep_buffers();
        }
        let loaded = self.load(step)?;
        let (standing, hash) = (self.standing(), self.hash_if_due(step));
        let (began, idle) = (self.spans.if_timed(), self.idle());
        let loss = self.gradients(&micro, loaded.as_ref())?;
        let idled = self.idle().saturating_sub(idle);
        let took = self.spans.end(Activity::Compute, step, began);
        let compute = took.saturating_sub(idled).saturating_sub(self.lane.waited());
        let began = self.spans.if_timed();
        self.rings.take_sums(&mut self.part.stepper)?;
        let exchanged = self.spans.end(Activity::Exchange, step, began);
        for (number, (began, ended)) in self.rings.times().enumerate() {
            self.spans.add_between(Activity::Bucket { number: number as u32 }, step, began, ended);
        }
        let is_uncut = self.is_uncut();
        let squares = self.part.stepper.squares();
        let finite = loss.is_finite() && squares.iter().all(|square| square.is_finite());
        let own_norm = squares.iter().sum::<f64>().sqrt();
        let told = if is_uncut { Vec::new() } else { squares.to_vec() };
        let vote = self.vote(&micro, loaded.as_ref(), loss, finite, [compute, exchanged]);
        let vote = Vote { hash, standing, ..vote };
        let report = self.stage_report(&micro, 1, idled, Held::default());
        let own = Ballot::new(&[vote], report, told);
        let began = self.spans.if_timed();
        self.part.pending = Some(lr);
        let ballots = self.agree(own)?;
        self.waited = self.spans.end(Activity::Vote, step, began);
        let outcome = ballots.outcomes[0];
        if let Some(rank) = outcome.differs {
            return Err(RankError::Differs { rank, step: step + 1 });
        }
        let norm = self.norm(&ballots, own_norm);
        if outcome.not_finite.is_some() || !norm.is_finite() {
            return Err(self.not_finite(&ballots, norm, &micro, loaded.as_ref()));
        }
        let began = self.spans.if_traced();
        match &mut self.catch_up {
            Some(catch_up) if standing != Standing::Level => {
                let mut sums = Vec::new();
                let model = self.part.stepper.model();
                model.update(&mut |_, _, gradient| sums.extend_from_slice(gradient));
                catch_up.remember(Logged { sums, norm, lr });
                self.part.pending = None;
            }
            _ => self.part.apply(norm, lr),
        }
        self.spans.end(Activity::Update, step, began);
        self.done(&ballots, 0, step, (lr, norm))?;
        self.recycle(loaded);
        self.let_land(&ballots.votes[0])?;
        self.catch_up()?;
        if let Some(balance) = &mut self.balance {
            let shares = balance.on_votes(&ballots.votes[0], &self.shares);
            self.set_shares(shares);
        }
        if vote.samples > 0 {
            self.worker.cost = Some(f64::from(vote.compute_us) / f64::from(vote.samples));
        }
        self.copy_after(&ballots);
        Ok(outcome.wish)
    }

    /// Computes the gradients of this rank's samples, and sends them around the rings as they become final; gives its
    /// part of the loss.
    fn gradients(&mut self, micro: &MicroBatches, loaded: Option<&Loaded>) -> Result<f64, RankError> {
        let absent = micro.len == 0;
        self.lane.begin_step(absent);
        if !absent {
            return self.forward_backward(micro, loaded.map(Samples::of), self.rings.any());
        }
        if self.sync.statistics() != Statistics::Shared {
            self.give_nothing()?;
            return Ok(0.0);
        }
        // A replica without samples goes through the motions with samples of zeros that count for nothing: the others
        // wait for its part of their statistics.
        let micro = micro.of_nothing();
        let task = &self.worker.task;
        let input = task.graph.inputs.first();
        let size: usize = input.map_or(0, |input| task.graph.shape(*input).at(1).iter().product());
        let label: usize = task.y_shape.iter().product();
        let (x, y) = (vec![0.0; micro.len * size], vec![0.0; micro.len * label]);
        self.forward_backward(&micro, Some(Samples { x: &x, y: &y, indices: &[] }), false)?;
        self.give_nothing()?;
        Ok(0.0)
    }

    /// Runs all parts of a step forward and backward, in the order that keeps all stages busy; gives the loss.
    pub(super) fn forward_backward(
        &mut self,
        micro: &MicroBatches,
        samples: Option<Samples<'_>>,
        exchange: bool,
    ) -> Result<f64, RankError> {
        let parts = micro.parts();
        let spare = self.worker.task.config.formation.ahead;
        let ahead = ahead_in_batch(self.post.stage, self.post.stages, parts, spare);
        let mut loss = 0.0;
        for next in moves(ahead, parts) {
            match next {
                Move::Forward(part) => loss += self.forward(micro, part, part % ahead, samples)?,
                Move::Backward(part) => self.backward(micro, part, part % ahead, (part, parts), exchange)?,
            }
        }
        Ok(loss)
    }

    /// A number for all parameters, when ranks are to compare theirs before a step.
    fn hash_if_due(&mut self, step: u64) -> u64 {
        if self.sync.verifies(step) && self.standing() == Standing::Level {
            self.part.stepper.parameters_hash()
        } else {
            0
        }
    }

    /// What this rank says of a step.
    pub(super) fn vote(
        &self,
        micro: &MicroBatches,
        loaded: Option<&Loaded>,
        loss: f64,
        finite: bool,
        [compute, exchange]: [Duration; 2],
    ) -> Vote {
        let reported = self.post.is_first() && self.worker.outlet.is_driver();
        let indices = loaded.filter(|_| reported).map_or(&[][..], |l| &l.batch.indices);
        Vote {
            step: micro.step,
            loss,
            samples: if self.post.is_last() { u32::try_from(micro.len).unwrap_or(u32::MAX) } else { 0 },
            finite,
            wish: self.worker.mailbox.wish(self.epoch).max(self.worker.outlet.wish()),
            compute_us: micros(compute),
            exchange_us: micros(exchange),
            wait_us: micros(self.waited),
            seen: marks(indices),
            hash: 0,
            standing: Standing::Level,
        }
    }

    /// What a stage says of each of some steps that were done together, of which one with the most parts is given.
    pub(super) fn stage_report(
        &mut self,
        micro: &MicroBatches,
        steps: usize,
        idle: Duration,
        held: Held,
    ) -> StageReport {
        if !self.is_planned {
            return StageReport::default();
        }
        let pipes = self.pipe_bytes();
        let sent = pipes - std::mem::replace(&mut self.pipes_before, pipes);
        let sums = if micro.parts() > 1 { self.part.parameter_bytes() } else { 0 };
        StageReport {
            replica: self.post.replica as u32,
            stage: self.post.stage as u32,
            memory: self.part.memory(&self.worker.task.config.train.optimizer) + sums + held.bytes,
            sent: sent / steps.max(1) as u64,
            idle_us: micros(idle / steps.max(1) as u32),
            staleness: held.staleness,
        }
    }

    /// Runs one part of the samples forward, and sends on what comes of it; the last stage gives its part of the loss.
    pub(super) fn forward(
        &mut self,
        micro: &MicroBatches,
        index: usize,
        slot: usize,
        samples: Option<Samples<'_>>,
    ) -> Result<f64, RankError> {
        let len = micro.part_len(index);
        let pass = self.part.stepper.pass(micro.step, index, micro.first);
        // Frames between stages say which samples they are of.
        let marked = samples.filter(|samples| self.post.stages > 1 && !samples.indices.is_empty());
        let mut seen = marked.map_or(0, |samples| marks(micro.cut(index, samples.indices)));
        if let Some(prev) = &mut self.prev {
            let frame = prev.recv()?;
            frame.expect(Carries::Activations, micro.step, index, len)?;
            if self.post.is_last() && frame.head.seen != seen {
                let (step, part) = (micro.step, index as u32);
                return Err(RankError::Step(StepFailure::OtherLabels { step, part }));
            }
            seen = frame.head.seen;
            self.part.unpack_inputs(self.worker.compression, len, &frame)?;
            prev.recycle(frame);
            self.part.forward_received(slot, len, pass)?;
        } else if let Some(samples) = samples {
            self.part.stepper.forward(slot, len, &[micro.cut(index, samples.x)], pass)?;
        }
        if let Some(next) = &mut self.next {
            let (part, len, step) = (index as u32, len as u32, micro.step);
            let head = Head { carries: Carries::Activations, part, len, step, seen, bytes: 0 };
            let (part, compression) = (&mut self.part, self.worker.compression);
            next.send(head, |bytes| part.pack_outputs(compression, slot, bytes))?;
            return Ok(0.0);
        }
        let y_shape = &self.worker.task.y_shape;
        let input = micro.input(index, samples.map_or(&[][..], |samples| samples.y), y_shape);
        Ok(self.part.stepper.evaluate(slot, &input)?)
    }

    /// Computes the gradients of one part of the samples, and sends on those of its inputs.
    pub(super) fn backward(
        &mut self,
        micro: &MicroBatches,
        index: usize,
        slot: usize,
        of: (usize, usize),
        exchange: bool,
    ) -> Result<(), RankError> {
        let len = micro.part_len(index);
        let mut given = Ok(());
        let rings = &mut self.rings;
        let mut ready = |parameter: usize, gradient: &[f32]| {
            if exchange && given.is_ok() {
                given = rings.give(parameter, gradient, true);
            }
        };
        if let Some(next) = &mut self.next {
            let frame: Frame = next.recv()?;
            frame.expect(Carries::Gradients, micro.step, index, len)?;
            self.part.backward_received(self.worker.compression, slot, len, &frame, of, &mut ready)?;
            next.recycle(frame);
        } else {
            self.part.stepper.backward(slot, None, of, &mut ready)?;
        }
        given?;
        if let Some(prev) = &mut self.prev {
            let (part, samples, step) = (index as u32, len as u32, micro.step);
            let head = Head { carries: Carries::Gradients, part, len: samples, step, seen: 0, bytes: 0 };
            let (part, compression) = (&mut self.part, self.worker.compression);
            prev.send(head, |bytes| part.pack_input_gradients(compression, slot, len, bytes))?;
        }
        Ok(())
    }

    /// This replica has no samples in a step: its gradients are zero.
    fn give_nothing(&mut self) -> Result<(), RankError> {
        let rings = &mut self.rings;
        let mut given = Ok(());
        self.part.stepper.model().update(&mut |parameter, _, gradient| {
            gradient.fill(0.0);
            if given.is_ok() {
                given = rings.give(parameter, gradient, false);
            }
        });
        Ok(given?)
    }
}

/// A number for some samples.
pub(super) fn marks(samples: &[u64]) -> u64 {
    samples.iter().fold(0, |seen, sample| seen.wrapping_add(mark(*sample)))
}
