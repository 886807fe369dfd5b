//! Cholesky factors that grow, and solving with several right sides at once.
//!
//! Every element is computed by the same operations in the same order, however many rows were added at once and
//! whatever vectors the machine has: a factor that grew is equal, bit for bit, to one made at once.

use pulp::{Arch, Simd, WithSimd};

pub(super) const LANES: usize = 8;

/// Eight numbers that are computed side by side.
pub(super) type Lanes = [f64; LANES];

const BLOCK: usize = 4;

/// The lower triangle L of K = L Lᵀ.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Factor {
    rows: usize,
    /// Row after row, each up to its diagonal.
    lower: Vec<f64>,
}

/// Where a row begins, and how many elements so many rows have.
fn start(row: usize) -> usize {
    row * (row + 1) / 2
}

impl Factor {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        if rows < self.rows {
            self.rows = rows;
            self.lower.truncate(start(rows));
        }
    }

    /// The sum of the logarithms of the diagonal.
    pub(super) fn log_diagonal(&self) -> f64 {
        (0..self.rows).map(|row| libm::log(self.lower[start(row + 1) - 1])).sum()
    }

    /// Turns `sides` into L⁻¹ `sides`; it has a line per row.
    pub(super) fn solve(&self, sides: &mut [Lanes]) {
        Arch::new().dispatch(Solve { factor: self, sides });
    }

    /// L⁻¹ `side`.
    pub(super) fn solve_one(&self, side: &[f64]) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(self.rows);
        for (row, &right) in side.iter().enumerate().take(self.rows) {
            let line = &self.lower[start(row)..start(row + 1)];
            let rest = line.iter().zip(&solved).fold(right, |rest, (l, v)| rest - l * v);
            solved.push(rest / line[row]);
        }
        solved
    }

    /// Adds `count` rows. `columns` has the columns of K that belong to them, a line per row of the whole K so far,
    /// new rows included; what it holds afterwards means nothing.
    pub(super) fn extend(&mut self, columns: &mut [Lanes], count: usize) {
        let (known, new) = columns.split_at_mut(self.rows);
        self.solve(known);
        Arch::new().dispatch(Corner { known, new });
        for lane in 0..count {
            self.lower.extend(known.iter().map(|line| line[lane]));
            for row in 0..=lane {
                let mut rest = new[row][lane];
                for earlier in new.iter().take(row) {
                    rest -= earlier[row] * earlier[lane];
                }
                // The noise on the diagonal keeps it well above this.
                let value = if row == lane { rest.max(1e-12).sqrt() } else { rest / new[row][row] };
                new[row][lane] = value;
                self.lower.push(value);
            }
        }
        self.rows += count;
    }
}

struct Solve<'a> {
    factor: &'a Factor,
    sides: &'a mut [Lanes],
}

impl WithSimd for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { factor, sides } = self;
        let blocked = factor.rows / BLOCK * BLOCK;
        for first in (0..blocked).step_by(BLOCK) {
            let (before, rest) = sides.split_at_mut(first);
            let [a, b, c, d] =
                std::array::from_fn(|row| &factor.lower[start(first + row)..start(first + row + 1)]);
            let [mut at_a, mut at_b, mut at_c, mut at_d] = [rest[0], rest[1], rest[2], rest[3]];
            let coefficients = a.iter().zip(b).zip(c.iter().zip(d));
            for (line, ((a, b), (c, d))) in before.iter().zip(coefficients) {
                subtract(&mut at_a, *a, line);
                subtract(&mut at_b, *b, line);
                subtract(&mut at_c, *c, line);
                subtract(&mut at_d, *d, line);
            }
            divide(&mut at_a, a[first]);
            subtract(&mut at_b, b[first], &at_a);
            divide(&mut at_b, b[first + 1]);
            subtract(&mut at_c, c[first], &at_a);
            subtract(&mut at_c, c[first + 1], &at_b);
            divide(&mut at_c, c[first + 2]);
            subtract(&mut at_d, d[first], &at_a);
            subtract(&mut at_d, d[first + 1], &at_b);
            subtract(&mut at_d, d[first + 2], &at_c);
            divide(&mut at_d, d[first + 3]);
            rest[..BLOCK].copy_from_slice(&[at_a, at_b, at_c, at_d]);
        }
        for row in blocked..factor.rows {
            let (before, rest) = sides.split_at_mut(row);
            let line = &factor.lower[start(row)..start(row + 1)];
            for (solved, l) in before.iter().zip(line) {
                subtract(&mut rest[0], *l, solved);
            }
            divide(&mut rest[0], line[row]);
        }
    }
}

