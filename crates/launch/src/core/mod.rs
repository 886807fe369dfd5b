//! What needs no clock, process or socket.

pub(crate) mod placement;
pub(crate) mod supervisor;
