//! Several steps as one unit: nobody hears of any of them before all are done.
//!
//! ```text
//!   asynchronous      forwards of the next steps go on while gradients of the last ones come back; each backward uses
//!                     the parameters that its forward used; every stage updates by itself, at most so many updates
//!                     after the forward
//!   rounds            every replica does some steps alone; then what they learned is averaged over the rings
//! ```
//! A unit happens as a whole or not at all: when the group breaks, the anchor is what remains.
//!
//! Stages are empty where a unit ends, so the numbers of asynchronous stages depend on where that is. It follows from
//! the run file and the steps done so far alone, never from time: the same seed gives the same numbers, also to those
//! who go back to the end of a unit before.

use super::super::round;
use super::session::Session;
use super::step::{Held, Sheaf};
use super::word::{self, Word};
use crate::error::DistributedError;
use phalanx_collective::Reduction;
use phalanx_data::Loaded;
use phalanx_engine::ParameterSet;
use phalanx_graph::Weights;
use phalanx_protocol::pipeline::{Move, ahead_in_flow, moves};
use phalanx_protocol::progress::Progress;
use phalanx_protocol::{Vote, Wish};
use phalanx_records::ModelState;
use phalanx_train::Culprit;
use phalanx_train::config::ExchangeOf;
use phalanx_types::{DType, Tensor, Time};
use phalanx_wire::train::{Activity, StageReport};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// What one step of a unit came to here.
#[derive(Debug, Default)]
struct Learned {
    loss: f64,
    norm: f64,
    finite: bool,
    samples: Vec<u64>,
    compute: Duration,
    staleness: u32,
    /// How often all parameters were kept as they had been.
    versions: usize,
}

/// Parameters as they were, for batches that are still on their way.
#[derive(Debug, Default)]
struct Versions {
    /// By number of updates that were behind them.
    kept: BTreeMap<u64, ParameterSet>,
    spare: Vec<ParameterSet>,
}

impl Versions {
    /// Lets go of those that are older than the oldest that is needed.
    fn forget_before(&mut self, oldest: u64) {
        while let Some(entry) = self.kept.first_entry().filter(|entry| *entry.key() < oldest) {
            self.spare.push(entry.remove());
        }
    }
}

