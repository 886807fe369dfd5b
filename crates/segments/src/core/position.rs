/// A place in the journal. Positions grow as records are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Position {
    /// The number of the journal segment.
    pub segment: u64,
    /// The byte in this segment.
    pub offset: u64,
}

/// Where a value lies in the segments of a value log or of a spill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueRef {
    /// The number of the segment.
    pub segment: u64,
    /// The first byte of the value in its segment.
    pub offset: u64,
    /// Bytes of the value.
    pub len: u64,
    /// CRC-32 of the value.
    pub checksum: u32,
}

impl ValueRef {
    /// The first byte behind the value, if the numbers are possible.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}
