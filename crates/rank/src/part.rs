//! A stage of a model with its optimizer: the part of the run that this node holds.

use super::connector::broken;
use crate::error::RankError;
use bytes::Bytes;
use phalanx_collective::Compression;
use phalanx_engine::OptimizerSpec;
use phalanx_graph::{Graph, Shape, ValueKind};
use phalanx_protocol::layout;
use phalanx_records::{ModelState, tensor_bytes};
use phalanx_train::Stepper;
use phalanx_train::round::{add_outer, outer_of};
use phalanx_train::{Compute, Task};
use phalanx_types::DType;
use phalanx_wire::train::Ops;
use std::collections::BTreeSet;
use std::ops::Range;

/// One part of the model.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) ops: Ops,
    pub(super) graph: Graph,
    pub(super) stepper: Stepper,
    pub(super) inputs: Vec<Carried>,
    pub(super) outputs: Vec<Carried>,
    /// Steps done.
    pub(crate) step: u64,
    /// Whether it holds the state of the run after `step`. A rank that is new to a group does not until it has caught up.
    pub(super) is_level: bool,
    /// The gradient norm of the last step, as bits.
    pub(super) norm: Option<u64>,
    /// The learning rate of the next step, if its gradients are final but not applied. Other ranks may have applied
    /// theirs.
    pub(super) pending: Option<f32>,
    /// State of the outer optimizer, by parameter.
    pub(super) outer: phalanx_graph::Weights,
    /// Batch norm statistics from before the step: computing changes them even if the step is not applied.
    before: Option<phalanx_graph::Weights>,
    has_buffers: bool,
    /// Buffers for received inputs and for received gradients of outputs.
    pub(super) received: Vec<Vec<f32>>,
    pub(super) given: Vec<Vec<f32>>,
}

/// A value that travels between stages.
#[derive(Debug, Clone)]
pub(super) struct Carried {
    shape: Shape,
    /// Whether it may be compressed.
    pub(super) floats: bool,
    /// Whether its gradient comes back.
    pub(super) learns: bool,
}

impl Carried {
    fn of(graph: &Graph, values: &[phalanx_graph::ValueId], learns: impl Fn(usize) -> bool) -> Vec<Self> {
        let carried = |(index, v): (usize, &phalanx_graph::ValueId)| {
            let value = graph.value(*v);
            let floats = matches!(value.dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F64);
            Self { shape: value.shape.clone(), floats, learns: learns(index) }
        };
        values.iter().enumerate().map(carried).collect()
    }

    pub(super) fn elements(&self, batch: usize) -> usize {
        self.shape.at(batch).iter().product()
    }
}

/// The names of the parameters and buffers of a range of operators.
pub fn names_of(graph: &Graph, ops: Ops) -> Result<BTreeSet<String>, RankError> {
    let stage = stage_of(graph, ops)?;
    let kept =
        stage.values.iter().filter(|v| matches!(v.kind, ValueKind::Parameter(_) | ValueKind::Buffer(_)));
    Ok(kept.map(|value| value.name.clone()).collect())
}

pub(super) fn stage_of(graph: &Graph, ops: Ops) -> Result<Graph, RankError> {
    let range: Range<usize> = ops.start as usize..ops.end as usize;
    graph.stage(range).map_err(RankError::Cut)
}

impl Part {
    /// Compiles a part of the model, still without weights.
    ///
    /// # Errors
    /// There is no such part, or it cannot be computed.
    pub(super) fn compile(task: &Task, compute: &Compute, ops: Ops) -> Result<Self, RankError> {
        let graph = stage_of(&task.graph, ops)?;
        let mut stepper = task.stepper_of(layout::range(ops), compute)?;
        let model = stepper.model();
        let inputs = Carried::of(&graph, &graph.inputs, |i| model.gives_gradient(i));
        let outputs = Carried::of(&graph, &graph.outputs, |i| model.takes_gradient(i));
        let has_buffers = graph.buffers().next().is_some();
        Ok(Self {
            ops,
            graph,
            stepper,
            inputs,
            outputs,
            step: 0,
            is_level: false,
            norm: None,
            pending: None,
            outer: phalanx_graph::Weights::new(),
            before: None,
            has_buffers,
            received: Vec::new(),
            given: Vec::new(),
        })
    }

