//! Constant folding. It removes the shape arithmetic of exporters, also where it involves the batch size.

use super::lit::{Data, Lit, MOST_ELEMENTS, Sym, broadcast_indices, elements, is_float, strides, walk};
use crate::{Binary, Compare, Op, Range, Reduce, Unary};
use phalanx_types::DType;

/// The result of the operator on known values; `None` if it is not known, too large, or not worth it.
pub(super) fn eval(op: &Op, args: &[&Lit]) -> Option<Lit> {
    let x = *args.first()?;
    let made = match op {
        Op::Unary(u) => unary(*u, x)?,
        Op::Binary(b) => binary(*b, x, args.get(1)?)?,
        Op::Compare(c) => compare(*c, x, args.get(1)?)?,
        Op::Where => select(x, args.get(1)?, args.get(2)?)?,
        Op::Reduce { kind, axes, keep } => reduce(*kind, axes, *keep, x)?,
        Op::Reshape { to } => x.clone().reshaped(to.as_fixed()?)?,
        Op::Transpose { perm } => transpose(x, perm)?,
        Op::Expand { to } => {
            let to = to.as_fixed().filter(|s| elements(s).is_some_and(|n| n <= MOST_ELEMENTS))?;
            if to.len() < x.shape.len() {
                return None;
            }
            x.pick(to.clone(), broadcast_indices(&x.shape, &to).into_iter())?
        }
        Op::Concat { axis } => concat(*axis, args)?,
        Op::Slice { ranges } => slice(x, ranges)?,
        Op::Gather { axis } => gather(x, args.get(1)?, *axis)?,
        Op::Cast { to } => cast(x, *to)?,
        _ => return None,
    };
    Some(rounded(made))
}

/// Rounds floats to their own type.
fn rounded(mut lit: Lit) -> Lit {
    if let (DType::F32, Data::Floats(x)) = (lit.dtype, &mut lit.data) {
        x.iter_mut().for_each(|x| *x = f64::from(*x as f32));
    }
    lit
}

pub(super) fn cast(x: &Lit, to: DType) -> Option<Lit> {
    let data = match (&x.data, is_float(to)) {
        (Data::Floats(v), true) => Data::Floats(v.clone()),
        (Data::Ints(_), true) => Data::Floats(x.floats()?),
        (Data::Floats(v), false) if to == DType::Bool => {
            Data::Ints(v.iter().map(|x| Sym::N(i64::from(*x != 0.0))).collect())
        }
        (Data::Floats(v), false) => Data::Ints(v.iter().map(|x| Sym::N(*x as i64)).collect()),
        (Data::Ints(v), false) if to == DType::Bool => {
            Data::Ints(v.iter().map(|s| Sym::N(i64::from(*s != Sym::N(0)))).collect())
        }
        (Data::Ints(v), false) => Data::Ints(v.clone()),
    };
    Some(rounded(Lit { dtype: to, shape: x.shape.clone(), data }))
}

fn unary(op: Unary, x: &Lit) -> Option<Lit> {
    let data = match &x.data {
        Data::Ints(v) => {
            let f: fn(Sym) -> Option<Sym> = match op {
                Unary::Neg => |s| mul(s, Sym::N(-1)),
                Unary::Not => |s| Some(Sym::N(i64::from(s.number()? == 0))),
                Unary::Abs => |s| Some(Sym::N(s.number()?.checked_abs()?)),
                Unary::Sign => |s| Some(Sym::N(s.number()?.signum())),
                Unary::Relu => |s| Some(Sym::N(s.number()?.max(0))),
                _ => return None,
            };
            Data::Ints(v.iter().map(|s| f(*s)).collect::<Option<_>>()?)
        }
        Data::Floats(v) => {
            let f: fn(f64) -> f64 = match op {
                Unary::Neg => |x| -x,
                Unary::Sqrt => f64::sqrt,
                Unary::Exp => libm::exp,
                Unary::Log => libm::log,
                Unary::Abs => f64::abs,
                Unary::Reciprocal => |x| 1.0 / x,
                Unary::Sin => libm::sin,
                Unary::Cos => libm::cos,
                Unary::Floor => f64::floor,
                Unary::Sign => |x| {
                    if x > 0.0 {
                        1.0
                    } else if x < 0.0 {
                        -1.0
                    } else {
                        0.0
                    }
                },
                Unary::Relu => |x| x.max(0.0),
                Unary::Tanh => libm::tanh,
                _ => return None,
            };
            Data::Floats(v.iter().map(|x| f(*x)).collect())
        }
    };
    Some(Lit { dtype: x.dtype, shape: x.shape.clone(), data })
}

