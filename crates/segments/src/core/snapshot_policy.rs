//! When the next snapshot is worth its cost.

/// When a snapshot is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// The journal has grown by this many bytes, and by the size of the newest snapshot at least.
    pub journal_bytes: u64,
    /// This many bytes of value segments are not referred to any more, and wait for a snapshot to be deleted.
    pub reclaimable_bytes: u64,
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self { journal_bytes: 256 << 20, reclaimable_bytes: 512 << 20 }
    }
}

/// Why a snapshot is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotReason {
    /// Recovery would have to read this much of the journal.
    JournalGrown { bytes: u64 },
    /// This much space is freed by a snapshot.
    ValuesUnused { bytes: u64 },
}

/// The sizes that decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of the journal since the newest snapshot.
    pub(crate) journal: u64,
    /// Bytes of the newest snapshot.
    pub(crate) snapshot: u64,
    /// Bytes of value segments without references.
    pub(crate) reclaimable: u64,
}

pub(crate) fn snapshot_due(policy: &SnapshotPolicy, sizes: Sizes) -> Option<SnapshotReason> {
    if sizes.journal >= policy.journal_bytes.max(sizes.snapshot) {
        return Some(SnapshotReason::JournalGrown { bytes: sizes.journal });
    }
    // Every snapshot is written whole: freeing less than it takes does not pay.
    (sizes.reclaimable >= policy.reclaimable_bytes.max(sizes.snapshot))
        .then_some(SnapshotReason::ValuesUnused { bytes: sizes.reclaimable })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: SnapshotPolicy = SnapshotPolicy { journal_bytes: 100, reclaimable_bytes: 1000 };

    fn due(journal: u64, snapshot: u64, reclaimable: u64) -> Option<SnapshotReason> {
        snapshot_due(&POLICY, Sizes { journal, snapshot, reclaimable })
    }

    #[test]
    fn a_snapshot_is_due_when_the_journal_outgrows_the_setting_and_the_newest_snapshot() {
        assert_eq!(due(99, 0, 0), None);
        assert_eq!(due(100, 0, 0), Some(SnapshotReason::JournalGrown { bytes: 100 }));
        assert_eq!(due(499, 500, 0), None);
        assert_eq!(due(500, 500, 0), Some(SnapshotReason::JournalGrown { bytes: 500 }));
    }

    #[test]
    fn a_snapshot_is_due_when_it_frees_enough() {
        assert_eq!(due(0, 0, 999), None);
        assert_eq!(due(0, 10, 1000), Some(SnapshotReason::ValuesUnused { bytes: 1000 }));
        assert_eq!(due(0, 2000, 1999), None);
    }
}
