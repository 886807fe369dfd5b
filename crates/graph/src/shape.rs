//! Shapes whose batch dimension is symbolic.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One dimension: a number, or a multiple of the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    Fixed(usize),
    /// A multiple of the batch size: tokens of a batch flattened into rows are `Batch(sequence)`.
    Batch(usize),
}

impl Dim {
    /// The dimension with a batch of this size.
    pub fn at(self, batch: usize) -> usize {
        match self {
            Dim::Fixed(n) => n,
            Dim::Batch(k) => k * batch,
        }
    }

    pub fn fixed(self) -> Option<usize> {
        match self {
            Dim::Fixed(n) => Some(n),
            Dim::Batch(_) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Batch(1) => write!(f, "N"),
            Dim::Batch(k) => write!(f, "{k}N"),
        }
    }
}

/// The shape of a value.
#[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Shape(Vec<Dim>);

/// The number of elements of a shape: `factor × batch^power`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub factor: usize,
    pub power: u32,
}

impl Count {
    /// The number for this batch size; `usize::MAX` on overflow.
    pub fn at(self, batch: usize) -> usize {
        (0..self.power).fold(self.factor, |n, _| n.saturating_mul(batch))
    }
}

impl Shape {
    pub fn new(dims: Vec<Dim>) -> Self {
        Self(dims)
    }

    /// A shape without a batch dimension.
    pub fn fixed(dims: &[usize]) -> Self {
        Self(dims.iter().map(|d| Dim::Fixed(*d)).collect())
    }

    /// A batch of samples of this shape.
    pub fn batch_of(sample: &[usize]) -> Self {
        Self(std::iter::once(Dim::Batch(1)).chain(sample.iter().map(|d| Dim::Fixed(*d))).collect())
    }

    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The shape with a batch of this size.
    pub fn at(&self, batch: usize) -> Vec<usize> {
        self.0.iter().map(|d| d.at(batch)).collect()
    }

    /// The dimensions, if none depends on the batch.
    pub fn as_fixed(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|d| d.fixed()).collect()
    }

    /// The number of elements; `None` on overflow.
    pub fn count(&self) -> Option<Count> {
        self.0.iter().try_fold(Count { factor: 1, power: 0 }, |n, d| {
            let (k, p) = match d {
                Dim::Fixed(k) => (*k, 0),
                Dim::Batch(k) => (*k, 1),
            };
            Some(Count { factor: n.factor.checked_mul(k)?, power: n.power + p })
        })
    }

    /// The broadcast shape of both; `None` if they do not fit.
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        let rank = self.rank().max(other.rank());
        let dim = |s: &Self, i: usize| (i + s.rank()).checked_sub(rank).map_or(Dim::Fixed(1), |j| s.0[j]);
        (0..rank)
            .map(|i| match (dim(self, i), dim(other, i)) {
                (a, b) if a == b => Some(a),
                (Dim::Fixed(1), d) | (d, Dim::Fixed(1)) => Some(d),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = Dim;
    fn index(&self, i: usize) -> &Dim {
        &self.0[i]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { "×" } else { "" })?;
        }
        write!(f, "]")
    }
}
