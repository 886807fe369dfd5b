//! Which samples of a batch one of several readers takes.

use std::ops::Range;

/// The part of every batch that one of several readers takes, by its first and last sample of a full one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPart {
    pub start: usize,
    pub end: usize,
}

impl BatchPart {
    /// The samples of a batch of `len` where a full one has `batch`: a shorter one is cut in the same proportion, so
    /// parts that together are a full batch are the whole of every other, too.
    pub fn range(self, len: usize, batch: usize) -> Range<usize> {
        let at = |end: usize| (end * len).div_ceil(batch.max(1)).min(len);
        at(self.start)..at(self.end)
    }
}
