//! Which input positions a window covers, along one dimension.

use std::ops::Range;

#[derive(Debug, Clone, Copy)]
pub(super) struct PoolAxis {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) taps: usize,
    pub(super) stride: usize,
    pub(super) step: usize,
    pub(super) pad: usize,
    pub(super) pad_after: usize,
}

impl PoolAxis {
    /// The position of the first tap of output `i`.
    #[inline(always)]
    pub(super) fn corner(&self, i: usize) -> isize {
        (i * self.stride) as isize - self.pad as isize
    }

    /// How many of the taps of output `i`, from the first on, are at positions before `end`.
    #[inline(always)]
    fn before(&self, i: usize, end: usize) -> usize {
        let room = (end as isize - self.corner(i)).max(0).unsigned_abs();
        // Divisions are slow.
        let taps = if self.step == 1 { room } else { room.div_ceil(self.step) };
        taps.min(self.taps)
    }

    /// The taps of output `i` that are inside the input.
    #[inline(always)]
    pub(super) fn valid(&self, i: usize) -> Range<usize> {
        let to = self.before(i, self.input);
        self.before(i, 0).min(to)..to
    }

    /// How many taps of output `i` count if padding does.
    #[inline(always)]
    pub(super) fn counted(&self, i: usize) -> usize {
        self.before(i, self.input + self.pad_after)
    }

    /// Whether all windows are inside the input.
    pub(super) fn whole(&self) -> bool {
        let all = |i: usize| self.valid(i).len() == self.taps;
        self.output == 0 || all(0) && all(self.output - 1)
    }

    /// The output whose tap `t` is at position `at`.
    #[inline(always)]
    pub(super) fn looking(&self, at: usize, t: usize) -> Option<usize> {
        let from = (at + self.pad).checked_sub(t * self.step)?;
        (from.is_multiple_of(self.stride) && from / self.stride < self.output).then_some(from / self.stride)
    }
}
