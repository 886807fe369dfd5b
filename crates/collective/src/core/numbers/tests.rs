use super::element::Element;
use super::halves::{round_to_bf16, round_to_f16, widen_bf16, widen_f16};
use super::*;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::fmt::Debug;

const SIZES: [usize; 6] = [0, 1, 7, 64, 1000, 9001];
const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Average, Reduction::Min, Reduction::Max, Reduction::Product];

/// How to draw values of a type, and the expected result of one combination and one division.
trait Sample: Element + Debug {
    fn draw(dice: &mut Pcg64) -> Self;
    fn combined(reduction: Reduction, a: Self, b: Self) -> Self;
    fn divided(self, by: usize) -> Self;
    /// Equal bits, or both NaN.
    fn same(self, other: Self) -> bool;
}

macro_rules! floats {
    ($($float:ident, $draw:expr, $work:ident, $back:expr, $special:expr;)*) => {
        $(
            impl Sample for $float {
                fn draw(dice: &mut Pcg64) -> Self {
                    let special: &[$float] = &$special;
                    match dice.next_u32() % 8 {
                        0 => special[dice.next_u32() as usize % special.len()],
                        _ => $draw(dice),
                    }
                }

                fn combined(reduction: Reduction, a: Self, b: Self) -> Self {
                    let (x, y) = ($work::from(a), $work::from(b));
                    let nan = x.is_nan() || y.is_nan();
                    match reduction {
                        Reduction::Sum | Reduction::Average => $back(x + y),
                        Reduction::Product => $back(x * y),
                        _ if nan => $float::NAN,
                        Reduction::Min if x.total_cmp(&y).is_le() => a,
                        Reduction::Max if x.total_cmp(&y).is_ge() => a,
                        _ => b,
                    }
                }

                fn divided(self, by: usize) -> Self {
                    $back($work::from(self) / by as $work)
                }

                fn same(self, other: Self) -> bool {
                    self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
                }
            }
        )*
    };
}

fn unit(dice: &mut Pcg64) -> f32 {
    (dice.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0
}

floats! {
    f32, |d| unit(d) * 100.0, f32, |x| x,
        [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    f64, |d| f64::from(unit(d)) * 1e3, f64, |x| x,
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324];
    f16, |d| f16::from_f32(unit(d) * 100.0), f32, f16::from_f32,
        [f16::ZERO, f16::NEG_ZERO, f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::MAX, f16::MIN_POSITIVE_SUBNORMAL];
    bf16, |d| bf16::from_f32(unit(d) * 100.0), f32, bf16::from_f32,
        [bf16::ZERO, bf16::NEG_ZERO, bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY, bf16::MAX, bf16::MIN_POSITIVE];
}

macro_rules! integers {
    ($($integer:ident),*) => {
        $(
            impl Sample for $integer {
                fn draw(dice: &mut Pcg64) -> Self {
                    match dice.next_u32() % 8 {
                        0 => $integer::MIN,
                        1 => $integer::MAX,
                        _ => dice.next_u64() as $integer,
                    }
                }

                fn combined(reduction: Reduction, a: Self, b: Self) -> Self {
                    let (x, y) = (i128::from(a), i128::from(b));
                    match reduction {
                        Reduction::Min => x.min(y) as $integer,
                        Reduction::Max => x.max(y) as $integer,
                        Reduction::Product => x.wrapping_mul(y) as $integer,
                        _ => (x + y) as $integer,
                    }
                }

                fn divided(self, by: usize) -> Self {
                    (i128::from(self) / by as i128) as $integer
                }

                fn same(self, other: Self) -> bool {
                    self == other
                }
            }
        )*
    };
}

integers!(i32, i64, u8);

fn draw<T: Sample>(dice: &mut Pcg64, count: usize) -> Vec<T> {
    (0..count).map(|_| T::draw(dice)).collect()
}

fn assert_same<T: Sample>(got: &[T], expected: &[T], what: &str) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(got.same(*expected), "{what}: element {i} is {got:?}, not {expected:?}");
    }
}

/// Combines and finishes inputs of that many ranks, at once and one by one, and compares with the reference.
fn check<T: Sample>() {
    let mut dice = Pcg64::seed_from_u64(7 + T::DTYPE.size() as u64);
    for reduction in REDUCTIONS {
        assert!(supports(T::DTYPE, reduction));
        for count in SIZES {
            for ranks in [1, 2, 3, 4, 5, 8] {
                let what = format!("{reduction} of {count} {:?} on {ranks} ranks", T::DTYPE);
                let inputs: Vec<Vec<T>> = (0..ranks).map(|_| draw(&mut dice, count)).collect();
                let mut expected = inputs[0].clone();
                for input in &inputs[1..] {
                    for (into, other) in expected.iter_mut().zip(input) {
                        *into = T::combined(reduction, *into, *other);
                    }
                }
                if reduction == Reduction::Average {
                    expected.iter_mut().for_each(|value| *value = value.divided(ranks));
                }

                let mut one_by_one = inputs[0].clone();
                for input in &inputs[1..] {
                    combine(T::DTYPE, reduction, cast_slice_mut(&mut one_by_one), cast_slice(input));
                }
                finish(T::DTYPE, reduction, ranks, cast_slice_mut(&mut one_by_one));
                assert_same(&one_by_one, &expected, &what);

                let mut at_once = inputs[0].clone();
                let others: Vec<&[u8]> = inputs[1..].iter().map(|input| cast_slice(input)).collect();
                combine_all(T::DTYPE, reduction, cast_slice_mut(&mut at_once), &others);
                assert_same(&at_once, &expected, &what);
            }
        }
    }
}

