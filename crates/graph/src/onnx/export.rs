//! Exports a graph and its weights to a file that any runtime can evaluate.
//!
//! Dropout is removed unless the file is for training, batch norms use their running statistics, and operators that
//! ONNX 17 does not have are decomposed.

mod arrange;
mod compute;
mod layer;

use super::error::OnnxError;
use super::lower::unique;
use super::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, StringStringEntry,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use super::scope::{CONSTANT, UNREAD_BUFFERS};
use super::tensor::{code_of, write};
use crate::{Dim, Graph, Node, Op, Shape, ValueId, ValueKind, Weights};
use phalanx_types::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

const OPSET: i64 = 17;
const IR_VERSION: i64 = 8;
/// Protobuf's own limit.
const MOST_BYTES: usize = (2 << 30) - 1;

/// What a file is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Evaluation,
    Training,
}

pub(super) fn export(graph: &Graph, weights: &Weights, purpose: Purpose) -> Result<ModelProto, OnnxError> {
    let mut writer = Writer::new(graph, weights, purpose)?;
    for node in &graph.nodes {
        writer.node(node)?;
    }
    let outputs = writer.outputs();
    let unread: Vec<&str> = writer.unread.iter().map(|v| writer.names[v.index()].as_str()).collect();
    let unread = (!unread.is_empty())
        .then(|| StringStringEntry { key: Some(UNREAD_BUFFERS.into()), value: Some(unread.join("\n")) });
    let proto = GraphProto {
        name: Some(graph.name.clone()),
        node: writer.nodes,
        initializer: writer.initializers,
        input: graph
            .inputs
            .iter()
            .map(|v| info(&writer.names[v.index()], graph.value(*v).dtype, graph.shape(*v)))
            .collect(),
        output: outputs,
        metadata_props: unread.into_iter().collect(),
        ..GraphProto::default()
    };
    let bytes: usize =
        proto.initializer.iter().filter_map(|t| t.raw_data.as_ref()).map(bytes::Bytes::len).sum();
    if bytes > MOST_BYTES {
        return Err(OnnxError::TooLarge { bytes: bytes as u64, most: MOST_BYTES as u64 });
    }
    Ok(ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("phalanx".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(proto),
        opset_import: vec![OperatorSetId { domain: Some(String::new()), version: Some(OPSET) }],
        ..ModelProto::default()
    })
}

fn info(name: &str, dtype: DType, shape: &Shape) -> ValueInfoProto {
    let dim = |d: &Dim| match d {
        Dim::Fixed(n) => DimensionProto { dim_value: Some(*n as i64), dim_param: None },
        Dim::Batch(1) => DimensionProto { dim_value: None, dim_param: Some("batch".into()) },
        Dim::Batch(k) => DimensionProto { dim_value: None, dim_param: Some(format!("{k}*batch")) },
    };
    let shape = TensorShapeProto { dim: shape.dims().iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: Some(code_of(dtype)), shape: Some(shape) };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { tensor_type: Some(tensor) }),
        metadata_props: Vec::new(),
    }
}

/// An attribute's value.
#[derive(Debug, Clone)]
enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Text(&'static str),
}

fn ints(all: &[usize]) -> Attribute {
    Attribute::Ints(all.iter().map(|n| *n as i64).collect())
}

fn attribute(name: &str, value: Attribute) -> AttributeProto {
    let mut proto = AttributeProto { name: Some(name.into()), ..AttributeProto::default() };
    proto.r#type = Some(match value {
        Attribute::Float(f) => {
            proto.f = Some(f);
            1
        }
        Attribute::Int(i) => {
            proto.i = Some(i);
            2
        }
        Attribute::Text(s) => {
            proto.s = Some(s.as_bytes().into());
            3
        }
        Attribute::Ints(v) => {
            proto.ints = v;
            7
        }
    });
    proto
}

/// The nodes and tensors written so far.
struct Writer<'a> {
    graph: &'a Graph,
    purpose: Purpose,
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    /// The name of each value in the file.
    names: Vec<String>,
    /// The names of the outputs, if they have names of their own.
    outputs: Vec<Option<String>>,
    taken: BTreeMap<String, usize>,
    /// Buffers that no node reads.
    unread: Vec<ValueId>,
}

/// Entries of the `state_dict` that no node reads, such as a frozen weight that was transposed once. Counters of batch
/// norms are not among them: the import knows them without the file.
fn unread_buffers(graph: &Graph, read: &BTreeSet<ValueId>) -> Vec<ValueId> {
    let values = graph.values.iter().enumerate().map(|(i, value)| (ValueId(i as u32), value));
    let counts = |name: &str| name.ends_with("num_batches_tracked");
    let unread = values.filter(|(id, value)| {
        matches!(value.kind, ValueKind::Buffer(_)) && !read.contains(id) && !counts(&value.name)
    });
    unread.map(|(id, _)| id).collect()
}

