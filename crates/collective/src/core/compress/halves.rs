//! Codecs for uncompressed `f32` and for two-byte floats.

use crate::core::numbers::halves::{round_to_bf16, round_to_f16, widen_bf16, widen_f16};
use half::{bf16, f16};

#[inline(always)]
pub(super) fn encode_f32(values: &[f32], bytes: &mut [u8]) {
    for (value, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = value.to_le_bytes();
    }
}

#[inline(always)]
pub(super) fn decode_f32(bytes: &[u8], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = f(*out, f32::from_le_bytes(*bytes));
    }
}

#[inline(always)]
pub(super) fn encode_bf16(values: &[f32], bytes: &mut [u8]) {
    for (value, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = round_to_bf16(*value).to_bits().to_le_bytes();
    }
}

#[inline(always)]
pub(super) fn decode_bf16(bytes: &[u8], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = f(*out, widen_bf16(bf16::from_bits(u16::from_le_bytes(*bytes))));
    }
}

#[inline(always)]
pub(super) fn encode_f16(values: &[f32], bytes: &mut [u8]) {
    for (value, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = round_to_f16(*value).to_bits().to_le_bytes();
    }
}

#[inline(always)]
pub(super) fn decode_f16(bytes: &[u8], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = f(*out, widen_f16(f16::from_bits(u16::from_le_bytes(*bytes))));
    }
}
