//! What a member gives at the end of a round, and what it takes: *local work on some data → a delta → an aggregate → a
//! new state*. How deltas come together is not decided here: members may be linked, or know only a coordinator.

use crate::error::TrainError;
use phalanx_graph::Weights;
use phalanx_protocol::aggregate::{Aggregate, delta};
use phalanx_records::ModelState;
use phalanx_types::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Values by name of a parameter or buffer.
pub type Named = BTreeMap<String, Vec<f32>>;

/// Ends the names of the outer optimizer's state.
const OUTER: &str = ".outer_velocity";

/// What of an optimizer's state belongs to the outer optimizer.
pub fn outer_of(optimizer: &Weights) -> Weights {
    let of =
        |(name, tensor): (&String, &Tensor)| Some((name.strip_suffix(OUTER)?.to_owned(), tensor.clone()));
    optimizer.iter().filter_map(of).collect()
}

/// Adds it to an optimizer's state.
pub fn add_outer(outer: &Weights, optimizer: &mut Weights) {
    optimizer.extend(outer.iter().map(|(name, tensor)| (format!("{name}{OUTER}"), tensor.clone())));
}

/// What one member learned in a round, or all members on average.
#[derive(Debug, Default, PartialEq)]
pub struct Delta {
    /// The anchor less the parameters.
    pub parameters: Named,
    /// What optimizers keep of each parameter, as it is, by kind.
    pub optimizer: BTreeMap<&'static str, Named>,
    /// Statistics of batch norm, as they are.
    pub statistics: Named,
}

impl Delta {
    /// Statistics of batch norm alone.
    pub fn of_statistics<'w>(buffers: impl Iterator<Item = (&'w String, &'w Tensor)>) -> Self {
        let own = buffers.filter(|(_, tensor)| tensor.dtype() == DType::F32);
        let values = |(name, tensor): (&String, &Tensor)| Some((name.clone(), tensor.to_f32().ok()?));
        Self { statistics: own.filter_map(values).collect(), ..Self::default() }
    }
}

/// How the average of all deltas becomes the next state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Merge {
    /// What is done with the average of parameters.
    pub aggregate: Aggregate,
    /// What of the optimizers' state is averaged with the parameters.
    pub optimizer: &'static [&'static str],
}

impl Merge {
    /// What a member gives that came from the anchor to where it is now.
    pub fn delta(self, anchor: &ModelState, now: &ModelState, parameters: &BTreeSet<&str>) -> Delta {
        let of_all = |values: &dyn Fn(&str) -> Vec<f32>| -> Named {
            parameters.iter().map(|name| ((*name).to_owned(), values(name))).collect()
        };
        let kept = |kind| of_all(&|name| values_of(&now.optimizer, &format!("{name}.{kind}")));
        let buffers = now.weights.iter().filter(|(name, _)| !parameters.contains(name.as_str()));
        Delta {
            parameters: of_all(&|name| {
                delta(&values_of(&anchor.weights, name), &values_of(&now.weights, name))
            }),
            optimizer: self.optimizer.iter().map(|kind| (*kind, kept(kind))).collect(),
            ..Delta::of_statistics(buffers)
        }
    }

    /// The state of all members after the round.
    ///
    /// # Errors
    /// The average is of another model.
    pub fn next(
        self,
        anchor: &ModelState,
        now: ModelState,
        average: &Delta,
    ) -> Result<ModelState, TrainError> {
        let mut next = now;
        for (name, average) in &average.parameters {
            let mut values = values_of(&anchor.weights, name);
            if values.len() != average.len() {
                return Err(TrainError::MissingState { name: name.clone() });
            }
            let velocity_name = format!("{name}{OUTER}");
            let mut velocity = values_of(&anchor.optimizer, &velocity_name);
            velocity.resize(values.len(), 0.0);
            self.aggregate.apply(&mut values, &mut velocity, average);
            set_values(&mut next.weights, name, &values)?;
            if self.aggregate != Aggregate::Mean {
                let shape = next.weights.get(name).map(|tensor| tensor.shape().to_vec()).unwrap_or_default();
                next.optimizer.insert(velocity_name, tensor(name, shape, &velocity)?);
            }
        }
        for (kind, averages) in &average.optimizer {
            for (name, values) in averages {
                set_values(&mut next.optimizer, &format!("{name}.{kind}"), values)?;
            }
        }
        for (name, values) in &average.statistics {
            set_values(&mut next.weights, name, values)?;
        }
        Ok(next)
    }
}

/// The values of a tensor by name; none where there is none.
fn values_of(weights: &Weights, name: &str) -> Vec<f32> {
    weights.get(name).and_then(|tensor| tensor.to_f32().ok()).unwrap_or_default()
}

/// Replaces the values of a tensor.
///
/// # Errors
/// There is no such tensor, or it has another number of values.
pub fn set_values(weights: &mut Weights, name: &str, values: &[f32]) -> Result<(), TrainError> {
    let missing = || TrainError::MissingState { name: name.to_owned() };
    let place = weights.get_mut(name).ok_or_else(missing)?;
    *place = tensor(name, place.shape().to_vec(), values)?;
    Ok(())
}

fn tensor(name: &str, shape: Vec<u64>, values: &[f32]) -> Result<Tensor, TrainError> {
    Tensor::from_f32(shape, values).map_err(|_misfit| TrainError::MissingState { name: name.to_owned() })
}
