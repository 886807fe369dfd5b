//! Collectives: what a group of ranks computes together.
//!
//! ```text
//!   Group::all_reduce(..)                 one rank's end of a group, of one epoch
//!        |  core::select: which algorithm, by size and by who shares a host
//!        +--> shell::shared   ranks of one host: everybody maps everybody's segment, nothing is copied twice
//!        +--> shell::links    other hosts: core::schedule says who sends what to whom, over TCP
//! ```
//! `core` is pure: reductions of every kind of number, schedules, compression, buckets, what calls must agree on.
//! `shell` owns shared memory, sockets and waiting.
//!
//! Every algorithm has a fixed order of summation, and every part of a result is computed by one rank and copied to
//! the others, so all ranks end with the same bits.

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
