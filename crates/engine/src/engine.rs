//! The interface of engines and compiled models.

use crate::error::{CompileError, DiagnoseReport, RunError, StageError, WeightsError};
use crate::parameters::ParameterSet;
use phalanx_graph::{Graph, Weights};
use std::ops::Range;

/// Compiles graphs into models that run.
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Compiles a model.
    ///
    /// # Errors
    /// The graph contains something that this engine cannot compute.
    fn compile(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Model>, CompileError>;

    /// Compiles a range of nodes as a stage: the graph of [`Graph::stage`], which computes and learns what these nodes
    /// do in the whole model, bit for bit.
    ///
    /// [`Model::gives_gradient`] and [`Model::takes_gradient`] say which gradients pass between stages;
    /// [`CompileOptions::input_gradients`] is about the inputs of the whole model.
    ///
    /// # Errors
    /// The nodes do not form a stage of this model, or this engine cannot compute them.
    fn compile_stage(
        &self,
        whole: &Graph,
        nodes: Range<usize>,
        options: &CompileOptions,
    ) -> Result<Box<dyn Model>, StageError>;
}

/// Options for compiling a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompileOptions {
    /// Recompute activations in backward instead of keeping them: less memory, about a third more time.
    pub recompute: bool,
    /// Compute gradients of the graph's inputs (for a stage that is not the first, or an adversarial example).
    pub input_gradients: bool,
    /// Only forward will be used.
    pub forward_only: bool,
    /// With `forward_only`: compute dense layers of few rows without packing their weights. It is faster, gives a sample
    /// the same bits in any batch of up to 64, and other last bits than a model that trains.
    pub few_rows: bool,
    /// Measure the time of every operator.
    pub profile: bool,
}

/// The time of one operator.
#[derive(Debug, Clone, PartialEq)]
pub struct OpTime {
    /// The node of the graph; for merged nodes the last of them.
    pub node: String,
    /// The kernel that computed it.
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

/// How one batch is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Training (batch statistics, dropout, activations kept for backward) or evaluation.
    pub training: bool,
    /// The seed of this batch's random numbers; the same seed replays the batch.
    pub seed: u64,
}

/// Called for each parameter with its index, its elements and its gradient.
pub type Visit<'a> = dyn FnMut(usize, &mut [f32], &mut [f32]) + 'a;

/// Sums numbers over all replicas, in place; the error is the reason.
pub type SumOver = dyn FnMut(&mut [f64]) -> Result<(), String> + Send;

/// Identifies a batch in flight: each slot has its own buffers. A local run uses slot 0 only.
pub type Slot = usize;

/// A compiled graph with its parameters.
///
/// Inputs, outputs and their gradients have the layout that the graph declares, row-major `f32`; integers and booleans
/// are held as `f32` too. Parameters and their gradients are flat, in an element order private to the engine;
/// [`Model::to_user`] and [`Model::to_engine`] convert.
pub trait Model: Send + std::fmt::Debug {
    /// The parameters, in the order in which backward completes their gradients.
    fn parameters(&self) -> &[Parameter];

    /// Sets all parameters and buffers.
    ///
    /// # Errors
    /// One is missing or has another shape; then nothing is changed.
    fn load(&mut self, weights: &Weights) -> Result<(), WeightsError>;

    /// A copy of parameters and buffers, in the layout of the user's `state_dict`.
    fn weights(&self) -> Weights {
        self.weights_of(&|_| true)
    }

    /// A copy of the parameters and buffers with wanted names.
    fn weights_of(&self, wanted: &dyn Fn(&str) -> bool) -> Weights;

    /// Computes the outputs of a batch of this size.
    ///
    /// # Errors
    /// An input does not have the size that the graph declares, or an index is out of range.
    fn forward(&mut self, slot: Slot, batch: usize, inputs: &[&[f32]], pass: Pass) -> Result<(), RunError>;

    /// An output of the last forward in this slot.
    fn output(&self, slot: Slot, index: usize) -> &[f32];

    /// The shape of an output.
    fn output_shape(&self, slot: Slot, index: usize) -> Vec<usize>;

    /// Computes the gradients of the last training forward in this slot, given the gradients of its outputs; an empty
    /// slice means zeros. Calls `ready` with every parameter's index as soon as its gradient is final, in ascending
    /// order.
    ///
    /// # Errors
    /// There was no training forward in this slot, or a gradient does not have the size of its output.
    fn backward(
        &mut self,
        slot: Slot,
        output_gradients: &[&[f32]],
        ready: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<(), RunError>;

    /// The gradient of an input, after backward; `None` if it was not requested or the input is of integers.
    fn input_gradient(&self, slot: Slot, index: usize) -> Option<&[f32]>;

    /// Whether backward uses the gradient of this output. It does not if no parameter affects the output, nor if an
    /// earlier output has the same values in another shape; then the earlier output's gradient is for both.
    fn takes_gradient(&self, output: usize) -> bool;

    /// Whether backward computes an [`Model::input_gradient`] for this input.
    fn gives_gradient(&self, input: usize) -> bool;

    /// Calls `visit` for every parameter with its gradient, in order.
    fn update(&mut self, visit: &mut Visit<'_>);

    /// Copies the current parameters.
    fn copy_parameters(&self, into: &mut ParameterSet);

    /// Swaps the parameters with another set; nothing is copied.
    ///
    /// # Panics
    /// The set belongs to another model.
    fn swap_parameters(&mut self, with: &mut ParameterSet);

    /// Sums the statistics of batch norm, and what its gradients need from the other samples, over all replicas in
    /// training, so that a batch divided among replicas is normalised as one. `None` ends that.
    fn share_statistics(&mut self, with: Option<Box<SumOver>>);

    /// Converts a tensor of a parameter's size (such as an optimizer's moment) to the user's element order.
    fn to_user(&self, parameter: usize, flat: &[f32]) -> Vec<f32>;

    /// The inverse of [`Model::to_user`].
    fn to_engine(&self, parameter: usize, user: &[f32]) -> Vec<f32>;

    /// Runs the batch again, checks every operator's result, and names the first one that is not finite.
    /// `output_gradients` returns the gradients of the outputs, given the first output; missing ones are zero.
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

    /// The time of every operator since the last call; empty unless compiled with `profile`.
    fn take_profile(&mut self) -> Vec<OpTime>;
}
