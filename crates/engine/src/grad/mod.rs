//! Derives the backward part of a tape from its forward part.
//!
//! Calls are processed from the last to the first. Each contributes to the gradients of its inputs; contributions to
//! one buffer are added in that order, which fixes the order of every sum.

mod map;

use crate::kernels::copy::Strided;
use crate::kernels::linear::Linear;
use crate::kernels::map::{Code, Map, Operand, Src};
use crate::kernels::matmul::{MatMul, Stack};
use crate::kernels::reduce::{Fold, Reduction};
use crate::tape::{Instr, Kernel, Storage, Tape, V};
use phalanx_graph::{Binary, Compare};

/// The derived gradients.
#[derive(Debug)]
pub(crate) struct Derived {
    /// By input of the graph.
    pub(crate) inputs: Vec<Option<V>>,
}

pub(super) struct Backward<'a> {
    tape: &'a mut Tape,
    /// By buffer: its gradient so far.
    gradients: Vec<Option<V>>,
    /// By buffer: whether a gradient is needed for it or for something it depends on.
    wanted: Vec<bool>,
    /// By buffer: the buffer that holds its recomputed value in backward.
    again: Vec<V>,
    node: usize,
}

/// Which gradients [`derive()`] computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GradientRequest<'a> {
    /// By input of the graph: whether its gradient is needed.
    pub(crate) inputs: &'a [bool],
    /// By output of the graph: whether its gradient is given.
    pub(crate) outputs: &'a [bool],
    pub(crate) recompute: bool,
}

/// Appends the backward part. Gradients of parameters get the storage `Gradient`.
pub(crate) fn derive(
    tape: &mut Tape,
    inputs: &[V],
    outputs: &[V],
    parameters: usize,
    wish: GradientRequest<'_>,
) -> Derived {
    let forward = tape.forward;
    let wanted = wanted(tape, wish.inputs);
    let n = tape.slabs.len();
    let again = (0..n as u32).map(V).collect();
    let mut b = Backward { gradients: vec![None; n], wanted, again, node: 0, tape };
    for (i, v) in outputs.iter().enumerate() {
        let given = b.slab(b.tape.len(*v), Storage::OutputGradient(i));
        if b.wanted[v.index()] && wish.outputs[i] {
            b.add(*v, given);
        }
    }
    let segments = segments(forward, wish.recompute);
    for (k, segment) in segments.iter().enumerate().rev() {
        if k + 1 < segments.len() {
            b.replay(segment.clone());
        }
        for i in segment.clone().rev() {
            let instr = b.tape.instrs[i].clone();
            b.instr(&instr);
        }
    }
    b.place_parameters(parameters);
    let wishes = inputs.iter().zip(wish.inputs);
    let inputs = wishes.map(|(v, wanted)| if *wanted { b.input_gradient(*v) } else { None }).collect();
    Derived { inputs }
}

/// Segments of forward that are recomputed together: about the square root of the number of calls, which balances the
/// memory between segments and within one.
fn segments(forward: usize, recompute: bool) -> Vec<std::ops::Range<usize>> {
    if !recompute || forward < 8 {
        return std::iter::once(0..forward).collect();
    }
    let count = (forward as f64).sqrt().ceil() as usize;
    let each = forward.div_ceil(count);
    (0..forward).step_by(each).map(|s| s..(s + each).min(forward)).collect()
}

fn wanted(tape: &Tape, inputs: &[bool]) -> Vec<bool> {
    let mut wanted: Vec<bool> = (tape.slabs.iter())
        .map(|s| match s.storage {
            Storage::Parameter(_) => true,
            Storage::Input(i) => inputs[i],
            _ => false,
        })
        .collect();
    for instr in &tape.instrs {
        let any = instr.ins.iter().any(|v| wanted[v.index()]);
        instr.outs.iter().for_each(|v| wanted[v.index()] |= any);
    }
    wanted
}

