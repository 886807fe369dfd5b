//! Operations on pairs of numbers, and the loops that apply them to slices.

use super::element::Element;
use super::halves::{round_to_bf16, round_to_f16, widen_bf16, widen_f16};
use half::{bf16, f16};

/// A number that can be combined.
pub(crate) trait Number: Element {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn lesser(self, other: Self) -> Self;
    fn greater(self, other: Self) -> Self;
    /// Divides all values, integers towards zero.
    fn divide(values: &mut [Self], by: usize);
}

/// `into[i] = f(into[i], other[i])`
#[inline(always)]
pub(crate) fn each<T: Copy>(into: &mut [T], other: &[T], f: impl Fn(T, T) -> T) {
    for (into, other) in into.iter_mut().zip(other) {
        *into = f(*into, *other);
    }
}

/// `into[i] += a[i]; into[i] += b[i]`
#[inline(always)]
pub(super) fn add_two(into: &mut [f32], a: &[f32], b: &[f32]) {
    for ((into, a), b) in into.iter_mut().zip(a).zip(b) {
        *into = *into + *a + *b;
    }
}

/// `into[i] += a[i]; into[i] += b[i]; into[i] += c[i]`
#[inline(always)]
pub(super) fn add_three(into: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
    for (((into, a), b), c) in into.iter_mut().zip(a).zip(b).zip(c) {
        *into = *into + *a + *b + *c;
    }
}

macro_rules! float {
    ($float:ident, $nan:literal) => {
        impl Number for $float {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                let lesser = if order::$float(other) < order::$float(self) { other } else { self };
                if self.is_nan() | other.is_nan() { $float::from_bits($nan) } else { lesser }
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                let greater = if order::$float(other) > order::$float(self) { other } else { self };
                if self.is_nan() | other.is_nan() { $float::from_bits($nan) } else { greater }
            }

            #[inline(always)]
            fn divide(values: &mut [Self], by: usize) {
                if by.is_power_of_two() {
                    // The inverse of a power of two is exact, so the product has the bits of the quotient.
                    let factor = 1.0 / by as $float;
                    for value in values {
                        *value *= factor;
                    }
                } else {
                    let by = by as $float;
                    for value in values {
                        *value /= by;
                    }
                }
            }
        }
    };
}

/// Floats as integers with the same order, -0 before 0. The minimum and maximum instructions of different machines
/// disagree about zeros and NaN.
mod order {
    #[inline(always)]
    pub(super) fn f32(value: f32) -> i32 {
        let bits = value.to_bits() as i32;
        bits ^ ((bits >> 31) & i32::MAX)
    }

    #[inline(always)]
    pub(super) fn f64(value: f64) -> i64 {
        let bits = value.to_bits() as i64;
        bits ^ ((bits >> 63) & i64::MAX)
    }
}

float!(f32, 0x7fc0_0000);
float!(f64, 0x7ff8_0000_0000_0000);

macro_rules! integer {
    // Divides in a wider type, in which every number of ranks fits.
    ($integer:ident, $wide:ident) => {
        impl Number for $integer {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn divide(values: &mut [Self], by: usize) {
                let by = by as $wide;
                for value in values {
                    *value = (*value as $wide / by) as $integer;
                }
            }
        }
    };
}

integer!(i32, i64);
integer!(i64, i64);
integer!(u8, u64);

macro_rules! half {
    ($half:ident, $widen:ident, $round:ident) => {
        impl Number for $half {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $round($widen(self) + $widen(other))
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                $round($widen(self) * $widen(other))
            }

            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                $round($widen(self).lesser($widen(other)))
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                $round($widen(self).greater($widen(other)))
            }

            #[inline(always)]
            fn divide(values: &mut [Self], by: usize) {
                let by = by as f32;
                for value in values {
                    *value = $round($widen(*value) / by);
                }
            }
        }
    };
}

half!(f16, widen_f16, round_to_f16);
half!(bf16, widen_bf16, round_to_bf16);
