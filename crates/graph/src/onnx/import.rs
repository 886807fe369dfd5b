//! Converts the bytes of a file to a graph and its weights.

use super::error::{At, OnnxError};
use super::initial::{Role, Roles, Signature};
use super::lower::{Lower, MOST_NODES, Val, default_opset};
use super::names::Names;
use super::proto::{GraphProto, ModelProto, ValueInfoProto};
use super::rewrite::{rewrite, sweep};
use super::tensor::{MOST_DIMENSIONS, Reader, dtype_of};
use super::{ImportOptions, Imported};
use crate::{Dim, Graph, Init, Shape, Value, ValueId, ValueKind, Weights};
use phalanx_types::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

const LEAST_OPSET: i64 = 6;

/// What the first dimension of an input becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchDimension {
    /// The file leaves it open.
    Open,
    /// The file has a number; it is treated as open.
    Opened(usize),
    /// The file has a number and depends on it.
    Fixed,
}

pub(super) fn import(
    model: &ModelProto,
    reader: &Reader,
    options: &ImportOptions,
    bytes: usize,
) -> Result<Imported, OnnxError> {
    let graph = model.graph.as_ref().ok_or(OnnxError::Absent { what: "graph" })?;
    let nodes = model.functions.iter().map(|f| f.node.len()).fold(graph.node.len(), usize::saturating_add);
    if nodes > MOST_NODES {
        return Err(OnnxError::Limit { what: "nodes", most: MOST_NODES });
    }
    let opset = default_opset(&model.opset_import).ok_or(OnnxError::Absent { what: "operator set" })?;
    if opset < LEAST_OPSET {
        return Err(OnnxError::Opset { version: opset, least: LEAST_OPSET });
    }
    let mut initializers = Vec::with_capacity(graph.initializer.len());
    for proto in &graph.initializer {
        let name = proto
            .name
            .as_deref()
            .filter(|n| !n.is_empty())
            .ok_or(OnnxError::Absent { what: "name of a tensor" })?;
        initializers.push((name, reader.read(proto)?));
    }
    let elsewhere = graph.initializer.iter().zip(&initializers).filter(|(p, _)| p.raw_data.is_none());
    let bytes = elsewhere.map(|(_, (_, t))| t.data().len()).fold(bytes, usize::saturating_add);
    let given: BTreeSet<&str> = initializers.iter().map(|(n, _)| *n).collect();
    let inputs: Vec<&ValueInfoProto> =
        graph.input.iter().filter(|i| !given.contains(i.name.as_deref().unwrap_or_default())).collect();
    let file =
        File { model, graph, opset, initializers: &initializers, inputs: &inputs, reader, options, bytes };
    match file.batch() {
        None => file.attempt(BatchDimension::Open),
        Some(size) => match file.attempt(BatchDimension::Opened(size)) {
            Ok(imported) => Ok(imported),
            Err(e @ (OnnxError::Limit { .. } | OnnxError::Large { .. } | OnnxError::Tensor { .. })) => Err(e),
            Err(_) => {
                let mut imported = file.attempt(BatchDimension::Fixed)?;
                imported.notes.push(format!("the model only takes batches of {size}, as it was exported"));
                Ok(imported)
            }
        },
    }
}

struct File<'a> {
    model: &'a ModelProto,
    graph: &'a GraphProto,
    opset: i64,
    initializers: &'a [(&'a str, Tensor)],
    inputs: &'a [&'a ValueInfoProto],
    reader: &'a Reader,
    options: &'a ImportOptions,
    /// Of the file and its external tensors.
    bytes: usize,
}

