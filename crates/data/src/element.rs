//! Conversion of elements of any type to `f32`.

use phalanx_types::DType;

/// All integers up to this one are exact in `f32`.
const EXACT: u64 = 1 << 24;

/// An integer that is not exact in `f32`, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inexact {
    pub at: usize,
    pub value: i128,
}

/// Converts little-endian elements of any type to `f32`, as many as `out` takes.
///
/// # Errors
/// An integer is not exact in `f32`.
pub fn convert_elements(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), Inexact> {
    convert(dtype, false, bytes, out)
}

/// Converts the elements in `bytes`, as many as `out` takes.
pub(crate) fn convert(dtype: DType, big_endian: bool, bytes: &[u8], out: &mut [f32]) -> Result<(), Inexact> {
    match dtype {
        DType::F32 => any(bytes, big_endian, out, f32::from_le_bytes),
        DType::F64 => any(bytes, big_endian, out, |b| f64::from_le_bytes(b) as f32),
        DType::F16 => any(bytes, big_endian, out, |b| f16(u16::from_le_bytes(b))),
        DType::Bf16 => {
            any(bytes, big_endian, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
        }
        DType::I8 => any(bytes, big_endian, out, |b| f32::from(i8::from_le_bytes(b))),
        DType::I16 => any(bytes, big_endian, out, |b| f32::from(i16::from_le_bytes(b))),
        DType::U8 => any(bytes, big_endian, out, |b| f32::from(u8::from_le_bytes(b))),
        DType::U16 => any(bytes, big_endian, out, |b| f32::from(u16::from_le_bytes(b))),
        DType::Bool => any(bytes, big_endian, out, |b: [u8; 1]| if b == [0] { 0.0 } else { 1.0 }),
        DType::I32 => exact(bytes, big_endian, out, |b| i128::from(i32::from_le_bytes(b))),
        DType::I64 => exact(bytes, big_endian, out, |b| i128::from(i64::from_le_bytes(b))),
        DType::U32 => exact(bytes, big_endian, out, |b| i128::from(u32::from_le_bytes(b))),
        DType::U64 => exact(bytes, big_endian, out, |b| i128::from(u64::from_le_bytes(b))),
    }
}

fn any<const N: usize>(
    bytes: &[u8],
    big_endian: bool,
    out: &mut [f32],
    to_f32: impl Fn([u8; N]) -> f32,
) -> Result<(), Inexact> {
    let (elements, _) = bytes.as_chunks::<N>();
    if big_endian {
        for (out, element) in out.iter_mut().zip(elements) {
            *out = to_f32(reversed(*element));
        }
    } else {
        for (out, element) in out.iter_mut().zip(elements) {
            *out = to_f32(*element);
        }
    }
    Ok(())
}

fn exact<const N: usize>(
    bytes: &[u8],
    big_endian: bool,
    out: &mut [f32],
    to_int: impl Fn([u8; N]) -> i128,
) -> Result<(), Inexact> {
    let (elements, _) = bytes.as_chunks::<N>();
    for (at, (out, element)) in out.iter_mut().zip(elements).enumerate() {
        let value = to_int(if big_endian { reversed(*element) } else { *element });
        *out = integer(value).ok_or(Inexact { at, value })?;
    }
    Ok(())
}

/// An integer as `f32`, if it is exact.
pub(crate) fn integer(value: i128) -> Option<f32> {
    (value.unsigned_abs() <= u128::from(EXACT)).then_some(value as f32)
}

fn reversed<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    bytes.reverse();
    bytes
}

/// Converts half precision: moves its fields to their positions in an `f32`, whose exponent is then too small by 112,
/// the difference of the biases.
fn f16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let rest = u32::from(half & 0x7fff) << 13;
    let value = if half & 0x7c00 == 0x7c00 {
        f32::from_bits(rest | 0x7f80_0000)
    } else {
        f32::from_bits(rest) * f32::from_bits((127 + 112) << 23)
    };
    f32::from_bits(value.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(f16(bits), value, "{bits:#x}");
        }
        assert!(f16(0x7e00).is_nan());
        assert!(f16(0x8000).is_sign_negative());
    }

    #[test]
    fn both_byte_orders_are_read() {
        let mut out = [0.0; 2];
        convert(DType::I16, true, &[1, 2, 0xff, 0xff], &mut out).unwrap();
        assert_eq!(out, [258.0, -1.0]);
        convert(DType::I16, false, &[1, 2, 0xff, 0xff], &mut out).unwrap();
        assert_eq!(out, [513.0, -1.0]);
    }

    #[test]
    fn integers_that_would_change_are_refused() {
        let mut out = [0.0; 2];
        let bytes = [0i64.to_le_bytes(), ((1 << 24) + 1i64).to_le_bytes()].concat();
        let inexact = Inexact { at: 1, value: (1 << 24) + 1 };
        assert_eq!(convert(DType::I64, false, &bytes, &mut out), Err(inexact));
        assert_eq!(integer(-(1 << 24)), Some(-16_777_216.0));
        assert_eq!(integer(i128::from(i64::MIN)), None);
    }
}
