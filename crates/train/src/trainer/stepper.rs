//! One training step: forward, loss, backward, clipping, update.

use crate::core::{Vote, Wish};
use crate::error::TrainError;
use crate::replica::Together;
use phalanx_engine::{
    DiagnoseReport, GradNorm, Loss, LossError, Model, Optimizer, Pass, RunError, Target, Threads,
    clip_factor, clip_value, scale,
};
use phalanx_graph::Weights;
use phalanx_types::Seed;
use std::sync::Arc;

/// A local run has one batch in flight.
const SLOT: usize = 0;

/// How gradients are made and used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepperOptions {
    pub loss: Loss,
    pub clip_norm: Option<f32>,
    pub clip_value: Option<f32>,
    /// Where dropout comes from.
    pub seed: Seed,
}

/// The samples of one step.
#[derive(Debug, Clone, Copy)]
pub struct StepInput<'a> {
    pub x: &'a [f32],
    pub y: &'a [f32],
    /// Of one label.
    pub y_shape: &'a [usize],
    /// How many samples there are.
    pub len: usize,
    /// How many all replicas have together, this one included.
    pub whole: usize,
    /// How many are computed at once; the rest follows, and the step is as if all had been at once.
    pub batch: usize,
    /// The number of the step, from 0.
    pub step: u64,
    pub lr: f32,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stepped {
    pub loss: f64,
    /// Before clipping.
    pub grad_norm: f64,
}

impl Stepped {
    /// What is not finite, if something is.
    pub(crate) fn not_finite(&self) -> Option<(&'static str, f64)> {
        let all = [("loss", self.loss), ("norm of the gradients", self.grad_norm)];
        all.into_iter().find(|(_, value)| !value.is_finite())
    }
}

/// A model that learns.
#[derive(Debug)]
pub struct Stepper {
    pub(crate) model: Box<dyn Model>,
    pub(crate) optimizer: Optimizer,
    options: StepperOptions,
    threads: Arc<Threads>,
    norm: GradNorm,
    /// Of the output, used again for every batch.
    gradient: Vec<f32>,
    /// Gradients of the batches of a step so far; empty when a step is one batch.
    sums: Vec<Vec<f32>>,
    target_shape: Vec<usize>,
    /// The weights it began with.
    pub(super) start: Weights,
    /// Batches that were run in training since then.
    pub(super) forwards: u64,
    /// The other replicas, if there are any.
    together: Option<Together>,
}

impl Stepper {
    pub fn new(
        model: Box<dyn Model>,
        optimizer: Optimizer,
        options: StepperOptions,
        threads: Arc<Threads>,
    ) -> Self {
        Self {
            model,
            optimizer,
            options,
            threads,
            norm: GradNorm::new(),
            gradient: Vec::new(),
            sums: Vec::new(),
            target_shape: Vec::new(),
            start: Weights::new(),
            forwards: 0,
            together: None,
        }
    }

    /// From now on steps are those of all replicas together, or, with `None`, of this one alone. Batches are
    /// normalised over all of them when `statistics` says so.
    pub fn join(&mut self, together: Option<Together>, statistics: bool) {
        let sum = together.as_ref().filter(|_| statistics).map(Together::sum_over);
        self.model.share_statistics(sum);
        self.together = together;
    }

    pub fn model(&mut self) -> &mut dyn Model {
        self.model.as_mut()
    }

    /// Does one step. When loss or gradients are not finite, the parameters are left as they were.
    ///
    /// # Errors
    /// The samples are not what the model takes.
    pub fn step(&mut self, input: &StepInput<'_>) -> Result<Stepped, TrainError> {
        let batches = input.len.div_ceil(input.batch.max(1));
        if batches > 1 && self.sums.is_empty() {
            self.sums = self.model.parameters().iter().map(|p| vec![0.0; p.elements()]).collect();
        }
        let mut loss = 0.0;
        for index in 0..batches {
            loss += self.batch(input, index, batches)?;
        }
        let loss = self.agree(input, loss)?;
        self.norm.reset();
        let (norm, threads) = (&mut self.norm, &self.threads);
        self.model.update(&mut |_, _, gradient| norm.add(threads, gradient));
        let stepped = Stepped { loss, grad_norm: self.norm.value() };
        if stepped.not_finite().is_none() {
            self.update(stepped.grad_norm, input.lr);
        }
        Ok(stepped)
    }

    /// Takes the sums of all replicas' gradients for the own ones, and their common loss.
    fn agree(&mut self, input: &StepInput<'_>, loss: f64) -> Result<f64, TrainError> {
        let Some(together) = &mut self.together else { return Ok(loss) };
        together.exchange.wait()?;
        let (finite, wish) = (loss.is_finite(), Wish::GoOn);
        let samples = u32::try_from(input.len).unwrap_or(u32::MAX);
        let vote =
            Vote { step: input.step, loss, samples, finite, wish, compute_us: 0, exchange_us: 0, wait_us: 0 };
        let (_, outcome) = together.vote(&vote)?;
        let mut taken = Ok(());
        self.model.update(&mut |parameter, _, gradient| match together.exchange.sum(parameter) {
            Ok(sum) => gradient.copy_from_slice(sum),
            Err(error) => taken = Err(error),
        });
        taken?;
        Ok(outcome.loss)
    }

