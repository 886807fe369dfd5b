//! The graph as its definition says, in 64 bits, one element at a time.

use phalanx_graph::{Binary, Compare, Graph, Op, Range, Reduce, Unary, ValueId, ValueKind};
use std::collections::BTreeMap;

/// A dense row-major tensor.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

impl Array {
    /// Made element by element from their positions.
    fn build(shape: &[usize], mut element: impl FnMut(&[usize]) -> f64) -> Self {
        let count: usize = shape.iter().product();
        let mut at = vec![0; shape.len()];
        let mut data = Vec::with_capacity(count);
        for _ in 0..count {
            data.push(element(&at));
            for d in (0..at.len()).rev() {
                at[d] += 1;
                if at[d] < shape[d] {
                    break;
                }
                at[d] = 0;
            }
        }
        Self { shape: shape.to_vec(), data }
    }

    fn get(&self, at: &[usize]) -> f64 {
        self.data[at.iter().zip(&self.shape).fold(0, |i, (a, n)| i * n + a)]
    }

    /// The element of a broadcast to a shape of at least this rank.
    fn broadcast(&self, at: &[usize]) -> f64 {
        let at = &at[at.len() - self.shape.len()..];
        let own: Vec<usize> = at.iter().zip(&self.shape).map(|(a, n)| if *n == 1 { 0 } else { *a }).collect();
        self.get(&own)
    }
}

/// The outputs for these inputs and parameters, by value.
pub(crate) fn evaluate(graph: &Graph, given: &BTreeMap<ValueId, Array>) -> Vec<Array> {
    let mut values = given.clone();
    for (i, value) in graph.values.iter().enumerate() {
        if let ValueKind::Constant(tensor) = &value.kind {
            let data = tensor.to_floats().into_iter().map(f64::from).collect();
            values.insert(ValueId(i as u32), Array { shape: value.shape.at(1), data });
        }
    }
    for node in &graph.nodes {
        let ins: Vec<&Array> = node.inputs.iter().map(|v| &values[v]).collect();
        let made = compute(&node.op, &ins, &graph.shape(node.outputs[0]).at(1));
        values.insert(node.outputs[0], made);
    }
    graph.outputs.iter().map(|v| values[v].clone()).collect()
}

fn compute(op: &Op, ins: &[&Array], shape: &[usize]) -> Array {
    let x = ins[0];
    match op {
        Op::Unary(u) => Array::build(shape, |at| unary(*u, x.get(at))),
        Op::Binary(b) => Array::build(shape, |at| binary(*b, x.broadcast(at), ins[1].broadcast(at))),
        Op::Compare(c) => {
            Array::build(shape, |at| f64::from(u8::from(compare(*c, x.broadcast(at), ins[1].broadcast(at)))))
        }
        Op::Where => Array::build(shape, |at| {
            let chosen = if x.broadcast(at) != 0.0 { ins[1] } else { ins[2] };
            chosen.broadcast(at)
        }),
        Op::Expand { .. } => Array::build(shape, |at| x.broadcast(at)),
        Op::Reshape { .. } => Array { shape: shape.to_vec(), data: x.data.clone() },
        Op::Transpose { perm } => Array::build(shape, |at| {
            let mut from = vec![0; at.len()];
            perm.iter().zip(at).for_each(|(p, a)| from[*p] = *a);
            x.get(&from)
        }),
        Op::Slice { ranges } => Array::build(shape, |at| {
            let from = |(a, r): (&usize, &Range)| (r.start as i64 + *a as i64 * r.step) as usize;
            x.get(&at.iter().zip(ranges).map(from).collect::<Vec<_>>())
        }),
        Op::Concat { axis } => Array::build(shape, |at| {
            let mut at = at.to_vec();
            let part = ins.iter().find(|part| {
                let here = at[*axis] < part.shape[*axis];
                at[*axis] -= if here { 0 } else { part.shape[*axis] };
                here
            });
            part.map_or(f64::NAN, |part| part.get(&at))
        }),
        Op::Reduce { kind, axes, keep } => reduce(*kind, axes, *keep, x, shape),
        Op::MatMul => matmul(x, ins[1], shape),
        Op::Linear => Array::build(shape, |at| {
            let (last, lead) = at.split_last().unwrap_or((&0, &[]));
            let bias = ins.get(2).map_or(0.0, |b| b.data[*last]);
            let depth = 0..ins[1].shape[1];
            bias + depth.map(|k| x.get(&[lead, &[k]].concat()) * ins[1].get(&[*last, k])).sum::<f64>()
        }),
        Op::Softmax { axis } => Array::build(shape, |at| {
            let exp = |k: usize| {
                let mut at = at.to_vec();
                at[*axis] = k;
                x.get(&at).exp()
            };
            exp(at[*axis]) / (0..shape[*axis]).map(exp).sum::<f64>()
        }),
        other => panic!("{} is not in random graphs", other.word()),
    }
}

fn unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Relu => x.max(0.0),
        Unary::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                x * f64::from(slope)
            }
        }
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Softplus => x.exp().ln_1p(),
        Unary::Clip { min, max } => x.clamp(f64::from(min), f64::from(max)),
        other => panic!("{} is not in random graphs", other.word()),
    }
}

fn binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        other => panic!("{} is not in random graphs", other.word()),
    }
}

fn compare(op: Compare, a: f64, b: f64) -> bool {
    match op {
        Compare::Equal => a == b,
        Compare::Less => a < b,
        Compare::LessOrEqual => a <= b,
        Compare::Greater => a > b,
        Compare::GreaterOrEqual => a >= b,
    }
}

fn reduce(kind: Reduce, axes: &[usize], keep: bool, x: &Array, shape: &[usize]) -> Array {
    let folded: Vec<usize> = axes.iter().map(|a| x.shape[*a]).collect();
    let count: usize = folded.iter().product();
    Array::build(shape, |at| {
        let mut left = at.iter();
        let mut whole: Vec<usize> = (0..x.shape.len())
            .map(|d| match axes.contains(&d) {
                true if keep => left.next().map_or(0, |_| 0),
                true => 0,
                false => left.next().copied().unwrap_or(0),
            })
            .collect();
        let elements = Array::build(&folded, |inner| {
            axes.iter().zip(inner).for_each(|(a, i)| whole[*a] = *i);
            x.get(&whole)
        });
        let elements = elements.data.into_iter();
        match kind {
            Reduce::Sum => elements.sum(),
            Reduce::Mean => elements.sum::<f64>() / count as f64,
            Reduce::Max => elements.fold(f64::NEG_INFINITY, f64::max),
            Reduce::Min => elements.fold(f64::INFINITY, f64::min),
        }
    })
}

fn matmul(a: &Array, b: &Array, shape: &[usize]) -> Array {
    let depth = a.shape[a.shape.len() - 1];
    Array::build(shape, |at| {
        let (lead, cell) = at.split_at(at.len() - 2);
        let product = |k: usize| {
            a.broadcast(&[lead, &[cell[0], k]].concat()) * b.broadcast(&[lead, &[k, cell[1]]].concat())
        };
        (0..depth).map(product).sum()
    })
}
