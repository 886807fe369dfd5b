//! How alike two candidates are: one part for what genes add up to, and one for what they are only together.

use super::factor::{LANES, Lanes};
use crate::core::space::{Genes, Space};
use pulp::{Arch, Simd, WithSimd};
use serde::{Deserialize, Serialize};

/// A candidate as coordinates, one per gene, such that the mismatch of two is the smaller of 1 and their distance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Coordinates(pub(super) Vec<f64>);

/// Further than 1 from every other coordinate.
const INACTIVE: f64 = -2.0;

impl Coordinates {
    /// `ordered` says of each gene whether it is.
    pub(super) fn of(space: &Space, ordered: &[bool], genes: &Genes) -> Self {
        let coordinate = |(position, ordered): (Option<f64>, &bool)| match position {
            None => INACTIVE,
            Some(position) if *ordered => position,
            Some(position) => 2.0 * position,
        };
        Self(space.positions(genes).into_iter().zip(ordered).map(coordinate).collect())
    }
}

/// Up to [`LANES`] candidates side by side: a line per gene. Missing ones are like the last.
pub(super) fn side_by_side(candidates: &[Coordinates]) -> Vec<Lanes> {
    let Some(last) = candidates.last() else { return Vec::new() };
    let at = |gene: usize, lane: usize| candidates.get(lane).unwrap_or(last).0[gene];
    (0..last.0.len()).map(|gene| std::array::from_fn(|lane| at(gene, lane))).collect()
}

/// k = a(1 − D/Σw) + (1 − a)e^(−D), where D = Σ wᵢ·mismatchᵢ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kernel {
    /// How much each gene matters.
    pub(super) weights: Vec<f64>,
    /// Variance that the genes do not explain.
    pub(super) noise: f64,
    /// The share of the part that adds up.
    pub(super) additive: f64,
}

impl Kernel {
    /// Similarities between each of `points` and candidates side by side, a line per point.
    pub(super) fn similarities(&self, points: &[Coordinates], candidates: &[Lanes], into: &mut Vec<Lanes>) {
        into.clear();
        into.extend(points.iter().map(|point| distances(&self.weights, &point.0, candidates)));
        self.similarity(into);
    }

    /// Turns distances D into similarities.
    pub(super) fn similarity(&self, distances: &mut [Lanes]) {
        let total: f64 = self.weights.iter().sum();
        let slope = if total > 0.0 { self.additive / total } else { 0.0 };
        Arch::new().dispatch(Similarity { distances, additive: self.additive, slope });
    }

    pub(super) fn is_valid(&self, genes: usize) -> bool {
        self.weights.len() == genes
            && self.weights.iter().chain([&self.noise]).all(|value| value.is_finite() && *value > 0.0)
            && (0.0..=1.0).contains(&self.additive)
    }
}

/// D between one point and candidates side by side.
pub(super) fn distances(weights: &[f64], point: &[f64], candidates: &[Lanes]) -> Lanes {
    Arch::new().dispatch(Distances { weights, point, candidates })
}

struct Distances<'a> {
    weights: &'a [f64],
    point: &'a [f64],
    candidates: &'a [Lanes],
}

impl WithSimd for Distances<'_> {
    type Output = Lanes;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Lanes {
        let mut sum = [0.0; LANES];
        for ((line, at), weight) in self.candidates.iter().zip(self.point).zip(self.weights) {
            for lane in 0..LANES {
                sum[lane] += weight * mismatch(line[lane], *at);
            }
        }
        sum
    }
}

/// Of one gene, by its two coordinates.
#[inline(always)]
pub(super) fn mismatch(a: f64, b: f64) -> f64 {
    let distance = (a - b).abs();
    if distance < 1.0 { distance } else { 1.0 }
}

struct Similarity<'a> {
    distances: &'a mut [Lanes],
    additive: f64,
    slope: f64,
}

impl WithSimd for Similarity<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for line in self.distances {
            for value in line {
                let together = exp_of_negative(*value);
                *value = self.additive - self.slope * *value + (1.0 - self.additive) * together;
            }
        }
    }
}

/// e^(−x) for x ≥ 0, the same on every machine: the C library's differs in the last bit between processors. The
/// exponent is split into a power of two and a rest of at most ln 2 / 2, of which the series is summed.
#[inline(always)]
pub(super) fn exp_of_negative(x: f64) -> f64 {
    /// Adding this leaves the nearest whole number in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = if x < 700.0 { -x } else { -700.0 };
    let rounded = x * std::f64::consts::LOG2_E + ROUND;
    let power = rounded - ROUND;
    let rest = x - power * LN_2_HIGH - power * LN_2_LOW;
    let mut sum = 1.0 / 39_916_800.0;
    for factorial in [3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = sum * rest + 1.0 / factorial;
    }
    sum * f64::from_bits((rounded.to_bits() << 52).wrapping_add(1023 << 52))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::space::{Activity, Choice, Gene, Need};

    fn space() -> Space {
        let choice = |label: &str, number| Choice { label: label.to_owned(), number };
        let gene = |name: &str, choices, activity| Gene { name: name.to_owned(), choices, activity };
        let words = vec![choice("a", None), choice("b", None), choice("c", None)];
        let numbers = vec![choice("1", Some(1.0)), choice("16", Some(16.0)), choice("4", Some(4.0))];
        let need = Activity::AnyOf(vec![vec![Need { gene: 0, choices: vec![1] }]]);
        Space::new(vec![
            gene("op", words, Activity::Always),
            gene("width", numbers.clone(), Activity::Always),
            gene("inner", numbers, need),
        ])
        .unwrap()
    }

    #[test]
    fn coordinates_have_the_mismatch_of_the_space() {
        let space = space();
        let ordered: Vec<bool> = (0..3).map(|gene| space.is_ordered(gene)).collect();
        let all: Vec<Genes> = space.candidates().collect();
        for a in &all {
            for b in &all {
                let [at, bt] = [a, b].map(|genes| Coordinates::of(&space, &ordered, genes));
                for gene in 0..3 {
                    assert_eq!(mismatch(at.0[gene], bt.0[gene]), space.mismatch(gene, a, b));
                }
            }
        }
    }

    #[test]
    fn similarities_are_those_of_the_formula() {
        let space = space();
        let ordered: Vec<bool> = (0..3).map(|gene| space.is_ordered(gene)).collect();
        let all: Vec<Coordinates> =
            space.candidates().map(|genes| Coordinates::of(&space, &ordered, &genes)).collect();
        let kernel = Kernel { weights: vec![0.3, 1.5, 4.0], noise: 0.1, additive: 0.4 };
        let mut found = Vec::new();
        kernel.similarities(&all, &side_by_side(&all[2..7]), &mut found);
        for (point, line) in all.iter().zip(found) {
            for (lane, other) in all[2..7].iter().enumerate() {
                let d: f64 =
                    (0..3).map(|gene| kernel.weights[gene] * mismatch(point.0[gene], other.0[gene])).sum();
                let expected = 0.4 * (1.0 - d / 5.8) + 0.6 * (-d).exp();
                assert!((line[lane] - expected).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn the_exponential_is_exact_to_thirteen_digits() {
        for step in 0..20_000 {
            let x = f64::from(step) * 0.007;
            let expected = (-x).exp();
            assert!((exp_of_negative(x) / expected - 1.0).abs() < 1e-13, "{x}");
        }
        assert!(exp_of_negative(1e9) < 1e-300 && exp_of_negative(0.0) == 1.0);
    }
}
