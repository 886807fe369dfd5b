//! Elementary functions without branches, so that loops over them become vector instructions.
//!
//! Products and sums are rounded one by one (no fused multiply-add), so every machine computes the same bits.

use std::hint::select_unpredictable;

/// Runs `work(arguments)` compiled for this machine's vectors. `work` must be the name of an `#[inline(always)]`
/// function. It is a macro because only a closure that must be inlined is sure to be part of every compiled version: a
/// large one that may stay separate is compiled once, for the oldest machine.
macro_rules! compiled_wide {
    ($work:expr, $arguments:expr $(,)?) => {{
        $crate::simd::simd(
            #[inline(always)]
            || $work($arguments),
        )
    }};
}

pub(crate) use compiled_wide as wide;

/// Clamps `x` to `low..=high` and keeps NaN, as `f32::clamp` does but `min` and `max` do not.
#[inline(always)]
fn limit(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// e to the power of `x`, within 1 ulp or so; 0 below the smallest number, infinity above the largest.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2^23 rounds to an integer, which then stands in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the product of the first with an exponent is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = limit(x, -104.0, 89.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let x = x - whole * LN2_HIGH;
    let x = x - whole * LN2_LOW;
    let p = 1.987_569_1e-4 * x + 1.398_199_9e-3;
    let p = p * x + 8.333_452e-3;
    let p = p * x + 4.166_579_6e-2;
    let p = p * x + 1.666_666_5e-1;
    let p = p * x + 0.5;
    let y = p * (x * x) + x + 1.0;
    // Two powers of two: one would not reach the largest and the smallest results.
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = power >> 1;
    let scale = |power: i32| f32::from_bits((power.wrapping_add(127) as u32) << 23);
    y * scale(half) * scale(power.wrapping_sub(half))
}

/// The natural logarithm, within 1 ulp or so; of 0 it is minus infinity, of less NaN.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    const SQRT_HALF: i32 = 0x3f35_04f3;
    let tiny = x < f32::MIN_POSITIVE;
    let normal = if tiny { x * 8_388_608.0 } else { x };
    let bits = (normal.to_bits() as i32).wrapping_sub(SQRT_HALF);
    let exponent = (bits >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let f = f32::from_bits((bits & 0x7f_ffff).wrapping_add(SQRT_HALF) as u32) - 1.0;
    let z = f * f;
    let p = 7.037_683_6e-2 * f - 1.151_461e-1;
    let p = p * f + 1.167_699_9e-1;
    let p = p * f - 1.242_014_1e-1;
    let p = p * f + 1.424_932_3e-1;
    let p = p * f - 1.666_805_8e-1;
    let p = p * f + 2.000_071_5e-1;
    let p = p * f - 0.25;
    let p = p * f + 3.333_333e-1;
    let y = p * f * z + exponent * -2.121_944_4e-4 - 0.5 * z;
    let result = f + y + exponent * 0.693_359_4;
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    let result = if x == f32::INFINITY { x } else { result };
    if x >= 0.0 { result } else { f32::NAN }
}

/// The hyperbolic tangent, within a few ulp: a quotient of polynomials.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let c = limit(x, -7.905_311, 7.905_311);
    let z = c * c;
    let p = -2.760_768_5e-16 * z + 2.000_188e-13;
    let p = p * z - 8.604_672e-11;
    let p = p * z + 5.122_297_3e-8;
    let p = p * z + 1.485_722_3e-5;
    let p = p * z + 6.372_619_4e-4;
    let p = p * z + 4.893_525e-3;
    let q = 1.198_258_4e-6 * z + 1.185_347_1e-4;
    let q = q * z + 2.268_434_6e-3;
    let q = q * z + 4.893_525_3e-3;
    // Close to zero the quotient would lose the last bits, and with them the sign of zero.
    if x.abs() < 4e-4 { x } else { c * p / q }
}

