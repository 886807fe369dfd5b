//! Shared memory, sockets and waiting.

pub(crate) mod group;
pub(crate) mod links;
pub(crate) mod shared;
