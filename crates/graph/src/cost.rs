//! The cost of a model: parameters, floating-point operations, memory.
//!
//! Operations are counted for matrix products and convolutions, two for each multiply-add, forward and for one sample;
//! everything else is small in comparison. A backward pass costs about twice as much again.

use crate::{Dim, Graph, Node, Op, Shape, ValueId, ValueKind};
use serde::Serialize;
use std::collections::BTreeSet;

/// One row of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeCost {
    pub name: String,
    pub operator: &'static str,
    /// Shape of the first output, with `N` for the batch.
    pub output: String,
    /// Learned elements; shared parameters are counted where they are first used.
    pub parameters: u64,
    /// Per sample.
    pub flops: u64,
    /// Elements per sample that are kept for the backward pass.
    pub activations: u64,
}

/// The cost of a model or a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cost {
    pub nodes: Vec<NodeCost>,
    pub parameters: u64,
    pub parameter_bytes: u64,
    pub buffers: u64,
    /// Forward, per sample.
    pub flops: u64,
    /// Per sample.
    pub activation_bytes: u64,
}

impl Cost {
    /// Bytes of optimizer state: 4 bytes a parameter for momentum, 8 for Adam.
    pub fn optimizer_bytes(&self, per_parameter: u64) -> u64 {
        self.parameters.saturating_mul(per_parameter)
    }

    /// Bytes of weights, gradients, optimizer state, and activations of a batch.
    pub fn training_bytes(&self, batch: u64, optimizer_per_parameter: u64) -> u64 {
        let weights = self.parameter_bytes.saturating_mul(2);
        let kept = self.optimizer_bytes(optimizer_per_parameter);
        weights.saturating_add(kept).saturating_add(self.activation_bytes.saturating_mul(batch))
    }
}

impl Graph {
    /// The cost of the model, node by node and in total.
    pub fn cost(&self) -> Cost {
        let mut counted = BTreeSet::new();
        let (mut bytes, mut nodes) = (0u64, Vec::with_capacity(self.nodes.len()));
        for node in &self.nodes {
            let fresh = node.inputs.iter().filter(|v| is_parameter(self, **v) && counted.insert(**v));
            let parameters = fresh.map(|v| elements(self.shape(*v))).fold(0, u64::saturating_add);
            // A reshape is another view of the same memory.
            let made = if matches!(node.op, Op::Reshape { .. }) { &[][..] } else { &node.outputs[..] };
            let activations = made.iter().map(|v| elements(self.shape(*v))).fold(0, u64::saturating_add);
            let size = made.first().map_or(0, |v| self.value(*v).dtype.size() as u64);
            bytes = bytes.saturating_add(activations.saturating_mul(size));
            nodes.push(NodeCost {
                name: node.name.clone(),
                operator: node.op.word(),
                output: self.shape(node.outputs[0]).to_string(),
                parameters,
                flops: flops(self, node),
                activations,
            });
        }
        let sum = |each: fn(&NodeCost) -> u64| nodes.iter().map(each).fold(0, u64::saturating_add);
        let count = |(_, v): (ValueId, &crate::Value)| elements(&v.shape);
        let parameters = self.parameters().map(count).fold(0, u64::saturating_add);
        let size =
            |(_, v): (ValueId, &crate::Value)| elements(&v.shape).saturating_mul(v.dtype.size() as u64);
        Cost {
            parameters,
            parameter_bytes: self.parameters().map(size).fold(0, u64::saturating_add),
            buffers: self.buffers().map(count).fold(0, u64::saturating_add),
            flops: sum(|n| n.flops),
            activation_bytes: bytes,
            nodes,
        }
    }
}

fn is_parameter(graph: &Graph, v: ValueId) -> bool {
    matches!(graph.value(v).kind, ValueKind::Parameter(_))
}

/// The elements of one sample.
fn elements(shape: &Shape) -> u64 {
    shape.count().map_or(u64::MAX, |c| c.at(1) as u64)
}

fn flops(graph: &Graph, node: &Node) -> u64 {
    let shape = |i: usize| node.inputs.get(i).map(|v| graph.shape(*v));
    let size =
        |i: usize, axis: usize| shape(i).and_then(|s| s.dims().get(axis)).map_or(0, |d: &Dim| d.at(1) as u64);
    let out = node.outputs.first().map_or(0, |v| elements(graph.shape(*v)));
    let last = |i: usize| shape(i).map_or(0, |s| size(i, s.rank().saturating_sub(1)));
    let per_output = |i: usize| shape(i).map_or(0, |w| elements(w) / size(i, 0).max(1));
    let products = match &node.op {
        Op::Conv(_) => out.saturating_mul(per_output(1)),
        Op::ConvTranspose(_) => shape(0).map_or(0, elements).saturating_mul(per_output(1)),
        Op::Linear | Op::MatMul => out.saturating_mul(last(0)),
        // Scores, then the weighted sum of the values.
        Op::Attention { .. } => {
            let (q, k) =
                (shape(0).map_or(0, elements), size(1, shape(1).map_or(0, Shape::rank).saturating_sub(2)));
            q.saturating_add(out).saturating_mul(k)
        }
        Op::Lstm(_) | Op::Gru(_) => {
            let steps = shape(0).map_or(0, elements) / last(0).max(1);
            let weights = [1, 2].map(|i| shape(i).map_or(0, elements));
            steps.saturating_mul(weights[0].saturating_add(weights[1]))
        }
        _ => 0,
    };
    products.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use crate::zoo::{self, ZooOptions};

    #[test]
    fn known_models_cost_what_is_known() {
        let cost = zoo::build("resnet-18", &ZooOptions::default()).unwrap().cost();
        assert_eq!((cost.parameters, cost.flops), (11_689_512, 2 * 1_814_073_344));
        assert_eq!(cost.optimizer_bytes(8), 8 * 11_689_512);
        let cost = zoo::build("mobilenet-v2", &ZooOptions::default()).unwrap().cost();
        assert_eq!((cost.parameters, cost.flops), (3_504_872, 2 * 300_774_272));
    }

    #[test]
    fn rows_say_what_each_node_does() {
        let cost = zoo::build("mlp", &ZooOptions::default()).unwrap().cost();
        let row = &cost.nodes[0];
        assert_eq!((row.name.as_str(), row.operator, row.output.as_str()), ("fc1", "Linear", "[N×256]"));
        assert_eq!((row.parameters, row.flops, row.activations), (200_960, 2 * 200_704, 256));
        assert_eq!(cost.nodes.iter().map(|n| n.parameters).sum::<u64>(), cost.parameters);
        assert_eq!(cost.activation_bytes, 4 * (256 + 256 + 128 + 128 + 10));
    }
}
