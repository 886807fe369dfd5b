use crate::core::SnapshotPolicy;

/// When an appended record is acknowledged, and when it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Acknowledged when it is on disk. Records that wait at the same time share one flush.
    EveryWrite,
    /// Acknowledged when the operating system has it; on disk within about a second. It survives the process, and
    /// a crash of the machine loses about a second.
    #[default]
    EverySecond,
    /// Acknowledged when the operating system has it; on disk when the system likes. It survives the process.
    Never,
}

/// Settings of a journal with its value log and snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub durability: Durability,
    /// A segment takes no more records or values when it has this many bytes. Value segments have 4 KiB at least.
    pub segment_bytes: u64,
    /// Bytes that may be appended and not yet written. Behind that appends wait or are rejected.
    pub queue_bytes: u64,
    /// A value segment is compacted when at most this share of it is used, in percent; more than 75 counts as 75.
    pub compact_percent: u64,
    pub snapshots: SnapshotPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            segment_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            compact_percent: 50,
            snapshots: SnapshotPolicy::default(),
        }
    }
}

/// Settings of a spill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillSettings {
    /// The most bytes of all values together.
    pub limit_bytes: u64,
    /// A segment takes no more values when it has this many bytes.
    pub segment_bytes: u64,
}

impl Default for SpillSettings {
    fn default() -> Self {
        Self { limit_bytes: 64 << 30, segment_bytes: 64 << 20 }
    }
}
