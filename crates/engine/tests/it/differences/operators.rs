//! How a random case of each operator is made.

use crate::random::{Net, broadcastable};
use phalanx_graph::{
    Binary, Compare, Conv, ConvTranspose, Coordinates, Op, PadMode, Pool, Range, Recurrent, Reduce, Resize,
    ResizeMode, Shape, Unary, ValueId,
};
use phalanx_types::DType;

/// Makes a graph with its outputs; says which inputs are integers.
type Make = fn(&mut Net) -> Vec<usize>;

const UNIT: (f32, f32) = (-1.0, 1.0);

pub(crate) const OPERATORS: &[(&str, Make, u64)] = &[
    ("convolution", convolution, 480),
    ("large convolution", large_convolution, 8),
    ("transposed convolution", conv_transpose, 320),
    ("linear", linear, 240),
    ("product", matmul, 480),
    ("unary", unary, 640),
    ("binary", binary, 640),
    ("where", select, 240),
    ("softmax", softmax, 320),
    ("pool", pool, 480),
    ("reduce", reduce, 480),
    ("batch norm", batch_norm, 240),
    ("layer norm", layer_norm, 240),
    ("group norm", group_norm, 240),
    ("gather", gather, 240),
    ("reshapes", reshapes, 320),
    ("concat", concat, 320),
    ("slice", slice, 320),
    ("pad", pad, 320),
    ("expand", expand, 160),
    ("resize", resize, 320),
    ("LSTM", lstm, 240),
    ("GRU", gru, 240),
    ("attention", attention, 480),
    ("self-attention", self_attention, 80),
    ("dropout", dropout, 160),
];

/// Ends a case with an operator that may be merged into the tested one or need another element order.
fn end(net: &mut Net, y: ValueId) {
    let shape = net.shape(y);
    let z = match net.dice.below(5) {
        0 => y,
        1 => {
            let c = net.constant(&[1], (0.3, 0.3));
            let scaled = net.op(Op::Binary(Binary::Mul), &[y, c]);
            net.op(Op::Unary(Unary::Sin), &[scaled])
        }
        2 => {
            let other = broadcastable(&mut net.dice, &shape);
            let other = net.operand(&other, UNIT);
            net.op(Op::Binary(Binary::Mul), &[y, other])
        }
        3 => {
            let other = net.operand(&shape, UNIT);
            let sum = net.op(Op::Binary(Binary::Add), &[y, other]);
            net.op(Op::Unary(Unary::Softplus), &[sum])
        }
        _ => {
            let perm = net.dice.permutation(shape.len());
            net.op(Op::Transpose { perm }, &[y])
        }
    };
    net.b.output(z);
}

/// Stride, dilation, padding of a window, and an input size it fits.
struct Window {
    kernel: usize,
    stride: usize,
    dilation: usize,
    pad: (usize, usize),
    size: usize,
}

fn window(net: &mut Net, kernels: &[usize]) -> Window {
    let d = &mut net.dice;
    let (kernel, stride, dilation) = (d.one_of(kernels), d.one_of(&[1, 1, 2, 3]), d.one_of(&[1, 1, 2]));
    let pad = (d.below(kernel), d.below(kernel));
    let least = ((kernel - 1) * dilation + 1).saturating_sub(pad.0 + pad.1).max(1);
    Window { kernel, stride, dilation, pad, size: least + d.below(5) }
}

fn conv_of(windows: &[Window], groups: usize) -> Conv {
    Conv {
        stride: windows.iter().map(|w| w.stride).collect(),
        dilation: windows.iter().map(|w| w.dilation).collect(),
        pad: windows.iter().map(|w| w.pad).collect(),
        groups,
    }
}

