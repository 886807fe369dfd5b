//! The tape: a graph at one batch size as a list of kernel calls over buffers, forward first, then backward.

use crate::kernels::attention::{self, Attention};
use crate::kernels::conv::Conv2d;
use crate::kernels::copy::{Remap, Strided};
use crate::kernels::linear::Linear;
use crate::kernels::map::Map;
use crate::kernels::matmul::MatMul;
use crate::kernels::pool::Pool2d;
use crate::kernels::reduce::Reduction;
use crate::kernels::resize::Resize2d;
use phalanx_graph::Recurrent;

/// A buffer of the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct V(pub(crate) u32);

impl V {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a buffer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// In the workspace, while it is needed.
    Temporary,
    Parameter(usize),
    Buffer(usize),
    Constant(usize),
    Input(usize),
    /// The gradient of an output, given to backward.
    OutputGradient(usize),
    /// The gradient of a parameter.
    Gradient(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Slab {
    pub(crate) len: usize,
    pub(crate) storage: Storage,
}

/// One kernel call.
#[derive(Debug, Clone)]
pub(crate) struct Instr {
    pub(crate) kernel: Kernel,
    pub(crate) ins: Vec<V>,
    pub(crate) outs: Vec<V>,
    /// The node of the graph it was made for.
    pub(crate) node: usize,
}

/// What a call computes; the comment says ins → outs.
#[derive(Debug, Clone)]
pub(crate) enum Kernel {
    /// operands… → results…
    Map(Map),
    /// x → y
    Reduce(Reduction),
    /// x `[rows, k]`, w `[o, k]`, b? `[o]`, operands of the epilogue after the first… → y
    Linear { spec: Linear, bias: bool, epilogue: Option<Map> },
    /// dy, w → dx
    LinearGradX(Linear),
    /// x, dy → dw
    LinearGradW(Linear),
    /// a, b → c
    MatMul(MatMul),
    /// x, w, b? `[o]`, operands of the epilogue after the first… → y
    Conv { spec: Conv2d, bias: bool, epilogue: Option<Map> },
    /// dy, w → dx
    ConvGradX(Conv2d),
    /// x, dy → dw
    ConvGradW(Conv2d),
    /// x → y, index of the maximum in the window
    MaxPool(Pool2d),
    /// dy, index (or x, if the window is too large for an index) → dx
    MaxPoolGrad(Pool2d),
    /// x → y
    AveragePool { spec: Pool2d, count_padding: bool },
    /// dy → dx
    AveragePoolGrad { spec: Pool2d, count_padding: bool },
    /// x, w?, b?, then (batch norm) running mean, running variance → y, mean, inverse deviation, variance
    Norm(Norm),
    /// x, dy, mean, inverse deviation, w?, b? → dx, dw?, db?
    NormGrad(Norm),
    /// x, w?, b? → y, mean, inverse deviation
    LayerNorm { d: usize, eps: f32, affine: usize },
    /// x, dy, mean, inverse deviation, w? → dx, dw?, db?
    LayerNormGrad { d: usize },
    /// x → y
    Softmax { d: usize, log: bool },
    /// y, dy → dx
    SoftmaxGrad { d: usize, log: bool },
    /// q, k, v, mask? → o, what backward needs
    Attention(AttentionCall),
    /// q, k, v, o, do, what forward kept, mask? → dq, dk, dv, or one buffer that holds all three
    AttentionGrad(AttentionCall),
    /// data, indices → rows
    Gather { outer: usize, size: usize, inner: usize, count: usize },
    /// indices, dy → d(data)
    GatherGrad { outer: usize, size: usize, inner: usize, count: usize },
    /// buffer → the view of it, dense
    Copy(Strided),
    /// dense → the buffer whose view it is; the rest is zero
    CopyGrad(Strided),
    /// x → y
    Remap(Remap),
    /// dy → dx
    RemapGrad(Remap),
    /// parts… → joined; `[outer, len of each part]`
    Concat { outer: usize, parts: Vec<usize> },
    /// x → y
    Resize(Resize2d),
    /// dy → dx
    ResizeGrad(Resize2d),
    /// x, w_ih, w_hh, b_ih?, b_hh?, h0?, c0? → y, h, c, what backward needs (GRU: no c)
    Recurrent(Cell),
    /// see `grad/recurrent.rs`
    RecurrentGrad { cell: Cell, dy: bool, dh: bool, dc: bool },
    /// → filled
    Fill(f32),
}

impl Kernel {
    /// The name in profiles.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Kernel::Map(_) => "map",
            Kernel::Reduce(_) => "reduce",
            Kernel::Linear { .. } => "linear",
            Kernel::LinearGradX(_) => "linear, input",
            Kernel::LinearGradW(_) => "linear, weight",
            Kernel::MatMul(_) => "matmul",
            Kernel::Conv { .. } => "conv",
            Kernel::ConvGradX(_) => "conv, input",
            Kernel::ConvGradW(_) => "conv, weight",
            Kernel::MaxPool(_) | Kernel::MaxPoolGrad(_) => "max-pool",
            Kernel::AveragePool { .. } | Kernel::AveragePoolGrad { .. } => "average-pool",
            Kernel::Norm(_) | Kernel::NormGrad(_) => "norm",
            Kernel::LayerNorm { .. } | Kernel::LayerNormGrad { .. } => "layer-norm",
            Kernel::Softmax { .. } | Kernel::SoftmaxGrad { .. } => "softmax",
            Kernel::Attention(_) | Kernel::AttentionGrad(_) => "attention",
            Kernel::Gather { .. } | Kernel::GatherGrad { .. } => "gather",
            Kernel::Copy(_) | Kernel::CopyGrad(_) => "copy",
            Kernel::Remap(_) | Kernel::RemapGrad(_) => "remap",
            Kernel::Concat { .. } => "concat",
            Kernel::Resize(_) | Kernel::ResizeGrad(_) => "resize",
            Kernel::Recurrent(_) | Kernel::RecurrentGrad { .. } => "recurrent",
            Kernel::Fill(_) => "fill",
        }
    }
}

