//! Random graphs of operators that are merged, viewed and broadcast, against their definition.

mod naive;

use crate::random::{Dice, Net, broadcastable};
use naive::{Array, evaluate};
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Pass};
use phalanx_graph::{Binary, Compare, Graph, Op, Range, Reduce, Shape, Unary, ValueId, ValueKind, Weights};
use std::collections::BTreeMap;

const GRAPHS: u64 = 800;
/// How many elements of an input or parameter are moved.
const ELEMENTS: usize = 10;
const DEPTH: usize = 12;
const UNIT: (f32, f32) = (-1.0, 1.0);

const UNARIES: [Unary; 11] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Sin,
    Unary::Cos,
    Unary::Relu,
    Unary::LeakyRelu { slope: 0.1 },
    Unary::Sigmoid,
    Unary::Tanh,
    Unary::Silu,
    Unary::Softplus,
    Unary::Clip { min: -0.4, max: 0.6 },
];
const BINARIES: [Binary; 5] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max];

/// A graph of about [`DEPTH`] nodes; what was made is used again at random.
fn random_graph(seed: u64) -> (Graph, Vec<Vec<f32>>, Weights) {
    let mut net = Net::new(seed);
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 4);
    let mut made = vec![net.operand(&shape, UNIT)];
    for _ in 0..DEPTH {
        // Mostly the latest, so that chains are long.
        let pick = if net.dice.below(4) == 0 { net.dice.below(made.len()) } else { made.len() - 1 };
        let x = made[pick];
        let y = grow(&mut net, x, &made);
        let size: usize = net.shape(y).iter().product();
        // Numbers stay small, and so do tensors.
        let kept = if size > 200 { shrink(&mut net, y) } else { y };
        made.push(kept);
    }
    let last = made[made.len() - 1];
    let tamed = net.op(Op::Unary(Unary::Tanh), &[last]);
    net.b.output(tamed);
    for _ in 0..net.dice.below(3) {
        let also = made[net.dice.below(made.len())];
        net.b.output(also);
    }
    net.finish()
}

fn shrink(net: &mut Net, x: ValueId) -> ValueId {
    let axes = vec![net.dice.below(net.b.shape(x).rank())];
    let keep = net.dice.flag();
    net.op(Op::Reduce { kind: Reduce::Mean, axes, keep }, &[x])
}

fn grow(net: &mut Net, x: ValueId, made: &[ValueId]) -> ValueId {
    let shape = net.shape(x);
    let rank = shape.len();
    match net.dice.below(16) {
        0..3 => {
            let op = net.dice.one_of(&UNARIES);
            net.op(Op::Unary(op), &[x])
        }
        3..6 => {
            let other = broadcastable(&mut net.dice, &shape);
            let other = if net.dice.below(4) == 0 { vec![] } else { other };
            let other = net.operand(&other, UNIT);
            let op = net.dice.one_of(&BINARIES);
            let mut pair = [x, other];
            if net.dice.flag() {
                pair.reverse();
            }
            net.op(Op::Binary(op), &pair)
        }
        6 => {
            // A larger operand: x is the one that is repeated.
            let lead = net.dice.between(1, 3);
            let larger = if rank < 4 { [&[lead], &shape[..]].concat() } else { shape };
            let other = net.operand(&larger, (0.5, 2.0));
            let op = net.dice.one_of(&[Binary::Div, Binary::Mul, Binary::Add]);
            net.op(Op::Binary(op), &[x, other])
        }
        7 | 8 => with_another(net, x, made),
        9 => select(net, x, &shape),
        10 => {
            let perm = net.dice.permutation(rank);
            net.op(Op::Transpose { perm }, &[x])
        }
        11 => slice(net, x, &shape),
        12 => reshape(net, x, &shape),
        13 => reduce(net, x, rank),
        14 => product(net, x, &shape),
        _ => join(net, x, &shape),
    }
}

/// Combined with an earlier value that fits.
fn with_another(net: &mut Net, x: ValueId, made: &[ValueId]) -> ValueId {
    let op = net.dice.one_of(&BINARIES);
    let start = net.dice.below(made.len());
    let fits = |y: &ValueId| net.b.shape(x).broadcast(&net.b.shape(*y)).is_some();
    let other = made.iter().cycle().skip(start).take(made.len()).copied().find(fits).unwrap_or(x);
    net.op(Op::Binary(op), &[x, other])
}

fn select(net: &mut Net, x: ValueId, shape: &[usize]) -> ValueId {
    let (a, b) = (broadcastable(&mut net.dice, shape), broadcastable(&mut net.dice, shape));
    let (threshold, other) = (net.operand(&a, UNIT), net.operand(&b, UNIT));
    let compare = net.dice.one_of(&[Compare::Less, Compare::GreaterOrEqual]);
    let condition = net.op(Op::Compare(compare), &[x, threshold]);
    net.op(Op::Where, &[condition, x, other])
}

