//! Values known at import time: numbers, and integers that are multiples of the batch size.

use crate::init::put;
use crate::{Dim, Shape};
use phalanx_types::{DType, Tensor};

/// The most elements of a known value: a few bytes of a file must not become gigabytes.
pub(super) const MOST_ELEMENTS: usize = 1 << 24;

/// An integer: a number, or a multiple of the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sym {
    N(i64),
    Batch(i64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    /// Integers and booleans.
    Ints(Vec<Sym>),
    Floats(Vec<f64>),
}

/// A tensor that is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lit {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Data,
}

impl Sym {
    pub(super) fn number(self) -> Option<i64> {
        match self {
            Sym::N(n) => Some(n),
            Sym::Batch(0) => Some(0),
            Sym::Batch(_) => None,
        }
    }

    pub(super) fn dim(self) -> Option<Dim> {
        match self {
            Sym::N(n) => usize::try_from(n).ok().map(Dim::Fixed),
            Sym::Batch(k) => usize::try_from(k).ok().filter(|k| *k > 0).map(Dim::Batch),
        }
    }
}

impl From<Dim> for Sym {
    fn from(dim: Dim) -> Self {
        match dim {
            Dim::Fixed(n) => Sym::N(n as i64),
            Dim::Batch(k) => Sym::Batch(k as i64),
        }
    }
}

pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
}

impl Lit {
    /// A vector of integers.
    pub(super) fn vector(elements: Vec<Sym>) -> Self {
        Self { dtype: DType::I64, shape: vec![elements.len()], data: Data::Ints(elements) }
    }

    pub(super) fn scalar(dtype: DType, x: f64) -> Self {
        let data = if is_float(dtype) { Data::Floats(vec![x]) } else { Data::Ints(vec![Sym::N(x as i64)]) };
        Self { dtype, shape: vec![], data }
    }

    /// The numbers of a tensor; `None` if there are too many.
    pub(super) fn from_tensor(tensor: &Tensor) -> Option<Self> {
        let shape: Vec<usize> =
            tensor.shape().iter().map(|d| usize::try_from(*d).ok()).collect::<Option<_>>()?;
        if elements(&shape)? > MOST_ELEMENTS {
            return None;
        }
        let bytes = tensor.data();
        let dtype = tensor.dtype();
        let data = if is_float(dtype) {
            Data::Floats(bytes.chunks_exact(dtype.size()).map(|b| float(dtype, b)).collect())
        } else {
            Data::Ints(bytes.chunks_exact(dtype.size()).map(|b| Sym::N(integer(dtype, b))).collect())
        };
        Some(Self { dtype, shape, data })
    }

    /// The tensor of these numbers; `None` if they depend on the batch.
    pub(super) fn to_tensor(&self) -> Option<Tensor> {
        let mut data = Vec::with_capacity(self.len() * self.dtype.size());
        match &self.data {
            Data::Floats(x) => x.iter().for_each(|x| put(&mut data, self.dtype, *x)),
            Data::Ints(x) => {
                for x in x {
                    let n = x.number()?;
                    match self.dtype {
                        DType::I64 => data.extend_from_slice(&n.to_le_bytes()),
                        DType::U64 => data.extend_from_slice(&(n as u64).to_le_bytes()),
                        dtype => put(&mut data, dtype, n as f64),
                    }
                }
            }
        }
        Tensor::new(self.dtype, self.shape.iter().map(|d| *d as u64).collect(), data.into()).ok()
    }

    pub(super) fn len(&self) -> usize {
        match &self.data {
            Data::Ints(x) => x.len(),
            Data::Floats(x) => x.len(),
        }
    }

    pub(super) fn syms(&self) -> Option<&[Sym]> {
        match &self.data {
            Data::Ints(x) => Some(x),
            Data::Floats(_) => None,
        }
    }

    /// The elements, if they are integers without the batch.
    pub(super) fn ints(&self) -> Option<Vec<i64>> {
        self.syms()?.iter().map(|s| s.number()).collect()
    }

    /// The elements as floats, if they do not depend on the batch.
    pub(super) fn floats(&self) -> Option<Vec<f64>> {
        match &self.data {
            Data::Floats(x) => Some(x.clone()),
            Data::Ints(x) => x.iter().map(|s| s.number().map(|n| n as f64)).collect(),
        }
    }

    /// The only element, whatever the rank.
    pub(super) fn single(&self) -> Option<f64> {
        if self.len() != 1 {
            return None;
        }
        match &self.data {
            Data::Floats(x) => x.first().copied(),
            Data::Ints(x) => x.first().and_then(|s| s.number()).map(|n| n as f64),
        }
    }

    /// A value of this shape whose elements are picked from this one by index.
    pub(super) fn pick(&self, shape: Vec<usize>, from: impl Iterator<Item = usize>) -> Option<Self> {
        let data = match &self.data {
            Data::Ints(x) => Data::Ints(from.map(|i| x.get(i).copied()).collect::<Option<_>>()?),
            Data::Floats(x) => Data::Floats(from.map(|i| x.get(i).copied()).collect::<Option<_>>()?),
        };
        let made = Self { dtype: self.dtype, shape, data };
        (elements(&made.shape)? == made.len()).then_some(made)
    }

    pub(super) fn reshaped(mut self, shape: Vec<usize>) -> Option<Self> {
        (elements(&shape)? == self.len()).then(|| {
            self.shape = shape;
            self
        })
    }

    pub(super) fn as_shape(&self) -> Shape {
        Shape::fixed(&self.shape)
    }
}

/// How many elements a shape has.
pub(super) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))
}

/// For every element of `shape`, the index of the element of `from` that is broadcast to it.
pub(super) fn broadcast_indices(from: &[usize], shape: &[usize]) -> Vec<usize> {
    let lead = shape.len() - from.len();
    let mut strides = vec![0; shape.len()];
    let mut stride = 1;
    for (i, d) in from.iter().enumerate().rev() {
        strides[lead + i] = if *d == 1 { 0 } else { stride };
        stride *= d;
    }
    walk(shape, 0, &strides.iter().map(|s| *s as i64).collect::<Vec<_>>())
}

/// The flat indices of a walk over `shape` from `start` with a stride per axis.
pub(super) fn walk(shape: &[usize], start: usize, strides: &[i64]) -> Vec<usize> {
    let mut out = vec![start as i64];
    for (n, stride) in shape.iter().zip(strides) {
        out = out.iter().flat_map(|base| (0..*n as i64).map(move |i| base + i * stride)).collect();
    }
    out.into_iter().map(|i| i as usize).collect()
}

/// Row-major strides.
pub(super) fn strides(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * shape[i + 1] as i64;
    }
    strides
}

fn float(dtype: DType, b: &[u8]) -> f64 {
    match (dtype, b) {
        (DType::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (DType::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        (DType::Bf16, &[a, b]) => f64::from(f32::from_le_bytes([0, 0, a, b])),
        (DType::F16, &[a, b]) => half(u16::from_le_bytes([a, b])),
        _ => 0.0,
    }
}

fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        e => (1.0 + fraction / 1024.0) * 2f64.powi(e - 15),
    }
}

fn integer(dtype: DType, b: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[..b.len()].copy_from_slice(b);
    let n = u64::from_le_bytes(wide);
    match dtype {
        DType::I8 => i64::from(n as i8),
        DType::I16 => i64::from(n as i16),
        DType::I32 => i64::from(n as i32),
        _ => n as i64,
    }
}
