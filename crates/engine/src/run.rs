//! Runs the calls of a program.

use crate::buffer::Buffer;
use crate::engine::SumOver;
use crate::kernels::copy::Lookup;
use crate::kernels::map::Map;
use crate::kernels::{
    attention, conv, copy, linear, map, matmul, norm, pool, recurrent, reduce, resize, softmax,
};
use crate::memory_plan::NONE;
use crate::program::Program;
use crate::tape::{AttentionCall, Instr, Kernel, Norm, Storage, V};
use crate::threads::Threads;

/// Tensors that live longer than a batch.
#[derive(Debug, Default)]
pub(crate) struct ModelTensors {
    pub(crate) parameters: Vec<Buffer>,
    pub(crate) gradients: Vec<Buffer>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) constants: Vec<Vec<f32>>,
}

/// The buffers of one batch in flight.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// All temporary buffers, at the offsets of the program's memory plan.
    pub(crate) arena: Buffer,
    /// Copies of the inputs: backward reads them when the caller's are gone.
    pub(crate) inputs: Vec<Buffer>,
}

/// Everything a call may touch.
pub(crate) struct Runner<'a> {
    pub(crate) threads: &'a Threads,
    pub(crate) program: &'a Program,
    pub(crate) state: &'a mut ModelTensors,
    pub(crate) workspace: &'a mut Workspace,
    pub(crate) output_gradients: &'a [&'a [f32]],
    pub(crate) seed: u64,
    pub(crate) together: Option<&'a mut SumOver>,
}

/// The most buffers that a call reads without a list on the heap.
const FEW: usize = 16;
/// The most buffers that a call writes.
const OUTS: usize = 8;

/// Why a call failed.
pub(crate) enum CallError {
    /// An index out of range.
    Index { index: i64, size: usize },
    /// The other replicas could not be reached.
    Together { reason: String },
}

impl Runner<'_> {
    /// Runs one call.
    pub(crate) fn call(&mut self, i: usize) -> Result<(), CallError> {
        let program = self.program;
        let instr = &program.tape.instrs[i];
        let mut gradients: [Buffer; OUTS] = Default::default();
        for (gradient, v) in gradients.iter_mut().zip(&instr.outs) {
            if let Storage::Gradient(p) = program.tape.storage(*v) {
                *gradient = std::mem::take(&mut self.state.gradients[p]);
            }
        }
        let (mut writes, gaps) = cut(self.workspace.arena.as_mut(), program, instr);
        for ((write, gradient), v) in writes.iter_mut().zip(&mut gradients).zip(&instr.outs) {
            if let Storage::Gradient(_) = program.tape.storage(*v) {
                *write = &mut gradient.as_mut()[..program.tape.len(*v)];
            }
        }
        let sources = Sources {
            program,
            state: self.state,
            inputs: &self.workspace.inputs,
            output_gradients: self.output_gradients,
            gaps,
        };
        let mut few: [&[f32]; FEW] = [&[]; FEW];
        let many: Vec<&[f32]>;
        let ins: &[&[f32]] = if instr.ins.len() <= FEW {
            few.iter_mut().zip(&instr.ins).for_each(|(slot, v)| *slot = sources.read(*v));
            &few[..instr.ins.len()]
        } else {
            many = instr.ins.iter().map(|v| sources.read(*v)).collect();
            &many
        };
        let share = self.together.as_deref_mut();
        let result = run(self.threads, instr, (self.seed, share), ins, &mut writes[..instr.outs.len()]);
        if let Kernel::Norm(Norm { momentum: Some(momentum), track: true, .. }) = instr.kernel {
            track(self.state, program.tape.storage(instr.ins[3]), momentum, writes[1]);
            track(self.state, program.tape.storage(instr.ins[4]), momentum, writes[3]);
        }
        for (gradient, v) in gradients.into_iter().zip(&instr.outs) {
            if let Storage::Gradient(p) = program.tape.storage(*v) {
                self.state.gradients[p] = gradient;
            }
        }
        result
    }

    pub(crate) fn read(&self, v: V) -> &[f32] {
        let mut gaps = Gaps::default();
        gaps[0] = (0, self.workspace.arena.as_slice());
        let Self { program, state, workspace, output_gradients, .. } = self;
        Sources { program, state, inputs: &workspace.inputs, output_gradients, gaps }.read(v)
    }
}

/// The parts of the workspace that a call does not write, with their offsets, in order.
type Gaps<'a> = [(usize, &'a [f32]); OUTS + 1];