impl Backward<'_> {
    fn slab(&mut self, len: usize, storage: Storage) -> V {
        let v = self.tape.slab(len, storage);
        self.grow();
        v
    }

    fn grow(&mut self) {
        let n = self.tape.slabs.len();
        self.gradients.resize(n, None);
        self.wanted.resize(n, false);
        self.again.extend((self.again.len() as u32..n as u32).map(V));
    }

    fn call(&mut self, kernel: Kernel, ins: Vec<V>, outs: &[usize]) -> Vec<V> {
        let ins = ins.into_iter().map(|v| self.again[v.index()]).collect();
        let outs = self.tape.call(self.node, kernel, ins, outs);
        self.grow();
        outs
    }

    fn call1(&mut self, kernel: Kernel, ins: Vec<V>, out: usize) -> V {
        self.call(kernel, ins, &[out])[0]
    }

    fn wants(&self, v: V) -> bool {
        self.wanted[v.index()]
    }

    fn len(&self, v: V) -> usize {
        self.tape.len(v)
    }

    /// Recomputes a segment of forward; its results replace the first ones from here on.
    fn replay(&mut self, segment: std::ops::Range<usize>) {
        for i in segment {
            let mut instr = self.tape.instrs[i].clone();
            self.node = instr.node;
            if let Kernel::Norm(norm) = &mut instr.kernel {
                norm.track = false;
            }
            let sizes: Vec<usize> = instr.outs.iter().map(|v| self.len(*v)).collect();
            let fresh = self.call(instr.kernel, instr.ins, &sizes);
            instr.outs.iter().zip(fresh).for_each(|(old, new)| self.again[old.index()] = new);
        }
    }

    /// Adds a contribution to the gradient of `v`.
    fn add(&mut self, v: V, gradient: V) {
        let sum = match self.gradients[v.index()] {
            None => gradient,
            Some(before) => {
                let n = self.len(v);
                let operand = |input| Operand { input: Some(input), strides: vec![1] };
                let code = vec![Code::Binary(Binary::Add, Src::Operand(0), Src::Operand(1))];
                let map =
                    Map { dims: vec![n], operands: vec![operand(0), operand(1)], code, results: vec![0] };
                self.call1(Kernel::Map(map), vec![before, gradient], n)
            }
        };
        self.gradients[v.index()] = Some(sum);
    }

    /// Every parameter's gradient gets a buffer of its own, zero where nothing depends on it.
    fn place_parameters(&mut self, count: usize) {
        let mut of = vec![None; count];
        for (i, slab) in self.tape.slabs.iter().enumerate() {
            if let Storage::Parameter(p) = slab.storage {
                of[p] = Some(V(i as u32));
            }
        }
        for (p, v) in of.into_iter().enumerate() {
            let Some(v) = v else { continue };
            let n = self.len(v);
            let gradient = match self.gradients[v.index()] {
                None => self.call1(Kernel::Fill(0.0), vec![], n),
                Some(g) if self.tape.storage(g) == Storage::Temporary => g,
                Some(g) => self.call1(Kernel::Copy(Strided::new(0, &[n], &[1])), vec![g], n),
            };
            self.tape.slabs[gradient.index()].storage = Storage::Gradient(p);
        }
    }

    /// The gradient of an input, in a buffer of the workspace that is neither an output's nor a parameter's gradient.
    fn input_gradient(&mut self, input: V) -> Option<V> {
        let gradient = self.gradients[input.index()]?;
        if self.tape.storage(gradient) == Storage::Temporary {
            return Some(gradient);
        }
        let n = self.len(gradient);
        Some(self.call1(Kernel::Copy(Strided::new(0, &[n], &[1])), vec![gradient], n))
    }

    fn instr(&mut self, i: &Instr) {
        self.node = i.node;
        let dy = i.outs.first().and_then(|y| self.gradients[y.index()]);
        if let Kernel::Recurrent(cell) = &i.kernel {
            return self.recurrent(*cell, i);
        }
        let Some(dy) = dy else { return };
        if !i.ins.iter().any(|v| self.wants(*v)) {
            return;
        }
        match &i.kernel {
            Kernel::Map(m) => self.map(m, i, dy),
            Kernel::Reduce(r) => self.reduce(r, i, dy),
            Kernel::Linear { spec, bias, .. } => self.linear(*spec, *bias, i, dy),
            Kernel::MatMul(m) => self.matmul(m, i, dy),
            Kernel::Conv { spec, bias, .. } => {
                if *bias {
                    self.columns(i.ins[2], spec.n * spec.oh * spec.ow, spec.o, dy);
                }
                self.one(i.ins[1], Kernel::ConvGradW(*spec), vec![i.ins[0], dy]);
                self.one(i.ins[0], Kernel::ConvGradX(*spec), vec![dy, i.ins[1]]);
            }
            Kernel::ConvGradX(spec) => {
                self.one(i.ins[1], Kernel::ConvGradW(*spec), vec![dy, i.ins[0]]);
                let forward = Kernel::Conv { spec: *spec, bias: false, epilogue: None };
                self.one(i.ins[0], forward, vec![dy, i.ins[1]]);
            }
            Kernel::MaxPool(spec) => {
                let which = if spec.has_index() { i.outs[1] } else { i.ins[0] };
                self.one(i.ins[0], Kernel::MaxPoolGrad(*spec), vec![dy, which]);
            }
            Kernel::AveragePool { spec, count_padding } => {
                let kernel = Kernel::AveragePoolGrad { spec: *spec, count_padding: *count_padding };
                self.one(i.ins[0], kernel, vec![dy]);
            }
            Kernel::Norm(norm) => {
                let mut ins = vec![i.ins[0], dy, i.outs[1], i.outs[2]];
                ins.extend(&i.ins[1..=norm.affine]);
                self.all(&i.ins[..=norm.affine], Kernel::NormGrad(*norm), ins);
            }
            Kernel::LayerNorm { d, affine, .. } => {
                let kernel = Kernel::LayerNormGrad { d: *d };
                let mut ins = vec![i.ins[0], dy, i.outs[1], i.outs[2]];
                ins.extend(i.ins.get(1));
                self.all(&i.ins[..=*affine], kernel, ins);
            }
            Kernel::Softmax { d, log } => {
                let kernel = Kernel::SoftmaxGrad { d: *d, log: *log };
                self.one(i.ins[0], kernel, vec![i.outs[0], dy]);
            }
            Kernel::Attention(call) => self.attention(call.clone(), i, dy),
            Kernel::Gather { outer, size, inner, count } => {
                let kernel = Kernel::GatherGrad { outer: *outer, size: *size, inner: *inner, count: *count };
                self.one(i.ins[0], kernel, vec![i.ins[1], dy]);
            }
            Kernel::Copy(view) => {
                let base = self.len(i.ins[0]);
                self.one(i.ins[0], back_copy(view, base), vec![dy]);
            }
            Kernel::Remap(r) => self.one(i.ins[0], Kernel::RemapGrad(r.clone()), vec![dy]),
            Kernel::Concat { outer, parts } => self.concat(*outer, parts, i, dy),
            Kernel::Resize(r) => self.one(i.ins[0], Kernel::ResizeGrad(*r), vec![dy]),
            Kernel::Fill(_) | Kernel::Recurrent(_) => {}
            Kernel::LinearGradX(_)
            | Kernel::LinearGradW(_)
            | Kernel::ConvGradW(_)
            | Kernel::MaxPoolGrad(_)
            | Kernel::AveragePoolGrad { .. }
            | Kernel::NormGrad(_)
            | Kernel::LayerNormGrad { .. }
            | Kernel::SoftmaxGrad { .. }
            | Kernel::AttentionGrad(_)
            | Kernel::GatherGrad { .. }
            | Kernel::CopyGrad(_)
            | Kernel::RemapGrad(_)
            | Kernel::ResizeGrad(_)
            | Kernel::RecurrentGrad { .. } => unreachable!("only forward calls are derived"),
        }
    }

    /// Adds a call with one result, the gradient of `of`.
    fn one(&mut self, of: V, kernel: Kernel, ins: Vec<V>) {
        if self.wants(of) {
            let n = self.len(of);
            let g = self.call1(kernel, ins, n);
            self.add(of, g);
        }
    }

    /// Adds a call whose results are the gradients of all of `of`.
    fn all(&mut self, of: &[V], kernel: Kernel, ins: Vec<V>) {
        let sizes: Vec<usize> = of.iter().map(|v| self.len(*v)).collect();
        let gradients = self.call(kernel, ins, &sizes);
        for (v, g) in of.iter().zip(gradients) {
            if self.wants(*v) {
                self.add(*v, g);
            }
        }
    }

    /// The sum over rows, as the gradient of a bias.
    fn columns(&mut self, bias: V, rows: usize, o: usize, dy: V) {
        let sum = Reduction::new([(rows, true), (o, false)], Fold::Sum, 1.0);
        self.one(bias, Kernel::Reduce(sum), vec![dy]);
    }

    fn linear(&mut self, spec: Linear, bias: bool, i: &Instr, dy: V) {
        if bias {
            self.columns(i.ins[2], spec.rows, spec.o, dy);
        }
        self.one(i.ins[1], Kernel::LinearGradW(spec), vec![i.ins[0], dy]);
        self.one(i.ins[0], Kernel::LinearGradX(spec), vec![dy, i.ins[1]]);
    }

    fn matmul(&mut self, m: &MatMul, i: &Instr, dy: V) {
        let turn = |s: &Stack| Stack { row: s.col, col: s.row, ..s.clone() };
        let da = MatMul { n: m.k, k: m.n, a: m.c.clone(), b: turn(&m.b), c: m.a.clone(), ..m.clone() };
        let db = MatMul { m: m.k, k: m.m, a: turn(&m.a), b: m.c.clone(), c: m.b.clone(), ..m.clone() };
        self.one(i.ins[0], Kernel::MatMul(da), vec![dy, i.ins[1]]);
        self.one(i.ins[1], Kernel::MatMul(db), vec![i.ins[0], dy]);
    }

    fn attention(&mut self, call: crate::tape::AttentionCall, i: &Instr, dy: V) {
        let mut ins = vec![i.ins[0], i.ins[1], i.ins[2], i.outs[0], dy, i.outs[1]];
        ins.extend(i.ins.get(3));
        if call.joined {
            let n = self.len(i.ins[0]);
            let g = self.call1(Kernel::AttentionGrad(call), ins, n);
            self.add(i.ins[0], g);
        } else {
            self.all(&i.ins[..3], Kernel::AttentionGrad(call), ins);
        }
    }

    fn concat(&mut self, outer: usize, parts: &[usize], i: &Instr, dy: V) {
        let row: usize = parts.iter().sum();
        let mut at = 0;
        for (v, n) in i.ins.iter().zip(parts) {
            let view = Strided::new(at, &[outer, *n], &[row, 1]);
            self.one(*v, Kernel::Copy(view), vec![dy]);
            at += n;
        }
    }

    /// ins of the gradient: x, w_ih, w_hh, biases?, states?, y, kept, then dy?, dh?, dc?;
    /// outs: one per input of the forward call.
    fn recurrent(&mut self, cell: crate::tape::Cell, i: &Instr) {
        let gradient = |v: &V| self.gradients[v.index()];
        let (given, kept) = i.outs.split_at(i.outs.len() - 1);
        let d: Vec<Option<V>> = given.iter().map(gradient).collect();
        if d.iter().all(Option::is_none) || !i.ins.iter().any(|v| self.wants(*v)) {
            return;
        }
        let has = |k: usize| d.get(k).is_some_and(Option::is_some);
        let kernel = Kernel::RecurrentGrad { cell, dy: has(0), dh: has(1), dc: has(2) };
        let mut ins = i.ins.clone();
        ins.extend([i.outs[0], kept[0]]);
        ins.extend(d.iter().flatten());
        self.all(&i.ins, kernel, ins);
    }

    fn reduce(&mut self, r: &Reduction, i: &Instr, dy: V) {
        let (x, y) = (i.ins[0], i.outs[0]);
        let dims: Vec<usize> = r.dims.iter().map(|(n, _)| *n).collect();
        let mut stride = 1;
        let mut kept = vec![0; dims.len()];
        for (k, (n, _)) in kept.iter_mut().zip(&r.dims).rev().filter(|(_, (_, folded))| !folded) {
            *k = stride;
            stride *= n;
        }
        let operand = |input, strides: &Vec<usize>| Operand { input: Some(input), strides: strides.clone() };
        let full = crate::view::dense_strides(&dims);
        let n = self.len(x);
        if r.fold == Fold::Sum {
            let code = vec![Code::Binary(Binary::Mul, Src::Operand(0), Src::Const(r.scale))];
            let map = Map { dims, operands: vec![operand(0, &kept)], code, results: vec![0] };
            return self.one(x, Kernel::Map(map), vec![dy]);
        }
        // Elements equal to the extreme share its gradient.
        let equal = vec![Code::Compare(Compare::Equal, Src::Operand(0), Src::Operand(1))];
        let operands = vec![operand(0, &full), operand(1, &kept)];
        let map = Map { dims: dims.clone(), operands, code: equal, results: vec![0] };
        let which = self.call1(Kernel::Map(map), vec![x, y], n);
        let count = Reduction::new(r.dims.iter().copied(), Fold::Sum, 1.0);
        let count = self.call1(Kernel::Reduce(count), vec![which], self.len(y));
        let share = vec![
            Code::Binary(Binary::Mul, Src::Operand(0), Src::Operand(1)),
            Code::Binary(Binary::Div, Src::Step(0), Src::Operand(2)),
        ];
        let operands = vec![operand(0, &full), operand(1, &kept), operand(2, &kept)];
        let map = Map { dims, operands, code: share, results: vec![1] };
        self.one(x, Kernel::Map(map), vec![which, dy, count]);
    }
}

/// The adjoint of a copy; of a permutation it is a copy too.
fn back_copy(view: &Strided, base: usize) -> Kernel {
    let as_view = crate::view::View {
        base: V(0),
        offset: view.offset,
        shape: view.shape.clone(),
        strides: view.strides.clone(),
    };
    if as_view.covers(base) {
        let dense = crate::view::View::dense(V(0), &view.shape).permute(&as_view.memory_order());
        return Kernel::Copy(Strided::new(0, &dense.shape, &dense.strides));
    }
    Kernel::CopyGrad(view.clone())
}
