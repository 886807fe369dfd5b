//! What an engine promises to whoever trains with it.

use crate::error::{CompileError, DiagnoseReport, RunError, StageError, WeightsError};
use crate::parameters::ParameterSet;
use phalanx_graph::{Graph, Weights};
use std::ops::Range;

/// Turns graphs into something that runs.
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Compiles a model.
    ///
    /// # Errors
    /// The graph asks for something this engine cannot compute.
    fn compile(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Model>, CompileError>;

    /// Compiles the stage of a model that these nodes are: the graph of [`Graph::stage`], which computes and learns
    /// what these nodes do in the whole model, bit for bit.
    ///
    /// [`Model::gives_gradient`] and [`Model::takes_gradient`] say between which stages gradients go;
    /// [`CompileOptions::input_gradients`] is about the inputs of the whole model.
    ///
    /// # Errors
    /// The nodes are no stage of this model, or this engine cannot compute them.
    fn compile_stage(
        &self,
        whole: &Graph,
        nodes: Range<usize>,
        options: &CompileOptions,
    ) -> Result<Box<dyn Model>, StageError>;
}

/// Choices made when a graph is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompileOptions {
    /// Compute activations again in backward instead of keeping them: less memory, about a third more time.
    pub recompute: bool,
    /// Gradients of the graph's inputs are wanted (a stage that is not the first; an adversarial example).
    pub input_gradients: bool,
    /// Only forward will be asked for.
    pub forward_only: bool,
    /// Take the time of every operator.
    pub profile: bool,
}

/// Where the time went.
#[derive(Debug, Clone, PartialEq)]
pub struct OpTime {
    /// The node of the graph, or the last of those that were merged.
    pub node: String,
    /// What was computed for it.
    pub kernel: &'static str,
    pub backward: bool,
    pub seconds: f64,
    pub calls: u64,
}

/// A learned tensor of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The key in the user's `state_dict`.
    pub name: String,
    /// The shape in the user's `state_dict`; the engine may hold the elements in another order.
    pub shape: Vec<usize>,
}

impl Parameter {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// How one batch is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Batch statistics, dropout, and what backward will need; else evaluation.
    pub training: bool,
    /// Where this batch's random numbers come from: the same seed replays it.
    pub seed: u64,
}

/// What is done with each parameter: its index, its elements, its gradient.
pub type Visit<'a> = dyn FnMut(usize, &mut [f32], &mut [f32]) + 'a;

/// Adds numbers up over all replicas, in place, and says why that failed if it did.
pub type SumOver = dyn FnMut(&mut [f64]) -> Result<(), String> + Send;

/// Which batch in flight: each slot has buffers of its own. A local run uses slot 0 only.
pub type Slot = usize;

/// A compiled graph with its parameters.
///
/// Inputs, outputs and gradients of both are in the layout the graph says, row-major `f32`; integers and booleans
/// are held as `f32` too. Parameters and their gradients are flat, in an order of elements only the engine knows;
/// [`Model::to_user`] and [`Model::to_engine`] translate.
pub trait Model: Send + std::fmt::Debug {
    /// The parameters, in the order in which backward makes their gradients final.
    fn parameters(&self) -> &[Parameter];

    /// Sets parameters and buffers, all of them.
    ///
    /// # Errors
    /// One is missing or has another shape; then nothing was changed.
    fn load(&mut self, weights: &Weights) -> Result<(), WeightsError>;

    /// A copy of parameters and buffers, as in the user's `state_dict`.
    fn weights(&self) -> Weights {
        self.weights_of(&|_| true)
    }

    /// A copy of those with names that are wanted.
    fn weights_of(&self, wanted: &dyn Fn(&str) -> bool) -> Weights;

    /// Computes the outputs for a batch of this size.
    ///
    /// # Errors
    /// An input has another size than the graph says, or an index is out of range.
    fn forward(&mut self, slot: Slot, batch: usize, inputs: &[&[f32]], pass: Pass) -> Result<(), RunError>;

    /// An output of the last forward in this slot.
    fn output(&self, slot: Slot, index: usize) -> &[f32];

    /// The shape of that output.
    fn output_shape(&self, slot: Slot, index: usize) -> Vec<usize>;

    /// Computes the gradients of the last training forward in this slot, given those of its outputs; an empty one
    /// stands for zeros.
    /// `ready` is called with every parameter's index the moment its gradient is final, in ascending order.
    ///
    /// # Errors
    /// There was no training forward in this slot, or a gradient has another size than its output.
    fn backward(
        &mut self,
        slot: Slot,
        output_gradients: &[&[f32]],
        ready: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<(), RunError>;

    /// The gradient of an input, after backward; `None` when it was not asked for or the input is of integers.
    fn input_gradient(&self, slot: Slot, index: usize) -> Option<&[f32]>;

    /// Whether backward uses the gradient of this output: not if nothing learned is in it, nor if an output before it
    /// is the same values in another shape, whose gradient is then for both.
    fn takes_gradient(&self, output: usize) -> bool;

    /// Whether [`Model::input_gradient`] has something for this input after a backward.
    fn gives_gradient(&self, input: usize) -> bool;

    /// Lends every parameter with its gradient, in order.
    fn update(&mut self, visit: &mut Visit<'_>);

    /// Copies the parameters as they are now.
    fn copy_parameters(&self, into: &mut ParameterSet);

    /// Lets the parameters change places with others; nothing is copied.
    ///
    /// # Panics
    /// They are of another model.
    fn swap_parameters(&mut self, with: &mut ParameterSet);

    /// From now on the statistics of batch norm, and what its gradients need of the other samples, are summed over all
    /// replicas in training, so that a batch cut over replicas is normalised as one; `None` ends that.
    fn share_statistics(&mut self, with: Option<Box<SumOver>>);

    /// Turns something as large as a parameter (an optimizer's moment, say) into the user's order of elements.
    fn to_user(&self, parameter: usize, flat: &[f32]) -> Vec<f32>;

    /// The inverse of [`Model::to_user`].
    fn to_engine(&self, parameter: usize, user: &[f32]) -> Vec<f32>;

    /// Runs the batch again, looking at every operator's result, and names the first that is not finite.
    /// `output_gradients` tells those of the outputs, given the first of them; those that it leaves out are zero.
    ///
    /// # Errors
    /// As [`Model::forward`] and [`Model::backward`].
    fn diagnose(
        &mut self,
        batch: usize,
        inputs: &[&[f32]],
        pass: Pass,
        output_gradients: &dyn Fn(&[f32]) -> Vec<Vec<f32>>,
    ) -> Result<Option<DiagnoseReport>, RunError>;

    /// Bytes held for parameters, gradients and activations. Slots that were never used hold nothing.
    fn memory(&self) -> usize;

    /// Bytes that a slot will hold for training with batches of this size.
    ///
    /// # Errors
    /// There is no such program.
    fn slot_bytes(&self, batch: usize) -> Result<usize, CompileError>;

    /// The time of every operator since the last call; nothing unless it was compiled to take it.
    fn take_profile(&mut self) -> Vec<OpTime>;
}