/// Splits the workspace into the outputs of a call, in order, and the rest, which it may read.
fn cut<'a>(arena: &'a mut [f32], program: &Program, instr: &Instr) -> ([&'a mut [f32]; OUTS], Gaps<'a>) {
    let temporary = |v: &V| program.tape.storage(*v) == Storage::Temporary;
    let mut order: [(usize, usize); OUTS] = [(NONE, 0); OUTS];
    for (i, v) in instr.outs.iter().enumerate().filter(|(_, v)| temporary(v)) {
        order[i] = (program.plan.offsets[v.index()], i);
    }
    order.sort_unstable();
    let mut writes: [&mut [f32]; OUTS] = Default::default();
    let mut gaps = Gaps::default();
    let (mut rest, mut at) = (arena, 0);
    for ((offset, i), gap) in order.into_iter().take_while(|(offset, _)| *offset != NONE).zip(&mut gaps) {
        let (before, here) = rest.split_at_mut(offset - at);
        let (write, after) = here.split_at_mut(program.tape.len(instr.outs[i]));
        *gap = (at, before);
        at = offset + write.len();
        (writes[i], rest) = (write, after);
    }
    gaps[OUTS] = (at, rest);
    (writes, gaps)
}

/// Everything a call may read.
struct Sources<'a> {
    program: &'a Program,
    state: &'a ModelTensors,
    inputs: &'a [Buffer],
    output_gradients: &'a [&'a [f32]],
    gaps: Gaps<'a>,
}

impl<'a> Sources<'a> {
    fn read(&self, v: V) -> &'a [f32] {
        let slab = &self.program.tape.slabs[v.index()];
        let data = match slab.storage {
            Storage::Temporary => self.temporary(self.program.plan.offsets[v.index()]),
            Storage::Parameter(p) => self.state.parameters[p].as_slice(),
            Storage::Buffer(b) => self.state.buffers[b].as_slice(),
            Storage::Constant(c) => &self.state.constants[c],
            Storage::Input(i) => self.inputs[i].as_slice(),
            Storage::OutputGradient(o) => self.output_gradients[o],
            Storage::Gradient(p) => self.state.gradients[p].as_slice(),
        };
        &data[..slab.len]
    }

    /// The workspace from an offset up to the next buffer that is written.
    fn temporary(&self, offset: usize) -> &'a [f32] {
        let holds = |(start, piece): &&(usize, &[f32])| (*start..start + piece.len()).contains(&offset);
        let (start, piece) = self.gaps.iter().find(holds).copied().unwrap_or_default();
        piece.get(offset - start..).unwrap_or_default()
    }
}

/// Updates a running statistic with the batch's.
fn track(state: &mut ModelTensors, storage: Storage, momentum: f32, batch: &[f32]) {
    if let Storage::Buffer(b) = storage {
        for (r, x) in state.buffers[b].as_mut().iter_mut().zip(batch) {
            *r = (1.0 - momentum) * *r + momentum * x;
        }
    }
}

