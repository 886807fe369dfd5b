//! How the samples of a step are cut into the parts that are computed one after the other.

use phalanx_train::{Cut, StepInput};
use std::ops::Range;

/// How a replica's samples are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cutting {
    /// Into micro-batches of this size, for a pipeline.
    Size(usize),
    /// Into batches of this size, the rest last.
    Batches(usize),
    /// Into this many parts of nearly the same size, as many on every replica.
    Parts(usize),
}

impl Cutting {
    /// The same for replicas that have these numbers of samples: no replica with samples has an empty part.
    pub(super) fn among(self, counts: impl Iterator<Item = usize>) -> Self {
        match self {
            Self::Size(_) | Self::Batches(_) => self,
            Self::Parts(parts) => {
                let least = counts.filter(|count| *count > 0).min().unwrap_or(1);
                Self::Parts(parts.min(least).max(1))
            }
        }
    }
}

/// The samples of one step that a replica has, cut into parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct MicroBatches {
    pub(super) step: u64,
    /// Samples of all replicas together.
    pub(super) whole: usize,
    /// Samples of other replicas that come before these.
    pub(super) first: usize,
    pub(super) len: usize,
    cutting: Cutting,
}

impl MicroBatches {
    pub(super) fn new(step: u64, whole: usize, own: Range<usize>, cutting: Cutting) -> Self {
        Self { step, whole, first: own.start, len: own.len(), cutting }
    }

    /// Samples of zeros in the place of a replica's own: one for every part that other replicas have.
    pub(super) fn of_nothing(&self) -> Self {
        let parts = match self.cutting {
            Cutting::Size(_) | Cutting::Batches(_) => 0,
            Cutting::Parts(parts) => parts,
        };
        Self { len: parts, ..*self }
    }

    /// How many there are. A last micro-batch of one sample goes with the one before: batch norm needs more than one.
    pub(super) fn parts(&self) -> usize {
        match self.cutting {
            Cutting::Parts(parts) => parts.min(self.len),
            Cutting::Batches(size) => self.len.div_ceil(size.max(1)),
            Cutting::Size(micro) => {
                let parts = self.len.div_ceil(micro);
                if parts > 1 && micro > 1 && self.len % micro == 1 { parts - 1 } else { parts }
            }
        }
    }

    fn range(&self, part: usize) -> Range<usize> {
        match self.cutting {
            Cutting::Parts(_) => {
                let parts = self.parts().max(1);
                part * self.len / parts..(part + 1) * self.len / parts
            }
            Cutting::Batches(size) => part * size..((part + 1) * size).min(self.len),
            Cutting::Size(micro) => {
                let (start, parts) = (part * micro, self.parts());
                let end = if part + 1 == parts { self.len } else { (start + micro).min(self.len) };
                start.min(end)..end
            }
        }
    }

    pub(super) fn part_len(&self, part: usize) -> usize {
        self.range(part).len()
    }

    /// How many of its samples come before a part.
    pub(super) fn start(&self, part: usize) -> usize {
        self.range(part).start
    }

    /// What belongs to one of the parts, of something that all samples have.
    pub(super) fn cut<'a, T>(&self, part: usize, of_all: &'a [T]) -> &'a [T] {
        let size = of_all.len() / self.len.max(1);
        let Range { start, end } = self.range(part);
        &of_all[start * size..end * size]
    }

    /// One of the parts, with all labels of the step.
    pub(super) fn input<'a>(&self, part: usize, y: &'a [f32], y_shape: &'a [usize]) -> StepInput<'a> {
        let (len, y) = (self.part_len(part), self.cut(part, y));
        let (step, whole, first) = (self.step, self.whole, self.first);
        StepInput { x: &[], y, y_shape, len, whole, first, cut: Cut::Parts(1), step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(len: usize, cutting: Cutting) -> Vec<usize> {
        let batches = MicroBatches::new(0, len, 0..len, cutting);
        (0..batches.parts()).map(|part| batches.part_len(part)).collect()
    }

    #[test]
    fn every_sample_is_in_one_part() {
        assert_eq!(lengths(10, Cutting::Size(4)), [4, 4, 2]);
        assert_eq!(lengths(9, Cutting::Size(4)), [4, 5], "one sample is not left alone");
        assert_eq!(lengths(1, Cutting::Size(4)), [1]);
        assert_eq!(lengths(10, Cutting::Parts(3)), [3, 3, 4]);
        assert_eq!(lengths(0, Cutting::Parts(3)), [0; 0]);
        assert_eq!(Cutting::Parts(4).among([0, 2, 9].into_iter()), Cutting::Parts(2));
    }
}
