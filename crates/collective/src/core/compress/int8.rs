//! The `int8` codec: blocks of one-byte codes with a common scale.

use super::{DecodeError, INFINITE, greatest};

/// Values that share a scale.
const BLOCK: usize = 256;
/// Bytes of a scale.
const SCALE: usize = 4;
/// The greatest code; the least is its negative.
const CODES: f32 = 127.0;
/// Added to a small number it leaves the nearest integer in the lowest bits.
const ROUND: f32 = 12_582_912.0;

pub(super) fn encoded_len(elements: usize) -> usize {
    elements + SCALE * elements.div_ceil(BLOCK)
}

#[inline(always)]
pub(super) fn encode(values: &[f32], bytes: &mut [u8]) {
    for (values, bytes) in values.chunks(BLOCK).zip(bytes.chunks_mut(SCALE + BLOCK)) {
        let (head, codes) = bytes.split_at_mut(SCALE);
        let scale = scale(greatest(values));
        head.copy_from_slice(&scale.to_le_bytes());
        if scale > 0.0 {
            let inverse = 1.0 / scale;
            for (code, value) in codes.iter_mut().zip(values) {
                *code = (*value * inverse + ROUND).to_bits() as u8;
            }
        } else {
            codes.fill(0);
        }
    }
}

/// The value of code 1, given the greatest magnitude of the block. It is NaN if a value is not finite, which makes the
/// whole block NaN, and 0 if the values are too small to be divided exactly.
#[inline(always)]
fn scale(greatest: u32) -> f32 {
    let scale = f32::from_bits(greatest) / CODES;
    if greatest >= INFINITE {
        f32::NAN
    } else if scale < f32::MIN_POSITIVE {
        0.0
    } else {
        scale
    }
}

#[inline(always)]
pub(super) fn decode(bytes: &[u8], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for (out, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(SCALE + BLOCK)) {
        let Some((scale, codes)) = bytes.split_first_chunk() else { return };
        let scale = f32::from_le_bytes(*scale);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = f(*out, f32::from(*code as i8) * scale);
        }
    }
}

pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    for (block, bytes) in bytes.chunks(SCALE + BLOCK).enumerate() {
        let scale = bytes.first_chunk().map(|scale| f32::from_le_bytes(*scale));
        if scale.is_some_and(f32::is_sign_negative) {
            return Err(DecodeError::Scale { block });
        }
    }
    Ok(())
}