impl File<'_> {
    /// The batch size if the file fixes it, `None` if it is open.
    fn batch(&self) -> Option<usize> {
        let dims = |i: &&ValueInfoProto| {
            i.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref().map(|s| s.dim.clone())
        };
        let all: Vec<_> = self.inputs.iter().filter_map(dims).collect();
        let open = all.iter().any(|d| d.first().is_some_and(|d| d.dim_value.unwrap_or(0) <= 0));
        if open || !self.symbols().is_empty() {
            return None;
        }
        let first = all.iter().find_map(|d| d.first().and_then(|d| d.dim_value));
        first.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0)
    }

    /// The names of the batch dimension: the names of first dimensions, or the only name there is.
    fn symbols(&self) -> BTreeSet<&str> {
        let (mut first, mut all) = (BTreeSet::new(), BTreeSet::new());
        for input in self.inputs {
            let shape =
                input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).and_then(|t| t.shape.as_ref());
            for (axis, dim) in shape.into_iter().flat_map(|s| s.dim.iter().enumerate()) {
                let Some(name) = dim.dim_param.as_deref().filter(|p| !p.is_empty()) else { continue };
                if self.options.dims.contains_key(name) {
                    continue;
                }
                all.insert(name);
                if axis == 0 {
                    first.insert(name);
                }
            }
        }
        if first.is_empty() && all.len() == 1 { all } else { first }
    }

    fn attempt(&self, batch: BatchDimension) -> Result<Imported, OnnxError> {
        let mut lower = Lower::new(self.model, self.reader.clone(), self.options, self.bytes);
        if lower.graph.name.is_empty() {
            lower.graph.name = self.graph.name.clone().unwrap_or_default();
        }
        if let BatchDimension::Opened(size) = batch {
            lower.batch_hint = Some(size);
        }
        let symbols = self.symbols();
        for input in self.inputs {
            self.input(&mut lower, input, batch, &symbols)?;
        }
        let signature = Signature::of(self.graph);
        let roles = Roles::new(self.graph, &signature, self.options);
        for (name, tensor) in self.initializers {
            let kept_as = signature.name(name);
            let buffer = ValueKind::Buffer(Init::Given);
            let val = match roles.role(name, tensor) {
                Role::Parameter => Val::Graph(lower.add_parameter(kept_as, tensor.clone())),
                Role::Statistic => Val::Graph(lower.add_kept(kept_as, tensor.clone(), buffer)),
                Role::Mask => {
                    lower
                        .notes
                        .insert(format!("`{name}` looks like a mask or a table, so it is not trained"));
                    lower.add_kept(kept_as, tensor.clone(), buffer);
                    Val::Tensor(tensor.clone())
                }
                Role::Constant { kept } => {
                    if kept {
                        lower.add_kept(kept_as, tensor.clone(), buffer);
                    }
                    Val::Tensor(tensor.clone())
                }
            };
            lower.bind(name, val);
        }
        lower.nodes(&self.graph.node, self.opset, None)?;
        self.outputs(&mut lower)?;
        finish(lower, &signature)
    }

    fn input(
        &self,
        lower: &mut Lower<'_>,
        input: &ValueInfoProto,
        batch: BatchDimension,
        symbols: &BTreeSet<&str>,
    ) -> Result<(), OnnxError> {
        let name = input.name.clone().unwrap_or_default();
        let bad = || OnnxError::Input { input: name.clone() };
        let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).ok_or_else(bad)?;
        let dtype = tensor.elem_type.and_then(dtype_of).ok_or_else(bad)?;
        let mut dims = Vec::new();
        for (axis, dim) in tensor.shape.as_ref().ok_or_else(bad)?.dim.iter().enumerate() {
            let symbol = dim.dim_param.as_deref().filter(|p| !p.is_empty());
            let size = dim.dim_value.filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
            dims.push(match (size, symbol) {
                (_, Some(s)) if self.options.dims.contains_key(s) => Dim::Fixed(self.options.dims[s]),
                (_, Some(s)) if symbols.contains(s) => Dim::Batch(1),
                (Some(n), None) => match batch {
                    BatchDimension::Opened(size) if axis == 0 && n == size => Dim::Batch(1),
                    _ => Dim::Fixed(n),
                },
                (None, None) if axis == 0 => Dim::Batch(1),
                (_, symbol) => {
                    let dim = symbol.map_or_else(|| format!("{name}[{axis}]"), str::to_owned);
                    match self.options.dims.get(&dim) {
                        Some(n) => Dim::Fixed(*n),
                        None => return Err(OnnxError::Dimension { input: name, axis, dim }),
                    }
                }
            });
        }
        let shape = Shape::new(dims);
        if shape.rank() > MOST_DIMENSIONS || shape.count().is_none_or(|c| c.factor > 1 << 40) {
            return Err(bad());
        }
        let name = lower.unique(&name);
        let value = Value { name: name.clone(), dtype, shape, kind: ValueKind::Input };
        let id = lower.graph.add_value(value);
        lower.graph.inputs.push(id);
        lower.bind(&name, Val::Graph(id));
        Ok(())
    }

    fn outputs(&self, lower: &mut Lower<'_>) -> Result<(), OnnxError> {
        if self.graph.output.is_empty() {
            return Err(OnnxError::Absent { what: "output" });
        }
        for (position, output) in self.graph.output.iter().enumerate() {
            let name = output.name.as_deref().unwrap_or_default();
            let at = Box::new(At {
                op: "output".into(),
                domain: String::new(),
                node: name.into(),
                position,
                source: None,
            });
            let val = lower.lookup(name, &at)?;
            let call = super::lower::Call {
                at,
                attributes: Default::default(),
                inputs: vec![],
                outputs: vec![],
                opset: self.opset,
                name: name.into(),
                scope: None,
            };
            let id = lower.materialise(&call, &val)?;
            lower.graph.outputs.push(id);
            lower.graph.output_names.push(name.to_owned());
        }
        Ok(())
    }
}

