//! How values travel: conversions and factors.

use crate::core::signature::WireFormat;
use half::{bf16, f16};
use phalanx_collective::Reduction;
use phalanx_types::DType;

/// The type and reduction by which ranks compute, for values of a type; `None` if there is no such reduction.
///
/// Short integers are computed as longer ones and cut. True is 1; a sum or maximum of truth values is true if any is,
/// a product or minimum if all are.
pub(super) fn wire_of(dtype: DType, wire: WireFormat, reduction: Reduction) -> Option<(DType, Reduction)> {
    let float = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
    if reduction == Reduction::Adasum && !float {
        return None;
    }
    Some(match dtype {
        DType::F32 | DType::F64 if wire == WireFormat::F16 => (DType::F16, reduction),
        DType::I8 | DType::I16 | DType::U16 => (DType::I32, reduction),
        DType::U32 => (DType::I64, reduction),
        DType::U64 => match reduction {
            Reduction::Sum | Reduction::Product => (DType::I64, reduction),
            _ => return None,
        },
        DType::Bool => match reduction {
            Reduction::Sum | Reduction::Max => (DType::U8, Reduction::Max),
            Reduction::Product | Reduction::Min => (DType::U8, Reduction::Min),
            Reduction::Average | Reduction::Adasum => return None,
        },
        _ => (dtype, reduction),
    })
}

/// Multiplies values by a factor; integers are rounded towards zero.
pub(super) fn scale(dtype: DType, bytes: &mut [u8], factor: f64) {
    macro_rules! each {
        ($number:ty, $times:expr) => {
            for chunk in bytes.as_chunks_mut::<{ size_of::<$number>() }>().0 {
                let times: fn($number, f64) -> $number = $times;
                *chunk = times(<$number>::from_ne_bytes(*chunk), factor).to_ne_bytes();
            }
        };
    }
    if factor == 1.0 {
        return;
    }
    match dtype {
        DType::F32 => {
            let factor = factor as f32;
            for chunk in bytes.as_chunks_mut::<4>().0 {
                *chunk = (f32::from_ne_bytes(*chunk) * factor).to_ne_bytes();
            }
        }
        DType::F64 => each!(f64, |value, factor| value * factor),
        DType::F16 => each!(f16, |value, factor| f16::from_f32(value.to_f32() * factor as f32)),
        DType::Bf16 => each!(bf16, |value, factor| bf16::from_f32(value.to_f32() * factor as f32)),
        DType::I8 => each!(i8, |value, factor| (f64::from(value) * factor) as i8),
        DType::I16 => each!(i16, |value, factor| (f64::from(value) * factor) as i16),
        DType::I32 => each!(i32, |value, factor| (f64::from(value) * factor) as i32),
        DType::I64 => each!(i64, |value, factor| (value as f64 * factor) as i64),
        DType::U8 => each!(u8, |value, factor| (f64::from(value) * factor) as u8),
        DType::U16 => each!(u16, |value, factor| (f64::from(value) * factor) as u16),
        DType::U32 => each!(u32, |value, factor| (f64::from(value) * factor) as u32),
        DType::U64 => each!(u64, |value, factor| (value as f64 * factor) as u64),
        DType::Bool => {}
    }
}

/// Copies values into another type of the pairs that [`wire_of`] makes, or back.
pub(super) fn convert(from: DType, input: &[u8], to: DType, output: &mut [u8]) {
    macro_rules! each {
        ($from:ty, $to:ty, $convert:expr) => {{
            let inputs = input.as_chunks::<{ size_of::<$from>() }>().0;
            let outputs = output.as_chunks_mut::<{ size_of::<$to>() }>().0;
            let convert: fn($from) -> $to = $convert;
            for (input, output) in inputs.iter().zip(outputs) {
                *output = convert(<$from>::from_ne_bytes(*input)).to_ne_bytes();
            }
        }};
    }
    match (from, to) {
        (DType::F32, DType::F16) => each!(f32, f16, f16::from_f32),
        (DType::F64, DType::F16) => each!(f64, f16, f16::from_f64),
        (DType::F16, DType::F32) => each!(f16, f32, f16::to_f32),
        (DType::F16, DType::F64) => each!(f16, f64, f16::to_f64),
        (DType::I8, DType::I32) => each!(i8, i32, i32::from),
        (DType::I16, DType::I32) => each!(i16, i32, i32::from),
        (DType::U16, DType::I32) => each!(u16, i32, i32::from),
        (DType::I32, DType::I8) => each!(i32, i8, |value| value as i8),
        (DType::I32, DType::I16) => each!(i32, i16, |value| value as i16),
        (DType::I32, DType::U16) => each!(i32, u16, |value| value as u16),
        (DType::U32, DType::I64) => each!(u32, i64, i64::from),
        (DType::I64, DType::U32) => each!(i64, u32, |value| value as u32),
        (DType::Bool, DType::U8) | (DType::U8, DType::Bool) => each!(u8, u8, |value| u8::from(value != 0)),
        _ => output.copy_from_slice(input),
    }
}

/// Bytes that begin where elements of every type may.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    words: Vec<u64>,
}

impl Scratch {
    /// So many bytes; what they hold is not defined.
    pub(super) fn bytes(&mut self, length: usize) -> &mut [u8] {
        let words = length.div_ceil(8);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        &mut bytemuck::cast_slice_mut(&mut self.words)[..length]
    }

    /// So many bytes of zeros.
    pub(super) fn zeros(&mut self, length: usize) -> &mut [u8] {
        let bytes = self.bytes(length);
        bytes.fill(0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_travel_and_come_back() {
        let input: Vec<u8> = [-3_i8, 7, 127].iter().map(|value| value.to_ne_bytes()[0]).collect();
        let mut wide = vec![0; 12];
        convert(DType::I8, &input, DType::I32, &mut wide);
        scale(DType::I32, &mut wide, 2.0);
        let mut back = vec![0; 3];
        convert(DType::I32, &wide, DType::I8, &mut back);
        assert_eq!(back, [-6_i8 as u8, 14, 254]);
        let mut truth = [0; 3];
        convert(DType::Bool, &[0, 1, 255], DType::U8, &mut truth);
        assert_eq!(truth, [0, 1, 1]);
        let mut halves = [0; 4];
        convert(DType::F32, bytemuck::cast_slice(&[1.5_f32, -2.0]), DType::F16, &mut halves);
        let mut floats = [0; 8];
        convert(DType::F16, &halves, DType::F32, &mut floats);
        assert_eq!(floats, bytemuck::cast::<[f32; 2], [u8; 8]>([1.5, -2.0]));
    }

    #[test]
    fn every_reduction_has_a_wire_or_none() {
        assert_eq!(wire_of(DType::I32, WireFormat::Same, Reduction::Adasum), None);
        assert_eq!(wire_of(DType::Bool, WireFormat::Same, Reduction::Average), None);
        let sum = wire_of(DType::F64, WireFormat::F16, Reduction::Sum);
        assert_eq!(sum, Some((DType::F16, Reduction::Sum)));
        let any = wire_of(DType::Bool, WireFormat::F16, Reduction::Sum);
        assert_eq!(any, Some((DType::U8, Reduction::Max)));
    }

    #[test]
    fn scratch_is_aligned_and_reused() {
        let mut scratch = Scratch::default();
        scratch.bytes(13).fill(9);
        assert_eq!(scratch.zeros(9), [0; 9]);
        assert_eq!(scratch.bytes(1000).as_ptr().align_offset(8), 0);
    }
}