fn convolution(net: &mut Net) -> Vec<usize> {
    let spatial = net.dice.between(1, 2);
    let windows: Vec<Window> = (0..spatial).map(|_| window(net, &[1, 2, 3, 5])).collect();
    let d = &mut net.dice;
    let (groups, each, out) = match d.below(3) {
        0 => (1, d.between(1, 5), d.between(1, 6)),
        1 => (d.between(2, 3), d.between(1, 3), d.between(1, 3)),
        _ => (d.one_of(&[2, 5, 17]), 1, d.one_of(&[1, 1, 2])),
    };
    let n = d.between(1, 3);
    let x = [&[n, groups * each], &windows.iter().map(|w| w.size).collect::<Vec<_>>()[..]].concat();
    let w = [&[groups * out, each], &windows.iter().map(|w| w.kernel).collect::<Vec<_>>()[..]].concat();
    let x = net.operand(&x, UNIT);
    let w = if net.dice.flag() { net.parameter(&w, UNIT) } else { net.operand(&w, UNIT) };
    let mut inputs = vec![x, w];
    if net.dice.flag() {
        inputs.push(net.operand(&[groups * out], UNIT));
    }
    let y = net.op(Op::Conv(conv_of(&windows, groups)), &inputs);
    end(net, y);
    vec![]
}

/// Large enough for the algorithms of large convolutions.
fn large_convolution(net: &mut Net) -> Vec<usize> {
    let (c, o, size) = (net.dice.one_of(&[32, 48]), net.dice.one_of(&[32, 64]), net.dice.between(6, 9));
    let x = net.operand(&[2, c, size, size], UNIT);
    let w = net.parameter(&[o, c, 3, 3], (-0.2, 0.2));
    let b = net.parameter(&[o], UNIT);
    let conv = Conv { stride: vec![1, 1], dilation: vec![1, 1], pad: vec![(1, 1), (1, 1)], groups: 1 };
    let y = net.op(Op::Conv(conv), &[x, w, b]);
    end(net, y);
    vec![]
}

fn conv_transpose(net: &mut Net) -> Vec<usize> {
    let spatial = net.dice.between(1, 2);
    let mut windows: Vec<Window> = (0..spatial).map(|_| window(net, &[1, 2, 3, 4])).collect();
    let d = &mut net.dice;
    for w in &mut windows {
        w.size = d.between(2, 5);
        w.pad = (d.below(w.kernel.min(2)), d.below(w.kernel.min(2)));
    }
    let output_padding = windows.iter().map(|w| d.below(w.stride)).collect();
    let (groups, each, out) = (d.between(1, 3), d.between(1, 3), d.between(1, 3));
    let n = d.between(1, 2);
    let x = [&[n, groups * each], &windows.iter().map(|w| w.size).collect::<Vec<_>>()[..]].concat();
    let w = [&[groups * each, out], &windows.iter().map(|w| w.kernel).collect::<Vec<_>>()[..]].concat();
    let mut inputs = vec![net.operand(&x, UNIT), net.operand(&w, UNIT)];
    if net.dice.flag() {
        inputs.push(net.operand(&[groups * out], UNIT));
    }
    let conv = conv_of(&windows, groups);
    let y = net.op(Op::ConvTranspose(ConvTranspose { conv, output_padding }), &inputs);
    end(net, y);
    vec![]
}

fn linear(net: &mut Net) -> Vec<usize> {
    let (rank, k, o) = (net.dice.between(1, 3), net.dice.between(1, 7), net.dice.between(1, 7));
    let x = [net.dice.shape(rank, 4), vec![k]].concat();
    let mut inputs = vec![net.operand(&x, UNIT), net.operand(&[o, k], UNIT)];
    if net.dice.flag() {
        inputs.push(net.operand(&[o], UNIT));
    }
    let y = net.op(Op::Linear, &inputs);
    end(net, y);
    vec![]
}

fn matmul(net: &mut Net) -> Vec<usize> {
    let lead = net.dice.below(4);
    let lead = net.dice.shape(lead, 3);
    let (m, k, n) = (net.dice.between(1, 5), net.dice.between(1, 5), net.dice.between(1, 5));
    let (a, b) = (broadcastable(&mut net.dice, &lead), broadcastable(&mut net.dice, &lead));
    let a = net.operand(&[a, vec![m, k]].concat(), UNIT);
    let b = net.operand(&[b, vec![k, n]].concat(), UNIT);
    let y = net.op(Op::MatMul, &[a, b]);
    end(net, y);
    vec![]
}

