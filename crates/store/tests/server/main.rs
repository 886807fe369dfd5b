//! The server on real sockets.

mod common;
mod models;
mod persist;
mod shards;
mod sockets;
