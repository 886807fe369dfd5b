//! A graph written in Rust, layer by layer.

mod layers;
mod plain;

pub use layers::{ConvLayer, LinearLayer, RecurrentLayer};

use crate::infer::{MOST_VALUES, is_countable};
use crate::{Graph, InferError, Init, Op, Shape, Value, ValueId, ValueKind};
use phalanx_types::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Why a graph cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    #[error("two layers are called `{name}`")]
    Duplicate { name: String },
    #[error("layer `{layer}` needs a known size of dimension {axis}, its input is {shape}")]
    Unknown { layer: String, axis: usize, shape: Shape },
    #[error("layer `{layer}` divides {size} by {by}, which leaves a rest")]
    Division { layer: String, size: usize, by: usize },
    #[error("layer `{layer}` is larger than anything that can be trained")]
    TooLarge { layer: String },
    #[error("graph `{graph}` has no output")]
    NoOutput { graph: String },
    #[error(transparent)]
    Infer(#[from] InferError),
}

/// The most elements of one parameter.
const MOST_PARAMETERS: usize = 1 << 33;

/// Builds a [`Graph`] layer by layer.
///
/// ```
/// use phalanx_graph::{Builder, ConvLayer};
///
/// let mut b = Builder::new("tiny");
/// let x = b.input("x", &[1, 8, 8]);
/// let x = b.conv2d("conv", x, ConvLayer::new(16, 3).pad(1));
/// let x = b.relu(x);
/// let x = b.flatten(x);
/// let x = b.linear("fc", x, 10);
/// b.output(x);
/// let graph = b.finish()?;
/// # Ok::<(), phalanx_graph::BuildError>(())
/// ```
/// The first mistake is kept and reported by [`Builder::finish`]; calls after it are ignored, so no call needs a `?`.
/// Parameters are called `<layer>.weight`, `<layer>.bias` and so on, and are initialised as in PyTorch.
#[derive(Debug)]
pub struct Builder {
    graph: Graph,
    names: BTreeSet<String>,
    counts: BTreeMap<&'static str, usize>,
    failed: Option<BuildError>,
}

impl Builder {
    pub fn new(name: impl Into<String>) -> Self {
        let graph = Graph { name: name.into(), ..Graph::default() };
        Self { graph, names: BTreeSet::new(), counts: BTreeMap::new(), failed: None }
    }

    /// Adds an input: a batch of `f32` samples of this shape.
    pub fn input(&mut self, name: &str, sample: &[usize]) -> ValueId {
        self.input_of(name, DType::F32, Shape::batch_of(sample))
    }

    /// Adds an input: a batch of sequences of token ids.
    pub fn tokens(&mut self, name: &str, length: usize) -> ValueId {
        self.input_of(name, DType::I64, Shape::batch_of(&[length]))
    }

    pub fn input_of(&mut self, name: &str, dtype: DType, shape: Shape) -> ValueId {
        let id = self.value(name, dtype, shape, ValueKind::Input);
        self.graph.inputs.push(id);
        id
    }

    pub fn parameter(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> ValueId {
        self.value(name, DType::F32, Shape::fixed(shape), ValueKind::Parameter(init))
    }

    pub fn buffer(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> ValueId {
        self.value(name, DType::F32, Shape::fixed(shape), ValueKind::Buffer(init))
    }

    pub fn constant(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        let dims: Vec<usize> = tensor.shape().iter().map(|d| *d as usize).collect();
        self.value(name, tensor.dtype(), Shape::fixed(&dims), ValueKind::Constant(tensor))
    }

    /// Marks a value as an output of the model.
    pub fn output(&mut self, x: ValueId) {
        self.graph.outputs.push(x);
    }

    /// Adds a node with one result.
    pub fn op(&mut self, name: impl Into<String>, op: Op, inputs: &[ValueId]) -> ValueId {
        self.ops(name, op, inputs).first().copied().unwrap_or(ValueId(0))
    }

    /// Adds a node; the list is empty after a mistake.
    pub fn ops(&mut self, name: impl Into<String>, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let name = name.into();
        if !self.claim(&name) {
            return Vec::new();
        }
        self.graph.add_node(name, op, inputs.to_vec()).unwrap_or_else(|e| {
            self.failed = Some(e.into());
            Vec::new()
        })
    }

    /// The shape of a value; empty after a mistake.
    pub fn shape(&self, x: ValueId) -> Shape {
        if self.failed.is_some() { Shape::default() } else { self.graph.shape(x).clone() }
    }

    /// # Errors
    /// The first mistake.
    pub fn finish(self) -> Result<Graph, BuildError> {
        match self.failed {
            Some(e) => Err(e),
            None if self.graph.outputs.is_empty() => Err(BuildError::NoOutput { graph: self.graph.name }),
            None => Ok(self.graph),
        }
    }

    /// The first mistake so far.
    pub(crate) fn failure(&self) -> Option<&BuildError> {
        self.failed.as_ref()
    }

    fn value(&mut self, name: impl Into<String>, dtype: DType, shape: Shape, kind: ValueKind) -> ValueId {
        let name = name.into();
        if !self.claim(&name) {
            return ValueId(0);
        }
        let kept = matches!(kind, ValueKind::Parameter(_) | ValueKind::Buffer(_));
        let most = if kept { MOST_PARAMETERS } else { MOST_VALUES };
        if !is_countable(&shape) || shape.count().is_none_or(|c| c.factor > most) {
            self.fail(BuildError::TooLarge { layer: name });
            return ValueId(0);
        }
        self.graph.add_value(Value { name, dtype, shape, kind })
    }

    /// Reserves a name; false if it is taken already or there was a mistake.
    fn claim(&mut self, name: &str) -> bool {
        if self.failed.is_none() && !self.names.insert(name.to_owned()) {
            self.failed = Some(BuildError::Duplicate { name: name.to_owned() });
        }
        self.failed.is_none()
    }

    /// A generated name for a layer without one.
    pub(crate) fn fresh(&mut self, word: &'static str) -> String {
        loop {
            let n = self.counts.entry(word).or_default();
            *n += 1;
            let name = format!("{word}_{n}");
            if !self.names.contains(&name) {
                return name;
            }
        }
    }

    /// A dimension of a layer's input that must not depend on the batch.
    fn fixed(&mut self, layer: &str, x: ValueId, axis: usize) -> Option<usize> {
        if self.failed.is_some() {
            return None;
        }
        let shape = self.graph.shape(x);
        let size = shape.dims().get(axis).and_then(|d| d.fixed());
        if size.is_none() {
            self.failed = Some(BuildError::Unknown { layer: layer.to_owned(), axis, shape: shape.clone() });
        }
        size
    }

    fn last(&mut self, layer: &str, x: ValueId) -> Option<usize> {
        let rank = self.shape(x).rank();
        self.fixed(layer, x, rank.saturating_sub(1))
    }

    fn divide(&mut self, layer: &str, size: usize, by: usize) -> Option<usize> {
        if by > 0 && size.is_multiple_of(by) {
            return Some(size / by);
        }
        self.fail(BuildError::Division { layer: layer.to_owned(), size, by });
        None
    }

    fn product(&mut self, layer: &str, factors: &[usize]) -> Option<usize> {
        let n = factors.iter().try_fold(1usize, |n, f| n.checked_mul(*f)).filter(|n| *n <= MOST_PARAMETERS);
        if n.is_none() {
            self.fail(BuildError::TooLarge { layer: layer.to_owned() });
        }
        n
    }

    fn fail(&mut self, e: BuildError) {
        self.failed.get_or_insert(e);
    }
}

#[cfg(test)]
mod tests;