/// Broadcasts both values to a common shape.
fn spread(a: &Lit, b: &Lit) -> Option<(Lit, Lit)> {
    let shape = a.as_shape().broadcast(&b.as_shape())?.as_fixed()?;
    if elements(&shape)? > MOST_ELEMENTS {
        return None;
    }
    let grow = |x: &Lit| match x.shape == shape {
        true => Some(x.clone()),
        false => x.pick(shape.clone(), broadcast_indices(&x.shape, &shape).into_iter()),
    };
    Some((grow(a)?, grow(b)?))
}

fn add(a: Sym, b: Sym) -> Option<Sym> {
    Some(match (a, b) {
        (Sym::N(a), Sym::N(b)) => Sym::N(a.checked_add(b)?),
        (Sym::Batch(a), Sym::Batch(b)) => match a.checked_add(b)? {
            0 => Sym::N(0),
            k => Sym::Batch(k),
        },
        (Sym::Batch(k), Sym::N(0)) | (Sym::N(0), Sym::Batch(k)) => Sym::Batch(k),
        _ => return None,
    })
}

pub(super) fn mul(a: Sym, b: Sym) -> Option<Sym> {
    Some(match (a, b) {
        (Sym::N(a), Sym::N(b)) => Sym::N(a.checked_mul(b)?),
        (Sym::Batch(k), Sym::N(n)) | (Sym::N(n), Sym::Batch(k)) => match k.checked_mul(n)? {
            0 => Sym::N(0),
            k => Sym::Batch(k),
        },
        (Sym::Batch(_), Sym::Batch(_)) => return None,
    })
}

fn div(a: Sym, b: Sym) -> Option<Sym> {
    match (a, b) {
        (Sym::N(a), Sym::N(b)) => a.checked_div(b).map(Sym::N),
        (Sym::Batch(a), Sym::N(b)) if a.checked_rem(b)? == 0 => Some(Sym::Batch(a / b)),
        (Sym::Batch(a), Sym::Batch(b)) if a.checked_rem(b)? == 0 => Some(Sym::N(a / b)),
        _ => None,
    }
}

/// Compares where the result is known: the batch is at least 1.
fn order(a: Sym, b: Sym) -> Option<std::cmp::Ordering> {
    use std::cmp::Ordering;
    match (a, b) {
        (Sym::N(a), Sym::N(b)) | (Sym::Batch(a), Sym::Batch(b)) => Some(a.cmp(&b)),
        (Sym::Batch(k), Sym::N(n)) if k > 0 && n <= 0 => Some(Ordering::Greater),
        (Sym::N(n), Sym::Batch(k)) if k > 0 && n <= 0 => Some(Ordering::Less),
        _ => None,
    }
}

fn int_binary(op: Binary, a: Sym, b: Sym) -> Option<Sym> {
    use std::cmp::Ordering;
    match op {
        Binary::Add => add(a, b),
        Binary::Sub => add(a, mul(b, Sym::N(-1))?),
        Binary::Mul => mul(a, b),
        Binary::Div => div(a, b),
        Binary::Pow => Some(Sym::N(a.number()?.checked_pow(u32::try_from(b.number()?).ok()?)?)),
        // A batch dimension wins over the 1 it is broadcast against.
        Binary::Max => match (a, b) {
            (Sym::Batch(k), Sym::N(1)) | (Sym::N(1), Sym::Batch(k)) if k > 0 => Some(Sym::Batch(k)),
            _ => Some(if order(a, b)? == Ordering::Less { b } else { a }),
        },
        Binary::Min => match (a, b) {
            (Sym::Batch(k), Sym::N(1)) | (Sym::N(1), Sym::Batch(k)) if k > 0 => Some(Sym::N(1)),
            _ => Some(if order(a, b)? == Ordering::Greater { b } else { a }),
        },
        Binary::And => Some(Sym::N(i64::from(a.number()? != 0 && b.number()? != 0))),
        Binary::Or => Some(Sym::N(i64::from(a.number()? != 0 || b.number()? != 0))),
    }
}

