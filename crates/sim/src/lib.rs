//! Discrete-event simulation of whole clusters over the real cores.
//!
//! One thread, virtual time, one seed: the same seed gives the same run, byte for byte. A run has
//! a chaos phase with injected faults and a heal phase without; invariants are checked after
//! every event, and a violation names the seed that replays it. Nothing here reads a clock, opens
//! a socket or draws randomness that the seed does not decide.

mod dice;
mod event_queue;
pub mod jobs;
pub mod runs;
pub mod streams;
mod trace;
#[cfg(feature = "train")]
pub mod train;