fn run(
    threads: &Threads,
    instr: &Instr,
    (seed, together): (u64, Option<&mut SumOver>),
    ins: &[&[f32]],
    outs: &mut [&mut [f32]],
) -> Result<(), CallError> {
    match &instr.kernel {
        Kernel::Map(m) => map::run(threads, m, seed, ins, outs),
        Kernel::Reduce(r) => reduce::run(threads, r, ins[0], outs[0]),
        Kernel::Fill(value) => outs[0].fill(*value),
        Kernel::Copy(view) => copy::copy(threads, view, ins[0], outs[0]),
        Kernel::CopyGrad(view) => copy::copy_back(view, ins[0], outs[0]),
        Kernel::Remap(r) => copy::remap(threads, r, ins[0], outs[0]),
        Kernel::RemapGrad(r) => copy::remap_back(r, ins[0], outs[0]),
        Kernel::Gather { outer, size, inner, count } => {
            let lookup = Lookup { outer: *outer, size: *size, inner: *inner, count: *count };
            let found = copy::gather(threads, lookup, ins[0], ins[1], outs[0]);
            return found.map_err(|index| CallError::Index { index, size: *size });
        }
        Kernel::GatherGrad { outer, size, inner, count } => {
            let lookup = Lookup { outer: *outer, size: *size, inner: *inner, count: *count };
            copy::gather_back(threads, lookup, ins[0], ins[1], outs[0]);
        }
        Kernel::Concat { outer, parts } => copy::concat(threads, *outer, ins, parts, outs[0]),
        Kernel::MatMul(spec) => matmul::run(threads, spec, ins[0], ins[1], outs[0]),
        Kernel::Linear { spec, bias, epilogue } => {
            let finish = Finish::new(*bias, epilogue.as_ref(), ins, seed);
            let work = |first: usize, rows: &mut [f32]| finish.run(first * spec.o, rows);
            let any = *bias || epilogue.is_some();
            linear::forward(threads, *spec, ins[0], ins[1], outs[0], any.then_some(work));
        }
        Kernel::LinearGradX(spec) => linear::grad_input(threads, *spec, ins[0], ins[1], outs[0]),
        Kernel::LinearGradW(spec) => linear::grad_weight(threads, *spec, ins[0], ins[1], outs[0]),
        Kernel::Conv { spec, bias, epilogue } => {
            let finish = Finish::new(*bias, epilogue.as_ref(), ins, seed);
            conv::forward(threads, spec, ins[0], ins[1], outs[0], |first, rows| {
                finish.run(first * spec.o, rows)
            });
        }
        Kernel::ConvGradX(spec) => conv::grad_input(threads, spec, ins[0], ins[1], outs[0]),
        Kernel::ConvGradW(spec) => conv::grad_weight(threads, spec, ins[0], ins[1], outs[0]),
        Kernel::MaxPool(_)
        | Kernel::MaxPoolGrad(_)
        | Kernel::AveragePool { .. }
        | Kernel::AveragePoolGrad { .. } => {
            run_pool(threads, instr, ins, outs);
        }
        Kernel::Resize(spec) => resize::forward(threads, spec, ins[0], outs[0]),
        Kernel::ResizeGrad(spec) => resize::backward(threads, spec, ins[0], outs[0]),
        Kernel::Softmax { d, log: false } => softmax::softmax_forward(threads, *d, ins[0], outs[0]),
        Kernel::Softmax { d, log: true } => softmax::log_softmax_forward(threads, *d, ins[0], outs[0]),
        Kernel::SoftmaxGrad { d, log: false } => {
            softmax::softmax_backward(threads, *d, (ins[0], ins[1]), outs[0])
        }
        Kernel::SoftmaxGrad { d, log: true } => {
            softmax::log_softmax_backward(threads, *d, (ins[0], ins[1]), outs[0])
        }
        Kernel::Norm(_) | Kernel::NormGrad(_) | Kernel::LayerNorm { .. } | Kernel::LayerNormGrad { .. } => {
            return run_norm(threads, instr, together, ins, outs);
        }
        Kernel::Attention(call) => attend(threads, call, ins, outs),
        Kernel::AttentionGrad(call) => attend_back(threads, call, ins, outs),
        Kernel::Recurrent(cell) => recurrent::forward(threads, cell, ins, outs),
        Kernel::RecurrentGrad { cell, dy, dh, dc } => {
            recurrent::backward(threads, cell, (*dy, *dh, *dc), ins, outs)
        }
    }
    Ok(())
}

/// The epilogue applied to finished rows of a product while they are in cache.
struct Finish<'a> {
    bias: Option<&'a [f32]>,
    epilogue: Option<&'a Map>,
    /// Operands of the epilogue after the first.
    ins: &'a [&'a [f32]],
    seed: u64,
}

impl<'a> Finish<'a> {
    /// The product's own operands come first in `ins`: two, then perhaps the bias.
    fn new(bias: bool, epilogue: Option<&'a Map>, ins: &'a [&'a [f32]], seed: u64) -> Self {
        let (own, ins) = ins.split_at(2 + usize::from(bias));
        Self { bias: own.get(2).copied(), epilogue, ins, seed }
    }

    fn run(&self, start: usize, rows: &mut [f32]) {
        if let Some(bias) = self.bias {
            linear::add_bias(bias, rows);
        }
        if let Some(map) = self.epilogue {
            map::run_in_place(map, self.seed, self.ins, start, rows);
        }
    }
}

fn run_norm(
    threads: &Threads,
    instr: &Instr,
    together: Option<&mut SumOver>,
    ins: &[&[f32]],
    outs: &mut [&mut [f32]],
) -> Result<(), CallError> {
    // Only batch norm depends on more than one sample.
    let share = |momentum: Option<f32>, sums: &mut [f64]| match together {
        Some(sum) if momentum.is_some() => sum(sums).map_err(|reason| CallError::Together { reason }),
        _ => Ok(()),
    };
    match (&instr.kernel, outs) {
        (Kernel::Norm(n), [y, mean, inv_std, variance]) => {
            let (weight, bias) = affine(&ins[1..=n.affine]);
            let statistics = norm::Statistics { mean, inv_std, variance };
            let share = |sums: &mut [f64]| share(n.momentum, sums);
            return group_norm(n, weight, bias).forward(threads, (ins[0], n.eps), y, statistics, share);
        }
        (Kernel::NormGrad(n), [dx, learned @ ..]) => {
            let (weight, bias) = affine(&ins[4..4 + n.affine]);
            let (dweight, dbias) = affine_mut(learned);
            let gradients = norm::Gradients { dx, dweight, dbias };
            let share = |sums: &mut [f64]| share(n.momentum, sums);
            let (x, statistics) = ((ins[0], ins[1]), (ins[2], ins[3]));
            return group_norm(n, weight, bias).backward(threads, x, statistics, (false, share), gradients);
        }
        (Kernel::LayerNorm { d, eps, affine: given, .. }, [y, mean, inv_std]) => {
            let (weight, bias) = affine(&ins[1..=*given]);
            let norm = norm::LayerNorm { d: *d, weight, bias };
            norm::layer_norm_forward(threads, norm, ins[0], *eps, y, (mean, inv_std));
        }
        (Kernel::LayerNormGrad { d }, [dx, learned @ ..]) => {
            let norm = norm::LayerNorm { d: *d, weight: ins.get(4).copied(), bias: None };
            norm::layer_norm_backward(
                threads,
                norm,
                (ins[0], ins[1]),
                (ins[2], ins[3]),
                dx,
                affine_mut(learned),
            );
        }
        _ => unreachable!("a norm with other results"),
    }
    Ok(())
}

fn group_norm<'a>(n: &Norm, weight: Option<&'a [f32]>, bias: Option<&'a [f32]>) -> norm::GroupNorm<'a> {
    let activation = match n.clip {
        None => norm::Activation::None,
        Some((low, high)) => norm::Activation::Clip(low, high),
    };
    norm::GroupNorm { n: n.n, rows: n.rows, c: n.c, groups: n.groups, weight, bias, activation }
}

fn affine<'a>(given: &[&'a [f32]]) -> (Option<&'a [f32]>, Option<&'a [f32]>) {
    (given.first().copied(), given.get(1).copied())
}