fn float_binary(op: Binary, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => libm::pow(a, b),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::And | Binary::Or => return None,
    })
}

fn binary(op: Binary, a: &Lit, b: &Lit) -> Option<Lit> {
    let (a, b) = spread(a, b)?;
    let data = match (&a.data, &b.data) {
        (Data::Ints(x), Data::Ints(y)) => {
            Data::Ints(x.iter().zip(y).map(|(x, y)| int_binary(op, *x, *y)).collect::<Option<_>>()?)
        }
        _ => {
            let (x, y) = (a.floats()?, b.floats()?);
            Data::Floats(x.into_iter().zip(y).map(|(x, y)| float_binary(op, x, y)).collect::<Option<_>>()?)
        }
    };
    let dtype = if matches!(data, Data::Floats(_)) && !is_float(a.dtype) { b.dtype } else { a.dtype };
    Some(Lit { dtype, shape: a.shape, data })
}

fn compare(op: Compare, a: &Lit, b: &Lit) -> Option<Lit> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (a, b) = spread(a, b)?;
    let holds = |o: Option<std::cmp::Ordering>| match op {
        Compare::Equal => o == Some(Equal),
        Compare::Less => o == Some(Less),
        Compare::LessOrEqual => matches!(o, Some(Less | Equal)),
        Compare::Greater => o == Some(Greater),
        Compare::GreaterOrEqual => matches!(o, Some(Greater | Equal)),
    };
    let truths: Vec<Sym> = match (&a.data, &b.data) {
        (Data::Ints(x), Data::Ints(y)) => {
            let one = |(x, y): (&Sym, &Sym)| Some(Sym::N(i64::from(holds(Some(order(*x, *y)?)))));
            x.iter().zip(y).map(one).collect::<Option<_>>()?
        }
        _ => {
            let (x, y) = (a.floats()?, b.floats()?);
            x.iter().zip(&y).map(|(x, y)| Sym::N(i64::from(holds(x.partial_cmp(y))))).collect()
        }
    };
    Some(Lit { dtype: DType::Bool, shape: a.shape, data: Data::Ints(truths) })
}

fn select(condition: &Lit, a: &Lit, b: &Lit) -> Option<Lit> {
    let (a, b) = spread(a, b)?;
    let (condition, a) = spread(condition, &a)?;
    let (_, b) = spread(&condition, &b)?;
    let first: Vec<bool> = condition.ints()?.into_iter().map(|n| n != 0).collect();
    let data = match (&a.data, &b.data) {
        (Data::Ints(x), Data::Ints(y)) => Data::Ints(
            first.iter().zip(x.iter().zip(y)).map(|(c, (x, y))| if *c { *x } else { *y }).collect(),
        ),
        (Data::Floats(x), Data::Floats(y)) => Data::Floats(
            first.iter().zip(x.iter().zip(y)).map(|(c, (x, y))| if *c { *x } else { *y }).collect(),
        ),
        _ => return None,
    };
    Some(Lit { dtype: a.dtype, shape: a.shape, data })
}

fn transpose(x: &Lit, perm: &[usize]) -> Option<Lit> {
    let mut seen = perm.to_vec();
    seen.sort_unstable();
    if !seen.into_iter().eq(0..x.shape.len()) {
        return None;
    }
    let old = strides(&x.shape);
    let shape: Vec<usize> = perm.iter().map(|p| x.shape[*p]).collect();
    let steps: Vec<i64> = perm.iter().map(|p| old[*p]).collect();
    x.pick(shape.clone(), walk(&shape, 0, &steps).into_iter())
}

fn slice(x: &Lit, ranges: &[Range]) -> Option<Lit> {
    if ranges.len() != x.shape.len() {
        return None;
    }
    let old = strides(&x.shape);
    let mut start = 0usize;
    let (mut shape, mut steps) = (vec![], vec![]);
    for (i, r) in ranges.iter().enumerate() {
        let len = r.len.unwrap_or(x.shape[i]);
        let last = (len as i64 - 1).checked_mul(r.step)?.checked_add(r.start as i64)?;
        if len > 0 && (r.start >= x.shape[i] || last < 0 || last >= x.shape[i] as i64) {
            return None;
        }
        shape.push(len);
        steps.push(old[i].checked_mul(r.step)?);
        if len > 0 {
            start += r.start * old[i] as usize;
        }
    }
    x.pick(shape.clone(), walk(&shape, start, &steps).into_iter())
}

