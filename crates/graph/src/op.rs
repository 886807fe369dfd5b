//! The operators. Where PyTorch and ONNX differ, they follow PyTorch.
//!
//! Tensors have the usual layouts (images `[N, C, H, W]`); an engine may use others internally.

use crate::Shape;
use phalanx_types::DType;
use serde::{Deserialize, Serialize};

/// The operation of a node. The comment of each names its inputs → outputs; `?` marks an optional last input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// x `[N, C, S…]`, w `[O, C/groups, K…]`, b? `[O]` → `[N, O, S'…]`; one or two spatial dimensions.
    Conv(Conv),
    /// x `[N, C, S…]`, w `[C, O/groups, K…]`, b? `[O]` → `[N, O, S'…]`.
    ConvTranspose(ConvTranspose),
    /// x `[…, K]`, w `[O, K]`, b? `[O]` → `[…, O]`.
    Linear,
    /// a `[…, M, K]`, b `[…, K, N]` → `[…, M, N]`; leading dimensions broadcast; both at least rank 2.
    MatMul,
    /// x → same shape.
    Unary(Unary),
    /// a, b → broadcast shape.
    Binary(Binary),
    /// a, b → broadcast shape of `Bool`.
    Compare(Compare),
    /// condition (`Bool`), a, b → broadcast shape.
    Where,
    Softmax {
        axis: usize,
    },
    LogSoftmax {
        axis: usize,
    },
    /// x `[N, C, S…]` → `[N, C, S'…]`.
    MaxPool(Pool),
    AveragePool {
        pool: Pool,
        /// Whether padding counts in the divisor.
        count_padding: bool,
    },
    /// x → reduced over `axes` (sorted), kept as 1 or dropped.
    Reduce {
        kind: Reduce,
        axes: Vec<usize>,
        keep: bool,
    },
    /// x `[N, C, …]`, weight, bias, running mean, running variance (`[C]` each) → same shape.
    BatchNorm {
        eps: f32,
        /// The weight of the batch in the new running value, as in PyTorch.
        momentum: f32,
    },
    /// x, weight?, bias? (shape of the axes from `axis` on) → same shape.
    LayerNorm {
        axis: usize,
        eps: f32,
    },
    /// x `[N, C, …]`, weight?, bias? `[C]` → same shape. As many groups as channels: instance norm.
    GroupNorm {
        groups: usize,
        eps: f32,
    },
    /// x → same shape. The identity in evaluation. Its random numbers are derived from the node's name.
    Dropout {
        ratio: f32,
    },
    /// data, indices (integers) → data's shape with `axis` replaced by the shape of the indices.
    Gather {
        axis: usize,
    },
    Reshape {
        to: Shape,
    },
    Transpose {
        perm: Vec<usize>,
    },
    /// Any number of inputs.
    Concat {
        axis: usize,
    },
    /// One entry per axis of the input.
    Slice {
        ranges: Vec<Range>,
    },
    /// Negative amounts crop.
    Pad {
        before: Vec<i64>,
        after: Vec<i64>,
        mode: PadMode,
    },
    Expand {
        to: Shape,
    },
    Cast {
        to: DType,
    },
    /// x `[N, C, S…]` → spatial dimensions of `size`.
    Resize(Resize),
    /// x, w_ih `[4H, I]`, w_hh `[4H, H]`, b_ih? `[4H]`, b_hh? `[4H]`, h0? `[N, H]`, c0? `[N, H]`
    /// → y, last h `[N, H]`, last c `[N, H]`. Gates as in PyTorch: input, forget, cell, output.
    Lstm(Recurrent),
    /// x, w_ih `[3H, I]`, w_hh `[3H, H]`, b_ih? `[3H]`, b_hh? `[3H]`, h0? `[N, H]` → y, last h `[N, H]`.
    /// Gates as in PyTorch: reset, update, new.
    Gru(Recurrent),
    /// q `[…, T, D]`, k `[…, S, D]`, v `[…, S, E]`, mask? (added to the scores, broadcast) → `[…, T, E]`.
    Attention {
        scale: f32,
        /// Position t sees positions up to t.
        causal: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv {
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    /// Padding before and after, per spatial dimension.
    pub pad: Vec<(usize, usize)>,
    pub groups: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvTranspose {
    pub conv: Conv,
    pub output_padding: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub kernel: Vec<usize>,
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    pub pad: Vec<(usize, usize)>,
    /// Round the output size up (the last window may extend beyond the input).
    pub ceil: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Unary {
    Neg,
    Sqrt,
    Exp,
    Log,
    Abs,
    Reciprocal,
    Erf,
    Sin,
    Cos,
    Floor,
    Sign,
    Not,
    Relu,
    LeakyRelu { slope: f32 },
    Elu { alpha: f32 },
    Sigmoid,
    Tanh,
    HardSigmoid { alpha: f32, beta: f32 },
    HardSwish,
    Silu,
    Gelu { tanh: bool },
    Softplus,
    Clip { min: f32, max: f32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Min,
    Max,
    /// Of `Bool`.
    And,
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compare {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reduce {
    Mean,
    Sum,
    Max,
    Min,
}

/// The elements `start, start + step, …` of one axis; `step` may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub start: usize,
    /// How many elements; `None` keeps a whole axis whose length depends on the batch.
    pub len: Option<usize>,
    pub step: i64,
}

impl Range {
    pub const ALL: Self = Self { start: 0, len: None, step: 1 };
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum PadMode {
    Constant(f32),
    Reflect,
    Edge,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    pub size: Vec<usize>,
    /// The scale factor per spatial dimension; coordinates are computed with it.
    pub scale: Vec<f32>,
    pub mode: ResizeMode,
    pub coordinates: Coordinates,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeMode {
    /// The pixel at or before (`floor`).
    Nearest,
    Linear,
}

/// Which input coordinate an output pixel `o` maps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coordinates {
    /// `(o + 0.5) / scale - 0.5`
    HalfPixel,
    /// `o × (in - 1) / (out - 1)`
    AlignCorners,
    /// `o / scale`
    Asymmetric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurrent {
    pub hidden: usize,
    /// x and y are `[N, T, …]` instead of `[T, N, …]`.
    pub batch_first: bool,
    /// From the last step to the first.
    pub reverse: bool,
    /// Both biases are given.
    pub bias: bool,
    /// The initial state is given; else it is zero.
    pub initial: bool,
}

impl Op {
    /// The name of this operator in tables and messages.
    pub fn word(&self) -> &'static str {
        match self {
            Op::Conv(_) => "Conv",
            Op::ConvTranspose(_) => "ConvTranspose",
            Op::Linear => "Linear",
            Op::MatMul => "MatMul",
            Op::Unary(u) => u.word(),
            Op::Binary(b) => b.word(),
            Op::Compare(_) => "Compare",
            Op::Where => "Where",
            Op::Softmax { .. } => "Softmax",
            Op::LogSoftmax { .. } => "LogSoftmax",
            Op::MaxPool(_) => "MaxPool",
            Op::AveragePool { .. } => "AveragePool",
            Op::Reduce { kind, .. } => match kind {
                Reduce::Mean => "ReduceMean",
                Reduce::Sum => "ReduceSum",
                Reduce::Max => "ReduceMax",
                Reduce::Min => "ReduceMin",
            },
            Op::BatchNorm { .. } => "BatchNorm",
            Op::LayerNorm { .. } => "LayerNorm",
            Op::GroupNorm { .. } => "GroupNorm",
            Op::Dropout { .. } => "Dropout",
            Op::Gather { .. } => "Gather",
            Op::Reshape { .. } => "Reshape",
            Op::Transpose { .. } => "Transpose",
            Op::Concat { .. } => "Concat",
            Op::Slice { .. } => "Slice",
            Op::Pad { .. } => "Pad",
            Op::Expand { .. } => "Expand",
            Op::Cast { .. } => "Cast",
            Op::Resize(_) => "Resize",
            Op::Lstm(_) => "LSTM",
            Op::Gru(_) => "GRU",
            Op::Attention { .. } => "Attention",
        }
    }
}

impl Unary {
    pub fn word(self) -> &'static str {
        match self {
            Unary::Neg => "Neg",
            Unary::Sqrt => "Sqrt",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Abs => "Abs",
            Unary::Reciprocal => "Reciprocal",
            Unary::Erf => "Erf",
            Unary::Sin => "Sin",
            Unary::Cos => "Cos",
            Unary::Floor => "Floor",
            Unary::Sign => "Sign",
            Unary::Not => "Not",
            Unary::Relu => "Relu",
            Unary::LeakyRelu { .. } => "LeakyRelu",
            Unary::Elu { .. } => "Elu",
            Unary::Sigmoid => "Sigmoid",
            Unary::Tanh => "Tanh",
            Unary::HardSigmoid { .. } => "HardSigmoid",
            Unary::HardSwish => "HardSwish",
            Unary::Silu => "Silu",
            Unary::Gelu { .. } => "Gelu",
            Unary::Softplus => "Softplus",
            Unary::Clip { .. } => "Clip",
        }
    }
}

impl Binary {
    pub fn word(self) -> &'static str {
        match self {
            Binary::Add => "Add",
            Binary::Sub => "Sub",
            Binary::Mul => "Mul",
            Binary::Div => "Div",
            Binary::Pow => "Pow",
            Binary::Min => "Min",
            Binary::Max => "Max",
            Binary::And => "And",
            Binary::Or => "Or",
        }
    }
}
