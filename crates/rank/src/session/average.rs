//! How replicas that learned alone for an interval come together.
//!
//! ```text
//!   anchor ──► steps of this replica alone ──► delta = anchor - parameters
//!      ^                                             | averaged over replicas, weighted by their samples
//!      |     parameters:  anchor - average           v
//!      +─────outer:       anchor - lr (momentum · velocity + average), Nesterov
//! ```

use super::Session;
use super::micro_batches::MicroBatches;
use crate::error::RankError;
use phalanx_graph::Weights;
use phalanx_records::ModelState;
use phalanx_train::TrainError;
use phalanx_train::config::ExchangeOf;
use phalanx_types::{DType, Tensor};
use std::collections::BTreeSet;

/// Ends the names of the outer optimizer's state.
const OUTER: &str = ".outer_velocity";

/// What of an optimizer's state belongs to the outer optimizer.
pub(crate) fn outer_of(optimizer: &Weights) -> Weights {
    let of =
        |(name, tensor): (&String, &Tensor)| Some((name.strip_suffix(OUTER)?.to_owned(), tensor.clone()));
    optimizer.iter().filter_map(of).collect()
}

/// Adds it to an optimizer's state.
pub(crate) fn add_outer(outer: &Weights, optimizer: &mut Weights) {
    optimizer.extend(outer.iter().map(|(name, tensor)| (format!("{name}{OUTER}"), tensor.clone())));
}

/// How an average becomes the new parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Aggregate {
    Mean,
    /// A step of the outer optimizer.
    Outer {
        lr: f32,
        momentum: f32,
    },
}

impl Aggregate {
    /// Turns the values of the anchor into the next ones; `average` is what replicas learned on average.
    fn apply(self, values: &mut [f32], velocity: &mut [f32], average: &[f32]) {
        match self {
            Self::Mean => values.iter_mut().zip(average).for_each(|(value, average)| *value -= average),
            Self::Outer { lr, momentum } => {
                for ((value, velocity), average) in values.iter_mut().zip(velocity).zip(average) {
                    *velocity = momentum * *velocity + average;
                    *value -= lr * (momentum * *velocity + average);
                }
            }
        }
    }
}

/// The values of a tensor by name; none where there is none.
fn values_of(weights: &Weights, name: &str) -> Vec<f32> {
    weights.get(name).and_then(|tensor| tensor.to_f32().ok()).unwrap_or_default()
}

/// Puts values under a name, in the shape that they have in another map.
fn insert(into: &mut Weights, name: &str, shaped: &Weights, values: &[f32]) -> Result<(), RankError> {
    let wrong = || RankError::from(TrainError::MissingState { name: name.to_owned() });
    let shape = shaped.get(name).map(|tensor| tensor.shape().to_vec()).ok_or_else(wrong)?;
    let tensor = Tensor::from_f32(shape, values).map_err(|_misfit| wrong())?;
    into.insert(name.to_owned(), tensor);
    Ok(())
}

impl Session<'_, '_> {
    /// Replaces what this replica learned by the average of what all did, weighted by their samples.
    pub(super) fn average(&mut self, anchor: &ModelState, batches: &[MicroBatches]) -> Result<(), RankError> {
        let whole: usize = batches.iter().map(|micro| micro.whole).sum();
        let own: usize = batches.iter().map(|micro| micro.len).sum();
        let weight = own as f32 / whole.max(1) as f32;
        let state = self.part.state()?;
        let learned = |name: &str| -> Vec<f32> {
            let (before, now) = (values_of(&anchor.weights, name), values_of(&state.weights, name));
            before.iter().zip(&now).map(|(before, now)| weight * (before - now)).collect()
        };
        let sums = self.add_up(&learned, false)?;
        let sync = &self.worker.task.config.sync;
        let aggregate = match sync.exchange {
            ExchangeOf::Outer => Aggregate::Outer { lr: sync.outer_lr, momentum: sync.outer_momentum },
            ExchangeOf::Gradients | ExchangeOf::Parameters => Aggregate::Mean,
        };
        let average_optimizer = sync.average_optimizer;
        let mut next = state.clone();
        let mut velocities = Weights::new();
        for (name, average) in &sums {
            let mut values = values_of(&anchor.weights, name);
            let mut velocity = values_of(&self.part.outer, name);
            velocity.resize(values.len(), 0.0);
            aggregate.apply(&mut values, &mut velocity, average);
            insert(&mut velocities, name, &state.weights, &velocity)?;
            insert(&mut next.weights, name, &state.weights, &values)?;
        }
        if average_optimizer {
            self.average_optimizer(weight, &state, &mut next)?;
        }
        self.average_buffers(weight, &mut next.weights)?;
        self.part.stepper.set_state(&next)?;
        if aggregate != Aggregate::Mean {
            self.part.outer = velocities;
        }
        Ok(())
    }

    /// Adds up what this rank has of every parameter over all replicas.
    fn add_up(
        &mut self,
        own: &dyn Fn(&str) -> Vec<f32>,
        exact: bool,
    ) -> Result<Vec<(String, Vec<f32>)>, RankError> {
        if self.rings.any() {
            return self.rings.add_up(own, exact);
        }
        let parameters = self.part.stepper.model.parameters().iter();
        Ok(parameters.map(|parameter| (parameter.name.clone(), own(&parameter.name))).collect())
    }

    /// Averages what the optimizer keeps, as parameters are.
    fn average_optimizer(
        &mut self,
        weight: f32,
        state: &ModelState,
        next: &mut ModelState,
    ) -> Result<(), RankError> {
        for kind in self.worker.task.config.train.optimizer.state_names() {
            let own = |name: &str| -> Vec<f32> {
                let values = values_of(&state.optimizer, &format!("{name}.{kind}"));
                values.iter().map(|value| weight * value).collect()
            };
            // A second moment that compression made negative would be the end of its parameter.
            for (name, average) in self.add_up(&own, true)? {
                insert(&mut next.optimizer, &format!("{name}.{kind}"), &state.optimizer, &average)?;
            }
        }
        Ok(())
    }

    /// Brings the statistics of batch norm of all replicas together, where each has its own.
    pub(super) fn share_buffers(&mut self) -> Result<(), RankError> {
        if !self.has_own_statistics() {
            return Ok(());
        }
        let weight = self.shares.count(self.post.replica) as f32 / self.shares.batch().max(1) as f32;
        let mut buffers = self.part.stepper.buffers(&self.part.graph);
        self.average_buffers(weight, &mut buffers)?;
        Ok(self.part.stepper.set_buffers(buffers)?)
    }

    /// Whether replicas have different statistics of batch norm after a step.
    pub(super) fn has_own_statistics(&self) -> bool {
        let has_any = self.worker.task.graph.buffers().next().is_some();
        self.rings.any() && has_any && !self.has_intervals() && !self.shares_statistics()
    }

    /// Averages the statistics of batch norm: few numbers, over the control lane, every stage's in their places.
    fn average_buffers(&mut self, weight: f32, weights: &mut Weights) -> Result<(), RankError> {
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
        self.lane.all_reduce(&mut flat, "statistics of the interval")?;
        for (name, tensor, start) in places {
            let elements = tensor.shape().iter().product::<u64>() as usize;
            let values: Vec<f32> = flat[start..start + elements].iter().map(|value| *value as f32).collect();
            let shaped = Weights::from_iter([(name.clone(), tensor)]);
            insert(weights, &name, &shaped, &values)?;
        }
        Ok(())
    }
}
