//! Lowers a graph with a batch size to the forward part of a tape.

mod image;
mod plain;

use crate::error::CompileError;
use crate::kernels::copy::Strided;
use crate::kernels::map::{Code, Map, Operand, Src};
use crate::program::ProgramKey;
use crate::stage::StageInput;
use crate::tape::{Kernel, Storage, Tape, V};
use crate::view::{View, dense_strides};
use phalanx_graph::{Graph, Node, Op, ValueId, ValueKind};

/// How parameters, buffers and constants of a graph are held; the same for every tape made of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holdings {
    /// By value id: which parameter, buffer or constant it is.
    pub(crate) storage: Vec<Option<Storage>>,
    /// By value id: the order of axes in which a parameter is held, if it differs from the user's.
    pub(crate) orders: Vec<Option<Vec<usize>>>,
    pub(crate) constants: Vec<Vec<f32>>,
}

/// The forward part of a tape, and the buffers of the graph's inputs and outputs.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) tape: Tape,
    pub(crate) inputs: Vec<V>,
    /// Dense, in the order that the graph declares.
    pub(crate) outputs: Vec<V>,
    /// Their views before they were made dense.
    pub(crate) output_views: Vec<View>,
    /// By output: whether it depends on a parameter, or on an input whose gradient is needed.
    pub(crate) output_learned: Vec<bool>,
}

pub(crate) struct Lowering<'a> {
    graph: &'a Graph,
    holdings: &'a Holdings,
    batch: usize,
    training: bool,
    few_rows: bool,
    tape: Tape,
    views: Vec<Option<View>>,
    /// By value: whether it depends on a parameter, or on an input whose gradient is needed.
    learned: Vec<bool>,
    node: usize,
}

/// Lowers the whole graph.
pub(crate) fn lower(
    graph: &Graph,
    holdings: &Holdings,
    purpose: ProgramKey,
    entries: &[StageInput],
) -> Result<Lowered, CompileError> {
    let ProgramKey { batch, training, few_rows, .. } = purpose;
    for value in &graph.values {
        let count = value.shape.count().map_or(usize::MAX, |c| c.at(batch));
        if count > u32::MAX as usize {
            return Err(CompileError::TooLarge { value: value.name.clone() });
        }
        if count == 0 {
            return Err(CompileError::Empty { value: value.name.clone() });
        }
    }
    let views = vec![None; graph.values.len()];
    let mut l = Lowering {
        graph,
        holdings,
        batch,
        training,
        few_rows,
        tape: Tape::default(),
        views,
        learned: learned(graph, entries),
        node: 0,
    };
    let inputs = l.declare_inputs(entries);
    for (i, node) in graph.nodes.iter().enumerate() {
        l.node = i;
        let made = l.node(node)?;
        for (id, view) in node.outputs.iter().zip(made) {
            l.views[id.index()] = Some(view);
        }
    }
    let output_views: Vec<View> = graph.outputs.iter().map(|id| l.view(*id)).collect();
    let output_learned = graph.outputs.iter().map(|id| l.learned[id.index()]).collect();
    let outputs = output_views.iter().map(|view| l.output(view)).collect();
    l.tape.forward = l.tape.instrs.len();
    Ok(Lowered { tape: l.tape, inputs, outputs, output_views, output_learned })
}

fn learned(graph: &Graph, entries: &[StageInput]) -> Vec<bool> {
    let parameter = |kind: &ValueKind| matches!(kind, ValueKind::Parameter(_));
    let mut learned: Vec<bool> = graph.values.iter().map(|v| parameter(&v.kind)).collect();
    for (id, entry) in graph.inputs.iter().zip(entries) {
        learned[id.index()] = entry.varies;
    }
    for node in &graph.nodes {
        let any = node.inputs.iter().any(|v| learned[v.index()]);
        node.outputs.iter().for_each(|v| learned[v.index()] = any);
    }
    learned
}

