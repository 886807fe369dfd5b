//! Every message and frame that crosses a connection, and nothing else.
//!
//! Plain data with a stable encoding: [`frame`] cuts a byte stream into typed, length-checked
//! frames; most other modules say what stands inside them. What ranks of a group send each other
//! without frames is in [`vote`], [`ballot`], [`stage_frame`] and [`state_frame`]. Decoding never panics, never reads past
//! its input, and allocates no more than a small multiple of it plus a few mebibytes.

pub mod ballot;
pub mod bulk;
pub mod codec;
pub mod detail;
pub mod fabric;
mod fields;
pub mod frame;
pub mod group_end;
pub mod handshake;
pub mod infer;
pub mod jobs;
pub mod launch;
pub mod live;
pub mod measure;
pub mod node;
pub mod python;
pub mod reason;
pub mod relay;
pub mod stage_frame;
pub mod state_frame;
pub mod train;
pub mod train_reason;
pub mod trial;
pub mod usage;
pub mod vote;

/// The version both ends of a connection must share.
pub const VERSION: u16 = 1;
