//! A loss that is a Python function: the thread that waits for the training calls it.

use crate::arrays;
use crate::errors::Failure;
use crate::wait::{Call, Caller};
use phalanx::train::{LossBatch, LossFunction, OwnLoss};
use pyo3::prelude::*;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The loss and the gradient of a batch.
type Answer = (f64, Vec<f32>);

/// A loss in Python, and the thread that can call it now.
#[derive(Debug, Clone)]
pub(crate) struct PythonLoss {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    function: Arc<Py<PyAny>>,
    caller: Mutex<Option<Caller>>,
}

impl PythonLoss {
    /// `function` takes memory and shape of outputs and of targets, and gives the loss and an array of its gradient.
    pub(crate) fn new(name: String, function: Py<PyAny>) -> Self {
        Self { shared: Arc::new(Shared { name, function: Arc::new(function), caller: Mutex::new(None) }) }
    }

    /// Has this thread call the function for as long as the value lives that is given.
    pub(crate) fn connect(&self, caller: Caller) -> Connected<'_> {
        let before = self.shared.caller().replace(caller);
        Connected { loss: self, before }
    }

    /// As the library takes it.
    pub(crate) fn own_loss(&self) -> OwnLoss {
        OwnLoss::new(&self.shared.name, self.clone())
    }

    fn ask(&self, batch: &LossBatch<'_>) -> Option<Answer> {
        let caller = self.shared.caller().clone()?;
        let (answer, answered) = channel();
        let question = Question {
            function: Arc::clone(&self.shared.function),
            output: batch.output.to_vec(),
            output_shape: batch.shape.to_vec(),
            target: batch.target.data.to_vec(),
            target_shape: batch.target.shape.to_vec(),
        };
        let call: Call = Box::new(move |py| question.ask(py, &answer));
        // A call that is not made drops its end of the channel.
        caller.call(call).then(|| answered.recv().ok()).flatten()
    }
}

impl Shared {
    fn caller(&self) -> MutexGuard<'_, Option<Caller>> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that calls the function. The one before takes over again: a loss may evaluate its own run.
#[derive(Debug)]
pub(crate) struct Connected<'a> {
    loss: &'a PythonLoss,
    before: Option<Caller>,
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        *self.loss.shared.caller() = self.before.take();
    }
}

impl LossFunction for PythonLoss {
    /// Not a number when the function has raised or its thread waits no more: the training then ends.
    fn evaluate(&self, batch: &LossBatch<'_>, gradient: &mut [f32]) -> f64 {
        match self.ask(batch) {
            Some((loss, found)) if found.len() == gradient.len() => {
                gradient.copy_from_slice(&found);
                loss
            }
            _ => {
                gradient.fill(f32::NAN);
                f64::NAN
            }
        }
    }
}

struct Question {
    function: Arc<Py<PyAny>>,
    output: Vec<f32>,
    output_shape: Vec<usize>,
    target: Vec<f32>,
    target_shape: Vec<usize>,
}

impl Question {
    fn ask(self, py: Python<'_>, answer: &Sender<Answer>) -> PyResult<()> {
        let output = arrays::to_python(py, &self.output);
        let target = arrays::to_python(py, &self.target);
        let given = (output, self.output_shape, target, self.target_shape);
        let (loss, gradient): (f64, Bound<'_, PyAny>) = self.function.call1(py, given)?.extract(py)?;
        let gradient = arrays::borrow(&gradient)?.to_floats();
        if gradient.len() != self.output.len() {
            let (got, wanted) = (gradient.len(), self.output.len());
            return Err(
                Failure::input(format!("the gradient of the loss has {got} elements, not {wanted}")).into()
            );
        }
        // The training may have ended meanwhile.
        let _unheard = answer.send((loss, gradient));
        Ok(())
    }
}
