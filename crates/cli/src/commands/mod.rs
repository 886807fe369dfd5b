//! One module for each command.

pub(crate) mod bench;
pub(crate) mod domain;
pub(crate) mod job;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod relay;
pub(crate) mod simulate;
