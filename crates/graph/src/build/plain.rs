//! Operations without parameters; their nodes get names such as `relu_1`.

use super::Builder;
use crate::{Binary, Dim, Op, Pool, Range, Reduce, Shape, Unary, ValueId};

impl Builder {
    pub fn unary(&mut self, x: ValueId, op: Unary) -> ValueId {
        let name = self.fresh(match op {
            Unary::Relu => "relu",
            Unary::Gelu { .. } => "gelu",
            Unary::Silu => "silu",
            Unary::Tanh => "tanh",
            Unary::Sigmoid => "sigmoid",
            Unary::Clip { .. } => "clip",
            _ => "unary",
        });
        self.op(name, Op::Unary(op), &[x])
    }

    pub fn relu(&mut self, x: ValueId) -> ValueId {
        self.unary(x, Unary::Relu)
    }

    pub fn relu6(&mut self, x: ValueId) -> ValueId {
        self.unary(x, Unary::Clip { min: 0.0, max: 6.0 })
    }

    /// The exact GELU, not its tanh approximation.
    pub fn gelu(&mut self, x: ValueId) -> ValueId {
        self.unary(x, Unary::Gelu { tanh: false })
    }

    pub fn binary(&mut self, a: ValueId, b: ValueId, op: Binary) -> ValueId {
        let name = self.fresh(match op {
            Binary::Add => "add",
            Binary::Mul => "mul",
            _ => "binary",
        });
        self.op(name, Op::Binary(op), &[a, b])
    }

    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(a, b, Binary::Add)
    }

    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(a, b, Binary::Mul)
    }

    /// Over the last axis.
    pub fn softmax(&mut self, x: ValueId) -> ValueId {
        let axis = self.shape(x).rank().saturating_sub(1);
        let name = self.fresh("softmax");
        self.op(name, Op::Softmax { axis }, &[x])
    }

    /// Max pooling with windows of `kernel`, non-overlapping, over every spatial dimension.
    pub fn max_pool(&mut self, x: ValueId, kernel: usize) -> ValueId {
        let pool = self.square(x, kernel, kernel, 0);
        self.max_pool_with(x, pool)
    }

    pub fn max_pool_with(&mut self, x: ValueId, pool: Pool) -> ValueId {
        let name = self.fresh("max_pool");
        self.op(name, Op::MaxPool(pool), &[x])
    }

    pub fn average_pool(&mut self, x: ValueId, pool: Pool) -> ValueId {
        let name = self.fresh("average_pool");
        self.op(name, Op::AveragePool { pool, count_padding: true }, &[x])
    }

    /// A window of the same size in every spatial dimension of `x`.
    pub fn square(&self, x: ValueId, kernel: usize, stride: usize, pad: usize) -> Pool {
        let n = self.shape(x).rank().saturating_sub(2);
        Pool {
            kernel: vec![kernel; n],
            stride: vec![stride; n],
            dilation: vec![1; n],
            pad: vec![(pad, pad); n],
            ceil: false,
        }
    }

    /// The mean over all spatial dimensions: `[N, C, S…]` → `[N, C]`.
    pub fn global_average_pool(&mut self, x: ValueId) -> ValueId {
        let axes: Vec<usize> = (2..self.shape(x).rank()).collect();
        self.reduce(x, Reduce::Mean, axes, false)
    }

    pub fn reduce(&mut self, x: ValueId, kind: Reduce, axes: Vec<usize>, keep: bool) -> ValueId {
        let name = self.fresh("reduce");
        self.op(name, Op::Reduce { kind, axes, keep }, &[x])
    }

    /// Merges all dimensions but the first.
    pub fn flatten(&mut self, x: ValueId) -> ValueId {
        let shape = self.shape(x);
        let Some((first, rest)) = shape.dims().split_first() else { return x };
        let sizes: Option<Vec<usize>> = rest.iter().map(|d| d.fixed()).collect();
        let name = self.fresh("flatten");
        let Some(n) = sizes.and_then(|s| self.product(&name, &s)) else { return x };
        self.op(name, Op::Reshape { to: Shape::new(vec![*first, Dim::Fixed(n)]) }, &[x])
    }

    /// Reshapes each sample; the batch dimension stays.
    pub fn reshape(&mut self, x: ValueId, sample: &[usize]) -> ValueId {
        self.reshape_to(x, Shape::batch_of(sample))
    }

    pub fn reshape_to(&mut self, x: ValueId, to: Shape) -> ValueId {
        let name = self.fresh("reshape");
        self.op(name, Op::Reshape { to }, &[x])
    }

    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> ValueId {
        let name = self.fresh("transpose");
        self.op(name, Op::Transpose { perm: perm.to_vec() }, &[x])
    }

    pub fn concat(&mut self, parts: &[ValueId], axis: usize) -> ValueId {
        let name = self.fresh("concat");
        self.op(name, Op::Concat { axis }, parts)
    }

    /// `len` elements of one axis from `start` on.
    pub fn slice(&mut self, x: ValueId, axis: usize, start: usize, len: usize) -> ValueId {
        let dims = self.shape(x);
        let ranges = (0..dims.rank()).map(|i| match (i == axis, dims[i]) {
            (true, _) => Range { start, len: Some(len), step: 1 },
            (false, Dim::Fixed(n)) => Range { start: 0, len: Some(n), step: 1 },
            (false, Dim::Batch(_)) => Range::ALL,
        });
        let op = Op::Slice { ranges: ranges.collect() };
        let name = self.fresh("slice");
        self.op(name, op, &[x])
    }

    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let name = self.fresh("matmul");
        self.op(name, Op::MatMul, &[a, b])
    }

    /// Attention, scaled by the inverse root of the head width.
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, causal: bool) -> ValueId {
        let name = self.fresh("attention");
        let Some(width) = self.last(&name, q) else { return q };
        let scale = 1.0 / (width as f32).sqrt();
        self.op(name, Op::Attention { scale, causal }, &[q, k, v])
    }
}
