//! Formats and decisions, pure: the bytes of files, what is torn and what is damaged, which segment is compacted or
//! deleted, when a snapshot is due.

mod frame;
mod header;
mod live;
mod position;
mod snapshot_policy;

pub(crate) use frame::{
    BARRIER_LEN, FrameClass, FrameHead, HEAD_LEN, barrier_body, encode_head, parse_barrier_body,
};
pub(crate) use header::{FileHeader, FileKind, HEADER_LEN, HeaderProblem};
pub(crate) use live::LiveTable;
pub use position::{Position, ValueRef};
pub(crate) use snapshot_policy::{Sizes, snapshot_due};
pub use snapshot_policy::{SnapshotPolicy, SnapshotReason};
