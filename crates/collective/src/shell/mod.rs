//! Shared memory, sockets and waiting.

#[cfg_attr(not(test), expect(dead_code, reason = "groups of several hosts use it"))]
pub(crate) mod links;
pub(crate) mod shared;
