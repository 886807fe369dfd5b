//! Collectives: reductions and exchanges among the ranks of a group.
//!
//! ```text
//!   Group::all_reduce(..)                 one rank's end of a group, of one epoch
//!        |  core::select: which algorithm, by size and by which ranks share a host
//!        +--> shell::shared   ranks of one host map each other's segments; nothing is copied twice
//!        +--> shell::links    other hosts: core::schedule says which rank sends what to which, over TCP
//! ```
//! `core` is pure: reductions for every number type, schedules, compression, buckets, signatures of calls.
//! `shell` owns shared memory, sockets and waiting.
//!
//! Every algorithm has a fixed order of summation, and every part of a result is computed by one rank and copied to the
//! others, so all ranks end with the same bits.

mod core;
mod error;
mod shell;
pub mod simulate;

pub use crate::core::buckets::{BucketLimits, Buckets, Filling};
pub use crate::core::compress::{Compression, DecodeError, ParseCompressionError};
pub use crate::core::numbers::element::Element;
pub use crate::core::words::{Algorithm, Kind, Reduction, Signature};
pub use crate::error::CollectiveError;
pub use crate::shell::group::{
    Background, Done, Feedback, Group, GroupAborter, GroupBuffer, GroupEnd, GroupOptions, Handle, HostId,
    PreparedGroup,
};
pub use crate::shell::links::Socket;
pub use crate::shell::shared::{Aborter, Gathered, Prepared, SegmentAddress, SharedBuffer, SharedGroup};
