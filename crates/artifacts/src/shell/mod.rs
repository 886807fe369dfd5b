//! Files, sockets and stores around the core.

pub(crate) mod claim;
pub(crate) mod files;
pub(crate) mod here;
pub(crate) mod http;
pub(crate) mod journal;
pub(crate) mod progress;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod send;
pub(crate) mod store;
pub(crate) mod target;
pub(crate) mod tls;
