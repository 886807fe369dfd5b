//! Normalisations and dropout.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::onnx::scope::is_made_up;
use crate::{Binary, Dim, Op, Reduce, Shape, Unary};

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    pub(super) fn batch_norm(&mut self, call: &Call) -> Made {
        if call.inputs.len() != 5 || call.inputs.iter().any(|v| matches!(v, Val::Absent)) {
            return Err(call.malformed("it needs five inputs"));
        }
        if call.attributes.int("spatial").is_some_and(|s| s == 0) {
            return Err(call.unsupported("spatial=0"));
        }
        let eps = call.attributes.float("epsilon").unwrap_or(1e-5);
        let momentum = 1.0 - call.attributes.float("momentum").unwrap_or(0.9);
        // 1 - 0.9 as PyTorch means it, without the rounding error of the float in between.
        let momentum = (f64::from(momentum) * 1e6).round() as f32 / 1e6;
        self.apply(call, Op::BatchNorm { eps, momentum }, &call.inputs)
    }

    pub(super) fn layer_norm(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let rank = self.shape(call, &x)?.rank();
        let axis = call.axis(call.attributes.int("axis").unwrap_or(-1), rank)?;
        let eps = call.attributes.float("epsilon").unwrap_or(1e-5);
        let inputs: Vec<Val> =
            std::iter::once(x).chain((1..3).filter_map(|i| call.optional(i).cloned())).collect();
        self.apply(call, Op::LayerNorm { axis, eps }, &inputs)
    }

    /// Decomposed as `x / √(mean(x²) + ε) × weight`.
    pub(super) fn rms_norm(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let rank = self.shape(call, &x)?.rank();
        let axis = call.axis(call.attributes.int("axis").unwrap_or(-1), rank)?;
        let eps = f64::from(call.attributes.float("epsilon").unwrap_or(1e-5));
        let square = self.binary(call, Binary::Mul, &x, &x)?;
        let mean = self.apply(
            call,
            Op::Reduce { kind: Reduce::Mean, axes: (axis..rank).collect(), keep: true },
            &[square],
        )?;
        let sum = self.binary(call, Binary::Add, &mean, &self.number(&x, eps))?;
        let root = self.apply(call, Op::Unary(Unary::Sqrt), &[sum])?;
        let y = self.binary(call, Binary::Div, &x, &root)?;
        match call.optional(1) {
            Some(weight) => self.binary(call, Binary::Mul, &y, weight),
            None => Ok(y),
        }
    }

    pub(super) fn instance_norm(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let channels = self.shape(call, &x)?.dims().get(1).and_then(|d| d.fixed());
        let groups = channels.ok_or_else(|| call.unsupported("a number of channels that is not known"))?;
        let eps = call.attributes.float("epsilon").unwrap_or(1e-5);
        let mut inputs = vec![x, call.input(1)?.clone(), call.input(2)?.clone()];
        // Exporters write a norm without weights, or the core of a group norm, with ones and zeros of their own.
        let own = |v: &Val| matches!(v, Val::Graph(id) if !is_made_up(&self.graph.value(*id).name));
        let all = |v: &Val, x: f64| {
            let numbers = self.numbers(v, 0).filter(|_| !own(v)).and_then(|l| l.floats());
            numbers.is_some_and(|f| f.iter().all(|y| *y == x))
        };
        if all(&inputs[1], 1.0) && all(&inputs[2], 0.0) {
            inputs.truncate(1);
        }
        self.apply(call, Op::GroupNorm { groups, eps }, &inputs)
    }

    /// Weights are per group in operator set 18 and per channel from 21 on.
    pub(super) fn group_norm(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let groups = call.attributes.int("num_groups").and_then(|g| usize::try_from(g).ok()).unwrap_or(0);
        let shape = self.shape(call, &x)?;
        let channels = shape.dims().get(1).and_then(|d| d.fixed()).unwrap_or(0);
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(call.malformed("channels cannot be divided into its groups"));
        }
        let eps = call.attributes.float("epsilon").unwrap_or(1e-5);
        let mut inputs = vec![x];
        for i in 1..3 {
            let mut w = call.input(i)?.clone();
            if self.shape(call, &w)? == Shape::fixed(&[groups]) && groups != channels {
                let each = channels / groups;
                w = self.reshape_to(call, &w, vec![Dim::Fixed(groups), Dim::Fixed(1)])?;
                w = self.apply(call, Op::Expand { to: Shape::fixed(&[groups, each]) }, &[w])?;
                w = self.reshape_to(call, &w, vec![Dim::Fixed(channels)])?;
            }
            inputs.push(w);
        }
        self.apply(call, Op::GroupNorm { groups, eps }, &inputs)
    }

    pub(super) fn dropout(&mut self, call: &Call) -> Made {
        let ratio = match (call.attributes.float("ratio"), call.optional(1)) {
            (Some(r), _) => r,
            (None, Some(_)) => {
                call.known(1)?.single().ok_or_else(|| call.malformed("its ratio is not a number"))? as f32
            }
            (None, None) => 0.5,
        };
        if !(0.0..=1.0).contains(&ratio) {
            return Err(call.malformed("its ratio is not between 0 and 1"));
        }
        if ratio == 0.0 {
            return Ok(call.input(0)?.clone());
        }
        self.apply(call, Op::Dropout { ratio }, &[call.input(0)?.clone()])
    }

    /// Up to opset 12 all axes from `axis` on form one distribution.
    pub(super) fn softmax(&mut self, call: &Call, log: bool) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let old = call.opset < 13;
        let axis =
            call.axis(call.attributes.int("axis").unwrap_or(if old { 1 } else { -1 }), shape.rank())?;
        let op = |axis| if log { Op::LogSoftmax { axis } } else { Op::Softmax { axis } };
        if !old || axis + 1 == shape.rank() {
            return self.apply(call, op(axis), &[x]);
        }
        let tail: Option<Vec<usize>> = shape.dims()[axis..].iter().map(|d| d.fixed()).collect();
        let n = tail.and_then(|t| t.iter().try_fold(1usize, |n, d| n.checked_mul(*d)));
        let n = n.ok_or_else(|| call.unsupported("a distribution over the batch"))?;
        let flat = self.reshape_to(call, &x, [&shape.dims()[..axis], &[Dim::Fixed(n)]].concat())?;
        let y = self.apply(call, op(axis), &[flat])?;
        self.reshape_to(call, &y, shape.dims().to_vec())
    }
}