/// A normalisation of groups of channels of `x`: `[n, rows, c]`. Batch norm is one sample with a group per channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Norm {
    pub(crate) n: usize,
    pub(crate) rows: usize,
    pub(crate) c: usize,
    pub(crate) groups: usize,
    pub(crate) eps: f32,
    /// How many of weight and bias there are.
    pub(crate) affine: usize,
    /// Limits of the result.
    pub(crate) clip: Option<(f32, f32)>,
    /// Batch norm: the share of this batch in the running statistics.
    pub(crate) momentum: Option<f32>,
    /// Update the running statistics.
    pub(crate) track: bool,
}

/// One layer and direction of an LSTM or GRU at a batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) lstm: bool,
    pub(crate) steps: usize,
    pub(crate) batch: usize,
    pub(crate) input: usize,
    pub(crate) kind: Recurrent,
}

/// The layouts of query, key, value and result in their buffers.
#[derive(Debug, Clone)]
pub(crate) struct AttentionCall {
    pub(crate) spec: Attention,
    pub(crate) q: attention::HeadLayout,
    pub(crate) k: attention::HeadLayout,
    pub(crate) v: attention::HeadLayout,
    pub(crate) o: attention::HeadLayout,
    /// Strides of the mask over batch, head, row and column.
    pub(crate) mask: Option<[usize; 4]>,
    /// The gradients of q, k and v go into one buffer, with the layouts of q, k and v.
    pub(crate) joined: bool,
}

/// Buffers and calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tape {
    pub(crate) slabs: Vec<Slab>,
    pub(crate) instrs: Vec<Instr>,
    /// How many of the calls are forward.
    pub(crate) forward: usize,
}

impl Tape {
    pub(crate) fn slab(&mut self, len: usize, storage: Storage) -> V {
        self.slabs.push(Slab { len, storage });
        V((self.slabs.len() - 1) as u32)
    }

    pub(crate) fn len(&self, v: V) -> usize {
        self.slabs[v.index()].len
    }

    pub(crate) fn storage(&self, v: V) -> Storage {
        self.slabs[v.index()].storage
    }

    /// Adds a call with new temporary buffers of these sizes as its outputs.
    pub(crate) fn call(&mut self, node: usize, kernel: Kernel, ins: Vec<V>, outs: &[usize]) -> Vec<V> {
        let outs: Vec<V> = outs.iter().map(|n| self.slab(*n, Storage::Temporary)).collect();
        self.instrs.push(Instr { kernel, ins, outs: outs.clone(), node });
        outs
    }

    /// As [`Tape::call`] with one output.
    pub(crate) fn call1(&mut self, node: usize, kernel: Kernel, ins: Vec<V>, out: usize) -> V {
        self.call(node, kernel, ins, &[out])[0]
    }
}
