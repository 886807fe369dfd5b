//! The loops over columns: every vector holds neighbouring channels of one row.

/// Elements that are added in single precision before they go to a longer sum.
const BLOCK: usize = 6 * 1024;

/// Combines several narrow rows so that they fill vectors: `width` columns, of `c` channels repeated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fold {
    pub(super) c: usize,
    pub(super) width: usize,
    /// Rows per wide row.
    pub(super) rows: usize,
}

impl Fold {
    pub(super) fn new(rows: usize, c: usize) -> Self {
        let full = 16 >> c.trailing_zeros().min(4);
        let mut fold = if c < 128 { full } else { 1 };
        while fold * c < 128 {
            fold *= 2;
        }
        if fold > rows {
            fold = 1;
        }
        Self { c, width: fold * c, rows: fold }
    }

    /// Writes the value of every column's channel.
    pub(super) fn fill(&self, out: &mut [f32], value: impl Fn(usize) -> f32) {
        let (first, rest) = out.split_at_mut(self.c);
        first.iter_mut().enumerate().for_each(|(channel, out)| *out = value(channel));
        rest.chunks_exact_mut(self.c).for_each(|again| again.copy_from_slice(first));
    }
}

/// `y = limited((x - mean) · factor + bias)`, per column.
#[derive(Clone, Copy)]
pub(super) struct Forward<'a> {
    pub(super) means: &'a [f32],
    pub(super) factors: &'a [f32],
    pub(super) biases: &'a [f32],
    pub(super) low: f32,
    pub(super) high: f32,
}

/// `dx = factor · g - direct' - along' · (x - mean)`, per column.
#[derive(Clone, Copy)]
pub(super) struct Backward<'a> {
    pub(super) forward: Forward<'a>,
    pub(super) directs: &'a [f32],
    pub(super) alongs: &'a [f32],
}

