//! What needs no clock, process or socket.

pub(crate) mod supervisor;
