//! Optimizers, as in `torch.optim`.

mod rules;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{Adagrad, Adam, AdamW, OptimizerSpec, RmsProp, Sgd};

use crate::threads::Threads;
use rules::{ParameterChunk, Rule};
use std::sync::{Mutex, PoisonError};

/// Elements per task. The calling thread updates a tensor up to this size.
const BLOCK: usize = 16 * 1024;

/// The most state tensors of any rule per parameter.
const STATES: usize = 3;

/// An optimizer with its state for every parameter.
#[derive(Debug, Clone)]
pub struct Optimizer {
    spec: OptimizerSpec,
    steps: u64,
    /// One entry per parameter, with a tensor for every name of the rule's state; the others are empty.
    states: Vec<[Vec<f32>; STATES]>,
}

impl Optimizer {
    /// Creates an optimizer before its first step, for parameters of these sizes.
    pub fn new(spec: OptimizerSpec, sizes: &[usize]) -> Self {
        let names = spec.state_names().len();
        let state =
            |size: usize| std::array::from_fn(|i| vec![spec.initial(); if i < names { size } else { 0 }]);
        Self { spec, steps: 0, states: sizes.iter().map(|size| state(*size)).collect() }
    }

    pub fn spec(&self) -> &OptimizerSpec {
        &self.spec
    }

    /// Counts a step. Must be called before the step's updates.
    pub fn begin_step(&mut self) {
        self.steps += 1;
    }

    /// How many steps have begun.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates one parameter by its gradient.
    ///
    /// # Panics
    /// The parameter or its gradient does not have the size given to [`Optimizer::new`].
    pub fn update(&mut self, t: &Threads, index: usize, lr: f32, parameter: &mut [f32], gradient: &[f32]) {
        assert_eq!(parameter.len(), gradient.len(), "a gradient has as many elements as its parameter");
        let kept = self.spec.state_names().len();
        let state = &mut self.states[index];
        let fits = state[..kept].iter().all(|state| state.len() == parameter.len());
        assert!(fits, "the state was made for a parameter of another size");
        let rule = Rule::new(&self.spec, self.steps, lr);
        let state = state.each_mut().map(Vec::as_mut_slice);
        let whole = ParameterChunk { parameter, gradient, state };
        if gradient.len() <= BLOCK {
            rule.apply(whole);
            return;
        }
        let parts = Mutex::new(cut(whole));
        t.each(gradient.len().div_ceil(BLOCK), |_| {
            let part = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            if let Some(part) = part {
                rule.apply(part);
            }
        });
    }

    /// PyTorch's names of the state tensors of every parameter.
    pub fn state_names(&self) -> &'static [&'static str] {
        self.spec.state_names()
    }

    /// The state tensor of a parameter with this name.
    pub fn state(&self, index: usize, name: &str) -> Option<&[f32]> {
        let at = self.state_names().iter().position(|known| *known == name)?;
        self.states.get(index).map(|states| states[at].as_slice())
    }

    /// Restores a state tensor from [`Optimizer::state`] after `steps` steps.
    ///
    /// # Errors
    /// There is no such parameter or state, or it has another size; then nothing is changed.
    pub fn restore(
        &mut self,
        steps: u64,
        index: usize,
        name: &str,
        values: &[f32],
    ) -> Result<(), StateError> {
        let unknown = || StateError::Unknown { index, name: name.to_owned() };
        let at = self.state_names().iter().position(|known| *known == name).ok_or_else(unknown)?;
        let state = &mut self.states.get_mut(index).ok_or_else(unknown)?[at];
        if state.len() != values.len() {
            let (got, wanted) = (values.len(), state.len());
            return Err(StateError::Size { index, name: name.to_owned(), got, wanted });
        }
        state.copy_from_slice(values);
        self.steps = steps;
        Ok(())
    }

    /// Sets the number of steps done, where there is no state to restore.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Bytes of state for every element of a parameter.
    pub fn bytes_per_parameter(spec: &OptimizerSpec) -> usize {
        spec.state_names().len() * size_of::<f32>()
    }
}

/// A state does not match this optimizer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("the optimizer keeps no `{name}` for parameter {index}")]
    Unknown { index: usize, name: String },
    #[error("`{name}` of parameter {index} has {got} elements, not {wanted}")]
    Size { index: usize, name: String, got: usize, wanted: usize },
}

impl StateError {
    pub fn class(&self) -> phalanx_types::Class {
        phalanx_types::Class::Fatal
    }
}

/// Divides a parameter, its gradient and its state into blocks.
fn cut(whole: ParameterChunk<'_>) -> impl Iterator<Item = ParameterChunk<'_>> {
    let [mut a, mut b, mut c] = whole.state.map(|state| state.chunks_mut(BLOCK));
    whole.parameter.chunks_mut(BLOCK).zip(whole.gradient.chunks(BLOCK)).map(move |(parameter, gradient)| {
        let state = [a.next(), b.next(), c.next()].map(Option::unwrap_or_default);
        ParameterChunk { parameter, gradient, state }
    })
}
