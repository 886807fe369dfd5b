//! Operators that become several of ours, or none.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::onnx::lit::{Data, Lit, MOST_ELEMENTS, Sym, elements};
use crate::{Dim, Op, Shape};
use phalanx_types::{DType, Tensor};
use std::rc::Rc;

type Made = Result<Val, OnnxError>;

fn known(lit: Lit) -> Val {
    Val::Lit(Rc::new(lit))
}

impl Lower<'_> {
    pub(super) fn constant_node(&mut self, call: &Call) -> Made {
        let a = &call.attributes;
        if let Some(proto) = a.tensor("value") {
            return self.reader.read(proto).map(Val::Tensor);
        }
        let floats = |x: &[f32]| Data::Floats(x.iter().map(|x| f64::from(*x)).collect());
        let lit = if let Some(x) = a.floats("value_floats").filter(|_| a.has("value_floats")) {
            Lit { dtype: DType::F32, shape: vec![x.len()], data: floats(x) }
        } else if let Some(x) = a.ints("value_ints").filter(|_| a.has("value_ints")) {
            Lit::vector(x.iter().map(|n| Sym::N(*n)).collect())
        } else if a.has("value_float") {
            Lit::scalar(DType::F32, f64::from(a.float("value_float").unwrap_or(0.0)))
        } else if let Some(n) = a.int("value_int") {
            Lit { dtype: DType::I64, shape: vec![], data: Data::Ints(vec![Sym::N(n)]) }
        } else {
            return Err(call.unsupported("a constant that is not a tensor of numbers"));
        };
        Ok(known(lit))
    }

    pub(super) fn shape_node(&mut self, call: &Call) -> Made {
        let dims = self.shape(call, call.input(0)?)?;
        let rank = dims.rank() as i64;
        let bound = |name: &str, usual: i64| {
            let n = call.attributes.int(name).unwrap_or(usual);
            (if n < 0 { n.saturating_add(rank) } else { n }).clamp(0, rank) as usize
        };
        let (start, end) = (bound("start", 0), bound("end", rank));
        let part = dims.dims().get(start..end.max(start)).unwrap_or_default();
        Ok(known(Lit::vector(part.iter().map(|d| Sym::from(*d)).collect())))
    }

    pub(super) fn size_node(&mut self, call: &Call) -> Made {
        let count = self.shape(call, call.input(0)?)?.count();
        let n = match count {
            Some(c) if c.power == 0 => Sym::N(c.factor as i64),
            Some(c) if c.power == 1 => Sym::Batch(c.factor as i64),
            _ => return Err(call.unsupported("a size that cannot be counted")),
        };
        Ok(known(Lit { dtype: DType::I64, shape: vec![], data: Data::Ints(vec![n]) }))
    }

    pub(super) fn constant_of_shape(&mut self, call: &Call) -> Made {
        let to = call.known_syms(0)?;
        let value = match call.attributes.tensor("value") {
            Some(proto) => {
                let tensor = self.reader.read(proto)?;
                let lit = Lit::from_tensor(&tensor).filter(|l| l.len() == 1);
                lit.and_then(|l| l.reshaped(vec![]))
                    .ok_or_else(|| call.malformed("it is filled with several values"))?
            }
            None => Lit::scalar(DType::F32, 0.0),
        };
        self.expand_to(call, &known(value), &to)
    }

    pub(super) fn range_node(&mut self, call: &Call) -> Made {
        let [start, limit, delta] = [0, 1, 2].map(|i| call.known(i));
        let (start, limit, delta) = (start?, limit?, delta?);
        let dtype = start.dtype;
        let number = |l: &Lit| l.single().ok_or_else(|| call.unsupported("its length depends on the batch"));
        let (start, limit, delta) = (number(&start)?, number(&limit)?, number(&delta)?);
        let n = ((limit - start) / delta).ceil();
        if delta == 0.0 || !n.is_finite() || n > MOST_ELEMENTS as f64 {
            return Err(call.malformed("an endless range"));
        }
        let n = n.max(0.0) as usize;
        self.spend(n)?;
        let all = (0..n).map(|i| start + i as f64 * delta);
        let data = match dtype {
            DType::F32 | DType::F64 => Data::Floats(all.collect()),
            _ => Data::Ints(all.map(|x| Sym::N(x as i64)).collect()),
        };
        Ok(known(Lit { dtype, shape: vec![n], data }))
    }

    pub(super) fn non_zero(&mut self, call: &Call) -> Made {
        let x = call.known(0)?;
        let all = x.floats().ok_or_else(|| call.unsupported("its input depends on the batch"))?;
        let rank = x.shape.len();
        let found: Vec<usize> = (0..all.len()).filter(|i| all[*i] != 0.0).collect();
        self.spend(found.len().saturating_mul(rank))?;
        let strides = crate::onnx::lit::strides(&x.shape);
        let index = |d: usize, i: usize| Sym::N((i / strides[d] as usize % x.shape[d]) as i64);
        let data =
            (0..rank).flat_map(|d| found.iter().map(move |i| (d, *i))).map(|(d, i)| index(d, i)).collect();
        Ok(known(Lit { dtype: DType::I64, shape: vec![rank, found.len()], data: Data::Ints(data) }))
    }

    /// A boolean matrix from a predicate on row and column.
    fn matrix(rows: usize, columns: usize, holds: impl Fn(i64, i64) -> bool) -> Lit {
        let all = (0..rows as i64).flat_map(|r| (0..columns as i64).map(move |c| (r, c)));
        let data = Data::Ints(all.map(|(r, c)| Sym::N(i64::from(holds(r, c)))).collect());
        Lit { dtype: DType::Bool, shape: vec![rows, columns], data }
    }

    pub(super) fn trilu(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let k = match call.optional(1) {
            Some(_) => {
                call.known(1)?.single().ok_or_else(|| call.malformed("its diagonal is not a number"))? as i64
            }
            None => 0,
        };
        let upper = call.attributes.int("upper").unwrap_or(1) != 0;
        let [.., Dim::Fixed(rows), Dim::Fixed(columns)] = *shape.dims() else {
            return Err(call.unsupported("its input is not a stack of matrices of known size"));
        };
        let n = elements(&[rows, columns]).unwrap_or(usize::MAX);
        self.spend(n)?;
        let k = k.clamp(-(1 << 40), 1 << 40);
        let keep = Self::matrix(rows, columns, |r, c| if upper { c - r >= k } else { c - r <= k });
        let zero = self.number(&x, 0.0);
        self.apply(call, Op::Where, &[known(keep), x, zero])
    }

    /// Cumulative sums, as products with a triangle of ones.
    pub(super) fn cum_sum(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let axis = call.known(1)?.single().ok_or_else(|| call.malformed("its axis is not a number"))? as i64;
        let axis = call.axis(axis, shape.rank())?;
        let n = shape[axis].fixed().filter(|n| *n <= 4096);
        let n =
            n.ok_or_else(|| call.unsupported("it sums over the batch or over more than 4096 elements"))?;
        let (exclusive, reverse) = (call.attributes.flag("exclusive"), call.attributes.flag("reverse"));
        self.spend(n * n)?;
        let mut ones = Self::matrix(n, n, |r, c| match (exclusive, reverse) {
            (false, false) => r <= c,
            (true, false) => r < c,
            (false, true) => r >= c,
            (true, true) => r > c,
        });
        let dtype = self.dtype(&x).unwrap_or(DType::F32);
        ones = crate::onnx::eval::cast(&ones, dtype).unwrap_or(ones);
        let last = shape.rank() - 1;
        let mut perm: Vec<usize> = (0..=last).collect();
        perm.swap(axis, last);
        let mut y = self.transpose_by(call, &x, perm.clone())?;
        let moved = self.shape(call, &y)?.dims().to_vec();
        if moved.len() == 1 {
            y = self.reshape_to(call, &y, vec![Dim::Fixed(1), moved[0]])?;
        }
        let y = self.apply(call, Op::MatMul, &[y, known(ones)])?;
        let y = self.reshape_to(call, &y, moved)?;
        self.transpose_by(call, &y, perm)
    }

    /// Rows of a matrix that has the on-value on its diagonal.
    pub(super) fn one_hot(&mut self, call: &Call) -> Made {
        let indices = call.input(0)?.clone();
        let depth = call.known(1)?.single().filter(|d| (1.0..=4096.0).contains(d));
        let depth =
            depth.ok_or_else(|| call.unsupported("a depth that is not a number up to 4096"))? as usize;
        let values = call.known(2)?;
        let (dtype, all) = (values.dtype, values.floats().filter(|v| v.len() == 2));
        let all = all.ok_or_else(|| call.malformed("it needs an off-value and an on-value"))?;
        let rank = self.shape(call, &indices)?.rank();
        let axis = call.axis(call.attributes.int("axis").unwrap_or(-1), rank + 1)?;
        self.spend(depth * depth)?;
        let eye = Self::matrix(depth, depth, |r, c| r == c);
        let cells =
            eye.floats().unwrap_or_default().into_iter().map(|x| if x != 0.0 { all[1] } else { all[0] });
        let table = Lit { dtype: DType::F64, shape: eye.shape.clone(), data: Data::Floats(cells.collect()) };
        let table = crate::onnx::eval::cast(&table, dtype).unwrap_or(table);
        let y = self.apply(call, Op::Gather { axis: 0 }, &[known(table), indices])?;
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.insert(axis, rank);
        self.transpose_by(call, &y, perm)
    }

    /// Known indices into the first axes, which are merged for it.
    pub(super) fn gather_nd(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let Some(indices) = self.lit(call.input(1)?).filter(|_| !call.attributes.has("batch_dims")) else {
            return self.gather_nd_rows(call, &x, &shape);
        };
        let (Some(&depth), Some(at)) = (indices.shape.last(), indices.ints()) else {
            return Err(call.unsupported("its positions are not known"));
        };
        let lead =
            shape.dims().get(..depth).and_then(|d| d.iter().map(|d| d.fixed()).collect::<Option<Vec<_>>>());
        let lead = lead.filter(|_| depth > 0).ok_or_else(|| call.unsupported("positions in the batch"))?;
        let flat = at.chunks(depth).map(|p| {
            p.iter().zip(&lead).try_fold(0i64, |n, (i, size)| {
                let i = if *i < 0 { i + *size as i64 } else { *i };
                (0..*size as i64).contains(&i).then(|| n * *size as i64 + i)
            })
        });
        let flat = flat
            .map(|i| i.map(Sym::N))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| call.malformed("a position outside"))?;
        let to = indices.shape[..indices.shape.len() - 1].to_vec();
        let flat = Lit::vector(flat).reshaped(to).ok_or_else(|| call.malformed("positions of no shape"))?;
        let merged = elements(&lead).ok_or_else(|| call.malformed("a shape that cannot be counted"))?;
        let y = self.reshape_to(call, &x, [&[Dim::Fixed(merged)], &shape.dims()[depth..]].concat())?;
        self.apply(call, Op::Gather { axis: 0 }, &[y, known(flat)])
    }

    /// One position per entry, along the first axis.
    fn gather_nd_rows(&mut self, call: &Call, x: &Val, shape: &Shape) -> Made {
        let indices = call.input(1)?.clone();
        let dims = self.shape(call, &indices)?.dims().to_vec();
        let rows = call.attributes.int("batch_dims").unwrap_or(0) == 0 && dims.last() == Some(&Dim::Fixed(1));
        if !rows || shape.rank() == 0 {
            return Err(call.unsupported("its positions are not known"));
        }
        let at = self.reshape_to(call, &indices, dims[..dims.len() - 1].to_vec())?;
        self.apply(call, Op::Gather { axis: 0 }, &[x.clone(), at])
    }

    /// ONNX's own attention, without a cache.
    pub(super) fn attention(&mut self, call: &Call) -> Made {
        let bad = |why| Err(call.unsupported(why));
        if call.optional(4).is_some() || call.optional(5).is_some() || call.optional(6).is_some() {
            return bad("a cache of keys and values");
        }
        if call.attributes.float("softcap").unwrap_or(0.0) != 0.0 {
            return bad("softcap");
        }
        if call.outputs.iter().skip(1).any(|o| *o) {
            return bad("more outputs than the result");
        }
        let (q, k, v) = (call.input(0)?.clone(), call.input(1)?.clone(), call.input(2)?.clone());
        let heads =
            |name: &str| call.attributes.int(name).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let flat = self.shape(call, &q)?.rank() == 3;
        let (q, k, v) = if flat {
            let (Some(hq), Some(hk)) = (heads("q_num_heads"), heads("kv_num_heads")) else {
                return Err(call.malformed("no number of heads"));
            };
            (self.heads(call, &q, hq)?, self.heads(call, &k, hk)?, self.heads(call, &v, hk)?)
        } else {
            (q, k, v)
        };
        let shape = self.shape(call, &q)?;
        let (&[n, heads_q, t, Dim::Fixed(width)], heads_k) =
            (shape.dims(), self.shape(call, &k)?.dims().get(1).copied())
        else {
            return bad("a width that is not known");
        };
        let (k, v) = match (heads_q, heads_k) {
            (a, Some(b)) if a == b => (k, v),
            (Dim::Fixed(a), Some(Dim::Fixed(b))) if b > 0 && a % b == 0 => {
                (self.repeat_heads(call, &k, a / b)?, self.repeat_heads(call, &v, a / b)?)
            }
            _ => return bad("heads of queries and keys do not fit"),
        };
        let scale = call.attributes.float("scale").filter(|s| *s != 0.0);
        let scale = scale.unwrap_or_else(|| 1.0 / (width.max(1) as f32).sqrt());
        let causal = call.attributes.flag("is_causal");
        let mut inputs = vec![q, k, v];
        if let Some(mask) = call.optional(3) {
            inputs.push(self.additive(call, mask)?);
        }
        let y = self.apply(call, Op::Attention { scale, causal }, &inputs)?;
        if !flat {
            return Ok(y);
        }
        let out = self.shape(call, &y)?;
        let y = self.transpose_by(call, &y, vec![0, 2, 1, 3])?;
        match (heads_q, out[3]) {
            (Dim::Fixed(h), Dim::Fixed(w)) => {
                self.reshape_to(call, &y, vec![n, t, Dim::Fixed(h.saturating_mul(w))])
            }
            _ => bad("a width that is not known"),
        }
    }

    fn heads(&mut self, call: &Call, x: &Val, heads: usize) -> Made {
        let shape = self.shape(call, x)?;
        let &[n, t, Dim::Fixed(width)] = shape.dims() else { return Err(call.malformed("not a sequence")) };
        if width % heads != 0 {
            return Err(call.malformed("the width is not a multiple of the heads"));
        }
        let y = self.reshape_to(call, x, vec![n, t, Dim::Fixed(heads), Dim::Fixed(width / heads)])?;
        self.transpose_by(call, &y, vec![0, 2, 1, 3])
    }

    /// Repeats every head of keys for several heads of queries.
    fn repeat_heads(&mut self, call: &Call, x: &Val, times: usize) -> Made {
        let shape = self.shape(call, x)?;
        let &[n, Dim::Fixed(heads), t, width] = shape.dims() else { return Err(call.malformed("not heads")) };
        let (f, many) = (Dim::Fixed, heads.saturating_mul(times));
        let y = self.reshape_to(call, x, vec![n, f(heads), f(1), t, width])?;
        let y =
            self.apply(call, Op::Expand { to: Shape::new(vec![n, f(heads), f(times), t, width]) }, &[y])?;
        self.reshape_to(call, &y, vec![n, f(many), t, width])
    }

    /// An additive mask; in a boolean mask false forbids.
    fn additive(&mut self, call: &Call, mask: &Val) -> Made {
        if self.dtype(mask) != Some(DType::Bool) {
            return Ok(mask.clone());
        }
        let number = |x: f32| Tensor::from_f32(vec![], &[x]).map(Val::Tensor);
        match (number(0.0), number(f32::NEG_INFINITY)) {
            (Ok(zero), Ok(never)) => self.apply(call, Op::Where, &[mask.clone(), zero, never]),
            _ => Err(call.malformed("no mask")),
        }
    }
}
