//! One training step: forward, loss, backward, clipping, update.

use crate::error::TrainError;
use bytes::Bytes;
use phalanx_engine::{
    DiagnoseReport, GradNorm, LossError, Model, Objective, Optimizer, Pass, RunError, Slot, Target, Threads,
    clip_factor, clip_value, scale,
};
use phalanx_graph::weights::Later;
use phalanx_graph::{Graph, Weights};
use phalanx_records::{ModelState, count_batches, pack_later};
use phalanx_types::{DType, Seed, Tensor};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// A local run has one batch in flight.
const SLOT: usize = 0;
/// A state of so many bytes is packed tensor by tensor.
const LARGE: usize = 1 << 20;

/// How gradients are made and used.
#[derive(Debug, Clone)]
pub struct StepperOptions {
    pub loss: Objective,
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
    /// How many the step has altogether: those of other replicas count, too.
    pub whole: usize,
    /// How many of those come before these.
    pub first: usize,
    pub cut: Cut,
    /// The number of the step, from 0.
    pub step: u64,
}

/// How samples are computed one part after the other, as if all had been computed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// So many at once, the rest last.
    Size(usize),
    /// In so many parts of nearly the same size.
    Parts(usize),
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
    pub fn not_finite(&self) -> Option<(&'static str, f64)> {
        let all = [("loss", self.loss), ("norm of the gradients", self.grad_norm)];
        all.into_iter().find(|(_, value)| !value.is_finite())
    }
}

/// A model that learns.
#[derive(Debug)]
pub struct Stepper {
    pub model: Box<dyn Model>,
    optimizer: Optimizer,
    options: StepperOptions,
    threads: Arc<Threads>,
    norm: GradNorm,
    /// By parameter: its place in the order of names.
    places: Vec<usize>,
    /// Of every gradient, in the order of names; used again for every step.
    squares: Vec<f64>,
    /// Of the output, used again for every batch.
    gradient: Vec<f32>,
    /// Gradients of the batches of a step so far; empty when a step is one batch.
    sums: Vec<Vec<f32>>,
    target_shape: Vec<usize>,
    /// The counters of batches it began with.
    start: Weights,
    /// Batches that were run in training since then.
    forwards: u64,
}

/// Is told of every gradient when it is final.
pub type Ready<'a> = dyn FnMut(usize, &[f32]) + 'a;

impl Stepper {
    pub fn new(
        model: Box<dyn Model>,
        optimizer: Optimizer,
        options: StepperOptions,
        threads: Arc<Threads>,
    ) -> Self {
        let names = model.parameters();
        let mut by_name: Vec<usize> = (0..names.len()).collect();
        by_name.sort_by(|a, b| names[*a].name.cmp(&names[*b].name));
        let mut places = vec![0; by_name.len()];
        by_name.iter().enumerate().for_each(|(place, index)| places[*index] = place);
        Self {
            squares: vec![0.0; places.len()],
            places,
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
        }
    }

    pub fn model(&mut self) -> &mut dyn Model {
        self.model.as_mut()
    }

    /// Does one step. When loss or gradients are not finite, the parameters are left as they were.
    ///
    /// # Errors
    /// The samples are not what the model takes.
    pub fn step(&mut self, input: &StepInput<'_>, lr: f32) -> Result<Stepped, TrainError> {
        let loss = self.compute(input, &mut |_, _| ())?;
        let stepped = Stepped { loss, grad_norm: self.grad_norm() };
        if stepped.not_finite().is_none() {
            self.apply(stepped.grad_norm, lr);
        }
        Ok(stepped)
    }

    /// Computes the gradients of a step, and the part of its loss that these samples make.
    ///
    /// # Errors
    /// The samples are not what the model takes.
    pub fn compute(&mut self, input: &StepInput<'_>, ready: &mut Ready<'_>) -> Result<f64, TrainError> {
        let batches = input.batches();
        let mut loss = 0.0;
        for index in 0..batches {
            loss += self.batch(input, index, batches, ready)?;
        }
        Ok(loss)
    }

    /// The norm of all gradients, before clipping.
    pub fn grad_norm(&mut self) -> f64 {
        self.squares().iter().sum::<f64>().sqrt()
    }

    /// The sum of the squares of every parameter's gradient, in the order of names. Norms add them up in that order, so
    /// a model that is cut into stages has the same norm, bit for bit.
    pub fn squares(&mut self) -> &[f64] {
        let (norm, threads, places, squares) =
            (&mut self.norm, &self.threads, &self.places, &mut self.squares);
        self.model.update(&mut |index, _, gradient| {
            norm.reset();
            norm.add(threads, gradient);
            squares[places[index]] = norm.squares();
        });
        &self.squares
    }

