//! The graph: values, and nodes in topological order.

use crate::infer::{InferError, infer};
use crate::{Op, Shape};
use phalanx_types::{DType, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The id of a value of one graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueId(pub u32);

impl ValueId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value that a node reads or makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// For parameters and buffers the key in the user's `state_dict`.
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    pub kind: ValueKind,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    /// Provided by the caller for every batch.
    Input,
    /// Trained.
    Parameter(Init),
    /// Kept and saved, but not trained by gradients (running means).
    Buffer(Init),
    Constant(Tensor),
    /// Made by a node.
    Computed,
}

/// How a parameter or buffer is initialised when no weights are given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    Zeros,
    Ones,
    /// Uniformly within ± the bound.
    Uniform(f32),
    Normal {
        std: f32,
    },
    /// The values come with the model (ONNX).
    Given,
}

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Unique in the graph, and the same in every stage cut from it: seeds are derived from it.
    pub name: String,
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

/// A model, or a stage of one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Graph {
    pub name: String,
    pub values: Vec<Value>,
    /// In topological order.
    pub nodes: Vec<Node>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    /// The user's names for the outputs, in order; empty if they have no names of their own.
    pub output_names: Vec<String>,
    /// Other keys of the `state_dict` for a parameter or buffer: a tied weight has several.
    pub aliases: Vec<(String, ValueId)>,
}

/// The values of parameters and buffers, by `state_dict` key.
pub type Weights = BTreeMap<String, Tensor>;

impl Graph {
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    pub fn shape(&self, id: ValueId) -> &Shape {
        &self.value(id).shape
    }

    /// Adds a value that is not made by a node.
    pub fn add_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId((self.values.len() - 1) as u32)
    }

    /// Adds a node at the end; its outputs' types and shapes are inferred.
    ///
    /// # Errors
    /// The operator does not accept these inputs.
    pub fn add_node(
        &mut self,
        name: impl Into<String>,
        op: Op,
        inputs: Vec<ValueId>,
    ) -> Result<Vec<ValueId>, InferError> {
        let name = name.into();
        let args: Vec<&Value> = inputs.iter().map(|v| self.value(*v)).collect();
        let made = infer(&name, &op, &args)?;
        let outputs = (made.into_iter().enumerate())
            .map(|(i, (dtype, shape))| {
                let name = if i == 0 { name.clone() } else { format!("{name}.{i}") };
                self.add_value(Value { name, dtype, shape, kind: ValueKind::Computed })
            })
            .collect::<Vec<_>>();
        self.nodes.push(Node { name, op, inputs, outputs: outputs.clone() });
        Ok(outputs)
    }

    /// The parameters, in the order of their declaration.
    pub fn parameters(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.ids().filter(|(_, v)| matches!(v.kind, ValueKind::Parameter(_)))
    }

    /// The buffers.
    pub fn buffers(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.ids().filter(|(_, v)| matches!(v.kind, ValueKind::Buffer(_)))
    }

    /// The weights with every key of the `state_dict`: tied weights are listed under each of their names.
    #[must_use]
    pub fn with_aliases(&self, mut weights: Weights) -> Weights {
        for (alias, v) in &self.aliases {
            if let Some(tensor) = weights.get(&self.value(*v).name).cloned() {
                weights.insert(alias.clone(), tensor);
            }
        }
        weights
    }

    /// The weights under their first names only; an alias replaces a missing first name.
    #[must_use]
    pub fn without_aliases(&self, mut weights: Weights) -> Weights {
        for (alias, v) in &self.aliases {
            if let Some(tensor) = weights.remove(alias) {
                weights.entry(self.value(*v).name.clone()).or_insert(tensor);
            }
        }
        weights
    }

    fn ids(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter().enumerate().map(|(i, v)| (ValueId(i as u32), v))
    }
}