    /// Runs one of the batches of a step, adds up gradients, and gives its part of the loss.
    fn batch(&mut self, input: &StepInput<'_>, index: usize, batches: usize) -> Result<f64, TrainError> {
        let part = part_of(input, index);
        let pass = self.pass(input.step, index);
        self.model.forward(SLOT, part.len, &[part.x], pass)?;
        self.forwards += 1;
        let output = self.model.output(SLOT, 0);
        let shape = self.model.output_shape(SLOT, 0);
        self.gradient.resize(output.len(), 0.0);
        self.target_shape.clear();
        self.target_shape.push(part.len);
        self.target_shape.extend_from_slice(input.y_shape);
        let target = Target { data: part.y, shape: &self.target_shape };
        let share = part.len as f64 / input.whole as f64;
        let loss = self.options.loss.evaluate(
            &self.threads,
            output,
            &shape,
            target,
            share as f32,
            Some(&mut self.gradient),
        )?;
        let (sums, together) = (&mut self.sums, &mut self.together);
        let mut given = Ok(());
        let mut sum_up = |parameter: usize, gradient: &mut [f32]| {
            let last = index + 1 == batches;
            if let Some(sum) = sums.get_mut(parameter) {
                match (index == 0, last) {
                    (true, true) => {}
                    (true, false) => sum.copy_from_slice(gradient),
                    (false, false) => sum.iter_mut().zip(&*gradient).for_each(|(sum, g)| *sum += g),
                    (false, true) => gradient.iter_mut().zip(&*sum).for_each(|(g, sum)| *g += sum),
                }
            }
            if let Some(together) = together.as_mut().filter(|_| last)
                && let Err(error) = together.exchange.give(parameter, gradient)
            {
                given = Err(error);
            }
        };
        self.model.backward(SLOT, &[&self.gradient], &mut sum_up)?;
        given?;
        Ok(loss * share)
    }

    fn update(&mut self, norm: f64, lr: f32) {
        let factor = self.options.clip_norm.map_or(1.0, |max| clip_factor(norm, max));
        let (optimizer, threads, limit) = (&mut self.optimizer, &self.threads, self.options.clip_value);
        optimizer.begin_step();
        self.model.update(&mut |index, parameter, gradient| {
            scale(threads, gradient, factor);
            if let Some(max) = limit {
                clip_value(threads, gradient, max);
            }
            optimizer.update(threads, index, lr, parameter, gradient);
        });
    }

    /// How a batch of a step is run.
    fn pass(&self, step: u64, index: usize) -> Pass {
        Pass { training: true, seed: self.options.seed.derive(&format!("{step}.{index}")).0 }
    }

    /// Looks for the operator that made a step not finite.
    pub(crate) fn diagnose(&mut self, input: &StepInput<'_>) -> Option<(usize, DiagnoseReport)> {
        let batches = input.len.div_ceil(input.batch.max(1));
        (0..batches).find_map(|index| {
            let part = part_of(input, index);
            let pass = self.pass(input.step, index);
            let report = self.diagnose_part(&part, pass, input.y_shape).ok()??;
            Some((index * input.batch, report))
        })
    }

    fn diagnose_part(
        &mut self,
        part: &StepInput<'_>,
        pass: Pass,
        y_shape: &[usize],
    ) -> Result<Option<DiagnoseReport>, RunError> {
        let shape = self.model.output_shape(SLOT, 0);
        let rest = shape.get(1..).unwrap_or_default();
        let output_shape: Vec<usize> = std::iter::once(part.len).chain(rest.iter().copied()).collect();
        let target_shape: Vec<usize> = std::iter::once(part.len).chain(y_shape.iter().copied()).collect();
        let (loss, threads) = (self.options.loss, &self.threads);
        let gradient_of = |output: &[f32]| {
            let mut gradient = vec![0.0; output.len()];
            let target = Target { data: part.y, shape: &target_shape };
            // The same call went well a moment ago.
            let _loss: Result<f64, LossError> =
                loss.evaluate(threads, output, &output_shape, target, 1.0, Some(&mut gradient));
            gradient
        };
        self.model.diagnose(part.len, &[part.x], pass, &gradient_of)
    }
}

/// The samples of one of the batches of a step.
fn part_of<'a>(input: &StepInput<'a>, index: usize) -> StepInput<'a> {
    let (first, batch) = (index * input.batch, input.batch);
    let len = batch.min(input.len - first);
    let cut = |data: &'a [f32]| {
        let size = data.len() / input.len.max(1);
        &data[first * size..(first + len) * size]
    };
    StepInput { x: cut(input.x), y: cut(input.y), len, ..*input }
}
