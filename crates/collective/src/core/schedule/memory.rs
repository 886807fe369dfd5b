//! The memory areas of one rank while a program runs.

use super::{Area, Span};
use crate::core::numbers;
use crate::core::words::Reduction;
use phalanx_types::DType;
use std::ops::Range;

/// How received elements are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arithmetic {
    pub(crate) dtype: DType,
    /// Programs that combine nothing need none.
    pub(crate) reduction: Reduction,
    /// The number of ranks that an average is over.
    pub(crate) ranks: usize,
}

impl Arithmetic {
    fn combine(self, into: &mut [u8], other: &[u8], last: bool) {
        numbers::combine(self.dtype, self.reduction, into, other);
        if last {
            numbers::finish(self.dtype, self.reduction, self.ranks, into);
        }
    }
}

/// The areas as bytes; ranges are in bytes.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut [u8],
    pub(crate) scratch: &'a mut [u8],
    pub(crate) arithmetic: Arithmetic,
}

impl Memory<'_> {
    pub(crate) fn read(&self, area: Area, range: Range<usize>) -> &[u8] {
        match area {
            Area::Input => &self.input[range],
            Area::Output => &self.output[range],
            Area::Scratch => &self.scratch[range],
        }
    }

    /// # Panics
    /// The area is the input: no program writes there.
    pub(crate) fn write(&mut self, area: Area, range: Range<usize>) -> &mut [u8] {
        match area {
            Area::Input => unreachable!("no program writes to the input"),
            Area::Output => &mut self.output[range],
            Area::Scratch => &mut self.scratch[range],
        }
    }

    /// Copies between two areas.
    pub(crate) fn copy(&mut self, from: &Span, into: &Span) {
        let (into, from) = self.two(into.area, self.bytes(&into.range), from.area, self.bytes(&from.range));
        into.copy_from_slice(from);
    }

    /// Combines bytes of another area into the bytes of `into`.
    pub(crate) fn combine(&mut self, into: (Area, Range<usize>), other: (Area, usize), last: bool) {
        let arithmetic = self.arithmetic;
        let length = into.1.len();
        let (into, other) = self.two(into.0, into.1, other.0, other.1..other.1 + length);
        arithmetic.combine(into, other, last);
    }

    /// Combines bytes from outside all areas into the bytes of `into`.
    pub(crate) fn combine_block(&mut self, into: (Area, Range<usize>), block: &[u8], last: bool) {
        let arithmetic = self.arithmetic;
        arithmetic.combine(self.write(into.0, into.1), block, last);
    }

    /// Converts a range of elements to a range of bytes.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> Range<usize> {
        let size = self.arithmetic.dtype.size();
        range.start * size..range.end * size
    }

    /// # Panics
    /// Both are the same area, or the first is the input: no program asks for that.
    fn two(
        &mut self,
        into: Area,
        into_range: Range<usize>,
        from: Area,
        from_range: Range<usize>,
    ) -> (&mut [u8], &[u8]) {
        match (into, from) {
            (Area::Output, Area::Input) => (&mut self.output[into_range], &self.input[from_range]),
            (Area::Output, Area::Scratch) => (&mut self.output[into_range], &self.scratch[from_range]),
            (Area::Scratch, Area::Input) => (&mut self.scratch[into_range], &self.input[from_range]),
            (Area::Scratch, Area::Output) => (&mut self.scratch[into_range], &self.output[from_range]),
            (Area::Input, _) | (Area::Output, Area::Output) | (Area::Scratch, Area::Scratch) => {
                unreachable!("programs move elements between two areas, never to the input")
            }
        }
    }
}
