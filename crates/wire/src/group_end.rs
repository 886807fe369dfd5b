//! How ranks of a group reach each other: every rank tells the driver its ends, which tells all ranks all ends.

use serde::{Deserialize, Serialize};

/// The ends of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnds {
    /// Of the lane that all ranks share.
    pub control: EndRef,
    /// Of the rings that it is in.
    pub rings: Vec<RingEnd>,
}

/// The end of one rank in a ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingEnd {
    /// The number of the ring in the layout of the group.
    pub ring: u32,
    /// How the other ranks of the ring reach it.
    pub end: EndRef,
}

/// How other ranks reach an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRef {
    /// Ranks of the same host can map each other's memory.
    pub host: [u8; 16],
    /// Its memory, if others may map it.
    pub segment: Option<SegmentRef>,
}

/// Memory of a process that other processes of its host can map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// The process.
    pub pid: u32,
    /// Its descriptor of the memory.
    pub fd: i32,
    /// How large it is.
    pub bytes: u64,
    /// Stands in the memory, too: the descriptor may be one of another file by now.
    pub token: u64,
}
