//! Element-wise reduction of tensors of every type.
//!
//! Every machine computes the same bits: values are added, multiplied and divided one by one, each result rounded to
//! nearest even, never with fused multiply-add. Byte slices must be aligned for their type and in native byte order.

pub(crate) mod element;
pub(crate) mod halves;
pub(crate) mod operation;
#[cfg(test)]
mod tests;
pub(crate) mod wide;

use super::words::Reduction;
use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16};
use operation::Number;
use phalanx_types::DType;
use wide::wide;

/// Bytes of each input processed together, so that they stay in the L1 cache.
const BLOCK: usize = 16 << 10;

/// Whether tensors of this type support this reduction.
pub(crate) fn supports(dtype: DType, reduction: Reduction) -> bool {
    match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => true,
        DType::I32 | DType::I64 | DType::U8 => reduction != Reduction::Adasum,
        DType::I8 | DType::I16 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => false,
    }
}

/// Combines `other` into `into`, element by element: `into[i] = into[i] ∘ other[i]`.
///
/// An average is summed here and divided by [`finish`]. Two-byte floats are combined in `f32` and rounded each time;
/// integers wrap. Minimum and maximum are NaN if either value is, and -0 is less than 0.
///
/// # Panics
/// The lengths differ, the bytes are not aligned, or the type does not support the reduction (Adasum never can: it
/// needs whole vectors).
pub(crate) fn combine(dtype: DType, reduction: Reduction, into: &mut [u8], other: &[u8]) {
    assert_eq!(into.len(), other.len(), "inputs of one reduction are equally long");
    match dtype {
        DType::F32 => combine_as::<f32>(reduction, cast_slice_mut(into), cast_slice(other)),
        DType::F64 => combine_as::<f64>(reduction, cast_slice_mut(into), cast_slice(other)),
        DType::F16 => combine_as::<f16>(reduction, cast_slice_mut(into), cast_slice(other)),
        DType::Bf16 => combine_as::<bf16>(reduction, cast_slice_mut(into), cast_slice(other)),
        DType::I32 => combine_as::<i32>(reduction, cast_slice_mut(into), cast_slice(other)),
        DType::I64 => combine_as::<i64>(reduction, cast_slice_mut(into), cast_slice(other)),
        DType::U8 => combine_as::<u8>(reduction, into, other),
        DType::I8 | DType::I16 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => {
            unsupported(dtype, reduction)
        }
    }
}

/// Turns the combined values of `ranks` ranks into the result: an average is divided, integers towards zero.
///
/// # Panics
/// The bytes are not aligned, or the type does not support the reduction.
pub(crate) fn finish(dtype: DType, reduction: Reduction, ranks: usize, data: &mut [u8]) {
    if reduction != Reduction::Average || ranks <= 1 {
        return;
    }
    match dtype {
        DType::F32 => divide::<f32>(cast_slice_mut(data), ranks),
        DType::F64 => divide::<f64>(cast_slice_mut(data), ranks),
        DType::F16 => divide::<f16>(cast_slice_mut(data), ranks),
        DType::Bf16 => divide::<bf16>(cast_slice_mut(data), ranks),
        DType::I32 => divide::<i32>(cast_slice_mut(data), ranks),
        DType::I64 => divide::<i64>(cast_slice_mut(data), ranks),
        DType::U8 => divide::<u8>(data, ranks),
        DType::I8 | DType::I16 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => {
            unsupported(dtype, reduction)
        }
    }
}

/// Combines all of `others`, in order, into `first` and finishes the result. Gives the same bits as [`combine`] for
/// each and then [`finish`], but reads every byte from memory once.
///
/// # Panics
/// As [`combine`].
pub(crate) fn combine_all(dtype: DType, reduction: Reduction, first: &mut [u8], others: &[&[u8]]) {
    for other in others {
        assert_eq!(first.len(), other.len(), "inputs of one reduction are equally long");
    }
    let fused = dtype == DType::F32 && matches!(reduction, Reduction::Sum | Reduction::Average);
    for (index, block) in first.chunks_mut(BLOCK).enumerate() {
        let range = index * BLOCK..index * BLOCK + block.len();
        if fused {
            sum_f32(cast_slice_mut(block), others, range);
        } else {
            for other in others {
                combine(dtype, reduction, block, &other[range.clone()]);
            }
        }
        finish(dtype, reduction, others.len() + 1, block);
    }
}

/// Adds that range of `others` to `into`, up to three of them in one pass.
fn sum_f32(into: &mut [f32], others: &[&[u8]], range: std::ops::Range<usize>) {
    for group in others.chunks(3) {
        let part = |i: usize| -> &[f32] { cast_slice(&group[i][range.clone()]) };
        match group.len() {
            1 => wide!(operation::each(into, part(0), f32::plus)),
            2 => wide!(operation::add_two(into, part(0), part(1))),
            _ => wide!(operation::add_three(into, part(0), part(1), part(2))),
        }
    }
}

fn combine_as<T: Number>(reduction: Reduction, into: &mut [T], other: &[T]) {
    match reduction {
        Reduction::Sum | Reduction::Average => wide!(operation::each(into, other, T::plus)),
        Reduction::Product => wide!(operation::each(into, other, T::times)),
        Reduction::Min => wide!(operation::each(into, other, T::lesser)),
        Reduction::Max => wide!(operation::each(into, other, T::greater)),
        Reduction::Adasum => unsupported(T::DTYPE, reduction),
    }
}

fn divide<T: Number>(values: &mut [T], ranks: usize) {
    wide!(T::divide(values, ranks));
}

fn unsupported(dtype: DType, reduction: Reduction) -> ! {
    panic!("the {reduction} of {dtype:?} is no combination of elements");
}
