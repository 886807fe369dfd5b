//! Recordings of what a pure core was told, and their replay.
//!
//! A core takes `(now, event)` and pushes commands, and nothing else reaches it. So its inputs,
//! written down, are the whole run: [`Recorded`] wraps a core and records what it is fed, and
//! [`Player`] feeds a recording to the same core and compares every decision with the recorded
//! one.
//!
//! ```text
//!   shell ── event ──► Recorded ──► core ──► commands ──► shell
//!                         │                     │
//!                         └──► FILE: (time, event), digest of the commands
//!                                │
//!   phalanx replay ◄── Player ◄──┘
//! ```
//! A recording is bounded: when a file holds [`Limits::segment`] bytes it becomes `FILE.old`,
//! replacing an older one, and a new file begins with a snapshot of the core. A core that cannot
//! be snapshotted keeps the beginning of its recording and stops at the limit with a note.
//!
//! Recording never disturbs the run: if a file cannot be written, a warning says so and the core
//! goes on unrecorded.

mod block;
mod digest;
mod encode;
mod entry;
mod error;
mod player;
mod read;
mod recorded;
mod replay;
#[cfg(test)]
mod tests;
mod write;

pub use digest::Digest;
pub use entry::{CommandDigest, Header};
pub use error::RecordingError;
pub use player::{Comparison, Pending, Player, Step};
pub use read::{Recording, Section, read};
pub use recorded::Recorded;
pub use replay::Replay;
pub use write::{Limits, old_segment};