#[test]
fn f32_is_combined_as_by_hand() {
    check::<f32>();
}

#[test]
fn f64_is_combined_as_by_hand() {
    check::<f64>();
}

#[test]
fn f16_is_combined_as_by_hand() {
    check::<f16>();
}

#[test]
fn bf16_is_combined_as_by_hand() {
    check::<bf16>();
}

#[test]
fn i32_is_combined_as_by_hand() {
    check::<i32>();
}

#[test]
fn i64_is_combined_as_by_hand() {
    check::<i64>();
}

#[test]
fn u8_is_combined_as_by_hand() {
    check::<u8>();
}

#[test]
fn more_ranks_than_a_byte_can_count_are_averaged() {
    let mut data = [200u8, 7];
    finish(DType::U8, Reduction::Average, 257, &mut data);
    assert_eq!(data, [0, 0]);
}

#[test]
fn averages_of_integers_are_cut_towards_zero() {
    let mut data = [-7i32, 7, -8];
    finish(DType::I32, Reduction::Average, 2, cast_slice_mut(&mut data));
    assert_eq!(data, [-3, 3, -4]);
}

#[test]
fn zeros_are_ordered_and_nan_is_never_lost() {
    for reduction in [Reduction::Min, Reduction::Max] {
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            let mut into = [a];
            combine(DType::F32, reduction, cast_slice_mut(&mut into), cast_slice(&[b]));
            assert_eq!(into[0].is_sign_negative(), reduction == Reduction::Min);
        }
        for (a, b) in [(f32::NAN, 1.0), (1.0, -f32::NAN), (f32::NAN, f32::NEG_INFINITY)] {
            let mut into = [a];
            combine(DType::F32, reduction, cast_slice_mut(&mut into), cast_slice(&[b]));
            assert_eq!(into[0].to_bits(), 0x7fc0_0000);
        }
    }
}

#[test]
fn halves_are_rounded_and_widened_as_by_the_crate() {
    let mut dice = Pcg64::seed_from_u64(3);
    let random: Vec<u32> = (0..200_000).map(|_| dice.next_u32()).collect();
    // Between any two neighbours of f16 and beyond: halfway, and slightly more and less.
    let halfway = (0..=u16::MAX).flat_map(|bits| {
        let bits = f16::from_bits(bits).to_f32().to_bits();
        [
            bits,
            bits ^ 0x1000,
            bits ^ 0xfff,
            bits ^ 0x1001,
            bits.wrapping_add(0x1000),
            bits.wrapping_sub(0x1000),
        ]
    });
    let edges = [0, 1, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0xffff_ffff, 0x3f80_8000, 0x3f81_8000];
    for bits in edges.into_iter().chain(random).chain(halfway) {
        let value = f32::from_bits(bits);
        assert!(round_to_bf16(value).same(bf16::from_f32(value)), "{bits:x}");
        assert!(round_to_f16(value).same(f16::from_f32(value)), "{bits:x}");
        // The range of subnormal f16, where steps are equal.
        let small = f32::from_bits(0x3300_0000 + (bits & 0x07ff_ffff));
        assert!(round_to_f16(small).same(f16::from_f32(small)), "{small:e}");
    }
    for bits in 0..=u16::MAX {
        assert!(widen_bf16(bf16::from_bits(bits)).same(bf16::from_bits(bits).to_f32()));
        assert!(widen_f16(f16::from_bits(bits)).same(f16::from_bits(bits).to_f32()), "{bits:x}");
    }
}

#[test]
fn every_byte_is_divided_exactly() {
    for ranks in 1..=300 {
        let mut data: Vec<u8> = (0..=255).collect();
        finish(DType::U8, Reduction::Average, ranks, &mut data);
        assert!(data.iter().enumerate().all(|(i, value)| usize::from(*value) == i / ranks));
    }
}

#[test]
fn only_floats_take_adasum_and_some_types_nothing() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        assert!(supports(dtype, Reduction::Adasum));
    }
    for dtype in [DType::I32, DType::I64, DType::U8] {
        assert!(!supports(dtype, Reduction::Adasum));
    }
    for dtype in [DType::Bool, DType::I8, DType::I16, DType::U16, DType::U32, DType::U64] {
        assert!(REDUCTIONS.iter().all(|reduction| !supports(dtype, *reduction)));
    }
}

#[test]
#[should_panic(expected = "the adasum of F32 is no combination of elements")]
fn adasum_is_no_combination_of_elements() {
    combine(DType::F32, Reduction::Adasum, cast_slice_mut(&mut [0f32]), cast_slice(&[0f32]));
}
