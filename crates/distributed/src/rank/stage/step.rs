//! One step of all stages together: it happens on all of them, or on none.

use super::super::session::micros;
use super::frame::{Carries, Frame, Head};
use super::part::{Carried, pack, packed_len, unpack};
use super::session::Session;
use super::word::Word;
use crate::error::DistributedError;
use phalanx_data::{Loaded, Loader};
use phalanx_protocol::pipeline::{Move, ahead_in_batch, moves};
use phalanx_protocol::{Vote, Wish, mark};
use phalanx_train::{Cut, StepInput, loader_options};
use phalanx_wire::train::{Activity, StageReport};
use std::time::{Duration, Instant};

/// The samples of one step that this stage's replica has, cut into parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sheaf {
    pub(super) step: u64,
    /// Samples of all replicas together.
    pub(super) whole: usize,
    /// How many of those come before these.
    pub(super) first: usize,
    pub(super) len: usize,
    micro: usize,
}

impl Sheaf {
    /// A last part of one sample goes with the one before: batch norm has nothing to say of a single value.
    pub(super) fn parts(&self) -> usize {
        let parts = self.len.div_ceil(self.micro);
        if parts > 1 && self.micro > 1 && self.len % self.micro == 1 { parts - 1 } else { parts }
    }

    pub(super) fn part_len(&self, part: usize) -> usize {
        let rest = self.len.saturating_sub(part * self.micro);
        if part + 1 == self.parts() { rest } else { self.micro.min(rest) }
    }

    /// How many of its samples come before a part.
    pub(super) fn start(&self, part: usize) -> usize {
        part * self.micro
    }

