//! Which samples of a batch one of several readers takes.

use std::ops::Range;

/// The part of every batch that one of several readers takes, as a range of a full batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPart {
    pub start: usize,
    pub end: usize,
}

impl BatchPart {
    /// The samples of a batch of `len`, where a full batch has `batch`: a shorter batch is divided in the same
    /// proportion, so parts that cover a full batch cover every other batch, too.
    pub fn range(self, len: usize, batch: usize) -> Range<usize> {
        let at = |end: usize| (end * len).div_ceil(batch.max(1)).min(len);
        at(self.start)..at(self.end)
    }
}
