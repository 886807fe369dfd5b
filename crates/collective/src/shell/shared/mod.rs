//! Collectives of ranks on one host, through shared memory.
//!
//! ```text
//!   prepare -> own Segment (memfd) -> SegmentAddress --delivered by the caller--> connect maps all segments
//!
//!   segment:  | header: progress, calls, reason of an abort | 3 staging slots | buffers |
//!
//!   one step:  write into own memory, add to the own progress word, wait for the words of all ranks   (waiter, group)
//!   one call:  step 1 announces the call, so that all ranks see every difference                      (calls)
//! ```
//! A rank is at most one step ahead of another: a rank that has arrived at step `s + 1` has read everything that was
//! written for step `s`. So data written for step `s` is in slot `s mod 3` and may be overwritten for step `s + 3`. The
//! slot in between serves results that are read one step later still.
//!
//! Peers are trusted to follow the protocol with their data, as threads of one program are, but not with numbers that
//! would index memory: offsets and lengths come from this rank's call, and numbers from peers are checked.

mod abort;
mod all_reduce;
mod buffers;
mod calls;
mod exchange;
mod group;
mod header;
mod join;
mod reduce_shared;
mod segment;
#[cfg(test)]
mod tests;
mod waiter;

pub use abort::Aborter;
pub use buffers::SharedBuffer;
pub use exchange::Gathered;
pub use group::{Prepared, SharedGroup};
pub use segment::SegmentAddress;