fn finish(lower: Lower<'_>, signature: &Signature) -> Result<Imported, OnnxError> {
    let Lower { mut graph, mut tensors, scopes, mut notes, .. } = lower;
    sweep(&mut graph);
    rewrite(&mut graph, &mut tensors);
    Names { scopes: &scopes, signature, notes: &mut notes }.restore(&mut graph, &mut tensors);
    count_batches(&mut graph, &mut tensors);
    let weights = compact(&mut graph, &mut tensors);
    let folded = signature
        .buffers
        .keys()
        .filter(|b| b.ends_with(".running_mean") && !weights.contains_key(*b))
        .count();
    if folded > 0 {
        let how = "export with optimize=False (or dynamo=False, in training mode) to train them";
        notes.insert(format!("the exporter has folded {folded} batch norms into convolutions; {how}"));
    }
    Ok(Imported { graph, weights, notes: notes.into_iter().collect() })
}

/// PyTorch's batch norms also count their batches; exporters drop the counter.
fn count_batches(graph: &mut Graph, tensors: &mut BTreeMap<ValueId, Tensor>) {
    let mut wanted = BTreeSet::new();
    for node in &graph.nodes {
        if matches!(node.op, crate::Op::BatchNorm { .. })
            && let Some(module) = graph.value(node.inputs[3]).name.strip_suffix("running_mean")
        {
            wanted.insert(format!("{module}num_batches_tracked"));
        }
    }
    let there: BTreeSet<String> = graph.buffers().map(|(_, v)| v.name.clone()).collect();
    for name in wanted {
        if !there.contains(&name)
            && let Ok(zero) = Tensor::new(DType::I64, vec![], vec![0; 8].into())
        {
            let kind = ValueKind::Buffer(Init::Given);
            let id = graph.add_value(Value { name, dtype: DType::I64, shape: Shape::default(), kind });
            tensors.insert(id, zero);
        }
    }
}

/// Drops values that are not read, except buffers, and renumbers the others.
fn compact(graph: &mut Graph, tensors: &mut BTreeMap<ValueId, Tensor>) -> Weights {
    let mut live = vec![false; graph.values.len()];
    for v in graph
        .nodes
        .iter()
        .flat_map(|n| n.inputs.iter().chain(&n.outputs))
        .chain(&graph.inputs)
        .chain(&graph.outputs)
    {
        live[v.index()] = true;
    }
    let mut aliases = std::mem::take(&mut graph.aliases);
    let keeps = |v: ValueId| {
        let kind = &graph.value(v).kind;
        matches!(kind, ValueKind::Buffer(_)) || (live[v.index()] && matches!(kind, ValueKind::Parameter(_)))
    };
    aliases.retain(|(_, v)| keeps(*v));
    let mut numbers = vec![ValueId(0); graph.values.len()];
    let mut weights = Weights::new();
    let mut values = Vec::new();
    for (i, value) in std::mem::take(&mut graph.values).into_iter().enumerate() {
        let buffer = matches!(value.kind, ValueKind::Buffer(_));
        if !live[i] && !buffer {
            continue;
        }
        if matches!(value.kind, ValueKind::Buffer(_) | ValueKind::Parameter(_))
            && let Some(tensor) = tensors.remove(&ValueId(i as u32))
        {
            weights.insert(value.name.clone(), tensor);
        }
        numbers[i] = ValueId(values.len() as u32);
        values.push(value);
    }
    graph.values = values;
    let renumber = |v: &mut ValueId| *v = numbers[v.index()];
    for node in &mut graph.nodes {
        node.inputs.iter_mut().for_each(renumber);
        node.outputs.iter_mut().for_each(renumber);
    }
    graph.inputs.iter_mut().for_each(renumber);
    graph.outputs.iter_mut().for_each(renumber);
    aliases.iter_mut().for_each(|(_, v)| renumber(v));
    graph.aliases = aliases;
    weights
}