    /// Compiles a part of the model and loads a state.
    ///
    /// # Errors
    /// There is no such part, it cannot be computed, or the state lacks something.
    pub(crate) fn new(
        task: &Task,
        compute: &Compute,
        ops: Ops,
        state: &ModelState,
    ) -> Result<Self, RankError> {
        let mut part = Self::compile(task, compute, ops)?;
        // Before the first step a state may have optimizer values for some operators and not for others: a new optimizer
        // is the same.
        if state.steps() == 0 {
            part.stepper.load(&state.weights)?;
            part.is_level = true;
        } else {
            part.take_over(state)?;
        }
        Ok(part)
    }

    /// Compiles the whole model and loads a state.
    ///
    /// # Errors
    /// It cannot be computed, or the state lacks something.
    pub(crate) fn whole(task: &Task, compute: &Compute, state: &ModelState) -> Result<Self, RankError> {
        Self::new(task, compute, Ops { start: 0, end: task.graph.nodes.len() as u32 }, state)
    }

    /// Replaces its state by that of another rank.
    ///
    /// # Errors
    /// The state lacks something.
    pub(super) fn take_over(&mut self, state: &ModelState) -> Result<(), RankError> {
        self.stepper.set_state(state)?;
        self.outer = outer_of(&state.optimizer);
        (self.step, self.is_level) = (state.steps(), true);
        (self.norm, self.pending, self.before) = (None, None, None);
        Ok(())
    }

    /// Weights, buffers and optimizer state.
    pub(crate) fn state(&self) -> Result<ModelState, RankError> {
        let mut state = self.stepper.state(&self.graph)?;
        add_outer(&self.outer, &mut state.optimizer);
        Ok(state)
    }

    /// The state, packed.
    pub(super) fn packed(&self) -> Result<Bytes, RankError> {
        let mut outer = phalanx_graph::Weights::new();
        add_outer(&self.outer, &mut outer);
        Ok(self.stepper.packed(&self.graph, &outer)?)
    }

    /// Saves buffers before a step that may be undone.
    pub(super) fn keep_buffers(&mut self) {
        if self.has_buffers {
            self.before = Some(self.stepper.buffers(&self.graph));
        }
    }

    /// Undoes what an unfinished step has changed.
    pub(super) fn undo(&mut self) -> Result<(), RankError> {
        self.pending = None;
        match self.before.take() {
            Some(buffers) => Ok(self.stepper.set_buffers(buffers)?),
            None => Ok(()),
        }
    }

    /// Applies the gradients of a step.
    pub(super) fn apply(&mut self, norm: f64, lr: f32) {
        self.stepper.apply(norm, lr);
        self.step += 1;
        (self.norm, self.pending, self.before) = (Some(norm.to_bits()), None, None);
    }

    /// Bytes of its parameters.
    pub(super) fn parameter_bytes(&self) -> u64 {
        self.stepper.model.parameters().iter().map(|parameter| 4 * parameter.elements() as u64).sum()
    }

    /// Bytes of the model, of the batches in flight and of optimizer state.
    pub(super) fn memory(&self, optimizer: &OptimizerSpec) -> u64 {
        let states = optimizer.state_names().len() as u64;
        self.stepper.model.memory() as u64 + states * self.parameter_bytes() + tensor_bytes(&self.outer)
    }

    /// The largest frame that it sends or receives for `batch` samples, in bytes.
    pub(super) fn most_bytes(&self, batch: usize) -> usize {
        let bytes = |of: &[Carried]| of.iter().map(|value| 4 * value.elements(batch) + 64).sum::<usize>();
        bytes(&self.inputs).max(bytes(&self.outputs))
    }
}

/// Appends values; only floats are compressed.
pub(super) fn pack(compression: Compression, floats: bool, values: &[f32], into: &mut Vec<u8>) {
    let how = if floats { compression } else { Compression::None };
    how.encode(values, into);
}

/// The packed size of a number of values, in bytes.
pub(super) fn packed_len(compression: Compression, floats: bool, values: usize) -> usize {
    let how = if floats { compression } else { Compression::None };
    how.encoded_len(values)
}

/// Reads values from the front of `bytes`; returns the rest.
pub(super) fn unpack<'b>(
    compression: Compression,
    floats: bool,
    bytes: &'b [u8],
    into: &mut [f32],
) -> Result<&'b [u8], RankError> {
    let how = if floats { compression } else { Compression::None };
    let short = || broken("a frame of another stage is too short".to_owned());
    let (own, rest) =
        bytes.split_at_checked(packed_len(compression, floats, into.len())).ok_or_else(short)?;
    how.decode(own, into).map_err(|error| broken(error.to_string()))?;
    Ok(rest)
}