impl Session<'_> {
    pub(super) fn flow(&mut self) -> Result<Wish, DistributedError> {
        let anchor = self.part.state()?;
        let outer = self.part.outer.clone();
        let done = self.unit(&anchor);
        if done.is_err() {
            // Nobody has seen what was learned since: it will be learned again.
            self.part.stepper.set_state(&anchor)?;
            self.part.step = anchor.steps();
            self.part.pending = None;
            self.part.outer = outer;
        }
        let wish = done?;
        // Whoever is past this knows that all others have done the unit. Who is not may have to go back, or others have
        // to: both states are kept.
        if let Err(error) = self.control.barrier("the unit is done") {
            self.worker.copies.add(anchor.steps(), self.part.ops, anchor.to_bytes()?.into());
            return Err(error.into());
        }
        Ok(wish)
    }

    /// How many steps the next unit has. Rounds end early where the model is to be looked at, asynchronous stages of one
    /// replica also where it is to be saved, and no later than a copy of them is due: what is lost with a stage is done
    /// again.
    pub(super) fn length(&self) -> u64 {
        let task = &self.worker.task;
        let progress = Progress::new(task.plan(), self.worker.place(self.part.step), Time::ZERO);
        match (self.rings.any(), task.config.sync.exchange) {
            (false, _) => progress.until_saved(task.config.formation.unit()),
            // Run files do not ask for that: gradients of every step cannot be exchanged while steps overlap.
            (true, ExchangeOf::Gradients) => 1,
            (true, ExchangeOf::Parameters | ExchangeOf::Outer) => {
                progress.until_looked_at(task.config.sync.every)
            }
        }
    }

    fn unit(&mut self, anchor: &ModelState) -> Result<Wish, DistributedError> {
        let first = self.part.step;
        let sheaves: Vec<Sheaf> = (first..first + self.length()).map(|step| self.sheaf(step)).collect();
        let (began, idle) = (Instant::now(), self.idle());
        let learned = match self.worker.task.config.formation.is_asynchronous() {
            true => self.stream(&sheaves)?,
            false => self.alone(&sheaves)?,
        };
        let idled = self.idle().saturating_sub(idle);
        self.spans.add(Activity::Compute, first, began);
        let began = Instant::now();
        if self.rings.any() {
            self.average(anchor, &sheaves)?;
        }
        let exchanged = began.elapsed() / sheaves.len().max(1) as u32;
        self.spans.add(Activity::Exchange, first, began);
        let vote = |(sheaf, of): (&Sheaf, &Learned)| Vote {
            seen: of.samples.iter().fold(0, |sum, sample| sum.wrapping_add(phalanx_protocol::mark(*sample))),
            ..self.vote(sheaf, None, of.loss, of.finite, [of.compute, exchanged])
        };
        let votes: Vec<Vote> = sheaves.iter().zip(&learned).map(vote).collect();
        let own = Word::new(&votes, self.unit_report(anchor, &sheaves, &learned, idled), Vec::new());
        let began = Instant::now();
        let words = self.agree(own)?;
        self.waited = began.elapsed();
        self.spans.add(Activity::Vote, first, began);
        for (index, of) in learned.iter().enumerate() {
            let Some(rank) = words.outcomes[index].not_finite else { continue };
            let reason = format!("what rank {rank} computed is not finite");
            let (step, samples) = (sheaves[index].step, of.samples.clone());
            return Err(match rank == self.rank {
                // Parameters have changed since it was computed.
                true => self.no_number(&words, index, step, samples, Culprit::Unknown),
                false => DistributedError::Replica { reason },
            });
        }
        self.part.step = first + sheaves.len() as u64;
        for (index, (sheaf, of)) in sheaves.iter().zip(&learned).enumerate() {
            let lr = self.lr(sheaf.step);
            self.done(&words, index, sheaf.step, lr, of.norm);
        }
        self.copy_if_due(&words);
        Ok(words.outcomes.iter().map(|outcome| outcome.wish).max().unwrap_or_default())
    }

    /// What this stage says of each step of a unit.
    fn unit_report(
        &mut self,
        anchor: &ModelState,
        sheaves: &[Sheaf],
        learned: &[Learned],
        idle: Duration,
    ) -> StageReport {
        let Some(most) = sheaves.iter().max_by_key(|sheaf| sheaf.parts()) else {
            return StageReport::default();
        };
        let versions = learned.iter().map(|of| of.versions).max().unwrap_or(0) as u64;
        let bytes = anchor.tensor_bytes() + versions * self.part.parameter_bytes();
        let staleness = learned.iter().map(|of| of.staleness).max().unwrap_or(0);
        self.stage_report(most, sheaves.len(), idle, Held { bytes, staleness })
    }

    fn lr(&self, step: u64) -> f32 {
        self.worker.task.config.lr(step, self.worker.task.plan().steps())
    }

    /// Steps of this replica alone, one after the other.
    fn alone(&mut self, sheaves: &[Sheaf]) -> Result<Vec<Learned>, DistributedError> {
        let mut all = Vec::new();
        for sheaf in sheaves {
            let (began, idle) = (Instant::now(), self.idle());
            let loaded = self.load(sheaf.step)?;
            let parts = sheaf.parts();
            let ahead = self.ahead_in_batch(parts);
            let mut of = Learned { samples: self.samples(loaded.as_ref()), ..Learned::default() };
            for next in moves(ahead, parts) {
                match next {
                    Move::Forward(part) => {
                        of.loss += self.forward(sheaf, part, part % ahead, loaded.as_ref())?
                    }
                    Move::Backward(part) => self.backward(sheaf, part, part % ahead, (part, parts), false)?,
                }
            }
            if parts > 0 {
                // The mean over the samples of this replica, which learns from them alone.
                self.part.stepper.scale_gradients(sheaf.whole as f32 / sheaf.len as f32);
            }
            // Also without samples: the others wait for a word of this stage.
            let norm = self.norm_of_replica()?;
            if parts > 0 {
                of.norm = norm;
                of.finite = of.loss.is_finite() && of.norm.is_finite();
                if of.finite {
                    self.part.stepper.apply(of.norm, self.lr(sheaf.step));
                }
            } else {
                of.finite = true;
                self.part.stepper.skip();
            }
            self.recycle(loaded);
            of.compute = began.elapsed().saturating_sub(self.idle().saturating_sub(idle));
            all.push(of);
        }
        Ok(all)
    }

    /// The norm of the gradients of this replica where gradients are limited by it; else that of this stage.
    fn norm_of_replica(&mut self) -> Result<f64, DistributedError> {
        if self.worker.task.config.train.clip_norm.is_none() {
            return Ok(self.part.stepper.grad_norm());
        }
        let squares = self.part.squares();
        let own = Word::new(&[], StageReport::default(), squares);
        let words = word::exchange(&mut self.control, &own)?;
        Ok(self.norm(&words))
    }

    fn samples(&self, loaded: Option<&Loaded>) -> Vec<u64> {
        let loaded = loaded.filter(|_| self.post.is_first());
        loaded.map(|loaded| loaded.batch.indices.clone()).unwrap_or_default()
    }

    /// Steps that overlap: what one stage computes of the next does not wait for the others to end the last.
    fn stream(&mut self, sheaves: &[Sheaf]) -> Result<Vec<Learned>, DistributedError> {
        let parts_of = |(step, sheaf): (usize, &Sheaf)| (0..sheaf.parts()).map(move |part| (step, part));
        let items: Vec<(usize, usize)> = sheaves.iter().enumerate().flat_map(parts_of).collect();
        let in_flight = self.worker.task.config.formation.in_flight_of(self.post.stages);
        let ahead = ahead_in_flow(self.post.stage, self.post.stages, in_flight);
        let mut all: Vec<Learned> =
            sheaves.iter().map(|_| Learned { finite: true, ..Learned::default() }).collect();
        let mut versions = Versions::default();
        // Of those that went forward and have not come back: how many updates were behind their parameters.
        let mut used: VecDeque<u64> = VecDeque::new();
        let (mut updates, mut finite) = (0, true);
        let mut loaded: Option<(usize, Option<Loaded>)> = None;
        self.skip_absent(sheaves);
        for next in moves(ahead, items.len()) {
            let (began, idle) = (Instant::now(), self.idle());
            let (Move::Forward(item) | Move::Backward(item)) = next;
            let (step, part) = items[item];
            let sheaf = &sheaves[step];
            match next {
                Move::Forward(_) => {
                    if loaded.as_ref().is_none_or(|(of, _)| *of != step) {
                        let before = loaded.take();
                        let passed = before.as_ref().map_or(0, |(of, _)| of + 1)..step;
                        self.recycle(before.and_then(|(_, old)| old));
                        self.pass_absent(&sheaves[passed])?;
                        let new = self.load(sheaf.step)?;
                        all[step].samples = self.samples(new.as_ref());
                        loaded = Some((step, new));
                    }
                    let own = loaded.as_ref().and_then(|(_, loaded)| loaded.as_ref());
                    all[step].loss += self.forward(sheaf, part, item % ahead, own)?;
                    used.push_back(updates);
                }
                Move::Backward(_) => {
                    let version = used.pop_front().unwrap_or(updates);
                    let stale = u32::try_from(updates - version).unwrap_or(u32::MAX);
                    all[step].staleness = all[step].staleness.max(stale);
                    let of = (part, sheaf.parts());
                    let slot = item % ahead;
                    match versions.kept.remove(&version).filter(|_| version != updates) {
                        Some(mut old) => {
                            self.part.stepper.model.swap_parameters(&mut old);
                            let back = self.backward(sheaf, part, slot, of, false);
                            self.part.stepper.model.swap_parameters(&mut old);
                            versions.kept.insert(version, old);
                            back?;
                        }
                        None => self.backward(sheaf, part, slot, of, false)?,
                    }
                    if part + 1 == sheaf.parts() {
                        if self.rings.any() {
                            // The mean over the samples of this replica, which learns from them alone.
                            self.part.stepper.scale_gradients(sheaf.whole as f32 / sheaf.len as f32);
                        }
                        let norm = self.part.stepper.grad_norm();
                        all[step].norm = norm;
                        finite &= norm.is_finite() && all[step].loss.is_finite();
                        all[step].finite = finite;
                        if used.back() == Some(&updates) {
                            let mut copy = versions.spare.pop().unwrap_or_default();
                            self.part.stepper.model.copy_parameters(&mut copy);
                            versions.kept.insert(updates, copy);
                        }
                        all[step].versions = versions.kept.len() + versions.spare.len();
                        versions.forget_before(used.front().copied().unwrap_or(updates + 1));
                        if finite {
                            self.part.stepper.apply(norm, self.lr(sheaf.step));
                        }
                        updates += 1;
                        self.skip_absent(&sheaves[step + 1..]);
                    }
                }
            }
            all[step].compute += began.elapsed().saturating_sub(self.idle().saturating_sub(idle));
        }
        let rest = loaded.as_ref().map_or(0, |(of, _)| of + 1)..;
        self.recycle(loaded.and_then(|(_, old)| old));
        self.pass_absent(&sheaves[rest])?;
        Ok(all)
    }

    /// Counts the steps at the front in which this replica has no samples.
    fn skip_absent(&mut self, sheaves: &[Sheaf]) {
        sheaves.iter().take_while(|sheaf| sheaf.parts() == 0).for_each(|_| self.part.stepper.skip());
    }

    /// Lets the loader pass by steps in which this replica has no samples.
    fn pass_absent(&mut self, sheaves: &[Sheaf]) -> Result<(), DistributedError> {
        for sheaf in sheaves {
            let nothing = self.load(sheaf.step)?;
            self.recycle(nothing);
        }
        Ok(())
    }

    /// Replaces what this replica learned by the average of what all did, weighted by their samples.
    fn average(&mut self, anchor: &ModelState, sheaves: &[Sheaf]) -> Result<(), DistributedError> {
        let whole: usize = sheaves.iter().map(|sheaf| sheaf.whole).sum();
        let own: usize = sheaves.iter().map(|sheaf| sheaf.len).sum();
        let weight = own as f32 / whole.max(1) as f32;
        let state = self.part.state()?;
        let value = |weights: &Weights, name: &str| -> Vec<f32> {
            weights.get(name).and_then(|tensor| tensor.to_f32().ok()).unwrap_or_default()
        };
        let learned = |name: &str| -> Vec<f32> {
            let (before, now) = (value(&anchor.weights, name), value(&state.weights, name));
            before.iter().zip(&now).map(|(before, now)| weight * (before - now)).collect()
        };
        let sums = self.rings.add_up(&learned, false)?;
        let sync = &self.worker.task.config.sync;
        let (outer, lr, momentum) = (sync.exchange == ExchangeOf::Outer, sync.outer_lr, sync.outer_momentum);
        let average_optimizer = sync.average_optimizer;
        let mut next = state.clone();
        let mut velocities = Weights::new();
        for (name, average) in &sums {
            let mut values = value(&anchor.weights, name);
            if outer {
                let mut velocity = value(&self.part.outer, name);
                velocity.resize(values.len(), 0.0);
                round::outer_step(&mut values, &mut velocity, average, [lr, momentum]);
                round::insert(&mut velocities, name, &state.weights, &velocity)?;
            } else {
                values.iter_mut().zip(average).for_each(|(value, average)| *value -= average);
            }
            round::insert(&mut next.weights, name, &state.weights, &values)?;
        }
        if average_optimizer {
            self.average_optimizer(weight, &state, &mut next)?;
        }
        self.average_buffers(weight, &mut next.weights)?;
        self.part.stepper.set_state(&next)?;
        if outer {
            self.part.outer = velocities;
        }
        Ok(())
    }

    /// Averages what the optimizer keeps, as parameters are.
    fn average_optimizer(
        &mut self,
        weight: f32,
        state: &ModelState,
        next: &mut ModelState,
    ) -> Result<(), DistributedError> {
        for kind in self.worker.task.config.train.optimizer.state_names() {
            let own = |name: &str| -> Vec<f32> {
                let values = state.optimizer.get(&format!("{name}.{kind}"));
                let values = values.and_then(|tensor| tensor.to_f32().ok()).unwrap_or_default();
                values.iter().map(|value| weight * value).collect()
            };
            // A second moment that compression made negative would be the end of its parameter.
            for (name, average) in self.rings.add_up(&own, true)? {
                round::insert(&mut next.optimizer, &format!("{name}.{kind}"), &state.optimizer, &average)?;
            }
        }
        Ok(())
    }

    /// Brings the statistics of batch norm of all replicas together, where each has its own.
    pub(super) fn share_buffers(&mut self) -> Result<(), DistributedError> {
        let has_any = self.worker.task.graph.buffers().next().is_some();
        if !self.rings.any() || !has_any || self.flows() {
            return Ok(());
        }
        let weight = self.shares.count(self.post.replica) as f32 / self.shares.batch().max(1) as f32;
        let mut buffers = self.part.stepper.buffers(&self.part.graph);
        self.average_buffers(weight, &mut buffers)?;
        Ok(self.part.stepper.set_buffers(buffers)?)
    }

    /// Averages the statistics of batch norm: few numbers, over the lane of control, every stage's in their places.
    fn average_buffers(&mut self, weight: f32, weights: &mut Weights) -> Result<(), DistributedError> {
        let parameters: BTreeSet<&str> =
            self.part.stepper.model.parameters().iter().map(|parameter| parameter.name.as_str()).collect();
        let graph = &self.worker.task.graph;
        let mut flat: Vec<f64> = Vec::new();
        let mut places: Vec<(String, Tensor, usize)> = Vec::new();
        for (_, value) in graph.buffers().filter(|(_, value)| value.dtype == DType::F32) {
            let elements: usize = value.shape.at(1).iter().product();
            let own = weights.get_key_value(&value.name);
            let start = flat.len();
            flat.resize(start + elements, 0.0);
            if let Some((name, tensor)) = own.filter(|(name, _)| !parameters.contains(name.as_str())) {
                let values = tensor.to_f32().unwrap_or_default();
                let weighted = values.iter().map(|value| f64::from(weight * value));
                flat[start..].iter_mut().zip(weighted).for_each(|(place, value)| *place = value);
                places.push((name.clone(), tensor.clone(), start));
            }
        }
        if flat.is_empty() {
            return Ok(());
        }
        let bytes = bytemuck::cast_slice_mut(&mut flat);
        self.control.all_reduce(bytes, DType::F64, Reduction::Sum, "statistics of the round")?;
        for (name, tensor, start) in places {
            let elements = tensor.shape().iter().product::<u64>() as usize;
            let values: Vec<f32> = flat[start..start + elements].iter().map(|value| *value as f32).collect();
            let shaped = Weights::from_iter([(name.clone(), tensor)]);
            round::insert(weights, &name, &shaped, &values)?;
        }
        Ok(())
    }
}