impl Lowering<'_> {
    fn declare_inputs(&mut self, entries: &[StageInput]) -> Vec<V> {
        let mut inputs = Vec::new();
        for (i, (id, entry)) in self.graph.inputs.iter().zip(entries).enumerate() {
            let shape = self.graph.shape(*id).at(self.batch);
            let v = self.tape.slab(shape.iter().product(), Storage::Input(i));
            self.views[id.index()] = Some(self.entered(&View::dense(v, &shape), entry));
            inputs.push(v);
        }
        inputs
    }

    /// An input in the layout in which it was produced, so that sums use the same order as there.
    fn entered(&mut self, given: &View, entry: &StageInput) -> View {
        let Some(like) = &entry.like else { return given.clone() };
        let twin = entry.twin.and_then(|t| self.views[self.graph.inputs[t].index()].as_ref());
        let base = match twin {
            Some(twin) => twin.base,
            None => self.in_order(given, &like.memory_order()),
        };
        View { base, ..like.clone() }
    }

    /// An output must be a temporary of its own: the caller never reads a parameter or an input.
    fn output(&mut self, view: &View) -> V {
        let v = self.dense(view).base;
        match self.tape.storage(v) {
            Storage::Temporary => v,
            _ => {
                let n = self.tape.len(v);
                let copy = Strided::new(0, &[n], &[1]);
                self.tape.call1(self.node, Kernel::Copy(copy), vec![v], n)
            }
        }
    }

    /// The view of a value; parameters and constants are declared when they are first used.
    pub(crate) fn view(&mut self, id: ValueId) -> View {
        if let Some(view) = &self.views[id.index()] {
            return view.clone();
        }
        let value = self.graph.value(id);
        let shape = value.shape.at(self.batch);
        let storage = self.holdings.storage[id.index()].unwrap_or(Storage::Temporary);
        debug_assert!(!matches!(value.kind, ValueKind::Computed), "a node uses a value before it is made");
        let v = self.tape.slab(shape.iter().product(), storage);
        let view = match &self.holdings.orders[id.index()] {
            None => View::dense(v, &shape),
            Some(order) => {
                let held: Vec<usize> = order.iter().map(|a| shape[*a]).collect();
                View::dense(v, &held).permute(&inverse(order))
            }
        };
        self.views[id.index()] = Some(view.clone());
        view
    }

    fn call(&mut self, kernel: Kernel, ins: Vec<V>, outs: &[usize]) -> Vec<V> {
        self.tape.call(self.node, kernel, ins, outs)
    }

    fn call1(&mut self, kernel: Kernel, ins: Vec<V>, out: usize) -> V {
        self.tape.call1(self.node, kernel, ins, out)
    }

    fn covers(&self, view: &View) -> bool {
        view.covers(self.tape.len(view.base))
    }

    /// The view as a buffer of its own with its axes in this order; copied only if necessary.
    fn in_order(&mut self, view: &View, order: &[usize]) -> V {
        let turned = view.permute(order);
        if self.covers(view) && turned.is_dense() {
            return view.base;
        }
        let copy = Strided::new(turned.offset, &turned.shape, &turned.strides);
        self.call1(Kernel::Copy(copy), vec![view.base], turned.len())
    }

    /// The view as a dense row-major buffer of its own.
    fn dense(&mut self, view: &View) -> View {
        let order: Vec<usize> = (0..view.rank()).collect();
        View::dense(self.in_order(view, &order), &view.shape)
    }

    /// The view itself if it shows all of its buffer exactly once; otherwise a copy.
    fn whole(&mut self, view: &View) -> View {
        if self.covers(view) { view.clone() } else { self.dense(view) }
    }

    /// A view in logical axis order of `v`, whose axes are in this memory order.
    fn from_order(v: V, shape: &[usize], order: &[usize]) -> View {
        let held: Vec<usize> = order.iter().map(|a| shape[*a]).collect();
        View::dense(v, &held).permute(&inverse(order))
    }

    /// An elementwise program over broadcast operands. `index` adds the element's logical index as last operand.
    fn map(&mut self, inputs: &[View], shape: &[usize], index: bool, code: &[Code]) -> View {
        let like = inputs.iter().find(|v| v.shape == shape && self.covers(v));
        let order = like.map_or_else(|| (0..shape.len()).collect(), View::memory_order);
        let dims: Vec<usize> = order.iter().map(|a| shape[*a]).collect();
        let expected = dense_strides(&dims);
        let mut operands = Vec::new();
        let mut ins = Vec::new();
        for (i, view) in inputs.iter().enumerate() {
            let mut view = self.whole(view);
            if view.shape == shape && !view.permute(&order).is_dense() {
                let v = self.in_order(&view, &order);
                view = Self::from_order(v, shape, &order);
            }
            ins.push(view.base);
            let strides = match view.shape == shape {
                true => expected.clone(),
                false => view.broadcast(shape).permute(&order).strides,
            };
            operands.push(Operand { input: Some(i), strides });
        }
        if index {
            let logical = dense_strides(shape);
            operands.push(Operand { input: None, strides: order.iter().map(|a| logical[*a]).collect() });
        }
        let code: Vec<Code> = code.iter().map(|c| c.map_sources(|s| self.constant(&ins, s))).collect();
        let results = vec![code.len() - 1];
        let n = dims.iter().product();
        let v = self.call1(Kernel::Map(Map { dims, operands, code, results }), ins, n);
        Self::from_order(v, shape, &order)
    }

    /// A constant of one element is part of the program.
    fn constant(&self, ins: &[V], source: Src) -> Src {
        let Src::Operand(i) = source else { return source };
        match ins.get(i).map(|v| self.tape.storage(*v)) {
            Some(Storage::Constant(c)) if self.holdings.constants[c].len() == 1 => {
                Src::Const(self.holdings.constants[c][0])
            }
            _ => source,
        }
    }

    fn refuse<T>(&self, node: &Node, why: &'static str) -> Result<T, CompileError> {
        Err(CompileError::Unsupported { node: node.name.clone(), op: node.op.word(), why })
    }

    fn node(&mut self, node: &Node) -> Result<Vec<View>, CompileError> {
        let ins: Vec<View> = node.inputs.iter().map(|id| self.view(*id)).collect();
        let shape = self.graph.shape(node.outputs[0]).at(self.batch);
        let one = |v: View| Ok(vec![v]);
        match &node.op {
            Op::Conv(c) => one(self.conv(c, &ins, &shape)),
            Op::ConvTranspose(c) => one(self.conv_transpose(&c.conv, &ins, &shape)),
            Op::MaxPool(p) => one(self.max_pool(p, &ins[0], &shape)),
            Op::AveragePool { pool, count_padding } => {
                one(self.average_pool(pool, *count_padding, &ins[0], &shape))
            }
            Op::Resize(r) => one(self.resize(r, &ins[0], &shape)),
            Op::BatchNorm { eps, momentum } => one(self.batch_norm(*eps, *momentum, &ins)),
            Op::GroupNorm { groups, eps } => one(self.group_norm(*groups, *eps, &ins)),
            Op::LayerNorm { axis, eps } => one(self.layer_norm(*axis, *eps, &ins)),
            Op::Linear => one(self.linear(&ins, &shape)),
            Op::MatMul => self.matmul(node, &ins, &shape).map(|v| vec![v]),
            Op::Unary(u) => one(self.map(&ins, &shape, false, &[Code::Unary(*u, Src::Operand(0))])),
            Op::Binary(b) => {
                one(self.map(&ins, &shape, false, &[Code::Binary(*b, Src::Operand(0), Src::Operand(1))]))
            }
            Op::Compare(c) => {
                one(self.map(&ins, &shape, false, &[Code::Compare(*c, Src::Operand(0), Src::Operand(1))]))
            }
            Op::Where => {
                let select = Code::Select(Src::Operand(0), Src::Operand(1), Src::Operand(2));
                one(self.map(&ins, &shape, false, &[select]))
            }
            Op::Softmax { axis } => one(self.softmax(*axis, false, &ins[0])),
            Op::LogSoftmax { axis } => one(self.softmax(*axis, true, &ins[0])),
            Op::Reduce { kind, axes, keep } => one(self.reduce(*kind, axes, *keep, &ins[0])),
            Op::Dropout { ratio } => one(self.dropout(node, *ratio, &ins[0])),
            Op::Gather { axis } => one(self.gather(*axis, &ins, &shape)),
            Op::Reshape { .. } => one(self.reshape(&ins[0], &shape)),
            Op::Transpose { perm } => one(ins[0].permute(perm)),
            Op::Concat { axis } => one(self.concat(*axis, &ins, &shape)),
            Op::Slice { ranges } => one(self.slice(ranges, &ins[0])),
            Op::Pad { before, after, mode } => {
                self.pad(node, (before, after), *mode, &ins[0]).map(|v| vec![v])
            }
            Op::Expand { .. } => one(self.map(&ins, &shape, false, &[Code::Pass(Src::Operand(0))])),
            Op::Cast { to } => one(self.cast(self.graph.value(node.inputs[0]).dtype, *to, &ins[0])),
            Op::Lstm(r) => Ok(self.recurrent(r, true, &ins)),
            Op::Gru(r) => Ok(self.recurrent(r, false, &ins)),
            Op::Attention { scale, causal } => self.attention(node, *scale, *causal, &ins).map(|v| vec![v]),
        }
    }
}

pub(crate) fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut result = vec![0; perm.len()];
    for (i, p) in perm.iter().enumerate() {
        result[*p] = i;
    }
    result
}
