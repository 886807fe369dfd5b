//! Operators on tensors of any kind.

use super::{Lowering, inverse};
use crate::error::CompileError;
use crate::kernels::attention::{Attention, HeadLayout};
use crate::kernels::copy::{NOTHING, Remap};
use crate::kernels::few_rows::MOST_ROWS;
use crate::kernels::linear::Linear;
use crate::kernels::map::{Code, Src};
use crate::kernels::matmul::{LEAD, MatMul, Stack};
use crate::kernels::reduce::{Fold, Reduction};
use crate::tape::{AttentionCall, Cell, Kernel, V};
use crate::view::{View, dense_strides};
use phalanx_graph::{Binary, Node, PadMode, Range, Recurrent, Reduce};
use phalanx_types::DType;

impl Lowering<'_> {
    pub(super) fn linear(&mut self, ins: &[View], shape: &[usize]) -> View {
        let (o, k) = (ins[1].shape[0], ins[1].shape[1]);
        let rows = ins[0].len() / k.max(1);
        let mut args = vec![self.dense(&ins[0]).base, self.dense(&ins[1]).base];
        let bias = ins.get(2).map(|b| self.dense(b).base);
        args.extend(bias);
        let spec = Linear { rows, k, o, unpacked: self.few_rows && rows <= MOST_ROWS };
        let kernel = Kernel::Linear { spec, bias: bias.is_some(), epilogue: None };
        View::dense(self.call1(kernel, args, rows * o), shape)
    }

    pub(super) fn matmul(
        &mut self,
        node: &Node,
        ins: &[View],
        shape: &[usize],
    ) -> Result<View, CompileError> {
        let d = shape.len() - 2;
        if d > LEAD {
            return self.refuse(node, "stacks of matrices have at most six leading dimensions");
        }
        let (a, b) = (self.matrices(&ins[0]), self.matrices(&ins[1]));
        let stack = |v: &View, d: usize| {
            let r = v.rank();
            let lead =
                View { shape: v.shape[..r - 2].to_vec(), strides: v.strides[..r - 2].to_vec(), ..v.clone() };
            let mut lead = lead.broadcast(&shape[..d]).strides;
            lead.iter_mut().zip(shape).filter(|(_, n)| **n == 1).for_each(|(s, _)| *s = 0);
            Stack { offset: v.offset, lead, row: v.strides[r - 2], col: v.strides[r - 1] }
        };
        let (m, n, k) = (shape[d], shape[d + 1], a.shape[a.rank() - 1]);
        let strides = dense_strides(shape);
        let c = Stack { offset: 0, lead: strides[..d].to_vec(), row: n, col: 1 };
        let (lead, unpacked) = (shape[..d].to_vec(), self.few_rows && m <= MOST_ROWS);
        let spec = MatMul { lead, m, n, k, a: stack(&a, d), b: stack(&b, d), c, unpacked };
        let v = self.call1(Kernel::MatMul(spec), vec![a.base, b.base], shape.iter().product());
        Ok(View::dense(v, shape))
    }

    /// A view whose matrices have contiguous rows or columns.
    fn matrices(&mut self, view: &View) -> View {
        let view = self.whole(view);
        let r = view.rank();
        let side_by_side = view.strides[r - 1] == 1 || view.strides[r - 2] == 1;
        // A matrix of one row or column may have any stride there.
        if side_by_side && view.shape[r - 1] > 1 && view.shape[r - 2] > 1 { view } else { self.dense(&view) }
    }

    pub(super) fn softmax(&mut self, axis: usize, log: bool, x: &View) -> View {
        let mut order = if self.covers(x) { x.memory_order() } else { (0..x.rank()).collect() };
        order.retain(|a| *a != axis);
        order.push(axis);
        let v = self.in_order(x, &order);
        let (n, d) = (x.len(), x.shape[axis]);
        let y = self.call1(Kernel::Softmax { d, log }, vec![v], n);
        Self::from_order(y, &x.shape, &order)
    }

    pub(super) fn layer_norm(&mut self, axis: usize, eps: f32, ins: &[View]) -> View {
        let x = self.dense(&ins[0]);
        let d: usize = x.shape[axis..].iter().product();
        let rows = x.len() / d.max(1);
        let mut args = vec![x.base];
        for w in &ins[1..] {
            args.push(self.dense(w).base);
        }
        let kernel = Kernel::LayerNorm { d, eps, affine: ins.len() - 1 };
        View::dense(self.call(kernel, args, &[rows * d, rows, rows])[0], &x.shape)
    }

    pub(super) fn reduce(&mut self, kind: Reduce, axes: &[usize], keep: bool, x: &View) -> View {
        let x = self.whole(x);
        let order = x.memory_order();
        let count: usize = axes.iter().map(|a| x.shape[*a]).product();
        let (fold, scale) = match kind {
            Reduce::Sum => (Fold::Sum, 1.0),
            Reduce::Mean => (Fold::Sum, 1.0 / count as f32),
            Reduce::Max => (Fold::Max, 1.0),
            Reduce::Min => (Fold::Min, 1.0),
        };
        let dims = order.iter().map(|a| (x.shape[*a], axes.contains(a)));
        let reduction = Reduction::new(dims, fold, scale);
        let n = x.len() / count.max(1);
        let v = self.call1(Kernel::Reduce(reduction), vec![x.base], n);
        let shape: Vec<usize> =
            (0..x.rank()).map(|a| if axes.contains(&a) { 1 } else { x.shape[a] }).collect();
        let kept = Self::from_order(v, &shape, &order);
        if keep {
            return kept;
        }
        let left: Vec<usize> = (0..x.rank()).filter(|a| !axes.contains(a)).collect();
        View {
            shape: left.iter().map(|a| kept.shape[*a]).collect(),
            strides: left.iter().map(|a| kept.strides[*a]).collect(),
            ..kept
        }
    }

    pub(super) fn dropout(&mut self, node: &Node, ratio: f32, x: &View) -> View {
        if !self.training || ratio <= 0.0 {
            return x.clone();
        }
        let keep = Code::Keep { index: Src::Operand(1), key: name_key(&node.name), ratio };
        let code = [keep, Code::Binary(Binary::Mul, Src::Operand(0), Src::Step(0))];
        let shape = x.shape.clone();
        self.map(std::slice::from_ref(x), &shape, true, &code)
    }

    pub(super) fn gather(&mut self, axis: usize, ins: &[View], shape: &[usize]) -> View {
        let (data, indices) = (self.dense(&ins[0]), self.dense(&ins[1]));
        let outer = data.shape[..axis].iter().product();
        let inner: usize = data.shape[axis + 1..].iter().product();
        let (size, count) = (data.shape[axis], indices.len());
        let kernel = Kernel::Gather { outer, size, inner, count };
        View::dense(self.call1(kernel, vec![data.base, indices.base], outer * count * inner), shape)
    }

    pub(super) fn reshape(&mut self, x: &View, shape: &[usize]) -> View {
        match x.reshape(shape) {
            Some(view) => view,
            None => View::dense(self.dense(x).base, shape),
        }
    }

    pub(super) fn concat(&mut self, axis: usize, ins: &[View], shape: &[usize]) -> View {
        let order = if self.covers(&ins[0]) { ins[0].memory_order() } else { (0..shape.len()).collect() };
        let at = inverse(&order)[axis];
        let outer = order[..at].iter().map(|a| shape[*a]).product();
        let mut args = Vec::new();
        let mut parts = Vec::new();
        for view in ins {
            args.push(self.in_order(view, &order));
            parts.push(order[at..].iter().map(|a| view.shape[*a]).product());
        }
        let v = self.call1(Kernel::Concat { outer, parts }, args, shape.iter().product());
        Self::from_order(v, shape, &order)
    }

    pub(super) fn slice(&mut self, ranges: &[Range], x: &View) -> View {
        let len = |r: &Range, axis: usize| r.len.unwrap_or(x.shape[axis]);
        if ranges.iter().all(|r| r.step == 1 || r.len == Some(1)) {
            let narrowed = ranges.iter().enumerate();
            return narrowed.fold(x.clone(), |v, (axis, r)| v.narrow(axis, r.start, len(r, axis)));
        }
        let axes = (ranges.iter().enumerate())
            .map(|(axis, r)| (0..len(r, axis) as i64).map(|i| (r.start as i64 + i * r.step) as u32).collect())
            .collect();
        self.remap(axes, 0.0, x)
    }

    fn remap(&mut self, axes: Vec<Vec<u32>>, fill: f32, x: &View) -> View {
        let x = self.dense(x);
        let shape: Vec<usize> = axes.iter().map(Vec::len).collect();
        let remap = Remap { from: x.shape.clone(), axes, fill };
        let n = remap.out_len();
        View::dense(self.call1(Kernel::Remap(remap), vec![x.base], n), &shape)
    }

    pub(super) fn pad(
        &mut self,
        node: &Node,
        (before, after): (&[i64], &[i64]),
        mode: PadMode,
        x: &View,
    ) -> Result<View, CompileError> {
        let mut axes = Vec::new();
        for (axis, n) in x.shape.iter().map(|n| *n as i64).enumerate() {
            if matches!(mode, PadMode::Reflect) && n > 0 && before[axis].max(after[axis]) >= n {
                return self.refuse(node, "reflection reaches further than the input");
            }
            let source = |i: i64| match mode {
                PadMode::Constant(_) => (0..n).contains(&i).then_some(i),
                PadMode::Edge => Some(i.clamp(0, n - 1)),
                PadMode::Reflect => Some(if i < 0 {
                    -i
                } else if i >= n {
                    2 * (n - 1) - i
                } else {
                    i
                }),
            };
            let range = -before[axis]..n + after[axis];
            axes.push(range.map(|i| source(i).map_or(NOTHING, |s| s as u32)).collect());
        }
        let fill = if let PadMode::Constant(c) = mode { c } else { 0.0 };
        Ok(self.remap(axes, fill, x))
    }

    pub(super) fn cast(&mut self, from: DType, to: DType, x: &View) -> View {
        let float = |d: DType| matches!(d, DType::F32 | DType::F64 | DType::F16 | DType::Bf16);
        let shape = x.shape.clone();
        let operand = Src::Operand(0);
        match to {
            DType::Bool if from != DType::Bool => {
                let select = Code::Select(operand, Src::Const(1.0), Src::Const(0.0));
                self.map(std::slice::from_ref(x), &shape, false, &[select])
            }
            _ if float(from) && !float(to) => {
                self.map(std::slice::from_ref(x), &shape, false, &[Code::Truncate(operand)])
            }
            _ => x.clone(),
        }
    }

    pub(super) fn recurrent(&mut self, r: &Recurrent, lstm: bool, ins: &[View]) -> Vec<View> {
        let x = &ins[0];
        let (steps, batch) = if r.batch_first { (x.shape[1], x.shape[0]) } else { (x.shape[0], x.shape[1]) };
        let cell = Cell { lstm, steps, batch, input: x.shape[2], kind: *r };
        let mut args = Vec::new();
        for view in ins {
            args.push(self.dense(view).base);
        }
        let (h, y) = (r.hidden, [x.shape[0], x.shape[1], r.hidden]);
        let state = batch * h;
        let mut sizes = vec![steps * state, state];
        sizes.extend(lstm.then_some(state));
        sizes.push(crate::kernels::recurrent::saved(&cell));
        let outs = self.call(Kernel::Recurrent(cell), args, &sizes);
        let states = outs[1..outs.len() - 1].iter().map(|v| View::dense(*v, &[batch, h]));
        std::iter::once(View::dense(outs[0], &y)).chain(states).collect()
    }

    pub(super) fn attention(
        &mut self,
        node: &Node,
        scale: f32,
        causal: bool,
        ins: &[View],
    ) -> Result<View, CompileError> {
        if node.inputs.get(3).is_some_and(|mask| self.learned[mask.index()]) {
            return self.attention_by_parts(node, scale, causal, ins);
        }
        let mut views: Vec<View> = Vec::new();
        for v in &ins[..3] {
            views.push(self.four(v));
        }
        let joined = self.joined(&views);
        if !joined {
            let merged = ins.len() == 3
                && views.iter().all(|v| self.covers(v) && v.strides[0] == v.shape[1] * v.strides[1]);
            for v in &mut views {
                *v = if merged { merge_heads(v) } else { v.clone() };
                if !(self.covers(v) && v.strides[3] == 1 && lies_apart(v)) {
                    *v = self.dense(v);
                }
            }
        }
        let [q, k, v] = &views[..] else { unreachable!("attention has three operands") };
        let (n, heads, t, d) = (q.shape[0], q.shape[1], q.shape[2], q.shape[3]);
        let (s, e) = (k.shape[2], v.shape[3]);
        let mask = ins.get(3).map(|m| self.mask(m, &ins[0].shape, s));
        let spec = Attention { n, heads, t, s, d, e, scale, causal };
        let o = HeadLayout { offset: 0, batch: t * heads * e, head: e, row: heads * e };
        let strides = mask.as_ref().map(|(_, strides)| *strides);
        let call = AttentionCall { spec, q: layout(q), k: layout(k), v: layout(v), o, mask: strides, joined };
        let mut args = vec![q.base, k.base, v.base];
        args.extend(mask.map(|(base, _)| base));
        let rows = n * heads * t;
        let out = self.call(Kernel::Attention(call), args, &[rows * e, rows])[0];
        let four = View::dense(out, &[n, t, heads, e]).permute(&[0, 2, 1, 3]);
        let mut shape = ins[0].shape.clone();
        *shape.last_mut().unwrap_or(&mut 0) = e;
        Ok(self.reshape(&four, &shape))
    }

    /// As products and a softmax: slower, but gives the mask a gradient.
    fn attention_by_parts(
        &mut self,
        node: &Node,
        scale: f32,
        causal: bool,
        ins: &[View],
    ) -> Result<View, CompileError> {
        if causal {
            return self.refuse(node, "a causal attention cannot have a mask that is learned");
        }
        let r = ins[0].rank();
        let mut turn: Vec<usize> = (0..r).collect();
        turn.swap(r - 2, r - 1);
        let mut shape = ins[0].shape.clone();
        shape[r - 1] = ins[1].shape[r - 2];
        let scores = self.matmul(node, &[ins[0].clone(), ins[1].permute(&turn)], &shape)?;
        let code = [
            Code::Binary(Binary::Mul, Src::Operand(0), Src::Const(scale)),
            Code::Binary(Binary::Add, Src::Step(0), Src::Operand(1)),
        ];
        let scores = self.map(&[scores, ins[3].clone()], &shape, false, &code);
        let shares = self.softmax(r - 1, false, &scores);
        shape[r - 1] = ins[2].shape[r - 1];
        self.matmul(node, &[shares, ins[2].clone()], &shape)
    }

    /// The view as `[batch, heads, rows, columns]`; leading dimensions are heads.
    fn four(&mut self, view: &View) -> View {
        let r = view.rank();
        let lead = &view.shape[..r - 2];
        let (n, heads) = match lead {
            [n, rest @ ..] if !rest.is_empty() => (*n, rest.iter().product()),
            _ => (1, lead.iter().product()),
        };
        self.reshape(view, &[n, heads, view.shape[r - 2], view.shape[r - 1]])
    }

    /// Whether query, key and value are parts of one buffer and together cover it.
    fn joined(&self, views: &[View]) -> bool {
        let (q, base) = (&views[0], self.tape.len(views[0].base));
        let alike = views.iter().all(|v| v.base == q.base && v.shape == q.shape && v.strides == q.strides);
        let mut offsets: Vec<usize> = views.iter().map(|v| v.offset).collect();
        offsets.sort_unstable();
        // One after another in every row, as a product with three stacked weights makes them.
        let width = q.shape[1] * q.shape[3];
        let rows = offsets == [0, width, 2 * width]
            && q.strides == [q.shape[2] * 3 * width, q.shape[3], 3 * width, 1];
        alike && rows && 3 * q.len() == base
    }

    /// The mask's buffer and its strides over batch, head, row and column.
    fn mask(&mut self, mask: &View, query: &[usize], s: usize) -> (V, [usize; 4]) {
        let r = query.len();
        let mut scores = query.to_vec();
        scores[r - 1] = s;
        let pass = [Code::Pass(Src::Operand(0))];
        let mask = match r > 4 {
            true => {
                let full = self.map(std::slice::from_ref(mask), &scores, false, &pass);
                self.dense(&full)
            }
            false => self.whole(mask),
        };
        let st = mask.broadcast(&scores).strides;
        let strides = match r {
            2 => [0, 0, st[0], st[1]],
            3 => [0, st[0], st[1], st[2]],
            4 => [st[0], st[1], st[2], st[3]],
            _ => [st[0], st[r - 3], st[r - 2], st[r - 1]],
        };
        (mask.base, strides)
    }
}

