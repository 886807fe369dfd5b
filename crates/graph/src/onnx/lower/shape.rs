//! Operators that move elements.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::onnx::lit::{Lit, Sym};
use crate::onnx::tensor::MOST_DIMENSIONS;
use crate::{Dim, Op, PadMode, Range, Shape};
use std::rc::Rc;

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    pub(super) fn reshape(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let target = match call.attributes.ints("shape") {
            Some(ints) => ints.iter().map(|n| Sym::N(*n)).collect(),
            None => call.known_syms(1)?,
        };
        if target.len() > MOST_DIMENSIONS {
            return Err(call.malformed("too many dimensions"));
        }
        let from = self.shape(call, &x)?;
        let copies = !call.attributes.flag("allowzero");
        let mut wanted = Vec::with_capacity(target.len());
        for (i, t) in target.iter().enumerate() {
            wanted.push(match *t {
                Sym::N(0) if copies => {
                    Some(*from.dims().get(i).ok_or_else(|| call.malformed("a 0 copies nothing"))?)
                }
                Sym::N(-1) => None,
                t => Some(t.dim().ok_or_else(|| call.malformed("a negative size"))?),
            });
        }
        let to = self
            .resolve(&from, &wanted)
            .ok_or_else(|| call.unsupported("its size does not fit its input"))?;
        self.reshape_to(call, &x, to)
    }

    /// Fills the one open dimension, and finds the batch dimension if the file has a number.
    fn resolve(&self, from: &Shape, wanted: &[Option<Dim>]) -> Option<Vec<Dim>> {
        let count = from.count()?;
        let all_numbers = wanted.iter().flatten().all(|d| d.fixed().is_some());
        if let (Some(batch), true, 1) = (self.batch_hint, all_numbers, count.power)
            && let Some(found) = batch_in(from, wanted, batch)
        {
            return Some(found);
        }
        if wanted.iter().filter(|d| d.is_none()).count() > 1 {
            return None;
        }
        let given = Shape::new(wanted.iter().flatten().copied().collect()).count()?;
        let factor = count.factor.checked_div(given.factor).unwrap_or(0);
        let open = match count.power.checked_sub(given.power)? {
            0 => Dim::Fixed(factor),
            1 => Dim::Batch(factor),
            _ => return None,
        };
        Some(wanted.iter().map(|d| d.unwrap_or(open)).collect())
    }

    pub(super) fn flatten(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let from = self.shape(call, &x)?;
        let axis = call.attributes.int("axis").unwrap_or(1);
        let axis =
            if axis == from.rank() as i64 { from.rank() } else { call.axis(axis, from.rank().max(1))? };
        let flat = |dims: &[Dim]| {
            let count = Shape::new(dims.to_vec()).count()?;
            Some(if count.power == 0 { Dim::Fixed(count.factor) } else { Dim::Batch(count.factor) })
        };
        let (a, b) = from.dims().split_at(axis.min(from.rank()));
        let dims = flat(a).zip(flat(b)).ok_or_else(|| call.malformed("a shape that cannot be counted"))?;
        self.reshape_to(call, &x, vec![dims.0, dims.1])
    }

    pub(super) fn transpose(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let rank = self.shape(call, &x)?.rank();
        let perm = match call.attributes.ints("perm") {
            Some(p) => call.sizes(p)?,
            None => (0..rank).rev().collect(),
        };
        if perm.len() != rank {
            return Err(call.malformed("a permutation of another number of axes"));
        }
        self.transpose_by(call, &x, perm)
    }

    pub(super) fn squeeze(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let from = self.shape(call, &x)?;
        let axes = match call.ints("axes", 1)? {
            Some(axes) => call.axes(&axes, from.rank())?,
            None => (0..from.rank()).filter(|i| from[*i] == Dim::Fixed(1)).collect(),
        };
        if axes.iter().any(|a| from[*a] != Dim::Fixed(1)) {
            return Err(call.unsupported("the dimension it drops is not 1"));
        }
        let dims = (0..from.rank()).filter(|i| !axes.contains(i)).map(|i| from[i]).collect();
        self.reshape_to(call, &x, dims)
    }

    pub(super) fn unsqueeze(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let mut dims = self.shape(call, &x)?.dims().to_vec();
        let axes = call.ints("axes", 1)?.ok_or_else(|| call.malformed("it has no axes"))?;
        if axes.len() > 64 {
            return Err(call.malformed("too many axes"));
        }
        for axis in call.axes(&axes, dims.len() + axes.len())? {
            dims.insert(axis.min(dims.len()), Dim::Fixed(1));
        }
        self.reshape_to(call, &x, dims)
    }

    pub(super) fn concat(&mut self, call: &Call) -> Made {
        let parts: Vec<Val> =
            (0..call.inputs.len()).map(|i| call.input(i).cloned()).collect::<Result<_, _>>()?;
        self.concat_of(call, parts, call.attributes.int("axis").unwrap_or(0))
    }

    pub(super) fn concat_of(&mut self, call: &Call, parts: Vec<Val>, axis: i64) -> Made {
        let shapes = parts.iter().map(|p| self.shape(call, p)).collect::<Result<Vec<_>, _>>()?;
        let first = shapes.first().ok_or_else(|| call.malformed("it joins nothing"))?;
        let axis = call.axis(axis, first.rank())?;
        let empty = |s: &Shape| s.count().is_some_and(|c| c.factor == 0);
        let mut kept = Vec::new();
        for (part, shape) in parts.into_iter().zip(&shapes) {
            // What the exporter repeated for its one sample is repeated for the batch.
            let one = self.batch_hint == Some(1) && axis > 0 && shape.dims().first() == Some(&Dim::Fixed(1));
            let batch = shapes.iter().any(|s| s.dims().first() == Some(&Dim::Batch(1)));
            if one && batch {
                let to = Shape::new([&[Dim::Batch(1)], &shape.dims()[1..]].concat());
                kept.push(self.apply(call, Op::Expand { to }, &[part])?);
            } else if !empty(shape) {
                kept.push(part);
            }
        }
        match kept.len() {
            0 => Ok(Val::Lit(Rc::new(Lit::vector(vec![])))),
            1 => Ok(kept.swap_remove(0)),
            _ => self.apply(call, Op::Concat { axis }, &kept),
        }
    }

    /// The whole of every axis.
    fn whole(shape: &Shape) -> Vec<Range> {
        let range = |d: &Dim| d.fixed().map_or(Range::ALL, |n| Range { start: 0, len: Some(n), step: 1 });
        shape.dims().iter().map(range).collect()
    }

    pub(super) fn slice_of(&mut self, call: &Call, x: &Val, axis: usize, range: Range) -> Made {
        let shape = self.shape(call, x)?;
        let mut ranges = Self::whole(&shape);
        if ranges[axis] == range {
            return Ok(x.clone());
        }
        ranges[axis] = range;
        self.apply(call, Op::Slice { ranges }, std::slice::from_ref(x))
    }

    pub(super) fn slice(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let old =
            |name: &str| call.attributes.ints(name).map(|v| v.iter().map(|n| Sym::N(*n)).collect::<Vec<_>>());
        let (starts, ends) = match (old("starts"), old("ends")) {
            (Some(s), Some(e)) => (s, e),
            _ => (call.known_syms(1)?, call.known_syms(2)?),
        };
        let n = starts.len();
        let axes = call.ints("axes", 3)?.unwrap_or_else(|| (0..n as i64).collect());
        let steps = call.optional(4).map(|_| call.known_ints(4)).transpose()?.unwrap_or_else(|| vec![1; n]);
        if ends.len() != n || axes.len() != n || steps.len() != n {
            return Err(call.malformed("its settings have different lengths"));
        }
        let mut ranges = Self::whole(&shape);
        for i in 0..n {
            let axis = call.axis(axes[i], shape.rank())?;
            ranges[axis] = range(shape[axis], starts[i], ends[i], steps[i])
                .ok_or_else(|| call.unsupported("it takes a part of the batch"))?;
        }
        if ranges == Self::whole(&shape) {
            return Ok(x);
        }
        self.apply(call, Op::Slice { ranges }, &[x])
    }

    pub(super) fn split(&mut self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let axis = call.axis(call.attributes.int("axis").unwrap_or(0), shape.rank())?;
        let size = shape[axis].fixed().ok_or_else(|| call.unsupported("it splits the batch"))?;
        let parts = call.outputs.len().max(1);
        let sizes = match call.ints("split", 1)? {
            Some(sizes) => call.sizes(&sizes)?,
            None => {
                let each = size.div_ceil(parts).max(1);
                (0..parts).map(|i| size.saturating_sub(i * each).min(each)).collect()
            }
        };
        if sizes.iter().try_fold(0usize, |n, s| n.checked_add(*s)) != Some(size) {
            return Err(call.malformed("its parts are not the whole"));
        }
        let mut start = 0;
        let mut made = Vec::new();
        for len in sizes {
            made.push(self.slice_of(call, &x, axis, Range { start, len: Some(len), step: 1 })?);
            start += len;
        }
        Ok(made)
    }

    pub(super) fn gather(&mut self, call: &Call) -> Made {
        let (x, indices) = (call.input(0)?.clone(), call.input(1)?.clone());
        let shape = self.shape(call, &x)?;
        let axis = call.axis(call.attributes.int("axis").unwrap_or(0), shape.rank())?;
        if let Some(at) = self.lit(&indices).filter(|l| l.shape.len() <= 1).and_then(|l| l.ints()) {
            let scalar = self.shape(call, &indices)?.rank() == 0;
            let Dim::Fixed(size) = shape[axis] else {
                return Err(call.unsupported("it takes a part of the batch"));
            };
            let at: Option<Vec<usize>> = at.iter().map(|i| wrap(*i, size)).collect();
            let at = at.ok_or_else(|| call.malformed("an index is outside"))?;
            let in_a_row = !at.is_empty() && at.windows(2).all(|w| w[1] == w[0] + 1);
            if in_a_row && self.lit(&x).is_none() {
                let range = Range { start: at[0], len: Some(at.len()), step: 1 };
                let y = self.slice_of(call, &x, axis, range)?;
                let mut dims = self.shape(call, &y)?.dims().to_vec();
                if scalar {
                    dims.remove(axis);
                }
                return self.reshape_to(call, &y, dims);
            }
            let at = at.iter().map(|i| Sym::N(*i as i64)).collect();
            let mut at = Lit::vector(at);
            if scalar {
                at.shape = vec![];
            }
            return self.apply(call, Op::Gather { axis }, &[x, Val::Lit(Rc::new(at))]);
        }
        self.apply(call, Op::Gather { axis }, &[x, indices])
    }

    pub(super) fn expand(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let to = call.known_syms(1)?;
        self.expand_to(call, &x, &to)
    }

    pub(super) fn expand_to(&mut self, call: &Call, x: &Val, to: &[Sym]) -> Made {
        if to.len() > MOST_DIMENSIONS {
            return Err(call.malformed("too many dimensions"));
        }
        let from = self.shape(call, x)?;
        let dims: Option<Vec<Dim>> = to.iter().map(|s| s.dim()).collect();
        let mut dims = dims.ok_or_else(|| call.malformed("a negative size"))?;
        if let Some(batch) = self.batch_hint {
            let lead = dims.len().saturating_sub(from.rank());
            for (i, d) in dims.iter_mut().enumerate() {
                let own = i.checked_sub(lead).and_then(|j| from.dims().get(j).copied());
                match (own, *d) {
                    (Some(Dim::Batch(k)), Dim::Fixed(n)) if n == k * batch => *d = Dim::Batch(k),
                    (Some(Dim::Fixed(1)) | None, Dim::Fixed(n)) if n == batch && batch > 1 && i == 0 => {
                        *d = Dim::Batch(1);
                    }
                    _ => {}
                }
            }
        }
        let to =
            from.broadcast(&Shape::new(dims)).ok_or_else(|| call.malformed("it cannot be expanded so"))?;
        if to == from {
            return Ok(x.clone());
        }
        let rank = to.rank();
        let padded = [vec![Dim::Fixed(1); rank - from.rank()], from.dims().to_vec()].concat();
        let x = self.reshape_to(call, x, padded)?;
        self.apply(call, Op::Expand { to }, &[x])
    }

    /// Each axis gets a new one in front of it, which is expanded and merged.
    pub(super) fn tile(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let from = self.shape(call, &x)?;
        let repeats = call.known_syms(1)?;
        if repeats.len() != from.rank() {
            return Err(call.malformed("repeats for another number of axes"));
        }
        let (mut apart, mut grown, mut merged) = (vec![], vec![], vec![]);
        for (d, r) in from.dims().iter().zip(&repeats) {
            let r = r.dim().ok_or_else(|| call.malformed("a negative number of repeats"))?;
            let whole = match (*d, r) {
                (Dim::Fixed(a), Dim::Fixed(b)) => a.checked_mul(b).map(Dim::Fixed),
                (Dim::Fixed(a), Dim::Batch(b)) | (Dim::Batch(a), Dim::Fixed(b)) => {
                    a.checked_mul(b).map(Dim::Batch)
                }
                _ => None,
            };
            merged.push(whole.ok_or_else(|| call.unsupported("it repeats the batch by the batch"))?);
            apart.extend([Dim::Fixed(1), *d]);
            grown.extend([r, *d]);
        }
        if merged == from.dims() {
            return Ok(x);
        }
        let y = self.reshape_to(call, &x, apart)?;
        let y = self.apply(call, Op::Expand { to: Shape::new(grown) }, &[y])?;
        self.reshape_to(call, &y, merged)
    }

    pub(super) fn pad(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let pads = call.ints("pads", 1)?.ok_or_else(|| call.malformed("it has no pads"))?;
        let axes = match call.optional(3) {
            Some(_) => {
                call.known_ints(3)?.iter().map(|a| call.axis(*a, shape.rank())).collect::<Result<_, _>>()?
            }
            None => (0..shape.rank()).collect::<Vec<_>>(),
        };
        if pads.len() != 2 * axes.len() {
            return Err(call.malformed("pads for another number of axes"));
        }
        let (mut before, mut after) = (vec![0; shape.rank()], vec![0; shape.rank()]);
        for (i, axis) in axes.iter().enumerate() {
            (before[*axis], after[*axis]) = (pads[i], pads[axes.len() + i]);
        }
        let value = match (call.attributes.float("value"), call.optional(2)) {
            (Some(v), _) => v,
            (None, Some(_)) => call.known(2)?.single().ok_or_else(|| call.malformed("not one value"))? as f32,
            (None, None) => 0.0,
        };
        let mode = match call.attributes.text("mode").unwrap_or("constant") {
            "constant" => PadMode::Constant(value),
            "reflect" => PadMode::Reflect,
            "edge" => PadMode::Edge,
            "wrap" => return self.wrap(call, &x, &before, &after),
            _ => return Err(call.malformed("an unknown mode")),
        };
        if before.iter().chain(&after).all(|p| *p == 0) {
            return Ok(x);
        }
        self.apply(call, Op::Pad { before, after, mode }, &[x])
    }

    /// Prepends the end and appends the beginning, axis by axis.
    fn wrap(&mut self, call: &Call, x: &Val, before: &[i64], after: &[i64]) -> Made {
        let mut y = x.clone();
        for axis in 0..before.len() {
            let (b, a) = (before[axis], after[axis]);
            if b == 0 && a == 0 {
                continue;
            }
            let size = self.shape(call, &y)?[axis].fixed().unwrap_or(0);
            let (b, a) = (usize::try_from(b).unwrap_or(usize::MAX), usize::try_from(a).unwrap_or(usize::MAX));
            if b > size || a > size {
                return Err(call.unsupported("it wraps more than there is"));
            }
            let end = self.slice_of(call, &y, axis, Range { start: size - b, len: Some(b), step: 1 })?;
            let begin = self.slice_of(call, &y, axis, Range { start: 0, len: Some(a), step: 1 })?;
            let parts = [(b, end), (size, y), (a, begin)];
            let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(_, v)| v).collect();
            y = self.concat_of(call, parts, axis as i64)?;
        }
        Ok(y)
    }

    /// Moves channels into blocks of pixels, or back.
    pub(super) fn depth_to_space(&mut self, call: &Call, back: bool) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let block = call.attributes.int("blocksize").and_then(|b| usize::try_from(b).ok()).filter(|b| *b > 0);
        let b = block.ok_or_else(|| call.malformed("no block size"))?;
        let [n, Dim::Fixed(c), Dim::Fixed(h), Dim::Fixed(w)] = *shape.dims() else {
            return Err(call.malformed("its input is not a batch of images"));
        };
        let f = Dim::Fixed;
        let square = b.checked_mul(b).ok_or_else(|| call.malformed("a block too large"))?;
        if back {
            if h % b != 0 || w % b != 0 {
                return Err(call.malformed("images are not made of such blocks"));
            }
            let y = self.reshape_to(call, &x, vec![n, f(c), f(h / b), f(b), f(w / b), f(b)])?;
            let y = self.transpose_by(call, &y, vec![0, 3, 5, 1, 2, 4])?;
            return self.reshape_to(call, &y, vec![n, f(c * square), f(h / b), f(w / b)]);
        }
        if c % square != 0 {
            return Err(call.malformed("channels are not made of such blocks"));
        }
        let d = c / square;
        let y = if call.attributes.text("mode") == Some("CRD") {
            let y = self.reshape_to(call, &x, vec![n, f(d), f(b), f(b), f(h), f(w)])?;
            self.transpose_by(call, &y, vec![0, 1, 4, 2, 5, 3])?
        } else {
            let y = self.reshape_to(call, &x, vec![n, f(b), f(b), f(d), f(h), f(w)])?;
            self.transpose_by(call, &y, vec![0, 3, 4, 1, 5, 2])?
        };
        self.reshape_to(call, &y, vec![n, f(d), f(h * b), f(w * b)])
    }
}

