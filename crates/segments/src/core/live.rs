//! How much of every value segment is still referred to, and what follows from that.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SegmentUse {
    /// Bytes of the file.
    len: u64,
    /// Bytes of values that somebody refers to, each with the space that aligns the next.
    live: u64,
    /// Nothing is added any more.
    sealed: bool,
    /// Something in it could not be moved.
    stuck: bool,
}

impl SegmentUse {
    fn is_empty(&self) -> bool {
        self.sealed && self.live == 0
    }

    /// Whether what would have to be moved is at most `percent` of the segment, or of `target` bytes when the segment
    /// is smaller.
    fn is_little_used(&self, target: u64, percent: u64) -> bool {
        let bound = self.len.max(target).saturating_mul(percent);
        self.sealed && !self.stuck && self.live > 0 && self.live.saturating_mul(100) <= bound
    }
}

/// The segments of one log.
#[derive(Debug, Default)]
pub(crate) struct LiveTable {
    segments: BTreeMap<u64, SegmentUse>,
    live: u64,
}

impl LiveTable {
    /// A segment was made; values are added to it until it is sealed.
    pub(crate) fn on_created(&mut self, segment: u64, len: u64) {
        self.segments.insert(segment, SegmentUse { len, live: 0, sealed: false, stuck: false });
    }

    /// Nothing is added to this segment any more.
    pub(crate) fn on_sealed(&mut self, segment: u64) {
        if let Some(found) = self.segments.get_mut(&segment) {
            found.sealed = true;
        }
    }

    /// A value of `bytes` is referred to, and its segment reaches up to `end` at least.
    pub(crate) fn on_live(&mut self, segment: u64, bytes: u64, end: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        found.live += bytes;
        found.len = found.len.max(end);
        self.live += bytes;
    }

    /// A value of `bytes` is not referred to any more.
    pub(crate) fn on_freed(&mut self, segment: u64, bytes: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        debug_assert!(found.live >= bytes, "a value was freed twice");
        found.live = found.live.saturating_sub(bytes);
        self.live = self.live.saturating_sub(bytes);
    }

    pub(crate) fn on_deleted(&mut self, segment: u64) {
        self.segments.remove(&segment);
    }

    /// Sealed segments that nothing refers to.
    pub(crate) fn empty(&self) -> impl Iterator<Item = u64> {
        self.segments.iter().filter(|(_, s)| s.is_empty()).map(|(number, _)| *number)
    }

    pub(crate) fn is_empty(&self, segment: u64) -> bool {
        self.segments.get(&segment).is_some_and(SegmentUse::is_empty)
    }

    /// A value of this segment could not be moved, so compacting it is not tried again.
    pub(crate) fn on_stuck(&mut self, segment: u64) {
        if let Some(found) = self.segments.get_mut(&segment) {
            found.stuck = true;
        }
    }

    pub(crate) fn is_little_used(&self, segment: u64, target: u64, percent: u64) -> bool {
        self.segments.get(&segment).is_some_and(|s| s.is_little_used(target, percent))
    }

    /// The little used segment from which the least has to be moved.
    pub(crate) fn to_compact(&self, target: u64, percent: u64) -> Option<u64> {
        let candidates = self.segments.iter().filter(|(_, s)| s.is_little_used(target, percent));
        candidates.min_by_key(|(number, s)| (s.live, **number)).map(|(number, _)| *number)
    }

    /// Bytes of one file; 0 if there is none.
    pub(crate) fn len(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |s| s.len)
    }

    /// Bytes of all values that are referred to.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live
    }

    /// Bytes of all files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.segments.values().map(|s| s.len).sum()
    }

    /// Bytes of the files that nothing refers to.
    pub(crate) fn empty_bytes(&self) -> u64 {
        self.segments.values().filter(|s| s.is_empty()).map(|s| s.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 1000;

    fn table(segments: &[(u64, u64, bool)]) -> LiveTable {
        let mut table = LiveTable::default();
        for (number, (len, live, sealed)) in (1..).zip(segments) {
            table.on_created(number, 0);
            table.on_live(number, *live, *len);
            if *sealed {
                table.on_sealed(number);
            }
        }
        table
    }

    #[test]
    fn only_sealed_segments_without_references_are_empty() {
        let mut table = table(&[(1000, 0, true), (1000, 0, false), (1000, 5, true)]);
        assert_eq!(table.empty().collect::<Vec<_>>(), [1]);
        assert_eq!((table.empty_bytes(), table.live_bytes(), table.file_bytes()), (1000, 5, 3000));
        table.on_freed(3, 5);
        table.on_sealed(2);
        assert_eq!(table.empty().collect::<Vec<_>>(), [1, 2, 3]);
        table.on_deleted(2);
        assert_eq!(table.empty().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(table.live_bytes(), 0);
    }

    #[test]
    fn the_segment_with_the_least_to_move_is_compacted() {
        let table = table(&[(1000, 501, true), (1000, 400, true), (2000, 300, true), (1000, 1, false)]);
        assert_eq!(table.to_compact(TARGET, 50), Some(3));
        assert_eq!(table.to_compact(TARGET, 10), None);
    }

    #[test]
    fn a_segment_with_a_value_that_cannot_be_moved_is_not_tried_again() {
        let mut table = table(&[(1000, 400, true), (2000, 300, true)]);
        table.on_stuck(2);
        assert_eq!(table.to_compact(TARGET, 50), Some(1));
        assert!(!table.is_little_used(2, TARGET, 50) && table.is_little_used(1, TARGET, 50));
    }

    #[test]
    fn a_full_segment_is_left_alone_and_a_small_one_is_merged() {
        assert_eq!(table(&[(1000, 990, true)]).to_compact(TARGET, 50), None);
        assert_eq!(table(&[(100, 100, true)]).to_compact(TARGET, 50), Some(1));
        assert_eq!(table(&[(1000, 0, true)]).to_compact(TARGET, 50), None, "it is deleted, not compacted");
    }
}
