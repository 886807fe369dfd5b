//! Conversion between two-byte floats and `f32`.
//!
//! The code has no branches, so loops over it become vector instructions on every machine and values need no conversion
//! buffer.

use half::{bf16, f16};

/// The difference of the exponent biases of `f32` and `f16`.
const REBIAS: u32 = 112 << 23;
/// The magnitude of infinity in `f16`.
const INFINITY: u32 = 0x7c00;

/// Widens exactly.
#[inline(always)]
pub(crate) fn widen_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// Rounds to nearest, ties to even.
#[inline(always)]
pub(crate) fn round_to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // The bits that make it NaN may be among the bits that are cut off.
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
}

/// Widens exactly.
#[inline(always)]
pub(crate) fn widen_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    let normal = (magnitude << 13) + REBIAS;
    let infinite = (magnitude << 13) | f32::INFINITY.to_bits();
    // Multiples of 2^-24, all of them normal in f32.
    let subnormal = (magnitude as i32 as f32 * 2f32.powi(-24)).to_bits();
    let wide = if magnitude >= INFINITY { infinite } else { normal };
    let wide = if magnitude < 0x400 { subnormal } else { wide };
    f32::from_bits(sign | wide)
}

/// Rounds to nearest, ties to even; overflow becomes infinity.
#[inline(always)]
pub(crate) fn round_to_f16(value: f32) -> f16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let rounded = magnitude.wrapping_sub(REBIAS).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Adding 1/2 leaves multiples of 2^-24, the step of subnormal f16.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = (magnitude >> 13) & 0x3ff | 0x200 | INFINITY;
    let narrow = if rounded > INFINITY { INFINITY } else { rounded };
    let narrow = if magnitude < 113 << 23 { subnormal } else { narrow };
    let narrow = if value.is_nan() { nan } else { narrow };
    f16::from_bits((sign | narrow) as u16)
}
