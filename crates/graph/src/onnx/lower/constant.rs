//! Known properties of graph values, and the parameters among them.

use super::{Lower, Val};
use crate::onnx::eval::eval;
use crate::onnx::lit::Lit;
use crate::{Init, Op, Shape, Value, ValueId, ValueKind};
use phalanx_types::Tensor;

/// How many nodes between a weight and its use are followed.
const DEEPEST: usize = 24;

impl Lower<'_> {
    pub(in crate::onnx) fn add_parameter(&mut self, name: String, tensor: Tensor) -> ValueId {
        self.add_kept(name, tensor, ValueKind::Parameter(Init::Given))
    }

    /// A parameter or a buffer.
    pub(in crate::onnx) fn add_kept(&mut self, name: String, tensor: Tensor, kind: ValueKind) -> ValueId {
        let dims: Vec<usize> = tensor.shape().iter().map(|d| *d as usize).collect();
        let value = Value { name: name.clone(), dtype: tensor.dtype(), shape: Shape::fixed(&dims), kind };
        let id = self.graph.add_value(value);
        self.tensors.insert(id, tensor);
        self.parameters.insert(name, id);
        id
    }

    /// The parameter of this name, if it has exactly these values.
    pub(super) fn parameter_like(&self, name: &str, tensor: &Tensor) -> Option<ValueId> {
        let id = *self.parameters.get(name)?;
        (self.tensors.get(&id)? == tensor).then_some(id)
    }

    /// The numbers of a value that depends only on weights and constants.
    pub(super) fn numbers(&self, val: &Val, depth: usize) -> Option<Lit> {
        let Val::Graph(id) = val else { return self.lit(val).map(|l| (*l).clone()) };
        if depth > DEEPEST {
            return None;
        }
        if let Some(tensor) = self.tensors.get(id) {
            return Lit::from_tensor(tensor);
        }
        if let ValueKind::Constant(tensor) = &self.graph.value(*id).kind {
            return Lit::from_tensor(tensor);
        }
        let node = self.graph.nodes.get(*self.makers.get(id)?)?;
        if node.inputs.len() > 8 {
            return None;
        }
        let args: Vec<Lit> =
            node.inputs.iter().map(|i| self.numbers(&Val::Graph(*i), depth + 1)).collect::<Option<_>>()?;
        eval(&node.op, &args.iter().collect::<Vec<_>>())
    }

    /// The constant that fills a value whose size depends on the batch.
    pub(super) fn filled_with(&self, val: &Val) -> Option<f64> {
        let Val::Graph(mut id) = *val else { return None };
        for _ in 0..DEEPEST {
            if let ValueKind::Constant(tensor) = &self.graph.value(id).kind {
                let all = Lit::from_tensor(tensor)?.floats()?;
                return all.first().copied().filter(|x| all.iter().all(|y| y == x));
            }
            let node = self.graph.nodes.get(*self.makers.get(&id)?)?;
            match node.op {
                Op::Expand { .. } | Op::Reshape { .. } | Op::Slice { .. } | Op::Transpose { .. } => {
                    id = node.inputs[0]
                }
                _ => return None,
            }
        }
        None
    }
}
