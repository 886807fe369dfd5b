//! Optimizers: they change parameters by their gradients, as `torch.optim` does.

mod rules;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{Adagrad, Adam, AdamW, OptimizerSpec, RmsProp, Sgd};

use crate::threads::Threads;
use rules::{ParameterChunk, Rule};
use std::sync::{Mutex, PoisonError};

/// Elements to a task. A tensor up to this size is updated by the calling thread.
const BLOCK: usize = 16 * 1024;

/// The most any rule keeps per parameter.
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
    /// An optimizer before its first step, for parameters of these numbers of elements.
    pub fn new(spec: OptimizerSpec, sizes: &[usize]) -> Self {
        let names = spec.state_names().len();
        let state =
            |size: usize| std::array::from_fn(|i| vec![spec.initial(); if i < names { size } else { 0 }]);
        Self { spec, steps: 0, states: sizes.iter().map(|size| state(*size)).collect() }
    }

    pub fn spec(&self) -> &OptimizerSpec {
        &self.spec
    }

    /// Counts a step. Must come before the step's updates.
    pub fn begin_step(&mut self) {
        self.steps += 1;
    }

    /// How many steps have begun.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Changes one parameter by its gradient.
    ///
    /// # Panics
    /// The parameter or its gradient has another size than was said in the beginning.
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

    /// PyTorch's names of what is kept for every parameter between steps.
    pub fn state_names(&self) -> &'static [&'static str] {
        self.spec.state_names()
    }

    /// What is kept of a parameter under this name.
    pub fn state(&self, index: usize, name: &str) -> Option<&[f32]> {
        let at = self.state_names().iter().position(|known| *known == name)?;
        self.states.get(index).map(|states| states[at].as_slice())
    }

    /// Puts back what [`Optimizer::state`] gave after `steps` steps.
    ///
    /// # Errors
    /// There is no such parameter or state, or it has another size; then nothing was changed.
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

    /// Bytes kept for every element of a parameter.
    pub fn bytes_per_parameter(spec: &OptimizerSpec) -> usize {
        spec.state_names().len() * size_of::<f32>()
    }
}

/// The state of an optimizer does not belong to this one.
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

/// Cuts a parameter and what belongs to it into blocks.
fn cut(whole: ParameterChunk<'_>) -> impl Iterator<Item = ParameterChunk<'_>> {
    let [mut a, mut b, mut c] = whole.state.map(|state| state.chunks_mut(BLOCK));
    whole.parameter.chunks_mut(BLOCK).zip(whole.gradient.chunks(BLOCK)).map(move |(parameter, gradient)| {
        let state = [a.next(), b.next(), c.next()].map(Option::unwrap_or_default);
        ParameterChunk { parameter, gradient, state }
    })
}