fn affine_mut<'a>(results: &'a mut [&mut [f32]]) -> (Option<&'a mut [f32]>, Option<&'a mut [f32]>) {
    let mut results = results.iter_mut().map(|r| &mut **r);
    (results.next(), results.next())
}

fn run_pool(threads: &Threads, instr: &Instr, ins: &[&[f32]], outs: &mut [&mut [f32]]) {
    match &instr.kernel {
        Kernel::MaxPool(spec) => {
            let [y, which] = outs else { unreachable!("a max-pool has two results") };
            let which: &mut [u8] = bytemuck::cast_slice_mut(which);
            let n = y.len();
            pool::max_forward(threads, spec, ins[0], y, spec.has_index().then(|| &mut which[..n]));
        }
        Kernel::MaxPoolGrad(spec) if spec.has_index() => {
            let which: &[u8] = bytemuck::cast_slice(ins[1]);
            pool::max_backward(threads, spec, ins[0], &which[..ins[0].len()], outs[0]);
        }
        Kernel::MaxPoolGrad(spec) => pool::max_backward_from(threads, spec, ins[1], ins[0], outs[0]),
        Kernel::AveragePool { spec, count_padding } => {
            pool::average_forward(threads, spec, *count_padding, ins[0], outs[0])
        }
        Kernel::AveragePoolGrad { spec, count_padding } => {
            pool::average_backward(threads, spec, *count_padding, ins[0], outs[0]);
        }
        _ => unreachable!("not a pool"),
    }
}

fn operands<'a>(
    call: &AttentionCall,
    ins: &[&'a [f32]],
    mask: Option<&&'a [f32]>,
) -> attention::Operands<'a> {
    let view = |i: usize, layout| attention::HeadView { data: ins[i], layout };
    let mask = mask.zip(call.mask).map(|(data, [batch, head, row, col])| attention::Mask {
        data,
        batch,
        head,
        row,
        col,
    });
    attention::Operands { q: view(0, call.q), k: view(1, call.k), v: view(2, call.v), mask }
}

fn attend(threads: &Threads, call: &AttentionCall, ins: &[&[f32]], outs: &mut [&mut [f32]]) {
    let [o, lse] = outs else { unreachable!("attention has two results") };
    let o = attention::Out { data: attention::SharedOutput::new(o), layout: call.o };
    call.spec.forward(threads, operands(call, ins, ins.get(3)), o, lse);
}

fn attend_back(threads: &Threads, call: &AttentionCall, ins: &[&[f32]], outs: &mut [&mut [f32]]) {
    let layouts = [call.q, call.k, call.v];
    let operands = operands(call, ins, ins.get(6));
    let results = attention::Results { o: attention::HeadView { data: ins[3], layout: call.o }, lse: ins[5] };
    let d_o = attention::HeadView { data: ins[4], layout: call.o };
    let gradients = match outs {
        [joined] => {
            let data = attention::SharedOutput::new(joined);
            layouts.map(|layout| attention::Out { data, layout })
        }
        [dq, dk, dv] => {
            let data = [dq, dk, dv].map(|d| attention::SharedOutput::new(d));
            [0, 1, 2].map(|i| attention::Out { data: data[i], layout: layouts[i] })
        }
        _ => unreachable!("attention has one or three gradients"),
    };
    call.spec.backward(threads, operands, results, d_o, gradients);
}
