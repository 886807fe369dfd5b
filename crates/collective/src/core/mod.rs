//! What needs no clock, thread or socket.

#[cfg_attr(not(test), expect(dead_code, reason = "groups reduce by it"))]
pub(crate) mod adasum;
pub(crate) mod buckets;
#[cfg_attr(not(test), expect(dead_code, reason = "links between hosts use it"))]
pub(crate) mod compress;
pub(crate) mod numbers;
pub(crate) mod parts;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "groups of several hosts use it"))]
pub(crate) mod schedule;
#[cfg_attr(not(test), expect(dead_code, reason = "groups of several hosts use it"))]
pub(crate) mod select;
pub(crate) mod words;