    /// Runs one of the batches of a step, adds up gradients, and gives its part of the loss.
    fn batch(
        &mut self,
        input: &StepInput<'_>,
        index: usize,
        batches: usize,
        ready: &mut Ready<'_>,
    ) -> Result<f64, TrainError> {
        let part = input.part(index);
        let pass = self.pass(input.step, index, input.first);
        self.forward(SLOT, part.len, &[part.x], pass)?;
        let loss = self.evaluate(SLOT, &part)?;
        self.backward(SLOT, None, (index, batches), ready)?;
        Ok(loss)
    }

    /// Computes the outputs of a batch in training.
    pub fn forward(
        &mut self,
        slot: Slot,
        len: usize,
        inputs: &[&[f32]],
        pass: Pass,
    ) -> Result<(), TrainError> {
        self.model.forward(slot, len, inputs, pass)?;
        self.forwards += 1;
        Ok(())
    }

    /// The part of a step's loss that the output in a slot makes; its gradient is kept for [`Stepper::backward`].
    pub fn evaluate(&mut self, slot: Slot, part: &StepInput<'_>) -> Result<f64, TrainError> {
        let output = self.model.output(slot, 0);
        let shape = self.model.output_shape(slot, 0);
        self.gradient.resize(output.len(), 0.0);
        self.target_shape.clear();
        self.target_shape.push(part.len);
        self.target_shape.extend_from_slice(part.y_shape);
        let target = Target { data: part.y, shape: &self.target_shape };
        let share = part.len as f64 / part.whole as f64;
        let loss = self.options.loss.evaluate(
            &self.threads,
            output,
            &shape,
            target,
            share as f32,
            Some(&mut self.gradient),
        )?;
        Ok(loss * share)
    }

    /// Computes the gradients of what a slot holds, one of so many batches of a step, and adds them up. Without
    /// gradients of the outputs, it is that of the loss that was evaluated last.
    pub fn backward(
        &mut self,
        slot: Slot,
        of_outputs: Option<&[&[f32]]>,
        (index, batches): (usize, usize),
        ready: &mut Ready<'_>,
    ) -> Result<(), TrainError> {
        if batches > 1 && self.sums.is_empty() {
            self.sums = self.model.parameters().iter().map(|p| vec![0.0; p.elements()]).collect();
        }
        let sums = &mut self.sums;
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
            if last {
                ready(parameter, gradient);
            }
        };
        let of_loss: &[&[f32]] = &[&self.gradient];
        Ok(self.model.backward(slot, of_outputs.unwrap_or(of_loss), &mut sum_up)?)
    }

    /// Moves the parameters by their gradients, of which this is the norm.
    pub fn apply(&mut self, norm: f64, lr: f32) {
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

    /// Multiplies all gradients.
    pub fn scale_gradients(&mut self, factor: f32) {
        let threads = &self.threads;
        self.model.update(&mut |_, _, gradient| scale(threads, gradient, factor));
    }

    /// Counts a step in which there was nothing to learn.
    pub fn skip(&mut self) {
        self.optimizer.begin_step();
    }

    /// How a batch of a step is run. Samples of different replicas have different random numbers: `first` is how many
    /// samples of the step come before those of this one.
    pub fn pass(&self, step: u64, index: usize, first: usize) -> Pass {
        let name = if first == 0 { format!("{step}.{index}") } else { format!("{step}.{index}.{first}") };
        Pass { training: true, seed: self.options.seed.derive(&name).0 }
    }

    /// Looks at every operator, with inputs that were computed a moment ago.
    pub fn look_at(
        &mut self,
        len: usize,
        inputs: &[&[f32]],
        pass: Pass,
        gradients: OutputGradients<'_>,
    ) -> Result<Option<DiagnoseReport>, RunError> {
        let shape = self.model.output_shape(SLOT, 0);
        let rest = shape.get(1..).unwrap_or_default();
        let output_shape: Vec<usize> = std::iter::once(len).chain(rest.iter().copied()).collect();
        let (loss, threads) = (&self.options.loss, &self.threads);
        let gradients_of = |output: &[f32]| match gradients {
            OutputGradients::Given(given) => given.to_vec(),
            OutputGradients::OfLoss(part) => {
                let shape: Vec<usize> = std::iter::once(len).chain(part.y_shape.iter().copied()).collect();
                let mut gradient = vec![0.0; output.len()];
                let target = Target { data: part.y, shape: &shape };
                // The same call went well a moment ago.
                let _loss: Result<f64, LossError> =
                    loss.evaluate(threads, output, &output_shape, target, 1.0, Some(&mut gradient));
                vec![gradient]
            }
        };
        self.model.diagnose(len, inputs, pass, &gradients_of)
    }
}

