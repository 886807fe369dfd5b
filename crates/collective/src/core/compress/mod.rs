//! Compression of `f32` gradients.
//!
//! ```text
//!   none   4 bytes a value
//!   f16    2 bytes a value; overflow becomes infinity
//!   bf16   2 bytes a value
//!   int8   blocks of 256 values: the block's scale as f32, then a byte a value
//!   topk   the values of greatest magnitude, each as its index (u32) and itself (f32), by index
//! ```
//! All numbers are little-endian. The compression error can be kept as *feedback* and sent with the next gradient. NaN
//! and infinity stay NaN or infinity, so the receiver can detect them.

mod halves;
mod int8;
#[cfg(test)]
mod tests;
mod topk;
mod words;

pub use words::{Compression, ParseCompressionError};

use super::numbers::operation::each;
use super::numbers::wide::wide;
use phalanx_types::Class;

/// Values processed at a time (feedback added, encoded, subtracted), so that they stay in the L1 cache. A multiple of
/// the block size of every codec.
const BLOCK: usize = 4096;

/// Why bytes cannot be decoded to that number of values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    #[error("{elements} values compressed by {compression} take {wanted} bytes, not {got}")]
    Length { compression: Compression, elements: usize, wanted: usize, got: usize },
    #[error("value {index} was sent, of {elements}")]
    Index { index: u32, elements: usize },
    #[error("value {index} was sent after value {before}")]
    Order { index: u32, before: u32 },
    #[error("block {block} has a negative scale")]
    Scale { block: usize },
}

impl DecodeError {
    pub fn class(&self) -> Class {
        Class::Peer
    }
}

/// Bytes of `elements` encoded values.
pub(crate) fn encoded_len(compression: Compression, elements: usize) -> usize {
    match compression {
        Compression::None => 4 * elements,
        Compression::F16 | Compression::Bf16 => 2 * elements,
        Compression::Int8 => int8::encoded_len(elements),
        Compression::TopK { per_mille } => topk::encoded_len(elements, per_mille),
    }
}

/// Appends the encoded values to `out`.
///
/// `feedback` holds the compression error of earlier calls, initially zeros. It is added to the values and then holds
/// the error of this call. NaN and infinity leave no error behind, otherwise they would be sent again in every call.
///
/// # Panics
/// `feedback` has another length, or there are more values than a `u32` can count.
pub(crate) fn encode(
    compression: Compression,
    values: &[f32],
    feedback: Option<&mut [f32]>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + encoded_len(compression, values.len()), 0);
    let bytes = &mut out[start..];
    let Some(feedback) = feedback else { return encode_values(compression, values, bytes) };
    assert_eq!(feedback.len(), values.len(), "every value has its feedback");
    if let Compression::TopK { .. } = compression {
        wide!(each(feedback, values, plus));
        return topk::encode_rest(feedback, bytes);
    }
    let bytes = bytes.chunks_mut(encoded_len(compression, BLOCK));
    for ((feedback, values), bytes) in feedback.chunks_mut(BLOCK).zip(values.chunks(BLOCK)).zip(bytes) {
        wide!(each(feedback, values, plus));
        encode_values(compression, feedback, bytes);
        decode_values(compression, bytes, feedback, remainder);
    }
}

/// Decodes into `out`, which is unchanged on an error.
///
/// # Errors
/// The bytes are not an encoding of that number of values.
pub(crate) fn decode(compression: Compression, bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
    check(compression, bytes, out.len())?;
    if let Compression::TopK { .. } = compression {
        out.fill(0.0);
    }
    decode_values(compression, bytes, out, replace);
    Ok(())
}

/// Adds the decoded values to `out`, which is unchanged on an error.
///
/// # Errors
/// The bytes are not an encoding of that number of values.
pub(crate) fn decode_add(compression: Compression, bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
    check(compression, bytes, out.len())?;
    decode_values(compression, bytes, out, plus);
    Ok(())
}

/// Checks everything that can be wrong with the bytes.
fn check(compression: Compression, bytes: &[u8], elements: usize) -> Result<(), DecodeError> {
    let (wanted, got) = (encoded_len(compression, elements), bytes.len());
    if wanted != got {
        return Err(DecodeError::Length { compression, elements, wanted, got });
    }
    match compression {
        Compression::None | Compression::F16 | Compression::Bf16 => Ok(()),
        Compression::Int8 => int8::check(bytes),
        Compression::TopK { .. } => topk::check(bytes, elements),
    }
}

fn encode_values(compression: Compression, values: &[f32], bytes: &mut [u8]) {
    match compression {
        Compression::None => wide!(halves::encode_f32(values, bytes)),
        Compression::F16 => wide!(halves::encode_f16(values, bytes)),
        Compression::Bf16 => wide!(halves::encode_bf16(values, bytes)),
        Compression::Int8 => wide!(int8::encode(values, bytes)),
        Compression::TopK { .. } => topk::encode(values, bytes),
    }
}

/// `out[i] = f(out[i], decoded[i])` for the values that were sent; `bytes` are checked.
#[inline(always)]
fn decode_values(
    compression: Compression,
    bytes: &[u8],
    out: &mut [f32],
    f: impl Fn(f32, f32) -> f32 + Copy,
) {
    match compression {
        Compression::None => wide!(halves::decode_f32(bytes, out, f)),
        Compression::F16 => wide!(halves::decode_f16(bytes, out, f)),
        Compression::Bf16 => wide!(halves::decode_bf16(bytes, out, f)),
        Compression::Int8 => wide!(int8::decode(bytes, out, f)),
        Compression::TopK { .. } => topk::decode(bytes, out, f),
    }
}

#[inline(always)]
fn replace(_: f32, decoded: f32) -> f32 {
    decoded
}

#[inline(always)]
fn plus(value: f32, decoded: f32) -> f32 {
    value + decoded
}

#[inline(always)]
fn remainder(value: f32, decoded: f32) -> f32 {
    let rest = value - decoded;
    if rest.is_finite() { rest } else { 0.0 }
}

/// The magnitude as an integer with the same order; NaN is greater than infinity.
#[inline(always)]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & (u32::MAX >> 1)
}

/// The greatest magnitude; 0 if there are no values.
#[inline(always)]
fn greatest(values: &[f32]) -> u32 {
    let mut greatest = 0;
    for value in values {
        greatest = greatest.max(magnitude(*value));
    }
    greatest
}

/// Magnitudes from here on are infinity or NaN.
const INFINITE: u32 = f32::INFINITY.to_bits();
