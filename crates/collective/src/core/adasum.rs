//! Adasum: averages vectors that point the same way and adds orthogonal ones.
//!
//! Two vectors become `(1 - a·b / 2a·a) a + (1 - a·b / 2b·b) b`. The dot products are over whole vectors: ranks that
//! hold parts sum the [`dots`] of their parts in rank order, then each rank [`blend`]s its own part. More than two
//! vectors are combined in pairs, see [`pairs`] (Maleki et al., "Scaling Distributed Training with Adaptive
//! Summation").

use super::numbers::halves::{round_to_bf16, round_to_f16, widen_bf16, widen_f16};
use super::numbers::wide::wide;
use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16};
use phalanx_types::DType;

/// Partial sums of a product. Fixed, so that the order of summation is the same on every machine.
const LANES: usize = 16;
/// Two-byte values widened at a time, on the stack. A multiple of the lanes.
const BLOCK: usize = 512;

/// The partial sums of a·b, a·a and b·b.
type Sums = [[f64; LANES]; 3];

/// Returns a·b, a·a and b·b, summed in `f64` in an order that depends only on the length.
///
/// # Panics
/// The lengths differ, the bytes are not aligned, or the type is no float.
pub(crate) fn dots(dtype: DType, a: &[u8], b: &[u8]) -> [f64; 3] {
    assert_eq!(a.len(), b.len(), "vectors of one product are equally long");
    let mut sums = [[0.0; LANES]; 3];
    match dtype {
        DType::F32 => {
            let (a, b): (&[f32], &[f32]) = (cast_slice(a), cast_slice(b));
            wide!(accumulate(&mut sums, a, b, f64::from));
        }
        DType::F64 => {
            let (a, b): (&[f64], &[f64]) = (cast_slice(a), cast_slice(b));
            wide!(accumulate(&mut sums, a, b, itself));
        }
        DType::Bf16 => {
            let (a, b): (&[bf16], &[bf16]) = (cast_slice(a), cast_slice(b));
            wide!(accumulate_halves(&mut sums, a, b, widen_bf16));
        }
        DType::F16 => {
            let (a, b): (&[f16], &[f16]) = (cast_slice(a), cast_slice(b));
            wide!(accumulate_halves(&mut sums, a, b, widen_f16));
        }
        _ => unsupported(dtype),
    }
    sums.map(total)
}

/// Blends `b` into `a`, given their [`dots`]. Computed in `f64`, rounded once.
///
/// # Panics
/// As [`dots`].
pub(crate) fn blend(dtype: DType, a: &mut [u8], b: &[u8], dots: [f64; 3]) {
    assert_eq!(a.len(), b.len(), "vectors of one sum are equally long");
    let [ab, aa, bb] = dots;
    let factors = (factor(ab, aa), factor(ab, bb));
    match dtype {
        DType::F32 => {
            let (a, b): (&mut [f32], &[f32]) = (cast_slice_mut(a), cast_slice(b));
            wide!(weigh(a, b, factors, f64::from, f64_to_f32));
        }
        DType::F64 => {
            let (a, b): (&mut [f64], &[f64]) = (cast_slice_mut(a), cast_slice(b));
            wide!(weigh(a, b, factors, itself, itself));
        }
        DType::Bf16 => {
            let (a, b): (&mut [bf16], &[bf16]) = (cast_slice_mut(a), cast_slice(b));
            wide!(weigh(a, b, factors, bf16_to_f64, f64_to_bf16));
        }
        DType::F16 => {
            let (a, b): (&mut [f16], &[f16]) = (cast_slice_mut(a), cast_slice(b));
            wide!(weigh(a, b, factors, f16_to_f64, f64_to_f16));
        }
        _ => unsupported(dtype),
    }
}

/// Which ranks combine their vectors, level by level. The first rank of a pair continues with the result; rank 0 ends
/// with the result of all ranks.
pub(crate) fn pairs(ranks: usize) -> Vec<Vec<(usize, usize)>> {
    let mut levels = Vec::new();
    let mut distance = 1;
    while distance < ranks {
        let firsts = (0..ranks - distance).step_by(2 * distance);
        levels.push(firsts.map(|rank| (rank, rank + distance)).collect());
        distance *= 2;
    }
    levels
}

/// A zero vector keeps the other as it is.
fn factor(ab: f64, square: f64) -> f64 {
    if square == 0.0 { 1.0 } else { 1.0 - ab / (2.0 * square) }
}