/// Functions with the range in which they are tried.
const UNARIES: [(Unary, (f32, f32)); 19] = [
    (Unary::Neg, (-2.0, 2.0)),
    (Unary::Sqrt, (0.5, 3.0)),
    (Unary::Exp, (-2.0, 1.5)),
    (Unary::Log, (0.5, 3.0)),
    (Unary::Abs, (-2.0, 2.0)),
    (Unary::Reciprocal, (0.6, 2.0)),
    (Unary::Erf, (-2.0, 2.0)),
    (Unary::Sin, (-3.0, 3.0)),
    (Unary::Cos, (-3.0, 3.0)),
    (Unary::Relu, (-2.0, 2.0)),
    (Unary::LeakyRelu { slope: 0.2 }, (-2.0, 2.0)),
    (Unary::Elu { alpha: 0.7 }, (-2.0, 2.0)),
    (Unary::Sigmoid, (-4.0, 4.0)),
    (Unary::Tanh, (-2.5, 2.5)),
    (Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }, (-4.0, 4.0)),
    (Unary::HardSwish, (-4.0, 4.0)),
    (Unary::Silu, (-4.0, 4.0)),
    (Unary::Softplus, (-4.0, 4.0)),
    (Unary::Clip { min: -0.5, max: 0.9 }, (-2.0, 2.0)),
];

fn unary(net: &mut Net) -> Vec<usize> {
    let (op, range) = match net.dice.below(21) {
        k @ 0..19 => UNARIES[k],
        k => (Unary::Gelu { tanh: k == 19 }, (-3.0, 3.0)),
    };
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 5);
    let x = net.operand(&shape, range);
    let y = net.op(Op::Unary(op), &[x]);
    end(net, y);
    vec![]
}

fn binary(net: &mut Net) -> Vec<usize> {
    let (op, a_range, b_range) = net.dice.one_of(&[
        (Binary::Add, UNIT, UNIT),
        (Binary::Sub, UNIT, UNIT),
        (Binary::Mul, UNIT, UNIT),
        (Binary::Div, UNIT, (0.7, 2.0)),
        (Binary::Pow, (0.6, 2.0), (-1.5, 2.5)),
        (Binary::Min, UNIT, UNIT),
        (Binary::Max, UNIT, UNIT),
    ]);
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 4);
    let (a, b) = (broadcastable(&mut net.dice, &shape), broadcastable(&mut net.dice, &shape));
    let (a, b) = match net.dice.below(4) {
        0 => (net.operand(&shape, a_range), net.constant(&[1], b_range)),
        1 => (net.constant(&[], a_range), net.operand(&shape, b_range)),
        _ => (net.operand(&a, a_range), net.operand(&b, b_range)),
    };
    let y = net.op(Op::Binary(op), &[a, b]);
    end(net, y);
    vec![]
}

fn select(net: &mut Net) -> Vec<usize> {
    let shape = net.dice.shape(3, 4);
    let parts: Vec<ValueId> = (0..4)
        .map(|_| {
            let shape = broadcastable(&mut net.dice, &shape);
            net.operand(&shape, UNIT)
        })
        .collect();
    let compare = net.dice.one_of(&[
        Compare::Less,
        Compare::LessOrEqual,
        Compare::Greater,
        Compare::GreaterOrEqual,
        Compare::Equal,
    ]);
    let condition = net.op(Op::Compare(compare), &parts[..2]);
    let y = net.op(Op::Where, &[condition, parts[2], parts[3]]);
    end(net, y);
    vec![]
}

fn softmax(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 5);
    let axis = net.dice.below(rank);
    let x = net.operand(&shape, (-2.0, 2.0));
    let op = if net.dice.flag() { Op::Softmax { axis } } else { Op::LogSoftmax { axis } };
    let y = net.op(op, &[x]);
    end(net, y);
    vec![]
}

fn pool(net: &mut Net) -> Vec<usize> {
    let spatial = net.dice.between(1, 2);
    let windows: Vec<Window> = (0..spatial).map(|_| window(net, &[1, 2, 3])).collect();
    let average = net.dice.flag();
    let dilation = windows.iter().map(|w| if average { 1 } else { w.dilation }).collect();
    let pool = Pool {
        kernel: windows.iter().map(|w| w.kernel).collect(),
        stride: windows.iter().map(|w| w.stride).collect(),
        dilation,
        pad: windows
            .iter()
            .map(|w| if w.dilation > 1 { (0, 0) } else { (w.pad.0 / 2, w.pad.1 / 2) })
            .collect(),
        ceil: net.dice.flag(),
    };
    let sizes: Vec<usize> = windows.iter().map(|w| w.size + w.kernel + 1).collect();
    let (n, c) = (net.dice.between(1, 2), net.dice.one_of(&[1, 3, 17]));
    let x = net.operand(&[&[n, c], &sizes[..]].concat(), (-8.0, 8.0));
    let count_padding = net.dice.flag();
    let op = if average { Op::AveragePool { pool, count_padding } } else { Op::MaxPool(pool) };
    let y = net.op(op, &[x]);
    end(net, y);
    vec![]
}

