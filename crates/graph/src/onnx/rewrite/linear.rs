//! Linear layers: a product with a weight, and a bias.

use super::{Change, From, Step, View};
use crate::onnx::scope::is_made_up;
use crate::{Binary, Node, Op, Shape, ValueId};

/// `x × wᵀ`, or `x × w` if the exporter has transposed the weight.
pub(super) fn product(view: &View<'_>, node: &Node) -> Option<Change> {
    let [x, w] = node.inputs[..] else { return None };
    if node.op != Op::MatMul || view.is_parameter(x) {
        return None;
    }
    if let Some(maker) = view.maker(w)
        && maker.op == (Op::Transpose { perm: vec![1, 0] })
        && view.is_parameter(maker.inputs[0])
    {
        let steps = vec![Step::new(Op::Linear, vec![From::Value(x), From::Value(maker.inputs[0])])];
        return Some(Change::Steps { named: None, steps });
    }
    let folded = view.is_parameter(w) && view.rank(w) == 2 && is_made_up(&view.graph.value(w).name);
    if !folded || view.readers(w) > 1 {
        return None;
    }
    let steps = vec![
        Step::new(Op::Transpose { perm: vec![1, 0] }, vec![From::Value(w)]),
        Step::new(Op::Linear, vec![From::Value(x), From::Step(0)]),
    ];
    Some(Change::Steps { named: None, steps })
}

/// A linear layer without bias, and a parameter that is added to all its rows.
pub(super) fn bias(view: &View<'_>, node: &Node) -> Option<Change> {
    if node.op != Op::Binary(Binary::Add) {
        return None;
    }
    let joined = |y: ValueId, b: ValueId| {
        let maker = view.maker(y).filter(|m| m.op == Op::Linear && m.inputs.len() == 2)?;
        let out = view.graph.shape(maker.inputs[1])[0].fixed()?;
        let fits = view.is_parameter(b) && *view.graph.shape(b) == Shape::fixed(&[out]);
        if !fits || view.readers(y) > 1 {
            return None;
        }
        let inputs = vec![From::Value(maker.inputs[0]), From::Value(maker.inputs[1]), From::Value(b)];
        Some(Change::Steps { named: Some(maker.name.clone()), steps: vec![Step::new(Op::Linear, inputs)] })
    };
    joined(node.inputs[0], node.inputs[1]).or_else(|| joined(node.inputs[1], node.inputs[0]))
}
