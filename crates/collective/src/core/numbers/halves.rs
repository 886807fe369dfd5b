//! Floats of two bytes as `f32`, and back.
//!
//! Without branches: loops over these become vector instructions on every machine, and
//! the values need not be converted to a buffer first.

use half::{bf16, f16};

/// The exponent of `f32` counts from 112 less than that of `f16`.
const REBIAS: u32 = 112 << 23;
/// The magnitude of infinity in `f16`.
const INFINITY: u32 = 0x7c00;

/// The same value.
#[inline(always)]
pub(crate) fn widen_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// The nearest value, of two equally near the even one.
#[inline(always)]
pub(crate) fn round_to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // The bits that make it NaN may be among those that are cut off.
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
}

/// The same value.
#[inline(always)]
pub(crate) fn widen_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    let normal = (magnitude << 13) + REBIAS;
    let infinite = (magnitude << 13) | f32::INFINITY.to_bits();
    // Steps of 2^-24, all of them normal in f32.
    let subnormal = (magnitude as i32 as f32 * 2f32.powi(-24)).to_bits();
    let wide = if magnitude >= INFINITY { infinite } else { normal };
    let wide = if magnitude < 0x400 { subnormal } else { wide };
    f32::from_bits(sign | wide)
}

/// The nearest value, of two equally near the even one; what is too large becomes infinity.
#[inline(always)]
pub(crate) fn round_to_f16(value: f32) -> f16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let rounded = magnitude.wrapping_sub(REBIAS).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
    // The sum with 1/2 has steps of 2^-24, those of subnormal f16.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = (magnitude >> 13) & 0x3ff | 0x200 | INFINITY;
    let narrow = if rounded > INFINITY { INFINITY } else { rounded };
    let narrow = if magnitude < 113 << 23 { subnormal } else { narrow };
    let narrow = if value.is_nan() { nan } else { narrow };
    f16::from_bits((sign | narrow) as u16)
}
