//! Inference of types and shapes of an operator's outputs.

use crate::op::{Compare, Conv, ConvTranspose, Op, Pool, Range, Recurrent, Resize};
use crate::{Dim, Shape, Value};
use phalanx_types::DType;

/// An operator does not accept its inputs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InferError {
    #[error("{op} `{node}` takes {takes} inputs, got {got}")]
    Arity { node: String, op: &'static str, takes: &'static str, got: usize },
    #[error("{op} `{node}` does not fit its inputs {shapes:?}: {why}")]
    Shape { node: String, op: &'static str, shapes: Vec<Shape>, why: &'static str },
    #[error("{op} `{node}` takes {wanted} as input {index}, got {got:?}")]
    DType { node: String, op: &'static str, index: usize, wanted: &'static str, got: DType },
    #[error("{op} `{node}` makes a value of {shape}, more elements than can be computed")]
    Large { node: String, op: &'static str, shape: Shape },
}

/// The most elements of one value per sample, and the largest dimension.
pub(crate) const MOST_VALUES: usize = 1 << 40;
/// The largest kernel, stride, dilation and padding.
const MOST_SETTING: usize = 1 << 24;

/// Whether the number of elements can be computed and is within the limit.
pub(crate) fn is_countable(shape: &Shape) -> bool {
    shape.dims().iter().all(|d| d.at(1) <= MOST_VALUES)
        && shape.count().is_some_and(|c| c.factor <= MOST_VALUES)
}

type Made = Vec<(DType, Shape)>;

struct Args<'a> {
    node: &'a str,
    op: &'a Op,
    args: &'a [&'a Value],
}

/// The outputs' types and shapes.
pub(crate) fn infer(node: &str, op: &Op, args: &[&Value]) -> Result<Made, InferError> {
    let a = Args { node, op, args };
    a.check_arity()?;
    let made = a.made()?;
    match made.iter().find(|(_, shape)| !is_countable(shape)) {
        None => Ok(made),
        Some((_, shape)) => Err(InferError::Large { node: node.into(), op: op.word(), shape: shape.clone() }),
    }
}

