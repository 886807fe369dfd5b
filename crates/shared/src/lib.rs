//! Memory that processes of one host share, so that large values are written once and read where they lie.
//!
//! ```text
//!   owner                                   another process
//!   take(len) -> Region, written once
//!   Region::freeze -> Bytes
//!   locate(&bytes) -> SharedPlace  ──────►  Segment::open(place) -> view(offset, len, guard) -> Bytes
//!                                  ◄──────  the guard is dropped: "I have let go"
//!   the last Bytes are dropped: the segment is used again
//! ```
//! A *segment* is a `memfd`: it has no name in any file system, and the kernel frees it when the last process that maps
//! it is gone, however that process ends. Segments are sealed against shrinking, so that reading one never ends in a
//! signal. Their pages are touched when they are made and they are used again, since writing into fresh pages is several
//! times slower.
//!
//! The table of segments ([`locate`]) makes sharing invisible to the layers between: bytes that happen to lie in a
//! segment can be lent to another process, whatever type they travel in.
//!
//! Must not decide when memory may be written again: only dropping the last `Bytes` of a region does that. A borrower
//! that may still read after a link is lost is the reason for [`retire`].

mod counters;
mod kept;
mod pool;
mod segment;
mod table;

pub use counters::{CounterView, Counters};
pub use kept::KeptSegments;
pub use pool::{Region, copy_together, raise_file_limit, take, take_kept, trim_kept};
pub use segment::{Segment, Slot, Token};
pub use table::{Located, known, locate, retire, retire_all};

/// Values shorter than this are not worth a segment.
pub const WORTH_SHARING: usize = 128 << 10;
/// What begins in a region begins at a multiple of this.
pub const ALIGN: usize = 64;
