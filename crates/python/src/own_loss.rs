//! A loss that is a Python function: the thread that waits for the training calls it.

use crate::arrays;
use crate::errors::Failure;
use crate::wait::{Call, Caller};
use phalanx::train::{LossBatch, LossFunction, OwnLoss};
use pyo3::prelude::*;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The loss and the gradient of a batch; none when the function has raised.
type Answer = Option<(f64, Vec<f32>)>;

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
    /// Whether the node that has it has left its domain.
    released: Mutex<bool>,
    changed: Condvar,
}

impl PythonLoss {
    /// `function` takes memory and shape of outputs and of targets, and gives the loss and an array of its gradient.
    pub(crate) fn new(name: String, function: Py<PyAny>) -> Self {
        let (caller, released) = (Mutex::new(None), Mutex::new(false));
        let function = Arc::new(function);
        Self { shared: Arc::new(Shared { name, function, caller, released, changed: Condvar::new() }) }
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

    /// As a node of this process takes it. When the thread that could call the function waits no more, the node is
    /// about to leave: the loss then waits for that, so that the run loses a node and does not fail.
    pub(crate) fn node_loss(&self) -> OwnLoss {
        OwnLoss::new(&self.shared.name, NodeLoss(self.clone()))
    }

    /// The node has left: no loss waits for that any more.
    pub(crate) fn release(&self) {
        *self.shared.released.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
    }

    fn wait_for_release(&self) {
        let released = self.shared.released.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.shared.changed.wait_while(released, |released| !*released));
    }

    /// None when no thread can call the function.
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
        give(self.ask(batch).flatten(), gradient)
    }
}

#[derive(Debug)]
struct NodeLoss(PythonLoss);

impl LossFunction for NodeLoss {
    fn evaluate(&self, batch: &LossBatch<'_>, gradient: &mut [f32]) -> f64 {
        let answer = self.0.ask(batch);
        if answer.is_none() {
            self.0.wait_for_release();
        }
        give(answer.flatten(), gradient)
    }
}

fn give(answer: Answer, gradient: &mut [f32]) -> f64 {
    match answer {
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

struct Question {
    function: Arc<Py<PyAny>>,
    output: Vec<f32>,
    output_shape: Vec<usize>,
    target: Vec<f32>,
    target_shape: Vec<usize>,
}

impl Question {
    fn ask(self, py: Python<'_>, answer: &Sender<Answer>) -> PyResult<()> {
        let found = self.call(py);
        // The training may have ended meanwhile.
        let _unheard = answer.send(found.as_ref().ok().cloned());
        found.map(drop)
    }

    fn call(self, py: Python<'_>) -> PyResult<(f64, Vec<f32>)> {
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
        Ok((loss, gradient))
    }
}
