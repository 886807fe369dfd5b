//! Removes detours of exporters.

use super::{Change, From, Step, View};
use crate::init::put;
use crate::onnx::eval::eval;
use crate::onnx::lit::{Data, Lit};
use crate::onnx::scope::is_made_up;
use crate::{Graph, Node, Op, ValueId, ValueKind};
use phalanx_types::{DType, Tensor};
use std::collections::BTreeMap;

/// A transposition of a transposition, a reshape of a reshape.
pub(super) fn nested(view: &View<'_>, node: &Node) -> Option<Change> {
    let inner = view.maker(*node.inputs.first()?)?;
    let x = *inner.inputs.first()?;
    match (&node.op, &inner.op) {
        (Op::Reshape { to }, Op::Reshape { .. }) => {
            if view.graph.shape(x) == to {
                return Some(Change::Alias(x));
            }
            let steps = vec![Step::new(node.op.clone(), vec![From::Value(x)])];
            Some(Change::Steps { named: None, steps })
        }
        (Op::Transpose { perm: outer }, Op::Transpose { perm: inner }) => {
            let perm: Vec<usize> = outer.iter().map(|i| inner[*i]).collect();
            if perm.iter().copied().eq(0..perm.len()) {
                return Some(Change::Alias(x));
            }
            Some(Change::Steps {
                named: None,
                steps: vec![Step::new(Op::Transpose { perm }, vec![From::Value(x)])],
            })
        }
        _ => None,
    }
}

/// Leading dimensions merged, the last two swapped, and the leading ones split again.
pub(super) fn sandwich(view: &View<'_>, node: &Node) -> Option<Change> {
    let Op::Reshape { to } = &node.op else { return None };
    let middle = view.maker(node.inputs[0])?;
    if middle.op != (Op::Transpose { perm: vec![0, 2, 1] }) {
        return None;
    }
    let first = view.maker(middle.inputs[0]).filter(|m| matches!(m.op, Op::Reshape { .. }))?;
    let x = first.inputs[0];
    let (from, rank) = (view.graph.shape(x).dims(), to.rank());
    let swapped = rank == from.len()
        && rank > 3
        && to.dims()[..rank - 2] == from[..rank - 2]
        && to[rank - 1] == from[rank - 2]
        && to[rank - 2] == from[rank - 1]
        && view.graph.shape(middle.inputs[0]).dims()[1..] == from[rank - 2..];
    if !swapped {
        return None;
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 1, rank - 2);
    Some(Change::Steps { named: None, steps: vec![Step::new(Op::Transpose { perm }, vec![From::Value(x)])] })
}

/// Two factors that cancel each other: a decomposed dropout scales up what ours has scaled already.
pub(super) fn neutral(view: &View<'_>, node: &Node) -> Option<Change> {
    let out = *node.outputs.first()?;
    let (inner, a) = view.scaled(out)?;
    let (x, b) = view.scaled(inner)?;
    let dropout = matches!(view.maker(x)?.op, Op::Dropout { .. });
    (dropout && (a * b - 1.0).abs() < 1e-3 && view.graph.shape(x) == view.graph.shape(out))
        .then_some(Change::Alias(x))
}

/// Converts weights that an exporter has rearranged to the layout in which they are used.
pub(super) fn settle(graph: &mut Graph, tensors: &mut BTreeMap<ValueId, Tensor>) {
    let mut found: Vec<(usize, Tensor)> = Vec::new();
    let view = View::new(graph);
    for (i, node) in graph.nodes.iter().enumerate() {
        if !matches!(node.op, Op::Reshape { .. } | Op::Transpose { .. }) {
            continue;
        }
        let source = node.inputs[0];
        let alone = view.readers(source) == 1 && is_made_up(&graph.value(source).name);
        if alone
            && view.is_parameter(source)
            && let Some(tensor) = tensors.get(&source).and_then(|t| arranged(&node.op, t))
        {
            found.push((i, tensor));
        }
    }
    for (i, tensor) in found.iter().rev() {
        let node = graph.nodes.remove(*i);
        let (source, out) = (node.inputs[0], node.outputs[0]);
        let (name, kind) = (graph.value(source).name.clone(), graph.value(source).kind.clone());
        // The old value holds nothing; it is not read any more.
        graph.values[source.index()].kind = ValueKind::Computed;
        tensors.remove(&source);
        let value = &mut graph.values[out.index()];
        (value.name, value.kind) = (name, kind);
        tensors.insert(out, tensor.clone());
    }
}

fn arranged(op: &Op, tensor: &Tensor) -> Option<Tensor> {
    if let Op::Reshape { to } = op {
        let shape = to.as_fixed()?.into_iter().map(|d| d as u64).collect();
        return Tensor::new(tensor.dtype(), shape, tensor.data().clone()).ok();
    }
    if let (Op::Transpose { perm }, &[rows, columns], DType::F32) = (op, tensor.shape(), tensor.dtype())
        && perm[..] == [1, 0]
    {
        let (rows, columns) = (rows as usize, columns as usize);
        let (cells, _) = tensor.data().as_chunks::<4>();
        let mut data = Vec::with_capacity(tensor.data().len());
        (0..columns).for_each(|c| (0..rows).for_each(|r| data.extend_from_slice(&cells[r * columns + c])));
        return Tensor::new(DType::F32, vec![columns as u64, rows as u64], data.into()).ok();
    }
    let made = eval(op, &[&Lit::from_tensor(tensor)?])?;
    let mut data = Vec::new();
    match &made.data {
        Data::Floats(x) => x.iter().for_each(|x| put(&mut data, made.dtype, *x)),
        Data::Ints(_) => return None,
    }
    Tensor::new(made.dtype, made.shape.iter().map(|d| *d as u64).collect(), data.into()).ok()
}