/// The logistic function `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The error function, within 2 ulp or so.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let s = x * x;
    let near = -5.967_617e-4 * s + 4.991_194e-3;
    let near = near * s - 2.676_813_5e-2;
    let near = near * s + 1.128_199_2e-1;
    let near = near * s - 3.761_253_4e-1;
    let near = near * s + 1.283_791_7e-1;
    let near = near * x + x;
    // Above 4 the result is 1.
    let t = limit(x.abs(), 0.0, 4.0);
    let far = (-1.728_534_7e-5 * t + 3.831_971_3e-4) * (t * t) + (-3.883_964_4e-3 * t + 2.425_462_2e-2);
    let far = far * t - 1.067_778_8e-1;
    let far = far * t - 6.348_467e-1;
    let far = far * t - 1.287_175_1e-1;
    let far = (1.0 - exp(far * t - t)).copysign(x);
    // A branch would keep loops from being vectorised.
    select_unpredictable(t > 0.927_734_4, far, near)
}

/// Partial results of a row: as many as the widest vectors have lanes, on every machine.
const LANES: usize = 16;

/// The sum of a row.
#[inline(always)]
pub(crate) fn sum(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for x in chunks {
        for l in 0..LANES {
            sums[l] += x[l];
        }
    }
    fold(sums) + rest.iter().sum::<f32>()
}

/// The sum of products of two rows of equal length.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut sums = [0f32; LANES];
    for (x, y) in xs.iter().zip(ys) {
        for l in 0..LANES {
            sums[l] += x[l] * y[l];
        }
    }
    fold(sums) + x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum::<f32>()
}