fn reduce(net: &mut Net) -> Vec<usize> {
    let kind = net.dice.one_of(&[Reduce::Mean, Reduce::Sum, Reduce::Max, Reduce::Min]);
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 5);
    let mut axes: Vec<usize> = (0..rank).filter(|_| net.dice.flag()).collect();
    if axes.is_empty() {
        axes.push(net.dice.below(rank));
    }
    let keep = net.dice.flag();
    let x = net.operand(&shape, (-4.0, 4.0));
    let y = net.op(Op::Reduce { kind, axes, keep }, &[x]);
    end(net, y);
    vec![]
}

/// `[N, C, …]` with more than one value per channel.
fn channels(net: &mut Net) -> (Vec<usize>, usize) {
    let c = net.dice.one_of(&[1, 2, 4, 6]);
    let rest = net.dice.below(3);
    (std::iter::once(net.dice.between(3, 5)).chain([c]).chain(net.dice.shape(rest, 4)).collect(), c)
}

fn batch_norm(net: &mut Net) -> Vec<usize> {
    let (shape, c) = channels(net);
    let x = net.operand(&shape, (-2.0, 2.0));
    let (weight, bias) = (net.leaf(&[c], (0.5, 1.5)), net.leaf(&[c], UNIT));
    let (mean, var) = (net.constant(&[c], UNIT), net.constant(&[c], (0.5, 1.0)));
    let y = net.op(Op::BatchNorm { eps: 1e-3, momentum: 0.1 }, &[x, weight, bias, mean, var]);
    let y = match net.dice.below(3) {
        0 => net.op(Op::Unary(Unary::Clip { min: -0.5, max: 1.0 }), &[y]),
        1 => net.op(Op::Unary(Unary::Relu), &[y]),
        _ => y,
    };
    end(net, y);
    vec![]
}

fn layer_norm(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(2, 4);
    let mut shape = net.dice.shape(rank, 4);
    shape[rank - 1] += 3;
    let axis = net.dice.below(rank);
    let mut inputs = vec![net.operand(&shape, (-2.0, 2.0))];
    for range in [(0.5, 1.5), UNIT].into_iter().take(net.dice.below(3)) {
        inputs.push(net.operand(&shape[axis..], range));
    }
    let y = net.op(Op::LayerNorm { axis, eps: 1e-2 }, &inputs);
    end(net, y);
    vec![]
}

fn group_norm(net: &mut Net) -> Vec<usize> {
    let (groups, each, rest) = (net.dice.between(1, 3), net.dice.between(1, 3), net.dice.between(1, 2));
    let c = groups * each;
    let mut shape = vec![net.dice.between(1, 3), c];
    shape.extend(net.dice.shape(rest, 3).iter().map(|n| n + 2));
    let mut inputs = vec![net.operand(&shape, (-2.0, 2.0))];
    for range in [(0.5, 1.5), UNIT].into_iter().take(net.dice.below(3)) {
        inputs.push(net.operand(&[c], range));
    }
    let y = net.op(Op::GroupNorm { groups, eps: 1e-2 }, &inputs);
    end(net, y);
    vec![]
}

fn gather(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(1, 3);
    let shape = net.dice.shape(rank, 5);
    let axis = net.dice.below(rank);
    let data = net.operand(&shape, UNIT);
    let wanted = net.dice.between(1, 2);
    let wanted = net.dice.shape(wanted, 4);
    let count = wanted.iter().product();
    // Negative numbers count from the end.
    let most = shape[axis];
    let indices = (0..count).map(|_| net.dice.below(2 * most) as f32 - most as f32).collect();
    let name = net.name();
    let indices_id = net.b.input_of(&name, DType::I64, Shape::fixed(&wanted));
    net.inputs.push(indices);
    let integers = vec![net.inputs.len() - 1];
    let y = net.op(Op::Gather { axis }, &[data, indices_id]);
    end(net, y);
    integers
}

