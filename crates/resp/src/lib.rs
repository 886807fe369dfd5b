//! The Redis protocol (RESP2 and RESP3) as pure code: bytes in, requests and replies out, and back.
//!
//! ```text
//! bytes from a client ──▶ RequestParser ──▶ arguments        (server)
//!               Reply ──▶ ReplyQueue    ──▶ chunks of bytes  (server)
//! bytes from a server ──▶ ReplyParser   ──▶ Reply            (client)
//! ```
//!
//! Nothing here reads or writes a socket. Both parsers are incremental: they take what has arrived, and say when they
//! need more. A bulk string of [`LARGE`] bytes or more gets a buffer of its own, which the caller fills straight from
//! the socket: such a value is never copied. Nothing is allocated because a peer announced it: buffers grow with what
//! has arrived, at most [`AHEAD`] ahead of it.

#![warn(missing_docs)]

mod error;
mod inline;
mod large;
mod line;
mod queue;
mod reply;
mod reply_parser;
mod request;
mod slot;
mod tensor_types;

pub use error::ProtocolError;
pub use large::{AHEAD, BulkMemory, LARGE, LargeBulk};
pub use queue::{REFERENCED, ReplyQueue};
pub use reply::{Reply, Version};
pub use reply_parser::{ReplyParser, ReplyProgress};
pub use request::{Limits, RequestParser, RequestProgress};
pub use slot::{SLOTS, slot};
pub use tensor_types::{named_type, type_name};