fn wrap(i: i64, size: usize) -> Option<usize> {
    let at = if i < 0 { i.checked_add(size as i64)? } else { i };
    usize::try_from(at).ok().filter(|a| *a < size)
}

/// ONNX's `start:end:step` of an axis.
fn range(dim: Dim, start: Sym, end: Sym, step: i64) -> Option<Range> {
    let Dim::Fixed(size) = dim else {
        let whole = step == 1 && start == Sym::N(0);
        let open = end == Sym::from(dim) || matches!(end, Sym::N(n) if n >= i64::from(i32::MAX));
        return (whole && open).then_some(Range::ALL);
    };
    let size = size as i64;
    let from = |s: i64| if s < 0 { s.saturating_add(size) } else { s };
    let (start, end) = (start.number()?, end.number()?);
    if step > 0 {
        let (s, e) = (from(start).clamp(0, size), from(end).clamp(0, size));
        let len = (e - s).max(0) as u64;
        let len = len.div_ceil(step as u64) as usize;
        Some(Range { start: if len == 0 { 0 } else { s as usize }, len: Some(len), step })
    } else if step < 0 {
        let (s, e) = (from(start).clamp(-1, size - 1), from(end).clamp(-1, size - 1));
        let len = ((s - e).max(0) as u64).div_ceil(step.unsigned_abs()) as usize;
        Some(Range { start: if len == 0 { 0 } else { s as usize }, len: Some(len), step })
    } else {
        None
    }
}