/// Reshapes and transposes in turn, with something in between that is computed.
fn reshapes(net: &mut Net) -> Vec<usize> {
    let mut x = net.operand(&[4, 3, 2, 2], UNIT);
    for _ in 0..4 {
        x = match net.dice.below(3) {
            0 => {
                let to: &[usize] = net.dice.one_of(&[
                    &[48][..],
                    &[4, 12],
                    &[12, 4],
                    &[2, 2, 12],
                    &[3, 1, 16],
                    &[4, 3, 2, 2],
                    &[2, 6, 2, 2],
                ]);
                net.op(Op::Reshape { to: Shape::fixed(to) }, &[x])
            }
            1 => {
                let perm = net.dice.permutation(net.b.shape(x).rank());
                net.op(Op::Transpose { perm }, &[x])
            }
            _ => {
                let shape = net.shape(x);
                let other = broadcastable(&mut net.dice, &shape);
                let other = net.operand(&other, UNIT);
                net.op(Op::Binary(Binary::Mul), &[x, other])
            }
        };
    }
    end(net, x);
    vec![]
}

fn concat(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 4);
    let axis = net.dice.below(rank);
    let mut parts: Vec<ValueId> = (0..net.dice.between(1, 4))
        .map(|_| {
            let mut shape = shape.clone();
            shape[axis] = net.dice.between(1, 3);
            net.operand(&shape, UNIT)
        })
        .collect();
    // One part may occur twice.
    if net.dice.flag() {
        parts.push(parts[0]);
    }
    let y = net.op(Op::Concat { axis }, &parts);
    end(net, y);
    vec![]
}

fn slice(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(1, 4);
    let shape: Vec<usize> = net.dice.shape(rank, 4).iter().map(|n| n + 2).collect();
    let x = net.operand(&shape, UNIT);
    let ranges = shape.iter().map(|n| {
        let step: i64 = net.dice.one_of(&[1, 1, 2, 3, -1, -2]);
        let start = net.dice.below(*n);
        let room = if step > 0 { n - 1 - start } else { start };
        let len = 1 + net.dice.below(room / step.unsigned_abs() as usize + 1);
        if net.dice.below(4) == 0 { Range::ALL } else { Range { start, len: Some(len), step } }
    });
    let op = Op::Slice { ranges: ranges.collect() };
    let y = net.op(op, &[x]);
    // The whole is used beside its part.
    if net.dice.flag() {
        net.b.output(x);
    }
    end(net, y);
    vec![]
}

fn pad(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(1, 4);
    let shape: Vec<usize> = net.dice.shape(rank, 3).iter().map(|n| n + 2).collect();
    let mode = net.dice.one_of(&[PadMode::Constant(0.7), PadMode::Reflect, PadMode::Edge]);
    let amounts = |net: &mut Net| (0..rank).map(|_| net.dice.below(4) as i64 - 1).collect::<Vec<i64>>();
    let (before, after) = (amounts(net), amounts(net));
    let x = net.operand(&shape, UNIT);
    let y = net.op(Op::Pad { before, after, mode }, &[x]);
    end(net, y);
    vec![]
}

fn expand(net: &mut Net) -> Vec<usize> {
    let shape = net.dice.shape(3, 4);
    let from = broadcastable(&mut net.dice, &shape);
    let x = net.operand(&from, UNIT);
    let y = net.op(Op::Expand { to: Shape::fixed(&shape) }, &[x]);
    end(net, y);
    vec![]
}

fn resize(net: &mut Net) -> Vec<usize> {
    let spatial = net.dice.between(1, 2);
    let from: Vec<usize> = (0..spatial).map(|_| net.dice.between(2, 5)).collect();
    let size: Vec<usize> = (0..spatial).map(|_| net.dice.between(2, 8)).collect();
    let scale = size.iter().zip(&from).map(|(a, b)| *a as f32 / *b as f32).collect();
    let mode = net.dice.one_of(&[ResizeMode::Nearest, ResizeMode::Linear]);
    let coordinates =
        net.dice.one_of(&[Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric]);
    let (n, c) = (net.dice.between(1, 2), net.dice.between(1, 4));
    let x = net.operand(&[&[n, c], &from[..]].concat(), UNIT);
    let y = net.op(Op::Resize(Resize { size, scale, mode, coordinates }), &[x]);
    end(net, y);
    vec![]
}