impl<'a> Writer<'a> {
    fn new(graph: &'a Graph, weights: &'a Weights, purpose: Purpose) -> Result<Self, OnnxError> {
        let mut writer = Self {
            graph,
            purpose,
            nodes: vec![],
            initializers: vec![],
            names: vec![],
            outputs: vec![],
            taken: BTreeMap::new(),
            unread: vec![],
        };
        let kept =
            |k: &ValueKind| matches!(k, ValueKind::Parameter(_) | ValueKind::Buffer(_) | ValueKind::Input);
        writer.names = vec![String::new(); graph.values.len()];
        // Inputs, outputs and weights get their names first.
        for v in &graph.inputs {
            writer.names[v.index()] = writer.unique(&graph.value(*v).name);
        }
        writer.name_outputs();
        for first in [true, false] {
            for (i, value) in graph.values.iter().enumerate().filter(|(_, v)| kept(&v.kind) == first) {
                if !writer.names[i].is_empty() {
                    continue;
                }
                writer.names[i] = match value.kind {
                    ValueKind::Constant(_) => writer.unique(&format!("{CONSTANT}{}", value.name)),
                    _ => writer.unique(&value.name),
                };
            }
        }
        let mut written: BTreeSet<ValueId> =
            graph.nodes.iter().flat_map(|n| &n.inputs).chain(&graph.outputs).copied().collect();
        if purpose == Purpose::Training {
            writer.unread = unread_buffers(graph, &written);
            written.extend(&writer.unread);
        }
        for v in written {
            let name = writer.names[v.index()].clone();
            match &graph.value(v).kind {
                ValueKind::Constant(tensor) => writer.initializers.push(write(&name, tensor)),
                ValueKind::Parameter(_) | ValueKind::Buffer(_) => {
                    let missing = || OnnxError::Export { name: name.clone(), why: "it has no weights" };
                    let tensor = weights.get(&graph.value(v).name).ok_or_else(missing)?;
                    writer.initializers.push(write(&name, tensor));
                }
                ValueKind::Input | ValueKind::Computed => {}
            }
        }
        Ok(writer)
    }

    /// Outputs get the user's names directly from the nodes that make them.
    fn name_outputs(&mut self) {
        for (i, v) in self.graph.outputs.iter().enumerate() {
            let Some(name) = self.graph.output_names.get(i).filter(|n| !n.is_empty()) else {
                self.outputs.push(None);
                continue;
            };
            let name = self.unique(name);
            if self.graph.value(*v).kind == ValueKind::Computed && self.names[v.index()].is_empty() {
                self.names[v.index()].clone_from(&name);
            }
            self.outputs.push(Some(name));
        }
    }

    fn unique(&mut self, name: &str) -> String {
        unique(&mut self.taken, if name.is_empty() { "value" } else { name })
    }

    fn name(&self, v: ValueId) -> String {
        self.names[v.index()].clone()
    }

    fn shape(&self, v: ValueId) -> &'a Shape {
        self.graph.shape(v)
    }

    /// Adds a node that makes `out`.
    fn emit(&mut self, op: &str, inputs: &[&str], out: &str, attributes: Vec<(&str, Attribute)>) {
        self.emit_named(op, inputs, &[out], attributes, out);
    }

    fn emit_named(
        &mut self,
        op: &str,
        inputs: &[&str],
        out: &[&str],
        attributes: Vec<(&str, Attribute)>,
        name: &str,
    ) {
        self.nodes.push(NodeProto {
            op_type: Some(op.into()),
            name: Some(name.into()),
            input: inputs.iter().map(|s| (*s).to_owned()).collect(),
            output: out.iter().map(|s| (*s).to_owned()).collect(),
            attribute: attributes.into_iter().map(|(n, a)| attribute(n, a)).collect(),
            ..NodeProto::default()
        });
    }

    /// Adds a node whose result gets a generated name.
    fn step(&mut self, node: &Node, op: &str, inputs: &[&str], attributes: Vec<(&str, Attribute)>) -> String {
        let out = self.unique(&format!("{}/{op}", node.name));
        self.emit(op, inputs, &out, attributes);
        out
    }

    fn tensor(&mut self, node: &Node, what: &str, tensor: Option<Tensor>) -> Result<String, OnnxError> {
        let bad = || OnnxError::Export { name: node.name.clone(), why: "a constant of it cannot be made" };
        let name = self.unique(&format!("{CONSTANT}{}/{what}", node.name));
        self.initializers.push(write(&name, &tensor.ok_or_else(bad)?));
        Ok(name)
    }

    fn integers(&mut self, node: &Node, what: &str, all: &[i64]) -> Result<String, OnnxError> {
        let data: Vec<u8> = all.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.tensor(node, what, Tensor::new(DType::I64, vec![all.len() as u64], data.into()).ok())
    }

    fn number(&mut self, node: &Node, what: &str, x: f32) -> Result<String, OnnxError> {
        self.tensor(node, what, Tensor::from_f32(vec![], &[x]).ok())
    }

    fn node(&mut self, node: &Node) -> Result<(), OnnxError> {
        let inputs: Vec<String> = node.inputs.iter().map(|v| self.name(*v)).collect();
        let refs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let out = self.name(node.outputs[0]);
        match &node.op {
            Op::Conv(_) | Op::ConvTranspose(_) | Op::Linear | Op::BatchNorm { .. } => {
                self.layer(node, &refs, &out)
            }
            Op::LayerNorm { .. } | Op::GroupNorm { .. } | Op::Attention { .. } => {
                self.layer(node, &refs, &out)
            }
            Op::Lstm(r) | Op::Gru(r) => self.recurrent(node, r, &refs),
            Op::Gather { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Concat { .. }
            | Op::Slice { .. } => self.arrange(node, &refs, &out),
            Op::Pad { .. } | Op::Expand { .. } | Op::Resize(_) => self.arrange(node, &refs, &out),
            _ => self.compute(node, &refs, &out),
        }
    }

    /// The outputs, each with a unique name.
    fn outputs(&mut self) -> Vec<ValueInfoProto> {
        let mut made = Vec::new();
        for (i, v) in self.graph.outputs.iter().enumerate() {
            let value = self.graph.value(*v);
            let mut name = self.name(*v);
            let again = self.graph.outputs[..i].contains(v);
            if again || value.kind != ValueKind::Computed {
                let out = match self.outputs[i].clone() {
                    Some(name) => name,
                    None => self.unique("output"),
                };
                self.emit("Identity", &[&name], &out, vec![]);
                name = out;
            }
            made.push(info(&name, value.dtype, &value.shape));
        }
        made
    }
}