#[inline(always)]
pub(super) fn forward((rule, x, y): (Forward<'_>, &[f32], &mut [f32])) {
    let Forward { means, factors, biases, low, high } = rule;
    let width = means.len();
    for (x, y) in x.chunks(width).zip(y.chunks_mut(width)) {
        let n = x.len();
        let (y, means, factors, biases) = (&mut y[..n], &means[..n], &factors[..n], &biases[..n]);
        for j in 0..n {
            let z = (x[j] - means[j]) * factors[j] + biases[j];
            let z = if z < low { low } else { z };
            y[j] = if z > high { high } else { z };
        }
    }
}

#[inline(always)]
pub(super) fn backward<const LIMITED: bool>((rule, x, dy, dx): (Backward<'_>, &[f32], &[f32], &mut [f32])) {
    let Backward { forward: Forward { means, factors, biases, low, high }, directs, alongs } = rule;
    let width = means.len();
    for ((x, dy), dx) in x.chunks(width).zip(dy.chunks(width)).zip(dx.chunks_mut(width)) {
        let n = x.len();
        let (dy, dx, means, factors) = (&dy[..n], &mut dx[..n], &means[..n], &factors[..n]);
        let (biases, directs, alongs) = (&biases[..n], &directs[..n], &alongs[..n]);
        for j in 0..n {
            let centered = x[j] - means[j];
            let mut g = dy[j];
            if LIMITED {
                let z = centered * factors[j] + biases[j];
                g = if (z > low) & (z < high) { g } else { 0.0 };
            }
            dx[j] = g * factors[j] - (directs[j] + alongs[j] * centered);
        }
    }
}

/// Writes the sums of every channel of `x` and of its squares, `[2, c]`.
#[inline(always)]
pub(super) fn moments((fold, x, sums, buffer): (Fold, &[f32], &mut [f64], &mut [f32])) {
    sums.fill(0.0);
    let whole = x.len() / fold.width * fold.width;
    add_moments(&x[..whole], fold.width, fold.c, sums, buffer);
    add_moments(&x[whole..], fold.c, fold.c, sums, buffer);
}

/// Uses single precision only for distances from a nearby number: the mean of the previous block, or the first row.
#[inline(always)]
fn add_moments(x: &[f32], width: usize, c: usize, sums: &mut [f64], buffer: &mut [f32]) {
    if x.is_empty() {
        return;
    }
    let (totals, rest) = buffer[..7 * width].split_at_mut(4 * width);
    let (near, rest) = rest.split_at_mut(width);
    let (direct, squares) = rest.split_at_mut(width);
    let totals: &mut [f64] = bytemuck::cast_slice_mut(totals);
    totals.fill(0.0);
    let (total, total_squares) = totals.split_at_mut(width);
    near.copy_from_slice(&x[..width]);
    for block in x.chunks((BLOCK / width).max(32) * width) {
        direct.fill(0.0);
        squares.fill(0.0);
        for rows in block.chunks(4 * width) {
            add_four(rows, near, (&mut *direct, &mut *squares));
        }
        let n = (block.len() / width) as f64;
        for j in 0..width {
            let (base, sum) = (f64::from(near[j]), f64::from(direct[j]));
            total[j] += n * base + sum;
            total_squares[j] += f64::from(squares[j]) + base * (2.0 * sum + n * base);
            near[j] += direct[j] / n as f32;
        }
    }
    add_up((total, total_squares), c, sums);
}

/// Adds the distances of four rows, or fewer, and their squares.
#[inline(always)]
fn add_four(rows: &[f32], near: &[f32], (direct, squares): (&mut [f32], &mut [f32])) {
    let width = near.len();
    let (direct, squares) = (&mut direct[..width], &mut squares[..width]);
    if rows.len() == 4 * width {
        let (a, rest) = rows.split_at(width);
        let (b, rest) = rest.split_at(width);
        let (c, d) = rest.split_at(width);
        let d = &d[..width];
        for j in 0..width {
            let (a, b, c, d) = (a[j] - near[j], b[j] - near[j], c[j] - near[j], d[j] - near[j]);
            direct[j] += (a + b) + (c + d);
            squares[j] += (a * a + b * b) + (c * c + d * d);
        }
    } else {
        for row in rows.chunks_exact(width) {
            for j in 0..width {
                let a = row[j] - near[j];
                direct[j] += a;
                squares[j] += a * a;
            }
        }
    }
}

/// Adds the totals of columns to the totals of their channels.
#[inline(always)]
fn add_up((a, b): (&[f64], &[f64]), c: usize, sums: &mut [f64]) {
    let (first, second) = sums.split_at_mut(c);
    for (a, b) in a.chunks_exact(c).zip(b.chunks_exact(c)) {
        for j in 0..c {
            first[j] += a[j];
            second[j] += b[j];
        }
    }
}

type SumsArguments<'a> = (Fold, Forward<'a>, &'a [f32], &'a [f32], &'a mut [f64], &'a mut [f32]);

/// Writes the sums of every channel of the gradient that passes, and of its products with `x - mean`: `[2, c]`.
#[inline(always)]
pub(super) fn sums<const LIMITED: bool>((fold, rule, x, dy, sums, buffer): SumsArguments<'_>) {
    sums.fill(0.0);
    let whole = x.len() / fold.width * fold.width;
    let ((x, x_rest), (dy, dy_rest)) = (x.split_at(whole), dy.split_at(whole));
    add_sums::<LIMITED>(rule, (x, dy), fold.width, fold.c, sums, buffer);
    add_sums::<LIMITED>(rule, (x_rest, dy_rest), fold.c, fold.c, sums, buffer);
}

#[inline(always)]
fn add_sums<const LIMITED: bool>(
    rule: Forward<'_>,
    (x, dy): (&[f32], &[f32]),
    width: usize,
    c: usize,
    sums: &mut [f64],
    buffer: &mut [f32],
) {
    let (totals, rest) = buffer[..6 * width].split_at_mut(4 * width);
    let (direct, along) = rest.split_at_mut(width);
    let totals: &mut [f64] = bytemuck::cast_slice_mut(totals);
    totals.fill(0.0);
    let (total, total_along) = totals.split_at_mut(width);
    let block = (BLOCK / width).max(32) * width;
    for (x, dy) in x.chunks(block).zip(dy.chunks(block)) {
        direct.fill(0.0);
        along.fill(0.0);
        let two = 2 * width;
        for (x, dy) in x.chunks(two).zip(dy.chunks(two)) {
            add_pair::<LIMITED>(rule, (x, dy), (&mut *direct, &mut *along));
        }
        for j in 0..width {
            total[j] += f64::from(direct[j]);
            total_along[j] += f64::from(along[j]);
        }
    }
    add_up((total, total_along), c, sums);
}

/// Adds two rows, or one.
#[inline(always)]
fn add_pair<const LIMITED: bool>(
    rule: Forward<'_>,
    (x, dy): (&[f32], &[f32]),
    (direct, along): (&mut [f32], &mut [f32]),
) {
    let width = direct.len();
    let (means, factors, biases) = (&rule.means[..width], &rule.factors[..width], &rule.biases[..width]);
    let along = &mut along[..width];
    let (low, high) = (rule.low, rule.high);
    let passing = |j: usize, centered: f32, g: f32| {
        if !LIMITED {
            return g;
        }
        let z = centered * factors[j] + biases[j];
        if (z > low) & (z < high) { g } else { 0.0 }
    };
    if x.len() == 2 * width {
        let ((x1, x2), (g1, g2)) = (x.split_at(width), dy.split_at(width));
        let (x2, g2) = (&x2[..width], &g2[..width]);
        for j in 0..width {
            let (c1, c2) = (x1[j] - means[j], x2[j] - means[j]);
            let (g1, g2) = (passing(j, c1, g1[j]), passing(j, c2, g2[j]));
            direct[j] += g1 + g2;
            along[j] += g1 * c1 + g2 * c2;
        }
    } else {
        let (x, dy) = (&x[..width], &dy[..width]);
        for j in 0..width {
            let centered = x[j] - means[j];
            let g = passing(j, centered, dy[j]);
            direct[j] += g;
            along[j] += g * centered;
        }
    }
}
