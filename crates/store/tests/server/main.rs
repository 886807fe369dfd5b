//! The server on real sockets.

mod common;
mod models;
mod sockets;