fn slice(net: &mut Net, x: ValueId, shape: &[usize]) -> ValueId {
    let ranges = shape.iter().map(|n| {
        let start = net.dice.below(*n);
        match net.dice.below(5) {
            0 => Range { start: n - 1, len: Some(*n), step: -1 },
            1 | 2 => Range { start, len: Some(n - start), step: 1 },
            3 => Range { start: 0, len: Some(n.div_ceil(2)), step: 2 },
            _ => Range::ALL,
        }
    });
    let op = Op::Slice { ranges: ranges.collect() };
    net.op(op, &[x])
}

fn reshape(net: &mut Net, x: ValueId, shape: &[usize]) -> ValueId {
    let mut to = shape.to_vec();
    match net.dice.below(4) {
        // Two axes in one, an axis in two, an axis of one more, all in one.
        0 if to.len() > 1 => {
            let at = net.dice.below(to.len() - 1);
            let n = to.remove(at);
            to[at] *= n;
        }
        1 if to.len() < 4 && to.contains(&4) => {
            let at = to.iter().position(|n| *n == 4).unwrap();
            to.splice(at..=at, [2, 2]);
        }
        2 if to.len() < 4 => to.insert(net.dice.below(to.len() + 1), 1),
        _ => to = vec![to.iter().product()],
    }
    net.op(Op::Reshape { to: Shape::fixed(&to) }, &[x])
}

fn reduce(net: &mut Net, x: ValueId, rank: usize) -> ValueId {
    let kind = net.dice.one_of(&[Reduce::Mean, Reduce::Sum, Reduce::Max, Reduce::Min]);
    let axes: Vec<usize> = (0..rank).filter(|_| net.dice.flag()).collect();
    if rank > 0 && net.dice.below(4) == 0 {
        return net.op(Op::Softmax { axis: rank - 1 }, &[x]);
    }
    let keep = net.dice.flag();
    net.op(Op::Reduce { kind, axes, keep }, &[x])
}

fn product(net: &mut Net, x: ValueId, shape: &[usize]) -> ValueId {
    let Some(k) = shape.last().copied() else { return x };
    let n = net.dice.between(1, 4);
    if shape.len() < 2 || net.dice.flag() {
        let w = net.operand(&[n, k], (-0.7, 0.7));
        let mut inputs = vec![x, w];
        if net.dice.flag() {
            inputs.push(net.operand(&[n], UNIT));
        }
        return net.op(Op::Linear, &inputs);
    }
    let (lead, m) = (&shape[..shape.len() - 2], shape[shape.len() - 2]);
    let lead = broadcastable(&mut net.dice, lead);
    if net.dice.flag() {
        let w = net.operand(&[&lead[..], &[k, n]].concat(), (-0.7, 0.7));
        return net.op(Op::MatMul, &[x, w]);
    }
    let w = net.operand(&[&lead[..], &[n, m]].concat(), (-0.7, 0.7));
    net.op(Op::MatMul, &[w, x])
}

fn join(net: &mut Net, x: ValueId, shape: &[usize]) -> ValueId {
    if shape.is_empty() {
        return net.op(Op::Expand { to: Shape::fixed(&[3]) }, &[x]);
    }
    let axis = net.dice.below(shape.len());
    let mut other = shape.to_vec();
    other[axis] = net.dice.between(1, 2);
    let other = net.operand(&other, UNIT);
    net.op(Op::Concat { axis }, &[other, x])
}

/// What the engine makes of a graph: outputs, then gradients by value, given the gradients of the outputs.
struct Run {
    outputs: Vec<Vec<f32>>,
    gradients: BTreeMap<ValueId, Vec<f32>>,
}

fn run(
    engine: &CpuEngine,
    recompute: bool,
    (graph, inputs, weights): &(Graph, Vec<Vec<f32>>, Weights),
    given: &[Vec<f32>],
) -> Run {
    let options = CompileOptions { input_gradients: true, recompute, ..CompileOptions::default() };
    let mut model = engine.compile(graph, &options).unwrap();
    model.load(weights).unwrap();
    let slices: Vec<&[f32]> = inputs.iter().map(|x| &x[..]).collect();
    model.forward(0, 1, &slices, Pass { training: true, seed: 1 }).unwrap();
    let outputs = (0..graph.outputs.len()).map(|i| model.output(0, i).to_vec()).collect();
    let given: Vec<&[f32]> = given.iter().map(|g| &g[..]).collect();
    model.backward(0, &given, &mut |_, _| ()).unwrap();
    let mut gradients = BTreeMap::new();
    for (i, id) in graph.inputs.iter().enumerate() {
        let none = vec![0.0; inputs[i].len()];
        gradients.insert(*id, model.input_gradient(0, i).map_or(none, <[f32]>::to_vec));
    }
    let mut flat = Vec::new();
    model.update(&mut |_, _, gradient| flat.push(gradient.to_vec()));
    for (id, value) in graph.parameters() {
        let p = model.parameters().iter().position(|p| p.name == value.name).unwrap();
        gradients.insert(id, model.to_user(p, &flat[p]));
    }
    Run { outputs, gradients }
}