/// Of what the gradients of a model's outputs are.
#[derive(Debug, Clone, Copy)]
pub enum OutputGradients<'a> {
    OfLoss(&'a StepInput<'a>),
    /// Another stage has computed them.
    Given(&'a [Vec<f32>]),
}

impl<'a> StepInput<'a> {
    /// In how many parts it is computed.
    pub fn batches(&self) -> usize {
        match self.cut {
            Cut::Size(size) => self.len.div_ceil(size.max(1)),
            Cut::Parts(parts) => parts.min(self.len),
        }
    }

    /// Which samples one of them has.
    fn range(&self, index: usize) -> Range<usize> {
        match self.cut {
            Cut::Size(size) => index * size..((index + 1) * size).min(self.len),
            Cut::Parts(parts) => index * self.len / parts.max(1)..(index + 1) * self.len / parts.max(1),
        }
    }

    /// The samples of one of them.
    pub fn part(&self, index: usize) -> Self {
        let range = self.range(index);
        let (first, len) = (range.start, range.len());
        let cut = |data: &'a [f32]| {
            let size = data.len() / self.len.max(1);
            &data[first * size..(first + len) * size]
        };
        Self { x: cut(self.x), y: cut(self.y), len, ..*self }
    }
}

impl Stepper {
    /// Sets parameters and buffers; the optimizer stays as it is.
    pub fn load(&mut self, weights: &Weights) -> Result<(), TrainError> {
        let counters = weights.iter().filter(|(_, tensor)| tensor.dtype() == DType::I64);
        self.start = counters.map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        self.forwards = 0;
        Ok(self.model.load(weights)?)
    }

    /// Becomes what another was.
    pub fn set_state(&mut self, state: &ModelState) -> Result<(), TrainError> {
        self.load(&state.weights)?;
        let steps = state.optimizer_steps;
        for (index, parameter) in self.model.parameters().iter().enumerate() {
            for name in self.optimizer.state_names() {
                let key = format!("{}.{name}", parameter.name);
                let values = state.optimizer.get(&key).and_then(|tensor| tensor.to_f32().ok());
                let values = values.filter(|values| values.len() == parameter.elements());
                let values = values.ok_or_else(|| TrainError::MissingState { name: key.clone() })?;
                self.optimizer.restore(steps, index, name, &self.model.to_engine(index, &values))?;
            }
        }
        self.optimizer.set_steps(steps);
        Ok(())
    }

    /// A number for all parameters as they are now: equal numbers mean equal bits, all but surely.
    pub fn parameters_hash(&mut self) -> u64 {
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut lanes = [FACTOR; 8];
        self.model.update(&mut |_, parameter, _| {
            let (chunks, rest) = parameter.as_chunks::<8>();
            for chunk in chunks {
                for (lane, value) in lanes.iter_mut().zip(chunk) {
                    *lane = (*lane ^ u64::from(value.to_bits())).wrapping_mul(FACTOR);
                    *lane ^= *lane >> 29;
                }
            }
            for value in rest {
                lanes[0] = (lanes[0] ^ u64::from(value.to_bits())).wrapping_mul(FACTOR);
                lanes[0] ^= lanes[0] >> 29;
            }
        });
        lanes.iter().fold(0, |hash, lane| (hash ^ lane).wrapping_mul(FACTOR)).max(1)
    }

    /// Takes these for the gradients of all parameters, one after the other.
    pub fn set_gradients(&mut self, flat: &[f32]) {
        let mut rest = flat;
        self.model.update(&mut |_, _, gradient| {
            let (own, others) = rest.split_at(gradient.len().min(rest.len()));
            gradient[..own.len()].copy_from_slice(own);
            rest = others;
        });
    }

    /// A copy of all that it is.
    pub fn state(&self, graph: &Graph) -> Result<ModelState, TrainError> {
        let (optimizer_steps, weights) = (self.optimizer.steps(), self.weights(graph));
        let all = 0..self.model.parameters().len();
        Ok(ModelState { optimizer_steps, weights, optimizer: self.optimizer_state(all)? })
    }