/// Finds the batch dimension of a target that is written for a fixed batch size: elements keep their order, so it is
/// the dimension with as many elements before it as the batch dimension had.
fn batch_in(from: &Shape, wanted: &[Option<Dim>], batch: usize) -> Option<Vec<Dim>> {
    let at = from.dims().iter().position(|d| matches!(d, Dim::Batch(_)))?;
    let before = Shape::new(from.dims()[..at].to_vec()).count()?.factor;
    let total = from.count()?.at(batch);
    let given = wanted.iter().flatten().try_fold(1usize, |n, d| n.checked_mul(d.at(1)))?;
    let open = total.checked_div(given)?;
    let sizes: Vec<usize> = wanted.iter().map(|d| d.map_or(open, |d| d.at(1))).collect();
    if wanted.iter().filter(|d| d.is_none()).count() > 1 || sizes.iter().product::<usize>() != total {
        return None;
    }
    let mut prefix = 1usize;
    let mut candidates = Vec::new();
    for (i, n) in sizes.iter().enumerate() {
        let end = prefix.checked_mul(*n)?;
        if prefix == before && n.is_multiple_of(batch) {
            candidates.insert(0, i);
            break;
        }
        if prefix < before && end > before && end.is_multiple_of(before.checked_mul(batch)?) {
            candidates.push(i);
        }
        prefix = end;
    }
    let i = *candidates.first()?;
    let dims =
        sizes.iter().enumerate().map(|(j, n)| if i == j { Dim::Batch(n / batch) } else { Dim::Fixed(*n) });
    let to = Shape::new(dims.collect());
    (to.count() == from.count()).then(|| to.dims().to_vec())
}