    /// What belongs to one of the parts, of something that all samples have.
    pub(super) fn cut<'a, T>(&self, part: usize, of_all: &'a [T]) -> &'a [T] {
        let size = of_all.len() / self.len.max(1);
        let (start, len) = (self.start(part), self.part_len(part));
        &of_all[start * size..(start + len) * size]
    }

    /// One of the parts, with all labels of the step.
    pub(super) fn input<'a>(&self, part: usize, y: &'a [f32], y_shape: &'a [usize]) -> StepInput<'a> {
        let (len, y) = (self.part_len(part), self.cut(part, y));
        let (step, whole, first) = (self.step, self.whole, self.first);
        StepInput { x: &[], y, y_shape, len, whole, first, cut: Cut::Parts(1), step }
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

impl Session<'_> {
    /// Which samples a step has.
    pub(super) fn sheaf(&self, step: u64) -> Sheaf {
        let task = &self.worker.task;
        let batch = task.config.train.batch * task.config.train.accumulate;
        let index = self.worker.place(step).batch as usize;
        let whole = batch.min(task.samples - index * batch);
        let own = self.shares.range(self.post.replica, whole);
        Sheaf { step, whole, first: own.start, len: own.len(), micro: self.micro }
    }

    /// The samples of a step, where they are needed: at the first stage, and, for their labels, at the last.
    pub(super) fn load(&mut self, step: u64) -> Result<Option<Loaded>, DistributedError> {
        if !self.post.is_first() && !self.post.is_last() {
            return Ok(None);
        }
        let began = Instant::now();
        if self.loader.is_none() {
            let task = &self.worker.task;
            let mut options = loader_options(task, self.worker.place(step));
            options.part = Some(self.shares.part(self.post.replica));
            self.loader = Some(Loader::new(task.train.clone(), &task.config.data.transform, options)?);
        }
        let next = self.loader.as_mut().and_then(Iterator::next);
        self.spans.add(Activity::Data, step, began);
        let ended = || DistributedError::Replica { reason: "there are no more samples".to_owned() };
        Ok(Some(next.ok_or_else(ended)??))
    }

    pub(super) fn recycle(&mut self, loaded: Option<Loaded>) {
        if let (Some(loader), Some(loaded)) = (&mut self.loader, loaded) {
            loader.recycle(loaded.batch);
        }
    }

    pub(super) fn step(&mut self) -> Result<Wish, DistributedError> {
        let step = self.part.step;
        let sheaf = self.sheaf(step);
        let lr = self.worker.task.config.lr(step, self.worker.task.plan().steps());
        self.part.keep_buffers();
        let loaded = self.load(step)?;
        let began = Instant::now();
        let idle = self.idle();
        let parts = sheaf.parts();
        let ahead = self.ahead_in_batch(parts);
        let mut loss = 0.0;
        for next in moves(ahead, parts) {
            match next {
                Move::Forward(part) => loss += self.forward(&sheaf, part, part % ahead, loaded.as_ref())?,
                Move::Backward(part) => {
                    self.backward(&sheaf, part, part % ahead, (part, parts), self.rings.any())?;
                }
            }
        }
        if parts == 0 {
            self.give_nothing()?;
        }
        let idled = self.idle().saturating_sub(idle);
        let compute = began.elapsed().saturating_sub(idled);
        self.spans.add(Activity::Compute, step, began);
        let began = Instant::now();
        self.rings.take_sums(&mut self.part.stepper)?;
        let exchanged = began.elapsed();
        self.spans.add(Activity::Exchange, step, began);
        let squares = self.part.squares();
        let finite = loss.is_finite() && squares.iter().all(|square| square.is_finite());
        let vote = self.vote(&sheaf, loaded.as_ref(), loss, finite, [compute, exchanged]);
        let report = self.stage_report(&sheaf, 1, idled, Held::default());
        let own = Word::new(&[vote], report, squares);
        let began = Instant::now();
        self.part.pending = Some(lr);
        let words = self.agree(own)?;
        self.waited = began.elapsed();
        self.spans.add(Activity::Vote, step, began);
        let norm = self.norm(&words);
        if words.outcomes[0].not_finite.is_some() || !norm.is_finite() {
            return Err(self.not_finite(&words, &sheaf, loaded.as_ref()));
        }
        let began = Instant::now();
        self.part.apply(norm, lr);
        self.spans.add(Activity::Update, step, began);
        self.done(&words, 0, step, lr, norm);
        self.recycle(loaded);
        self.copy_if_due(&words);
        Ok(words.outcomes[0].wish)
    }

    /// How many of so many parts this stage lets in before the first comes back.
    pub(super) fn ahead_in_batch(&self, parts: usize) -> usize {
        let spare = self.worker.task.config.formation.ahead;
        ahead_in_batch(self.post.stage, self.post.stages, parts, spare)
    }

    /// What this stage says of a step.
    pub(super) fn vote(
        &self,
        sheaf: &Sheaf,
        loaded: Option<&Loaded>,
        loss: f64,
        finite: bool,
        [compute, exchange]: [Duration; 2],
    ) -> Vote {
        let indices = loaded.filter(|_| self.post.is_first()).map_or(&[][..], |l| &l.batch.indices);
        Vote {
            step: sheaf.step,
            loss,
            samples: if self.post.is_last() { u32::try_from(sheaf.len).unwrap_or(u32::MAX) } else { 0 },
            finite,
            wish: self.worker.control.wish(self.epoch),
            compute_us: micros(compute),
            exchange_us: micros(exchange),
            wait_us: micros(self.waited),
            seen: marks(indices),
            hash: 0,
            standing: Default::default(),
        }
    }

    /// What this stage says of each of some steps that were done together, of which one with the most parts is given.
    pub(super) fn stage_report(
        &mut self,
        sheaf: &Sheaf,
        steps: usize,
        idle: Duration,
        held: Held,
    ) -> StageReport {
        let pipes = self.prev.iter().chain(&self.next).map(|pipe| pipe.sent).sum::<u64>();
        let sent = pipes - std::mem::replace(&mut self.pipes_before, pipes);
        let sums = if sheaf.parts() > 1 { self.part.parameter_bytes() } else { 0 };
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
        sheaf: &Sheaf,
        index: usize,
        slot: usize,
        loaded: Option<&Loaded>,
    ) -> Result<f64, DistributedError> {
        let len = sheaf.part_len(index);
        let pass = self.part.stepper.pass(sheaf.step, index, sheaf.first);
        let mut seen = loaded.map_or(0, |loaded| marks(sheaf.cut(index, &loaded.batch.indices)));
        if let Some(prev) = &mut self.prev {
            let frame = prev.recv()?;
            frame.expect(Carries::Activations, sheaf.step, index, len)?;
            if self.post.is_last() && frame.head.seen != seen {
                let step = sheaf.step;
                let reason = format!("labels of step {step}, part {index} are those of other samples");
                return Err(DistributedError::Replica { reason });
            }
            seen = frame.head.seen;
            self.part.unpack_inputs(self.worker.compression, len, &frame)?;
            prev.recycle(frame);
            self.part.forward_received(slot, len, pass)?;
        } else if let Some(loaded) = loaded {
            self.part.stepper.forward(slot, len, &[sheaf.cut(index, &loaded.batch.x)], pass)?;
        }
        if let Some(next) = &mut self.next {
            let part = index as u32;
            let head = Head {
                carries: Carries::Activations,
                part,
                len: len as u32,
                step: sheaf.step,
                seen,
                bytes: 0,
            };
            let (part, compression) = (&mut self.part, self.worker.compression);
            next.send(head, |bytes| part.pack_outputs(compression, slot, bytes))?;
            return Ok(0.0);
        }
        let y_shape = &self.worker.task.y_shape;
        let y = loaded.map_or(&[][..], |loaded| &loaded.batch.y);
        let input = sheaf.input(index, y, y_shape);
        Ok(self.part.stepper.evaluate(slot, &input)?)
    }

    /// Computes the gradients of one part of the samples, and sends on those of its inputs.
    pub(super) fn backward(
        &mut self,
        sheaf: &Sheaf,
        index: usize,
        slot: usize,
        of: (usize, usize),
        exchange: bool,
    ) -> Result<(), DistributedError> {
        let len = sheaf.part_len(index);
        let mut given = Ok(());
        let rings = &mut self.rings;
        let mut ready = |parameter: usize, gradient: &[f32]| {
            if exchange && given.is_ok() {
                given = rings.give(parameter, gradient, true);
            }
        };
        if let Some(next) = &mut self.next {
            let frame: Frame = next.recv()?;
            frame.expect(Carries::Gradients, sheaf.step, index, len)?;
            self.part.backward_received(self.worker.compression, slot, len, &frame, of, &mut ready)?;
            next.recycle(frame);
        } else {
            self.part.stepper.backward(slot, None, of, &mut ready)?;
        }
        given?;
        if let Some(prev) = &mut self.prev {
            let head = Head {
                carries: Carries::Gradients,
                part: index as u32,
                len: len as u32,
                step: sheaf.step,
                seen: 0,
                bytes: 0,
            };
            let (part, compression) = (&mut self.part, self.worker.compression);
            prev.send(head, |bytes| part.pack_input_gradients(compression, slot, len, bytes))?;
        }
        Ok(())
    }

    /// This replica has no samples in a step: its gradients are zero.
    pub(super) fn give_nothing(&mut self) -> Result<(), DistributedError> {
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
fn marks(samples: &[u64]) -> u64 {
    samples.iter().fold(0, |seen, sample| seen.wrapping_add(mark(*sample)))
}

impl super::part::Part {
    /// The squares of its gradients, in the order of names.
    pub(super) fn squares(&mut self) -> Vec<f64> {
        let squares = self.stepper.squares();
        self.stepper.by_name().iter().map(|index| squares[*index]).collect()
    }

    pub(super) fn unpack_inputs(
        &mut self,
        compression: phalanx_collective::Compression,
        len: usize,
        frame: &Frame,
    ) -> Result<(), DistributedError> {
        let one = |value: &Carried| packed_len(compression, value.floats, value.elements(len));
        frame.expect_bytes(self.inputs.iter().map(one))?;
        let mut rest = &frame.values[..];
        self.received.resize(self.inputs.len(), Vec::new());
        for (value, into) in self.inputs.iter().zip(&mut self.received) {
            into.resize(value.elements(len), 0.0);
            rest = unpack(compression, value.floats, rest, into)?;
        }
        Ok(())
    }

    /// Runs forward what was unpacked.
    pub(super) fn forward_received(
        &mut self,
        slot: usize,
        len: usize,
        pass: phalanx_engine::Pass,
    ) -> Result<(), DistributedError> {
        let inputs: Vec<&[f32]> = self.received.iter().map(Vec::as_slice).collect();
        match pass.training {
            true => Ok(self.stepper.forward(slot, len, &inputs, pass)?),
            false => Ok(self.stepper.model.forward(slot, len, &inputs, pass)?),
        }
    }

    pub(super) fn pack_outputs(
        &mut self,
        compression: phalanx_collective::Compression,
        slot: usize,
        bytes: &mut Vec<u8>,
    ) {
        for (index, value) in self.outputs.iter().enumerate() {
            pack(compression, value.floats, self.stepper.model.output(slot, index), bytes);
        }
    }

    fn backward_received(
        &mut self,
        compression: phalanx_collective::Compression,
        slot: usize,
        len: usize,
        frame: &Frame,
        of: (usize, usize),
        ready: &mut phalanx_train::Ready<'_>,
    ) -> Result<(), DistributedError> {
        let learns = self.outputs.iter().filter(|value| value.learns);
        frame.expect_bytes(learns.map(|value| packed_len(compression, true, value.elements(len))))?;
        let mut rest = &frame.values[..];
        self.given.resize(self.outputs.len(), Vec::new());
        for (value, into) in self.outputs.iter().zip(&mut self.given) {
            into.resize(value.elements(len), 0.0);
            if value.learns {
                rest = unpack(compression, true, rest, into)?;
            }
        }
        let gradients: Vec<&[f32]> = self.given.iter().map(Vec::as_slice).collect();
        Ok(self.stepper.backward(slot, Some(&gradients), of, ready)?)
    }

    fn pack_input_gradients(
        &mut self,
        compression: phalanx_collective::Compression,
        slot: usize,
        len: usize,
        bytes: &mut Vec<u8>,
    ) {
        for (index, value) in self.inputs.iter().enumerate().filter(|(_, value)| value.learns) {
            match self.stepper.model.input_gradient(slot, index) {
                Some(gradient) => pack(compression, true, gradient, bytes),
                None => pack(compression, true, &vec![0.0; value.elements(len)], bytes),
            }
        }
    }
}