fn lstm(net: &mut Net) -> Vec<usize> {
    recurrent(net, 4)
}

fn gru(net: &mut Net) -> Vec<usize> {
    recurrent(net, 3)
}

fn recurrent(net: &mut Net, gates: usize) -> Vec<usize> {
    let d = &mut net.dice;
    let kind = Recurrent {
        hidden: d.between(1, 4),
        batch_first: d.flag(),
        reverse: d.flag(),
        bias: d.flag(),
        initial: d.flag(),
    };
    let (n, t, i, h) = (d.between(1, 3), d.between(1, 4), d.between(1, 4), kind.hidden);
    let x = if kind.batch_first { [n, t, i] } else { [t, n, i] };
    let mut inputs =
        vec![net.operand(&x, UNIT), net.operand(&[gates * h, i], UNIT), net.operand(&[gates * h, h], UNIT)];
    if kind.bias {
        inputs.extend([net.operand(&[gates * h], UNIT), net.operand(&[gates * h], UNIT)]);
    }
    if kind.initial {
        inputs.extend((3..=gates).map(|_| net.operand(&[n, h], UNIT)).collect::<Vec<_>>());
    }
    let op = if gates == 4 { Op::Lstm(kind) } else { Op::Gru(kind) };
    let name = net.name();
    let outputs = net.b.ops(name, op, &inputs);
    let all = net.dice.flag();
    for y in &outputs {
        if all || net.dice.flag() {
            net.b.output(*y);
        }
    }
    let last = net.dice.below(outputs.len());
    end(net, outputs[last]);
    vec![]
}

fn attention(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(0, 3);
    let lead = net.dice.shape(rank, 3);
    let d = &mut net.dice;
    let (t, s, depth, e) = (d.between(1, 5), d.between(1, 5), d.between(1, 4), d.between(1, 4));
    let with = |tail: [usize; 2]| [&lead[..], &tail].concat();
    let mut inputs = vec![
        net.operand(&with([t, depth]), (-1.5, 1.5)),
        net.operand(&with([s, depth]), (-1.5, 1.5)),
        net.operand(&with([s, e]), UNIT),
    ];
    let kind = net.dice.below(4);
    if kind >= 2 {
        let mask = broadcastable(&mut net.dice, &with([t, s]));
        inputs.push(if kind == 2 { net.constant(&mask, UNIT) } else { net.operand(&mask, UNIT) });
    }
    let causal = kind == 1 || kind == 2 && net.dice.flag();
    let y = net.op(Op::Attention { scale: 0.6, causal }, &inputs);
    end(net, y);
    vec![]
}

/// Query, key and value from one product.
fn self_attention(net: &mut Net) -> Vec<usize> {
    let (heads, width, t) = (net.dice.between(1, 3), net.dice.between(1, 3), net.dice.between(1, 5));
    let (n, d) = (net.dice.between(1, 2), heads * width);
    let x = net.input(&[n, t, d], UNIT);
    let w = net.parameter(&[3 * d, d], UNIT);
    let qkv = net.op(Op::Linear, &[x, w]);
    let order = net.dice.permutation(3);
    let part = |net: &mut Net, i: usize| {
        let all = Range::ALL;
        let ranges = vec![all, all, Range { start: i * d, len: Some(d), step: 1 }];
        let part = net.op(Op::Slice { ranges }, &[qkv]);
        let part = net.op(Op::Reshape { to: Shape::fixed(&[n, t, heads, width]) }, &[part]);
        net.op(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[part])
    };
    let inputs: Vec<ValueId> = order.into_iter().map(|i| part(net, i)).collect();
    let causal = net.dice.flag();
    let y = net.op(Op::Attention { scale: 0.6, causal }, &inputs);
    end(net, y);
    vec![]
}

fn dropout(net: &mut Net) -> Vec<usize> {
    let rank = net.dice.between(1, 4);
    let shape = net.dice.shape(rank, 5);
    let x = net.operand(&shape, UNIT);
    let y = net.op(Op::Dropout { ratio: 0.4 }, &[x]);
    end(net, y);
    vec![]
}
