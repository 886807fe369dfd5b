//! What is decided without files, sockets and clocks: which names are taken, what is sent, who has a claim.

pub(crate) mod lease;
pub(crate) mod manifest;
pub(crate) mod path;
pub(crate) mod plan;