#[inline(always)]
fn fold(sums: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|l| sums[l] + sums[l + 8]);
    let four: [f32; 4] = std::array::from_fn(|l| eight[l] + eight[l + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// Writes `e^(x - shift)` of a row and returns the sum.
#[inline(always)]
pub(crate) fn exp_row(x: &[f32], shift: f32, y: &mut [f32]) -> f32 {
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
    let mut sums = [0f32; LANES];
    for (x, y) in xs.iter().zip(ys) {
        for l in 0..LANES {
            y[l] = exp(x[l] - shift);
            sums[l] += y[l];
        }
    }
    for (l, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        *y = exp(*x - shift);
        sums[l] += *y;
    }
    fold(sums)
}

/// Turns a row into `e^(x · scale - shift)` and returns the sum.
#[inline(always)]
pub(crate) fn exp_in_place(row: &mut [f32], scale: f32, shift: f32) -> f32 {
    let (rows, rest) = row.as_chunks_mut::<LANES>();
    let mut sums = [0f32; LANES];
    for x in rows {
        for l in 0..LANES {
            x[l] = exp(x[l] * scale - shift);
            sums[l] += x[l];
        }
    }
    for (l, x) in rest.iter_mut().enumerate() {
        *x = exp(*x * scale - shift);
        sums[l] += *x;
    }
    fold(sums)
}

/// The largest element of a row, ignoring NaN; minus infinity if there is none.
#[inline(always)]
pub(crate) fn largest(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut max = [f32::NEG_INFINITY; LANES];
    for x in chunks {
        for l in 0..LANES {
            max[l] = if x[l] > max[l] { x[l] } else { max[l] };
        }
    }
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let eight: [f32; 8] = std::array::from_fn(|l| larger(max[l], max[l + 8]));
    let four: [f32; 4] = std::array::from_fn(|l| larger(eight[l], eight[l + 4]));
    let one = larger(larger(four[0], four[2]), larger(four[1], four[3]));
    rest.iter().fold(one, |a, b| larger(a, *b))
}

/// Helpers for tests of kernels.
#[cfg(test)]
pub(crate) mod testing {
    /// Pseudo-random numbers between -1 and 1.
    pub(crate) fn noise(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    pub(crate) fn double(x: &[f32]) -> Vec<f64> {
        x.iter().map(|x| f64::from(*x)).collect()
    }

    pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    /// Every number within `tolerance` of what was wanted, relative to the largest of all.
    pub(crate) fn close(got: &[f32], wanted: &[f64], tolerance: f64, what: &str) {
        assert_eq!(got.len(), wanted.len(), "{what}");
        let scale = wanted.iter().fold(1e-30, |a: f64, b| a.max(b.abs()));
        for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
            let error = (f64::from(*got) - wanted).abs() / scale;
            assert!(error <= tolerance, "{what} at {i}: {got}, not {wanted}");
        }
    }

    /// The derivative of `loss` at `x`, in a few elements: (index, derivative).
    pub(crate) fn slopes(x: &[f32], mut loss: impl FnMut(&[f64]) -> f64) -> Vec<(usize, f64)> {
        let (mut x, step) = (double(x), 1e-5);
        let (len, stride) = (x.len(), (x.len() / 13).max(1));
        let mut slope = |i: usize| {
            let kept = x[i];
            x[i] = kept + step;
            let above = loss(&x);
            x[i] = kept - step;
            let below = loss(&x);
            x[i] = kept;
            (i, (above - below) / (2.0 * step))
        };
        (0..len).step_by(stride).map(&mut slope).collect()
    }

    /// Gradients agree with measured slopes, relative to the largest of these.
    pub(crate) fn slopes_agree(gradient: &[f32], slopes: &[(usize, f64)], tolerance: f64, what: &str) {
        let got: Vec<f32> = slopes.iter().map(|(i, _)| gradient[*i]).collect();
        let wanted: Vec<f64> = slopes.iter().map(|(_, slope)| *slope).collect();
        close(&got, &wanted, tolerance, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error relative to the true value over `from..to`, where that is a normal number.
    fn relative(ours: fn(f32) -> f32, true_value: fn(f64) -> f64, from: f32, to: f32) -> f64 {
        let steps = 200_000;
        (0..=steps)
            .map(|i| from + (to - from) * (i as f32 / steps as f32))
            .map(|x| (f64::from(ours(x)), true_value(f64::from(x))))
            .filter(|(_, wanted)| {
                wanted.abs() > f64::from(f32::MIN_POSITIVE) && wanted.abs() < f64::from(f32::MAX)
            })
            .map(|(got, wanted)| ((got - wanted) / wanted).abs())
            .fold(0.0, f64::max)
    }

    /// The error function by its series and, far from zero, its continued fraction.
    fn erf_f64(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        if x.abs() < 4.0 { sum * std::f64::consts::FRAC_2_SQRT_PI } else { x.signum() }
    }

    #[test]
    fn exp_and_log_are_within_two_units_in_the_last_place() {
        assert!(relative(exp, f64::exp, -87.0, 88.7) < 2e-7);
        assert!(relative(exp, f64::exp, -1.0, 1.0) < 1.3e-7);
        assert!(relative(log, f64::ln, 1e-30, 1e-3) < 1.5e-7);
        assert!(relative(log, f64::ln, 0.01, 0.99) < 2e-7);
        assert!(relative(log, f64::ln, 1.01, 100.0) < 2e-7);
        assert!(relative(log, f64::ln, 1e3, 3e38) < 1.5e-7);
    }

    #[test]
    fn tanh_sigmoid_and_erf_are_close_everywhere() {
        for bound in [1e-3, 0.5, 3.0, 20.0] {
            assert!(relative(tanh, f64::tanh, -bound, bound) < 5e-7, "tanh up to {bound}");
            assert!(relative(erf, erf_f64, -bound, bound) < 4e-7, "erf up to {bound}");
            let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
            assert!(relative(sigmoid, logistic, -bound, bound) < 4e-7, "sigmoid up to {bound}");
        }
    }

    #[test]
    fn the_ends_of_the_number_line_are_right() {
        assert_eq!((exp(0.0), exp(-200.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!(
            (exp(200.0), exp(f32::INFINITY), exp(88.8)),
            (f32::INFINITY, f32::INFINITY, f32::INFINITY)
        );
        assert!((exp(88.72) / 88.72f32.exp() - 1.0).abs() < 1e-6 && exp(-100.0) > 0.0);
        assert_eq!((log(0.0), log(1.0), log(f32::INFINITY)), (f32::NEG_INFINITY, 0.0, f32::INFINITY));
        assert!((log(1e-40) - 1e-40f32.ln()).abs() < 1e-5 && log(-1.0).is_nan());
        for (value, limit) in [(tanh(30.0), 1.0), (tanh(-f32::INFINITY), -1.0), (erf(f32::INFINITY), 1.0)] {
            assert!((value - limit).abs() < 1e-6, "{value}");
        }
        assert_eq!((erf(-30.0), sigmoid(-200.0), sigmoid(200.0)), (-1.0, 0.0, 1.0));
        for f in [exp, log, tanh, sigmoid, erf] {
            assert!(f(f32::NAN).is_nan());
        }
        assert!(tanh(-0.0).is_sign_negative() && erf(0.0) == 0.0);
    }
}