impl Args<'_> {
    /// By the operator's own rules.
    fn made(&self) -> Result<Made, InferError> {
        let a = self;
        let one = |shape: Shape| Ok(vec![(a.args[0].dtype, shape)]);
        match self.op {
            Op::Conv(c) => one(a.conv(c)?),
            Op::ConvTranspose(c) => one(a.conv_transpose(c)?),
            Op::Linear => one(a.linear()?),
            Op::MatMul => one(a.matmul()?),
            Op::Unary(_) | Op::Dropout { .. } => one(a.shape(0).clone()),
            Op::Binary(_) => one(a.broadcast(0, 1)?),
            Op::Compare(
                Compare::Equal
                | Compare::Less
                | Compare::LessOrEqual
                | Compare::Greater
                | Compare::GreaterOrEqual,
            ) => Ok(vec![(DType::Bool, a.broadcast(0, 1)?)]),
            Op::Where => {
                let shape = a
                    .broadcast(1, 2)?
                    .broadcast(a.shape(0))
                    .ok_or_else(|| a.bad("shapes do not broadcast"))?;
                Ok(vec![(a.args[1].dtype, shape)])
            }
            Op::Softmax { axis } | Op::LogSoftmax { axis } => {
                a.check(*axis < a.rank(0), "there is no such axis")?;
                one(a.shape(0).clone())
            }
            Op::MaxPool(p) | Op::AveragePool { pool: p, .. } => one(a.pool(p)?),
            Op::Reduce { axes, keep, .. } => one(a.reduce(axes, *keep)?),
            Op::BatchNorm { .. } => {
                a.per_channel(1..5)?;
                one(a.shape(0).clone())
            }
            Op::LayerNorm { axis, .. } => {
                a.check(*axis < a.rank(0), "there is no such axis")?;
                let tail = &a.shape(0).dims()[*axis..];
                a.check(
                    (1..a.args.len()).all(|i| a.shape(i).dims() == tail),
                    "weights do not have the normalised shape",
                )?;
                one(a.shape(0).clone())
            }
            Op::GroupNorm { groups, .. } => {
                a.per_channel(1..a.args.len())?;
                let divides = a.fixed(0, 1)?.checked_rem(*groups) == Some(0);
                a.check(divides, "channels cannot be divided into that many groups")?;
                one(a.shape(0).clone())
            }
            Op::Gather { axis } => {
                a.check(*axis < a.rank(0), "there is no such axis")?;
                let (x, i) = (a.shape(0).dims(), a.shape(1).dims());
                one(Shape::new([&x[..*axis], i, &x[axis + 1..]].concat()))
            }
            Op::Reshape { to } => {
                a.check(
                    to.count().is_some() && to.count() == a.shape(0).count(),
                    "the number of elements differs",
                )?;
                one(to.clone())
            }
            Op::Transpose { perm } => {
                let mut seen = perm.clone();
                seen.sort_unstable();
                a.check(seen.into_iter().eq(0..a.rank(0)), "not a permutation of its axes")?;
                one(Shape::new(perm.iter().map(|p| a.shape(0)[*p]).collect()))
            }
            Op::Concat { axis } => one(a.concat(*axis)?),
            Op::Slice { ranges } => one(a.slice(ranges)?),
            Op::Pad { before, after, .. } => one(a.pad(before, after)?),
            Op::Expand { to } => {
                a.check(a.shape(0).broadcast(to).as_ref() == Some(to), "cannot be expanded to that shape")?;
                one(to.clone())
            }
            Op::Cast { to } => Ok(vec![(*to, a.shape(0).clone())]),
            Op::Resize(r) => one(a.resize(r)?),
            Op::Lstm(r) => a.recurrent(r, 4),
            Op::Gru(r) => a.recurrent(r, 3),
            Op::Attention { .. } => one(a.attention()?),
        }
    }

    fn check_arity(&self) -> Result<(), InferError> {
        let (least, most, takes) = match self.op {
            Op::Conv(_) | Op::ConvTranspose(_) | Op::Linear => (2, 3, "2 or 3"),
            Op::MatMul | Op::Binary(_) | Op::Compare(_) | Op::Gather { .. } => (2, 2, "2"),
            Op::Where => (3, 3, "3"),
            Op::BatchNorm { .. } => (5, 5, "5"),
            Op::LayerNorm { .. } | Op::GroupNorm { .. } => (1, 3, "1 to 3"),
            Op::Concat { .. } => (1, usize::MAX, "1 or more"),
            Op::Attention { .. } => (3, 4, "3 or 4"),
            Op::Lstm(r) => {
                let n = 3 + 2 * usize::from(r.bias) + 2 * usize::from(r.initial);
                (n, n, "3, and 2 for biases, and 2 for the initial state")
            }
            Op::Gru(r) => {
                let n = 3 + 2 * usize::from(r.bias) + usize::from(r.initial);
                (n, n, "3, and 2 for biases, and 1 for the initial state")
            }
            _ => (1, 1, "1"),
        };
        if (least..=most).contains(&self.args.len()) {
            return Ok(());
        }
        Err(InferError::Arity { node: self.node.into(), op: self.op.word(), takes, got: self.args.len() })
    }

    fn shape(&self, i: usize) -> &Shape {
        &self.args[i].shape
    }

    fn rank(&self, i: usize) -> usize {
        self.shape(i).rank()
    }

    fn bad(&self, why: &'static str) -> InferError {
        let shapes = self.args.iter().map(|v| v.shape.clone()).collect();
        InferError::Shape { node: self.node.into(), op: self.op.word(), shapes, why }
    }

    fn check(&self, holds: bool, why: &'static str) -> Result<(), InferError> {
        if holds { Ok(()) } else { Err(self.bad(why)) }
    }

    /// A dimension that must not depend on the batch.
    fn fixed(&self, i: usize, axis: usize) -> Result<usize, InferError> {
        let dim = self.shape(i).dims().get(axis).ok_or_else(|| self.bad("too few dimensions"))?;
        dim.fixed().ok_or_else(|| self.bad("a dimension that must be known depends on the batch"))
    }

    fn broadcast(&self, i: usize, j: usize) -> Result<Shape, InferError> {
        self.shape(i).broadcast(self.shape(j)).ok_or_else(|| self.bad("shapes do not broadcast"))
    }

    fn per_channel(&self, which: std::ops::Range<usize>) -> Result<(), InferError> {
        let c = self.fixed(0, 1)?;
        for i in which {
            self.check(*self.shape(i) == Shape::fixed(&[c]), "weights do not have one element per channel")?;
        }
        Ok(())
    }

    /// Checks that per-dimension settings have as many entries as x has spatial dimensions, one or two.
    fn spatial(&self, settings: &[usize]) -> Result<usize, InferError> {
        let n = self.rank(0).checked_sub(2).ok_or_else(|| self.bad("too few dimensions"))?;
        self.check(n == 1 || n == 2, "only one and two spatial dimensions are supported")?;
        self.check(settings.iter().all(|s| *s == n), "settings for another number of spatial dimensions")?;
        Ok(n)
    }

    /// Checks one spatial dimension's settings.
    fn settings(
        &self,
        kernel: usize,
        stride: usize,
        dilation: usize,
        pads: &[usize],
    ) -> Result<(), InferError> {
        let all = [kernel, stride, dilation];
        self.check(all.iter().all(|n| *n > 0), "kernel, stride and dilation are at least 1")?;
        self.check(
            all.iter().chain(pads).all(|n| *n <= MOST_SETTING),
            "kernel, stride, dilation and padding are at most 16777216",
        )
    }

    fn windows(&self, d: usize, kernel: usize, c: &Windows<'_>) -> Result<Dim, InferError> {
        let (stride, dilation, (before, after)) = (c.stride[d], c.dilation[d], c.pad[d]);
        self.settings(kernel, stride, dilation, &[before, after])?;
        let too_large = || self.bad("the window is larger than the padded input");
        let whole = self
            .fixed(0, d + 2)?
            .checked_add(before)
            .and_then(|n| n.checked_add(after))
            .ok_or_else(too_large)?;
        let reach =
            (kernel - 1).checked_mul(dilation).and_then(|n| n.checked_add(1)).ok_or_else(too_large)?;
        let room = whole.checked_sub(reach).ok_or_else(too_large)?;
        let mut n = if c.ceil { room.div_ceil(stride) } else { room / stride } + 1;
        // A window must not begin in the padding after the input.
        if c.ceil && (n - 1) * stride >= self.fixed(0, d + 2)? + before {
            n -= 1;
        }
        Ok(Dim::Fixed(n))
    }

    fn conv(&self, c: &Conv) -> Result<Shape, InferError> {
        let n = self.spatial(&[c.stride.len(), c.dilation.len(), c.pad.len()])?;
        self.check(self.rank(1) == n + 2, "weights of another number of dimensions")?;
        let (channels, per_group, out) = (self.fixed(0, 1)?, self.fixed(1, 1)?, self.fixed(1, 0)?);
        let fits = c.groups > 0 && per_group.checked_mul(c.groups) == Some(channels) && out % c.groups == 0;
        self.check(fits, "channels, groups and weights do not match")?;
        self.bias(2, out)?;
        let w = Windows { stride: &c.stride, dilation: &c.dilation, pad: &c.pad, ceil: false };
        let mut dims = vec![self.shape(0)[0], Dim::Fixed(out)];
        for d in 0..n {
            dims.push(self.windows(d, self.fixed(1, d + 2)?, &w)?);
        }
        Ok(Shape::new(dims))
    }

    fn bias(&self, i: usize, out: usize) -> Result<(), InferError> {
        let fits = self.args.get(i).is_none_or(|b| b.shape == Shape::fixed(&[out]));
        self.check(fits, "the bias does not have one element per output")
    }

    fn conv_transpose(&self, t: &ConvTranspose) -> Result<Shape, InferError> {
        let c = &t.conv;
        let n = self.spatial(&[c.stride.len(), c.dilation.len(), c.pad.len(), t.output_padding.len()])?;
        self.check(self.rank(1) == n + 2, "weights of another number of dimensions")?;
        let (channels, w_in, per_group) = (self.fixed(0, 1)?, self.fixed(1, 0)?, self.fixed(1, 1)?);
        let fits = c.groups > 0 && channels == w_in && channels % c.groups == 0;
        self.check(fits, "channels, groups and weights do not match")?;
        let out = per_group.checked_mul(c.groups).ok_or_else(|| self.bad("too many channels"))?;
        self.bias(2, out)?;
        let mut dims = vec![self.shape(0)[0], Dim::Fixed(out)];
        for d in 0..n {
            let (size, kernel) = (self.fixed(0, d + 2)?, self.fixed(1, d + 2)?);
            let (before, after) = c.pad[d];
            self.settings(kernel, c.stride[d], c.dilation[d], &[before, after, t.output_padding[d]])?;
            let grown = (|| {
                let spread = size.checked_sub(1)?.checked_mul(c.stride[d])?;
                let reach = kernel.checked_sub(1)?.checked_mul(c.dilation[d])?.checked_add(1)?;
                spread
                    .checked_add(reach)?
                    .checked_add(t.output_padding[d])?
                    .checked_sub(before.checked_add(after)?)
            })();
            dims.push(Dim::Fixed(
                grown.filter(|n| *n > 0).ok_or_else(|| self.bad("the output would be empty"))?,
            ));
        }
        Ok(Shape::new(dims))
    }

    fn linear(&self) -> Result<Shape, InferError> {
        self.check(self.rank(0) >= 1 && self.rank(1) == 2, "the weight is a matrix")?;
        let (out, k) = (self.fixed(1, 0)?, self.fixed(1, 1)?);
        let (last, lead) = self.shape(0).dims().split_last().ok_or_else(|| self.bad("too few dimensions"))?;
        self.check(*last == Dim::Fixed(k), "the last dimension is not the weight's second")?;
        self.bias(2, out)?;
        Ok(Shape::new([lead, &[Dim::Fixed(out)]].concat()))
    }

    fn matmul(&self) -> Result<Shape, InferError> {
        let (a, b) = (self.shape(0).dims(), self.shape(1).dims());
        self.check(a.len() >= 2 && b.len() >= 2, "both must be matrices or stacks of them")?;
        let ((la, ma), (lb, mb)) = (a.split_at(a.len() - 2), b.split_at(b.len() - 2));
        self.check(ma[1] == mb[0], "the inner dimensions differ")?;
        let lead = Shape::new(la.to_vec()).broadcast(&Shape::new(lb.to_vec()));
        let lead = lead.ok_or_else(|| self.bad("the leading dimensions do not broadcast"))?;
        Ok(Shape::new([lead.dims(), &[ma[0], mb[1]]].concat()))
    }

    fn pool(&self, p: &Pool) -> Result<Shape, InferError> {
        let n = self.spatial(&[p.kernel.len(), p.stride.len(), p.dilation.len(), p.pad.len()])?;
        let w = Windows { stride: &p.stride, dilation: &p.dilation, pad: &p.pad, ceil: p.ceil };
        let mut dims = vec![self.shape(0)[0], self.shape(0)[1]];
        for d in 0..n {
            self.check(p.pad[d].0 < p.kernel[d].max(1), "padding is larger than the window")?;
            dims.push(self.windows(d, p.kernel[d], &w)?);
        }
        Ok(Shape::new(dims))
    }

    fn reduce(&self, axes: &[usize], keep: bool) -> Result<Shape, InferError> {
        self.check(axes.iter().all(|x| *x < self.rank(0)), "there is no such axis")?;
        self.check(axes.windows(2).all(|w| w[0] < w[1]), "axes are not sorted")?;
        let dims = self.shape(0).dims().iter().enumerate();
        let kept = dims.filter_map(|(i, d)| match axes.contains(&i) {
            false => Some(*d),
            true => keep.then_some(Dim::Fixed(1)),
        });
        Ok(Shape::new(kept.collect()))
    }

    fn concat(&self, axis: usize) -> Result<Shape, InferError> {
        self.check(axis < self.rank(0), "there is no such axis")?;
        let mut dims = self.shape(0).dims().to_vec();
        for i in 1..self.args.len() {
            let other = self.shape(i).dims();
            let fits = other.len() == dims.len() && (0..dims.len()).all(|d| d == axis || dims[d] == other[d]);
            self.check(fits, "shapes differ in more than the axis")?;
            dims[axis] = match (dims[axis], other[axis]) {
                (Dim::Fixed(a), Dim::Fixed(b)) => Dim::Fixed(a.saturating_add(b)),
                (Dim::Batch(a), Dim::Batch(b)) => Dim::Batch(a.saturating_add(b)),
                _ => return Err(self.bad("cannot join a batch dimension with a fixed one")),
            };
        }
        Ok(Shape::new(dims))
    }

    fn slice(&self, ranges: &[Range]) -> Result<Shape, InferError> {
        self.check(ranges.len() == self.rank(0), "one range per axis is needed")?;
        let mut dims = Vec::with_capacity(ranges.len());
        for (r, d) in ranges.iter().zip(self.shape(0).dims()) {
            let (Dim::Fixed(size), Some(len)) = (*d, r.len) else {
                self.check(*r == Range::ALL, "cannot take part of the batch")?;
                dims.push(*d);
                continue;
            };
            self.check(r.step != 0, "a step of zero")?;
            let last = i64::try_from(len)
                .ok()
                .and_then(|len| (len - 1).checked_mul(r.step)?.checked_add(i64::try_from(r.start).ok()?));
            let inside = len == 0 || (r.start < size && last.is_some_and(|l| (0..size as i64).contains(&l)));
            self.check(inside, "a range reaches outside")?;
            dims.push(Dim::Fixed(len));
        }
        Ok(Shape::new(dims))
    }

    fn pad(&self, before: &[i64], after: &[i64]) -> Result<Shape, InferError> {
        self.check(
            before.len() == self.rank(0) && after.len() == self.rank(0),
            "one amount per axis is needed",
        )?;
        let mut dims = Vec::with_capacity(before.len());
        for (i, d) in self.shape(0).dims().iter().enumerate() {
            dims.push(match (*d, before[i], after[i]) {
                (d, 0, 0) => d,
                (Dim::Fixed(n), b, a) => {
                    let padded = (n as i64).checked_add(b).and_then(|n| n.checked_add(a)).filter(|n| *n >= 0);
                    Dim::Fixed(padded.ok_or_else(|| self.bad("more is cropped than there is"))? as usize)
                }
                (Dim::Batch(_), ..) => return Err(self.bad("cannot pad the batch")),
            });
        }
        Ok(Shape::new(dims))
    }

    fn resize(&self, r: &Resize) -> Result<Shape, InferError> {
        self.spatial(&[r.size.len(), r.scale.len()])?;
        let dims = [self.shape(0)[0], self.shape(0)[1]];
        Ok(Shape::new(dims.into_iter().chain(r.size.iter().map(|n| Dim::Fixed(*n))).collect()))
    }

    fn recurrent(&self, r: &Recurrent, gates: usize) -> Result<Made, InferError> {
        self.check(self.rank(0) == 3, "the sequence has three dimensions")?;
        let (h, x) = (r.hidden, self.shape(0));
        let input = self.fixed(0, 2)?;
        self.fixed(0, usize::from(r.batch_first))?;
        let rows = gates.saturating_mul(h);
        self.check(*self.shape(1) == Shape::fixed(&[rows, input]), "the input weight does not match")?;
        self.check(*self.shape(2) == Shape::fixed(&[rows, h]), "the hidden weight does not match")?;
        if r.bias {
            self.bias(3, rows)?;
            self.bias(4, rows)?;
        }
        let batch = x[usize::from(!r.batch_first)];
        let state = Shape::new(vec![batch, Dim::Fixed(h)]);
        let first_state = 3 + 2 * usize::from(r.bias);
        let states_fit = (first_state..self.args.len()).all(|i| *self.shape(i) == state);
        self.check(states_fit, "the initial state does not match")?;
        let dtype = self.args[0].dtype;
        let y = Shape::new(vec![x[0], x[1], Dim::Fixed(h)]);
        let states = if gates == 4 { 2 } else { 1 };
        Ok(std::iter::once((dtype, y)).chain((0..states).map(|_| (dtype, state.clone()))).collect())
    }

    fn attention(&self) -> Result<Shape, InferError> {
        let (q, k, v) = (self.shape(0).dims(), self.shape(1).dims(), self.shape(2).dims());
        let n = q.len();
        self.check(n >= 2 && k.len() == n && v.len() == n, "query, key and value have the same rank")?;
        let lead = q[..n - 2] == k[..n - 2] && k[..n - 2] == v[..n - 2];
        self.check(
            lead && q[n - 1] == k[n - 1] && k[n - 2] == v[n - 2],
            "query, key and value do not match",
        )?;
        if self.args.len() == 4 {
            let scores = Shape::new([&q[..n - 1], &[k[n - 2]]].concat());
            self.check(
                self.shape(3).broadcast(&scores).as_ref() == Some(&scores),
                "the mask does not fit the scores",
            )?;
        }
        Ok(Shape::new([&q[..n - 1], &[v[n - 1]]].concat()))
    }
}

/// How windows move over an input.
struct Windows<'a> {
    stride: &'a [usize],
    dilation: &'a [usize],
    pad: &'a [(usize, usize)],
    ceil: bool,
}

#[cfg(test)]
mod tests;
