//! Every message and frame that crosses a connection, and nothing else.
//!
//! Plain data with a stable encoding: [`frame`] cuts a byte stream into typed, length-checked
//! frames; the other modules say what stands inside them. Decoding never panics, never reads past
//! its input, and allocates no more than a small multiple of it plus a few mebibytes.

pub mod bulk;
pub mod codec;
pub mod fabric;
pub mod frame;
pub mod handshake;
pub mod infer;
pub mod jobs;
pub mod live;
pub mod measure;
pub mod node;
pub mod python;
pub mod reason;
pub mod relay;
pub mod train;
pub mod usage;

/// The version both ends of a connection must share.
pub const VERSION: u16 = 1;