#[inline(always)]
fn accumulate<T: Copy>(sums: &mut Sums, a: &[T], b: &[T], widen: impl Fn(T) -> f64) {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let [mut ab, mut aa, mut bb] = *sums;
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            let (a, b) = (widen(a[lane]), widen(b[lane]));
            ab[lane] += a * b;
            aa[lane] += a * a;
            bb[lane] += b * b;
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        let (a, b) = (widen(*a), widen(*b));
        ab[lane] += a * b;
        aa[lane] += a * a;
        bb[lane] += b * b;
    }
    *sums = [ab, aa, bb];
}

/// As [`accumulate`], through blocks of `f32`: their loops are short enough for vector instructions.
#[inline(always)]
fn accumulate_halves<T: Copy>(sums: &mut Sums, a: &[T], b: &[T], widen: impl Fn(T) -> f32) {
    let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        for (wide, a) in left.iter_mut().zip(a) {
            *wide = widen(*a);
        }
        for (wide, b) in right.iter_mut().zip(b) {
            *wide = widen(*b);
        }
        accumulate(sums, &left[..a.len()], &right[..b.len()], f64::from);
    }
}

/// Sums the lanes pairwise.
fn total(mut lanes: [f64; LANES]) -> f64 {
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for i in 0..count {
            lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
        }
    }
    lanes[0]
}

#[inline(always)]
fn weigh<T: Copy>(
    a: &mut [T],
    b: &[T],
    factors: (f64, f64),
    widen: impl Fn(T) -> f64,
    round: impl Fn(f64) -> T,
) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = round(factors.0 * widen(*a) + factors.1 * widen(*b));
    }
}

#[inline(always)]
fn itself(value: f64) -> f64 {
    value
}

#[inline(always)]
fn f64_to_f32(value: f64) -> f32 {
    value as f32
}

#[inline(always)]
fn bf16_to_f64(value: bf16) -> f64 {
    f64::from(widen_bf16(value))
}

#[inline(always)]
fn f64_to_bf16(value: f64) -> bf16 {
    round_to_bf16(value as f32)
}

#[inline(always)]
fn f16_to_f64(value: f16) -> f64 {
    f64::from(widen_f16(value))
}

#[inline(always)]
fn f64_to_f16(value: f64) -> f16 {
    round_to_f16(value as f32)
}

