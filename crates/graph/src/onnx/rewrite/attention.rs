//! Decomposed attention: scores, mask, softmax, weighted sum.

use super::{Change, From, Step, View};
use crate::onnx::lit::{Data, Lit};
use crate::{Binary, Node, Op, ValueId};

/// Mask values below this count as minus infinity.
const NEVER: f64 = -1e4;

/// `softmax(q kᵀ × scale + mask) v`.
pub(super) fn attention(view: &View<'_>, node: &Node) -> Option<Change> {
    let [weights, v] = node.inputs[..] else { return None };
    if node.op != Op::MatMul {
        return None;
    }
    let soft = view.maker(weights)?;
    if soft.op != (Op::Softmax { axis: view.rank(weights).checked_sub(1)? }) || view.readers(weights) > 1 {
        return None;
    }
    let (scores, mut causal) = filled(view, soft.inputs[0]);
    let (scores, mask) = masked(view, scores);
    let (scores, mut scale) = unscaled(view, scores);
    let product = view.maker(scores).filter(|m| m.op == Op::MatMul)?;
    let (q, a) = unscaled(view, product.inputs[0]);
    let (kt, b) = unscaled(view, product.inputs[1]);
    scale *= a * b;
    let rank = view.rank(q);
    if rank < 3 || view.rank(kt) != rank || view.rank(v) != rank {
        return None;
    }
    let mut swap: Vec<usize> = (0..rank).collect();
    swap.swap(rank - 1, rank - 2);
    // An existing transposition is merged with ours.
    let (k, perm) = match view.maker(kt).map(|m| (&m.op, m.inputs[0])) {
        Some((Op::Transpose { perm }, source)) => (source, swap.iter().map(|i| perm[*i]).collect()),
        _ => (kt, swap),
    };
    let (mut steps, mut inputs) = (Vec::new(), vec![From::Value(q)]);
    if perm.iter().copied().eq(0..rank) {
        inputs.push(From::Value(k));
    } else {
        steps.push(Step::new(Op::Transpose { perm }, vec![From::Value(k)]));
        inputs.push(From::Step(0));
    }
    inputs.push(From::Value(v));
    if let Some(mask) = mask {
        let later = view.constant(mask).is_some_and(|m| is_causal(&m));
        causal |= later;
        if !later {
            inputs.push(From::Value(mask));
        }
    }
    steps.push(Step::new(Op::Attention { scale: scale as f32, causal }, inputs));
    Some(Change::Steps { named: None, steps })
}

/// Scores whose later positions are replaced by a huge negative number.
fn filled(view: &View<'_>, v: ValueId) -> (ValueId, bool) {
    let Some(node) = view.maker(v).filter(|m| m.op == Op::Where) else { return (v, false) };
    let [condition, a, b] = node.inputs[..] else { return (v, false) };
    let never = |x: ValueId| view.number(x).is_some_and(|x| x <= NEVER);
    let (scores, forbidden) = match (never(a), never(b)) {
        (true, false) => (b, 1.0),
        (false, true) => (a, 0.0),
        _ => return (v, false),
    };
    let mask = view.constant(condition).and_then(|mut m| {
        let cells = m.floats()?.into_iter().map(|x| if x == forbidden { f64::NEG_INFINITY } else { 0.0 });
        m.data = Data::Floats(cells.collect());
        Some(m)
    });
    if mask.is_some_and(|m| is_causal(&m)) { (scores, true) } else { (v, false) }
}

/// Scores and the mask that is added to them.
fn masked(view: &View<'_>, v: ValueId) -> (ValueId, Option<ValueId>) {
    let product = |v: ValueId| {
        let (inner, _) = unscaled(view, v);
        view.maker(inner).is_some_and(|m| m.op == Op::MatMul)
    };
    match view.binary(v, Binary::Add) {
        Some((a, b)) if product(a) => (a, Some(b)),
        Some((a, b)) if product(b) => (b, Some(a)),
        _ => (v, None),
    }
}

fn unscaled(view: &View<'_>, mut v: ValueId) -> (ValueId, f64) {
    let mut scale = 1.0;
    while let Some((x, c)) = view.scaled(v) {
        (v, scale) = (x, scale * c);
    }
    (v, scale)
}

/// Whether a mask forbids exactly the later positions.
fn is_causal(mask: &Lit) -> bool {
    let [lead @ .., rows, columns] = &mask.shape[..] else { return false };
    let Some(all) = mask.floats().filter(|_| lead.iter().all(|d| *d == 1) && rows == columns && *rows > 1)
    else {
        return false;
    };
    let fits = |(i, x): (usize, &f64)| if i % columns > i / columns { *x <= NEVER } else { *x == 0.0 };
    all.iter().enumerate().all(fits)
}