/// Takes from the new rows' part of K what the known rows explain.
struct Corner<'a> {
    known: &'a [Lanes],
    new: &'a mut [Lanes],
}

impl WithSimd for Corner<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { known, new } = self;
        let mut rest: [Lanes; LANES] =
            std::array::from_fn(|row| new.get(row).copied().unwrap_or([0.0; LANES]));
        for line in known {
            for row in 0..LANES {
                subtract(&mut rest[row], line[row], line);
            }
        }
        let rows = new.len().min(LANES);
        new[..rows].copy_from_slice(&rest[..rows]);
    }
}

#[inline(always)]
fn subtract(from: &mut Lanes, factor: f64, line: &Lanes) {
    for lane in 0..LANES {
        from[lane] -= factor * line[lane];
    }
}

#[inline(always)]
fn divide(line: &mut Lanes, by: f64) {
    for value in line {
        *value /= by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dice::Dice;
    use phalanx_types::Seed;

    fn positive(size: usize, dice: &mut Dice) -> Vec<Vec<f64>> {
        let points: Vec<f64> = (0..size).map(|_| dice.unit() * 10.0).collect();
        let near = |a: usize, b: usize| (-(points[a] - points[b]).abs()).exp() + f64::from(a == b) * 0.01;
        (0..size).map(|a| (0..size).map(|b| near(a, b)).collect()).collect()
    }

    fn grow(factor: &mut Factor, k: &[Vec<f64>], count: usize) {
        let rows = factor.rows();
        let lane = |row: usize, lane: usize| k.get(rows + lane).map_or(0.0, |column| column[row]);
        let mut columns: Vec<Lanes> =
            (0..rows + count).map(|row| std::array::from_fn(|l| lane(row, l))).collect();
        factor.extend(&mut columns, count);
    }

    #[test]
    fn a_factor_is_one_and_does_not_depend_on_how_it_grew() {
        let mut dice = Dice::new(Seed(3));
        let k = positive(29, &mut dice);
        let mut at_once = Factor::default();
        for count in [8, 8, 8, 5] {
            grow(&mut at_once, &k, count);
        }
        let mut slowly = Factor::default();
        for count in [1, 3, 2, 1, 7, 1, 8, 6] {
            grow(&mut slowly, &k, count);
        }
        assert_eq!(at_once, slowly);
        slowly.truncate(11);
        for count in [8, 8, 2] {
            grow(&mut slowly, &k, count);
        }
        assert_eq!(at_once, slowly);
        for (a, line) in k.iter().enumerate() {
            for (b, wanted) in line.iter().enumerate().take(a + 1) {
                let product: f64 =
                    (0..=b).map(|i| at_once.lower[start(a) + i] * at_once.lower[start(b) + i]).sum();
                assert!((product - wanted).abs() < 1e-12, "{a}, {b}: {product}, not {wanted}");
            }
        }
    }

    #[test]
    fn solving_undoes_the_product() {
        let mut dice = Dice::new(Seed(4));
        let k = positive(23, &mut dice);
        let mut factor = Factor::default();
        for count in [8, 8, 7] {
            grow(&mut factor, &k, count);
        }
        let wanted: Vec<Lanes> = (0..23).map(|_| std::array::from_fn(|_| dice.unit())).collect();
        let mut sides: Vec<Lanes> = (0..23)
            .map(|row| {
                std::array::from_fn(|lane| {
                    (0..=row).map(|i| factor.lower[start(row) + i] * wanted[i][lane]).sum()
                })
            })
            .collect();
        let one = factor.solve_one(&sides.iter().map(|line| line[3]).collect::<Vec<_>>());
        factor.solve(&mut sides);
        for row in 0..23 {
            assert!((0..LANES).all(|lane| (sides[row][lane] - wanted[row][lane]).abs() < 1e-9));
            assert_eq!(one[row], sides[row][3]);
        }
    }
}