/// Inputs and parameters in 64 bits.
fn leaves((graph, inputs, weights): &(Graph, Vec<Vec<f32>>, Weights)) -> BTreeMap<ValueId, Array> {
    let wide = |data: &[f32]| data.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let array = |id: ValueId, data: &[f32]| (id, Array { shape: graph.shape(id).at(1), data: wide(data) });
    let given = graph.inputs.iter().zip(inputs).map(|(id, data)| array(*id, data));
    let learned = graph.parameters().map(|(id, value)| array(id, &weights[&value.name].to_floats()));
    given.chain(learned).collect()
}

fn far(got: &[f32], wanted: &[f64]) -> bool {
    let size = wanted.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    got.len() != wanted.len()
        || got.iter().zip(wanted).any(|(a, b)| (f64::from(*a) - b).abs() > 2e-3 * size || !a.is_finite())
}

/// Slopes of the weighted sum of outputs: by value, some elements and their slopes.
fn slopes(
    graph: &Graph,
    leaves: &BTreeMap<ValueId, Array>,
    given: &[Vec<f32>],
    dice: &mut Dice,
) -> BTreeMap<ValueId, (Vec<usize>, Vec<f64>)> {
    const STEP: f64 = 1e-6;
    let sum = |leaves: &BTreeMap<ValueId, Array>| {
        let outputs = evaluate(graph, leaves);
        let pairs = outputs.iter().zip(given).flat_map(|(y, g)| y.data.iter().zip(g));
        pairs.map(|(y, g)| y * f64::from(*g)).sum::<f64>()
    };
    let mut moved = leaves.clone();
    let mut all = BTreeMap::new();
    for (id, leaf) in leaves {
        let mut slope = Vec::new();
        let mut some = dice.permutation(leaf.data.len());
        some.truncate(ELEMENTS);
        for i in some.iter().copied() {
            let here = leaf.data[i];
            let mut at = |x: f64| {
                moved.get_mut(id).unwrap().data[i] = x;
                sum(&moved)
            };
            let (above, below) = (at(here + STEP), at(here - STEP));
            at(here);
            slope.push((above - below) / (2.0 * STEP));
        }
        all.insert(*id, (some, slope));
    }
    all
}

fn check(engines: &[CpuEngine; 2], seed: u64) -> Result<(), String> {
    let case = random_graph(seed);
    let (graph, leaves) = (&case.0, leaves(&case));
    let wanted = evaluate(graph, &leaves);
    let mut dice = Dice(seed);
    let given: Vec<Vec<f32>> = wanted.iter().map(|y| dice.floats(y.data.len(), UNIT)).collect();
    let got = run(&engines[0], false, &case, &given);
    for (i, (got, wanted)) in got.outputs.iter().zip(&wanted).enumerate() {
        if far(got, &wanted.data) {
            return Err(format!("output {i} is {got:?} instead of {:?}", wanted.data));
        }
    }
    for (id, (some, wanted)) in slopes(graph, &leaves, &given, &mut dice) {
        let got: Vec<f32> = some.iter().map(|i| got.gradients[&id][*i]).collect();
        if far(&got, &wanted) {
            let name = &graph.value(id).name;
            return Err(format!("the gradient of {name} is {got:?} instead of {wanted:?}"));
        }
    }
    for (engine, recompute) in [(&engines[0], true), (&engines[1], false)] {
        let other = run(engine, recompute, &case, &given);
        if other.outputs != got.outputs || other.gradients != got.gradients {
            return Err(format!("{engine:?} with recompute {recompute} has other results"));
        }
    }
    Ok(())
}

fn story(graph: &Graph) -> String {
    let value = |v: &ValueId| {
        let value = graph.value(*v);
        let letter = match value.kind {
            ValueKind::Input => "input ",
            ValueKind::Parameter(_) => "parameter ",
            _ => "",
        };
        format!("{letter}{} {}", value.name, value.shape)
    };
    let list = |of: &[ValueId]| of.iter().map(value).collect::<Vec<_>>().join(", ");
    let node =
        |n: &phalanx_graph::Node| format!("    {} = {:?} of {}", list(&n.outputs), n.op, list(&n.inputs));
    let nodes = graph.nodes.iter().map(node).collect::<Vec<_>>().join("\n");
    format!("{nodes}\n    outputs {}", list(&graph.outputs))
}

#[test]
fn random_graphs_agree_with_their_definition() {
    let engines = [CpuEngine::new(1), CpuEngine::new(2)];
    let mut wrong = Vec::new();
    for seed in 0..GRAPHS {
        let run = std::panic::AssertUnwindSafe(|| check(&engines, seed));
        let result = std::panic::catch_unwind(run).unwrap_or_else(|_| Err("panicked".into()));
        if let Err(why) = result {
            wrong.push(format!("{seed}: {why}\n{}", story(&random_graph(seed).0)));
        }
    }
    let some = wrong.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} graphs are wrong, some of them:\n{some}", wrong.len());
}
