use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl DType {
    pub const ALL: [DType; 13] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::Bf16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// The bytes one element takes.
    pub fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }
}

/// A tensor: element type, shape and little-endian bytes in row-major order.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<u64>,
    data: Bytes,
}

/// Why bytes do not match a tensor's type and shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    #[error("shape {shape:?} of {dtype:?} needs {needed} bytes, got {got}")]
    Length { dtype: DType, shape: Vec<u64>, needed: u64, got: u64 },
    #[error("shape {shape:?} has more elements than can be counted")]
    Overflow { shape: Vec<u64> },
    #[error("tensor holds {have:?}, asked for {asked:?}")]
    DType { have: DType, asked: DType },
}

/// The bytes of a tensor of this type and shape, or `None` on overflow.
pub(crate) fn byte_len(dtype: DType, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(dtype.size() as u64, |n, d| n.checked_mul(*d))
}

impl Tensor {
    /// Checks that the bytes are exactly what the shape needs.
    ///
    /// # Errors
    /// The shape overflows or the number of bytes differs.
    pub fn new(dtype: DType, shape: Vec<u64>, data: Bytes) -> Result<Self, TensorError> {
        let Some(needed) = byte_len(dtype, &shape) else { return Err(TensorError::Overflow { shape }) };
        let got = data.len() as u64;
        if needed != got {
            return Err(TensorError::Length { dtype, shape, needed, got });
        }
        Ok(Self { dtype, shape, data })
    }

    /// Copies values into a tensor of `f32`.
    ///
    /// # Errors
    /// The shape does not have as many elements as there are values.
    pub fn from_f32(shape: Vec<u64>, values: &[f32]) -> Result<Self, TensorError> {
        // Made in one piece: this is most of what it takes to pack a model.
        let mut data = vec![0; 4 * values.len()];
        data.as_chunks_mut().0.iter_mut().zip(values).for_each(|(bytes, v)| *bytes = v.to_le_bytes());
        Self::new(DType::F32, shape, data.into())
    }

    /// The values of a tensor of `f32`.
    ///
    /// # Errors
    /// The tensor holds another type.
    pub fn to_f32(&self) -> Result<Vec<f32>, TensorError> {
        if self.dtype != DType::F32 {
            return Err(TensorError::DType { have: self.dtype, asked: DType::F32 });
        }
        let (values, _) = self.data.as_chunks::<4>();
        Ok(values.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// The values as `f32`, whatever the type: integers are rounded to the nearest that there is, true is 1.
    pub fn to_floats(&self) -> Vec<f32> {
        fn each<const N: usize>(data: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
            data.as_chunks::<N>().0.iter().map(|b| read(*b)).collect()
        }
        let data = &self.data;
        match self.dtype {
            DType::F32 => each(data, f32::from_le_bytes),
            DType::F64 => each(data, |b| f64::from_le_bytes(b) as f32),
            DType::F16 => each(data, |b| half_to_f32(u16::from_le_bytes(b))),
            DType::Bf16 => each(data, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
            DType::I8 => each(data, |b| f32::from(i8::from_le_bytes(b))),
            DType::I16 => each(data, |b| f32::from(i16::from_le_bytes(b))),
            DType::I32 => each(data, |b| i32::from_le_bytes(b) as f32),
            DType::I64 => each(data, |b| i64::from_le_bytes(b) as f32),
            DType::U8 => each(data, |[b]| f32::from(b)),
            DType::U16 => each(data, |b| f32::from(u16::from_le_bytes(b))),
            DType::U32 => each(data, |b| u32::from_le_bytes(b) as f32),
            DType::U64 => each(data, |b| u64::from_le_bytes(b) as f32),
            DType::Bool => each(data, |[b]| if b == 0 { 0.0 } else { 1.0 }),
        }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    pub fn data(&self) -> &Bytes {
        &self.data
    }
}

/// A half-precision number's value.
fn half_to_f32(bits: u16) -> f32 {
    let (exponent, fraction) = ((bits >> 10) & 31, f32::from(bits & 1023));
    let value = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    };
    if bits >> 15 == 0 { value } else { -value }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.dtype, self.shape)
    }
}
