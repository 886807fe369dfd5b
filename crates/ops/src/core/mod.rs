//! What needs no clock, thread or socket: matching operations by name, their order, and what is fused.

pub(crate) mod failure;
pub(crate) mod fusion;
pub(crate) mod gathering;
pub(crate) mod leader;
pub(crate) mod local;
pub(crate) mod messages;
pub(crate) mod signature;
pub(crate) mod tuner;
