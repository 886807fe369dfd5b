//! Decomposed normalisations.

use super::{Change, From, Step, View};
use crate::{Binary, Dim, Node, Op, Reduce, Shape, Unary, ValueId};

/// A mean over the last axes with kept dimensions: its argument, and the first of the axes.
fn mean(view: &View<'_>, v: ValueId) -> Option<(ValueId, usize)> {
    let node = view.maker(v)?;
    let Op::Reduce { kind: Reduce::Mean, axes, keep: true } = &node.op else { return None };
    let x = node.inputs[0];
    let first = *axes.first()?;
    axes.iter().copied().eq(first..view.rank(x)).then_some((x, first))
}

/// `(x - mean) / √(mean((x - mean)²) + ε)`.
pub(super) fn layer(view: &View<'_>, node: &Node) -> Option<Change> {
    let (centred, root) = match node.op {
        Op::Binary(Binary::Div) => (node.inputs[0], node.inputs[1]),
        Op::Binary(Binary::Mul) => {
            let [a, b] = node.inputs[..] else { return None };
            [(a, b), (b, a)].into_iter().find_map(|(c, r)| Some((c, view.unary(r, Unary::Reciprocal)?)))?
        }
        _ => return None,
    };
    let sum = match view.unary(root, Unary::Sqrt) {
        Some(sum) => sum,
        None => view.binary(root, Binary::Pow).filter(|(_, p)| view.number(*p) == Some(0.5))?.0,
    };
    let (variance, eps) = view.shifted(sum)?;
    let (square, axis) = mean(view, variance)?;
    let is_square = match view.binary(square, Binary::Pow) {
        Some((base, p)) => base == centred && view.number(p) == Some(2.0),
        None => view.binary(square, Binary::Mul) == Some((centred, centred)),
    };
    let (x, m) = view.binary(centred, Binary::Sub)?;
    if !is_square || mean(view, m) != Some((x, axis)) {
        return None;
    }
    let op = Op::LayerNorm { axis, eps: eps as f32 };
    Some(Change::Steps { named: None, steps: vec![Step::new(op, vec![From::Value(x)])] })
}

/// A weight, then a bias, after a normalisation without them.
pub(super) fn affine(view: &View<'_>, node: &Node) -> Option<Change> {
    let wanted = match node.op {
        Op::Binary(Binary::Mul) => 1,
        Op::Binary(Binary::Add) => 2,
        _ => return None,
    };
    let [a, b] = node.inputs[..] else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(y, w)| {
        let maker = view.maker(y).filter(|m| m.inputs.len() == wanted)?;
        if view.readers(y) > 1 {
            return None;
        }
        let Op::LayerNorm { axis, .. } = maker.op else { return None };
        let tail = &view.graph.shape(y).dims()[axis..];
        if view.graph.shape(w).dims() != tail || !view.is_parameter(w) {
            return None;
        }
        let inputs = maker.inputs.iter().chain([&w]).map(|v| From::Value(*v)).collect();
        Some(Change::Steps {
            named: Some(maker.name.clone()),
            steps: vec![Step::new(maker.op.clone(), inputs)],
        })
    })
}

/// An instance norm of reshaped groups is a group norm; weights per channel may follow.
pub(super) fn group(view: &View<'_>, node: &Node) -> Option<Change> {
    if let Op::Reshape { to } = &node.op {
        let inner = view.maker(node.inputs[0])?;
        let Op::GroupNorm { groups, eps } = inner.op else { return None };
        let before = view.maker(inner.inputs[0])?;
        let x = *before.inputs.first()?;
        let shape = view.graph.shape(x);
        let reshaped = matches!(before.op, Op::Reshape { .. }) && shape == to && shape.rank() >= 3;
        let whole = view.graph.shape(inner.inputs[0]).dims().get(1) == Some(&Dim::Fixed(groups));
        let batch = view.graph.shape(inner.inputs[0])[0] == shape[0];
        if !reshaped || !whole || !batch || inner.inputs.len() != 1 {
            return None;
        }
        let op = Op::GroupNorm { groups, eps };
        return Some(Change::Steps { named: None, steps: vec![Step::new(op, vec![From::Value(x)])] });
    }
    let wanted = match node.op {
        Op::Binary(Binary::Mul) => 1,
        Op::Binary(Binary::Add) => 2,
        _ => return None,
    };
    let [a, b] = node.inputs[..] else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(y, w)| {
        let maker =
            view.maker(y).filter(|m| m.inputs.len() == wanted && matches!(m.op, Op::GroupNorm { .. }))?;
        let channels = view.graph.shape(y)[1].fixed()?;
        if view.readers(y) > 1 {
            return None;
        }
        let (source, step) = per_channel(view, w, channels, view.rank(y))?;
        let mut inputs: Vec<From> = maker.inputs.iter().map(|v| From::Value(*v)).collect();
        let mut steps = Vec::new();
        if step {
            steps.push(Step::new(Op::Reshape { to: Shape::fixed(&[channels]) }, vec![From::Value(source)]));
            inputs.push(From::Step(0));
        } else {
            inputs.push(From::Value(source));
        }
        steps.push(Step::new(maker.op.clone(), inputs));
        Some(Change::Steps { named: Some(maker.name.clone()), steps })
    })
}

/// The parameter of a value with one element per channel, and whether it must be reshaped first.
fn per_channel(view: &View<'_>, w: ValueId, channels: usize, rank: usize) -> Option<(ValueId, bool)> {
    let dims = view.graph.shape(w).as_fixed()?;
    let mut wanted = vec![1; rank];
    wanted[1] = channels;
    let lead = rank.checked_sub(dims.len())?;
    if dims[..] != wanted[lead..] || dims.is_empty() || lead > 1 {
        return None;
    }
    if view.is_parameter(w) {
        return Some((w, true));
    }
    let maker = view.maker(w).filter(|m| matches!(m.op, Op::Reshape { .. }))?;
    let source = *maker.inputs.first()?;
    (view.is_parameter(source) && *view.graph.shape(source) == Shape::fixed(&[channels]))
        .then_some((source, false))
}