fn unsupported(dtype: DType) -> ! {
    panic!("adasum takes no tensors of {dtype:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::numbers::element::Element;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    fn unit(dice: &mut Pcg64) -> f64 {
        f64::from(dice.next_u32()) / f64::from(u32::MAX) - 0.5
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// Combines recursively over halves whose size is a power of two; this gives the same tree.
    fn reference(vectors: &[Vec<f64>]) -> Vec<f64> {
        let [first, second, ..] = vectors else { return vectors[0].clone() };
        if vectors.len() > 2 {
            let (left, right) = vectors.split_at(vectors.len().next_power_of_two() / 2);
            return reference(&[reference(left), reference(right)]);
        }
        let (ab, aa, bb) = (dot(first, second), dot(first, first), dot(second, second));
        let of = |square: f64| if square == 0.0 { 1.0 } else { 1.0 - ab / (2.0 * square) };
        first.iter().zip(second).map(|(a, b)| of(aa) * a + of(bb) * b).collect()
    }

    fn run<T: Element>(mut vectors: Vec<Vec<T>>) -> Vec<T> {
        for (first, second) in pairs(vectors.len()).into_iter().flatten() {
            let other = vectors[second].clone();
            let dots = dots(T::DTYPE, cast_slice(&vectors[first]), cast_slice(&other));
            blend(T::DTYPE, cast_slice_mut(&mut vectors[first]), cast_slice(&other), dots);
        }
        vectors.swap_remove(0)
    }

    fn check<T: Element>(from: impl Fn(f64) -> T, to: impl Fn(T) -> f64, tolerance: f64) {
        let mut dice = Pcg64::seed_from_u64(11);
        for count in [0, 1, 7, 1000] {
            for ranks in [1, 2, 3, 4, 5, 6, 7, 8, 13] {
                let vectors: Vec<Vec<T>> =
                    (0..ranks).map(|_| (0..count).map(|_| from(unit(&mut dice))).collect()).collect();
                let exact: Vec<Vec<f64>> =
                    vectors.iter().map(|v| v.iter().map(|x| to(*x)).collect()).collect();
                let expected = reference(&exact);
                for (got, expected) in run(vectors).into_iter().zip(expected) {
                    let error = (to(got) - expected).abs();
                    assert!(error <= tolerance * expected.abs().max(1.0), "{} {expected}", to(got));
                }
            }
        }
    }

    #[test]
    fn every_float_follows_the_reference() {
        check::<f64>(|x| x, |x| x, 1e-12);
        check::<f32>(|x| x as f32, f64::from, 1e-5);
        check::<f16>(f16::from_f64, f64::from, 1e-2);
        check::<bf16>(bf16::from_f64, f64::from, 1e-1);
    }

    #[test]
    fn dots_are_summed_in_sixteen_lanes_on_every_machine() {
        let mut dice = Pcg64::seed_from_u64(5);
        for count in [0, 1, 7, 16, 33, 1000, 1025] {
            let a: Vec<f32> = (0..count).map(|_| unit(&mut dice) as f32).collect();
            let b: Vec<f32> = (0..count).map(|_| unit(&mut dice) as f32).collect();
            let mut lanes = [0.0f64; 16];
            for (i, (a, b)) in a.iter().zip(&b).enumerate() {
                lanes[i % 16] += f64::from(*a) * f64::from(*b);
            }
            let [eighth, quarter] = [8, 4].map(|n| {
                let pairs: Vec<f64> = lanes.chunks(16 / n).map(tree).collect();
                tree(&pairs)
            });
            assert_eq!(eighth.to_bits(), quarter.to_bits());
            let [ab, ..] = dots(DType::F32, cast_slice(&a), cast_slice(&b));
            assert_eq!(ab.to_bits(), eighth.to_bits());
        }
    }

    fn tree(values: &[f64]) -> f64 {
        match values {
            [value] => *value,
            _ => tree(&values[..values.len() / 2]) + tree(&values[values.len() / 2..]),
        }
    }

    #[test]
    fn halves_have_the_products_of_the_numbers_they_are() {
        let mut dice = Pcg64::seed_from_u64(6);
        let a: Vec<f16> = (0..1025).map(|_| f16::from_f64(unit(&mut dice))).collect();
        let b: Vec<f16> = (0..1025).map(|_| f16::from_f64(unit(&mut dice))).collect();
        let [wide_a, wide_b] = [&a, &b].map(|v| v.iter().map(|x| x.to_f32()).collect::<Vec<f32>>());
        assert_eq!(
            dots(DType::F16, cast_slice(&a), cast_slice(&b)),
            dots(DType::F32, cast_slice(&wide_a), cast_slice(&wide_b))
        );
    }

    #[test]
    fn equal_vectors_are_averaged_and_orthogonal_ones_added() {
        assert_eq!(run(vec![vec![1.0f32, 2.0], vec![1.0, 2.0]]), [1.0, 2.0]);
        assert_eq!(run(vec![vec![1.0f32, 0.0], vec![0.0, 2.0]]), [1.0, 2.0]);
    }

    #[test]
    fn a_zero_vector_changes_nothing() {
        assert_eq!(run(vec![vec![0.0f32, 0.0], vec![3.0, 4.0]]), [3.0, 4.0]);
        assert_eq!(run(vec![vec![3.0f32, 4.0], vec![0.0, 0.0]]), [3.0, 4.0]);
        assert_eq!(run(vec![vec![0.0f32; 2]; 3]), [0.0, 0.0]);
    }

    #[test]
    fn nan_reaches_the_result() {
        assert!(run(vec![vec![f32::NAN, 4.0], vec![1.0, 1.0]]).iter().all(|x| x.is_nan()));
    }

    #[test]
    fn trees_have_every_rank_once() {
        assert_eq!(pairs(0), Vec::<Vec<(usize, usize)>>::new());
        assert_eq!(pairs(1), Vec::<Vec<(usize, usize)>>::new());
        assert_eq!(pairs(3), [vec![(0, 1)], vec![(0, 2)]]);
        assert_eq!(pairs(6), [vec![(0, 1), (2, 3), (4, 5)], vec![(0, 2)], vec![(0, 4)]]);
        for ranks in 1..70 {
            let mut gone: Vec<usize> = pairs(ranks).into_iter().flatten().map(|(_, second)| second).collect();
            gone.sort_unstable();
            assert_eq!(gone, (1..ranks).collect::<Vec<_>>());
        }
    }
}