/// All heads of all samples as heads of one.
fn merge_heads(v: &View) -> View {
    let (n, heads) = (v.shape[0], v.shape[1]);
    let shape = vec![1, n * heads, v.shape[2], v.shape[3]];
    View { shape, strides: vec![0, v.strides[1], v.strides[2], v.strides[3]], ..v.clone() }
}

/// Whether rows of different heads and samples interleave only as far as the kernel can handle.
fn lies_apart(v: &View) -> bool {
    let [n, heads, rows, width] = v.shape[..] else { return false };
    let [batch, head, row, _] = v.strides[..] else { return false };
    let fits = |count: usize, stride: usize, inner: usize| count <= 1 || inner <= stride;
    let reach = |count: usize, stride: usize, inner: usize| count.saturating_sub(1) * stride + inner;
    let (line, block) = (reach(heads, head, width), reach(rows, row, width));
    let columns = fits(heads, head, width) && fits(rows, row, line);
    let blocks = fits(rows, row, width) && fits(heads, head, block);
    let sample = if columns { reach(rows, row, line) } else { reach(heads, head, block) };
    (columns || blocks) && fits(n, batch, sample)
}

fn layout(v: &View) -> HeadLayout {
    HeadLayout { offset: v.offset, batch: v.strides[0], head: v.strides[1], row: v.strides[2] }
}

/// Random numbers of a node are drawn by its name (FNV-1a), so a stage cut from the graph draws the same.
fn name_key(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3))
}