    /// The bytes of [`Stepper::state`], with something added to the optimizer's; a large one is never in memory as a
    /// whole.
    pub fn packed(&self, graph: &Graph, more: &Weights) -> Result<Bytes, TrainError> {
        let parameters = self.model.parameters();
        let elements: usize = parameters.iter().map(|parameter| parameter.elements()).sum();
        if 4 * elements * (1 + self.optimizer.state_names().len()) < LARGE {
            let mut state = self.state(graph)?;
            state.optimizer.extend(more.iter().map(|(name, tensor)| (name.clone(), tensor.clone())));
            return Ok(state.to_bytes()?.into());
        }
        let kept = |(name, tensor): (&String, &Tensor)| {
            let tensor = tensor.clone();
            let (dtype, shape) = (tensor.dtype(), tensor.shape().iter().map(|d| *d as usize).collect());
            Later {
                name: name.clone(),
                dtype,
                shape,
                write: Box::new(move |out| out.write_all(tensor.data())),
            }
        };
        let buffers = self.buffers(graph);
        let mut weights: Vec<Later<'_>> = buffers.iter().map(kept).collect();
        let mut optimizer: Vec<Later<'_>> = more.iter().map(kept).collect();
        for (index, parameter) in parameters.iter().enumerate() {
            let (name, shape) = (parameter.name.clone(), parameter.shape.clone());
            let own = move |out: &mut dyn Write| {
                let weights = self.model.weights_of(&|name| name == parameter.name);
                weights.values().try_for_each(|tensor| out.write_all(tensor.data()))
            };
            weights.push(Later { name, dtype: DType::F32, shape, write: Box::new(own) });
            for state in self.optimizer.state_names() {
                let Some(flat) = self.optimizer.state(index, state) else { continue };
                let (name, shape) = (format!("{}.{state}", parameter.name), parameter.shape.clone());
                let own = move |out: &mut dyn Write| {
                    out.write_all(bytemuck::cast_slice(&self.model.to_user(index, flat)))
                };
                optimizer.push(Later { name, dtype: DType::F32, shape, write: Box::new(own) });
            }
        }
        Ok(pack_later(self.optimizer.steps(), [&weights, &optimizer])?)
    }

    /// A copy of one of several parts of about the same size, which together are all that it is but for the buffers.
    pub fn state_part(&self, part: usize, parts: usize) -> Result<ModelState, TrainError> {
        let mut state = ModelState { optimizer_steps: self.optimizer.steps(), ..ModelState::default() };
        let parameters = self.model.parameters();
        let total: usize = parameters.iter().map(|parameter| parameter.elements()).sum();
        let mut before = 0;
        let mut own = |elements: usize| {
            let of = before * parts / total.max(1);
            before += elements;
            of == part
        };
        let mine: Vec<bool> = parameters.iter().map(|parameter| own(parameter.elements())).collect();
        for index in (0..parameters.len()).filter(|index| mine[*index]) {
            state.optimizer.extend(self.optimizer_state(index..index + 1)?);
        }
        let is_mine = |name: &str| parameters.iter().zip(&mine).any(|(of, mine)| *mine && of.name == name);
        state.weights = self.model.weights_of(&is_mine);
        Ok(state)
    }

    /// A copy of what is not learned but counted along.
    pub fn buffers(&self, graph: &Graph) -> Weights {
        let is_parameter =
            |name: &str| self.model.parameters().iter().any(|parameter| parameter.name == name);
        let mut buffers = self.model.weights_of(&|name| !is_parameter(name));
        count_batches(graph, &self.start, self.forwards, &mut buffers);
        buffers
    }

    pub fn set_buffers(&mut self, buffers: Weights) -> Result<(), TrainError> {
        let mut weights = self.model.weights();
        weights.extend(buffers);
        self.load(&weights)
    }

    /// The optimizer's state of some parameters by name, in the user's order of elements.
    fn optimizer_state(&self, of: Range<usize>) -> Result<Weights, TrainError> {
        let mut state = Weights::new();
        for (index, parameter) in self.model.parameters().iter().enumerate().skip(of.start).take(of.len()) {
            for name in self.optimizer.state_names() {
                let Some(flat) = self.optimizer.state(index, name) else { continue };
                let shape = parameter.shape.iter().map(|d| *d as u64).collect();
                let tensor = Tensor::from_f32(shape, &self.model.to_user(index, flat));
                let key = format!("{}.{name}", parameter.name);
                let missing = |_misfit| TrainError::MissingState { name: key.clone() };
                state.insert(key.clone(), tensor.map_err(missing)?);
            }
        }
        Ok(state)
    }

    /// Parameters and buffers as they are to be saved.
    pub fn weights(&self, graph: &Graph) -> Weights {
        let mut weights = self.model.weights();
        count_batches(graph, &self.start, self.forwards, &mut weights);
        weights
    }
}
