//! Adasum has the bits of the serial one.

use super::{CORES, run};
use crate::core::adasum::{blend, dots, pairs};
use crate::core::numbers::element::Element;
use crate::core::words::Reduction;
use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16};

/// Values of all signs that differ between ranks.
fn given<T: Element>(from: fn(f32) -> T, rank: usize, count: usize) -> Vec<T> {
    let value = |index: usize| ((index * 37 + rank * 101 + index * rank) % 211) as f32 / 97.0 - 1.0;
    (0..count).map(|index| from(value(index))).collect()
}

fn serial<T: Element>(mut vectors: Vec<Vec<T>>) -> Vec<T> {
    for (first, second) in pairs(vectors.len()).into_iter().flatten() {
        let other = vectors[second].clone();
        let dots = dots(T::DTYPE, cast_slice(&vectors[first]), cast_slice(&other));
        blend(T::DTYPE, cast_slice_mut(&mut vectors[first]), cast_slice(&other), dots);
    }
    vectors.swap_remove(0)
}

fn check<T: Element>(from: fn(f32) -> T) {
    for cores in CORES {
        for ranks in 1..=5 {
            // Nothing, one element, a few, and more than one slot of four-byte elements.
            for count in [0, 1, 1003, 270_000].into_iter().take(if ranks == 3 && cores == 1 { 4 } else { 3 })
            {
                let wanted = serial((0..ranks).map(|rank| given(from, rank, count)).collect());
                let wanted: &[u8] = cast_slice(&wanted);
                run(ranks, cores, |group| {
                    let mut private = given(from, group.rank(), count);
                    let bytes = cast_slice_mut(&mut private);
                    group.all_reduce(bytes, T::DTYPE, Reduction::Adasum, "private").unwrap();
                    assert!(bytes == wanted, "{:?} {count} × {ranks}", T::DTYPE);

                    let before = given(from, group.rank(), count + 2);
                    let before: &[u8] = cast_slice(&before);
                    let size = size_of::<T>();
                    let mut buffer = group.buffer(before.len()).unwrap();
                    buffer.slice_mut::<u8>().unwrap().copy_from_slice(before);
                    let range = size..size + wanted.len();
                    let values = given(from, group.rank(), count);
                    buffer.slice_mut::<u8>().unwrap()[range.clone()].copy_from_slice(cast_slice(&values));
                    group
                        .all_reduce_shared(&mut buffer, range.clone(), T::DTYPE, Reduction::Adasum, "shared")
                        .unwrap();
                    let after = buffer.slice::<u8>().unwrap();
                    assert!(after[range.clone()] == *wanted, "{:?} {count} × {ranks}", T::DTYPE);
                    assert_eq!(after[..size], before[..size]);
                    assert_eq!(after[range.end..], before[range.end..]);
                });
            }
        }
    }
}

#[test]
fn all_floats_have_the_bits_of_the_serial_adasum() {
    check::<f32>(|value| value);
    check::<f16>(f16::from_f32);
    check::<bf16>(bf16::from_f32);
}

#[test]
fn wide_floats_have_the_bits_of_the_serial_adasum() {
    check::<f64>(f64::from);
}

#[test]
fn memory_that_is_not_aligned_is_taken_too() {
    let wanted = serial((0..3).map(|rank| given::<f32>(|value| value, rank, 9)).collect());
    run(3, 64, |group| {
        let mut words = [0_u32; 10];
        let data = &mut cast_slice_mut::<u32, u8>(&mut words)[1..37];
        data.copy_from_slice(cast_slice(&given::<f32>(|value| value, group.rank(), 9)));
        group.all_reduce(data, phalanx_types::DType::F32, Reduction::Adasum, "odd").unwrap();
        assert_eq!(data, cast_slice::<f32, u8>(&wanted));
    });
}