fn concat(axis: usize, args: &[&Lit]) -> Option<Lit> {
    let first = args.first()?;
    let mut shape = first.shape.clone();
    *shape.get_mut(axis)? = 0;
    for x in args {
        let mut other = x.shape.clone();
        let n = std::mem::take(other.get_mut(axis)?);
        let wanted: Vec<usize> =
            shape.iter().enumerate().map(|(i, d)| if i == axis { 0 } else { *d }).collect();
        if other != wanted || x.dtype != first.dtype {
            return None;
        }
        shape[axis] += n;
    }
    let total = elements(&shape)?;
    if total > MOST_ELEMENTS {
        return None;
    }
    let outer = elements(&shape[..axis])?;
    let mut ints = Vec::new();
    let mut floats = Vec::new();
    for o in 0..outer {
        for x in args {
            let inner = elements(&x.shape[axis..])?;
            match &x.data {
                Data::Ints(v) => ints.extend_from_slice(v.get(o * inner..(o + 1) * inner)?),
                Data::Floats(v) => floats.extend_from_slice(v.get(o * inner..(o + 1) * inner)?),
            }
        }
    }
    let data = if is_float(first.dtype) { Data::Floats(floats) } else { Data::Ints(ints) };
    Some(Lit { dtype: first.dtype, shape, data }).filter(|l| l.len() == total)
}

fn gather(x: &Lit, indices: &Lit, axis: usize) -> Option<Lit> {
    let size = *x.shape.get(axis)? as i64;
    let at = indices.ints()?.into_iter().map(|i| if i < 0 { i + size } else { i });
    let at: Vec<usize> = at.map(|i| (0..size).contains(&i).then_some(i as usize)).collect::<Option<_>>()?;
    let (outer, inner) = (elements(&x.shape[..axis])?, elements(&x.shape[axis + 1..])?);
    let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
    if elements(&shape)? > MOST_ELEMENTS {
        return None;
    }
    let size = size as usize;
    let from = (0..outer).flat_map(|o| at.iter().map(move |i| (o * size + i) * inner));
    x.pick(shape, from.flat_map(|base| base..base + inner))
}

fn reduce(kind: Reduce, axes: &[usize], keep: bool, x: &Lit) -> Option<Lit> {
    if matches!((&x.data, kind), (Data::Ints(_), Reduce::Mean)) {
        return None;
    }
    let op = match kind {
        Reduce::Sum | Reduce::Mean => Binary::Add,
        Reduce::Max => Binary::Max,
        Reduce::Min => Binary::Min,
    };
    let made = accumulate(op, axes, keep, x)?;
    if kind != Reduce::Mean {
        return Some(made);
    }
    let n = axes.iter().map(|a| x.shape[*a]).product::<usize>();
    binary(Binary::Div, &made, &Lit::scalar(x.dtype, n as f64))
}

/// Combines all elements along the axes by an operation.
pub(super) fn accumulate(op: Binary, axes: &[usize], keep: bool, x: &Lit) -> Option<Lit> {
    if axes.iter().any(|a| x.shape.get(*a).is_none_or(|n| *n == 0)) {
        return None;
    }
    let kept: Vec<usize> = (0..x.shape.len()).filter(|i| !axes.contains(i)).collect();
    let perm: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let moved = transpose(x, &perm)?;
    let inner: usize = axes.iter().map(|a| x.shape[*a]).product();
    let shape = (0..x.shape.len()).filter(|i| keep || !axes.contains(i));
    let shape: Vec<usize> = shape.map(|i| if axes.contains(&i) { 1 } else { x.shape[i] }).collect();
    let data = match &moved.data {
        Data::Ints(v) => {
            let fold = |c: &[Sym]| c[1..].iter().try_fold(c[0], |a, b| int_binary(op, a, *b));
            Data::Ints(v.chunks(inner).map(fold).collect::<Option<_>>()?)
        }
        Data::Floats(v) => {
            let fold = |c: &[f64]| c[1..].iter().try_fold(c[0], |a, b| float_binary(op, a, *b));
            Data::Floats(v.chunks(inner).map(fold).collect::<Option<_>>()?)
        }
    };
    Some(Lit { dtype: x.dtype, shape, data })
}
