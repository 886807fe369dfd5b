//! The fabric: how the nodes of a domain find each other, stay connected and communicate.
//!
//! ```text
//!  access files, --connect, mDNS, relays          users: jobs, store, collectives
//!            |  Learned                                   ^ LinkEvent   | Peer::send
//!            v                                            |             v
//!   core::Membership  -- Dial / Accept / Close -->   links (control) --- bulk, streams
//! ```
//! `core` decides which nodes are dialed, which link survives and which node is lost; it is pure. `shell` owns the
//! sockets, files and timers. `security` holds the domain key and what is derived from it.

mod config;
mod core;
mod error;
mod security;
mod shell;

pub use crate::config::{FabricConfig, default_runtime_dir, usual_key_file};
pub use crate::core::{LinkKey, NodeEvent};
pub use crate::error::{FetchError, PublishError, RequestError, SendError, StartError, StreamError};
pub use crate::security::{
    DomainKey, KeyError, NodeCertificate, ParseTokenError, PrivateFileError, RelayToken, keyed_number,
    read_private, service_names, subject_name,
};
pub use crate::shell::{
    Fabric, LinkEvent, NodeWatch, Peer, Published, Relay, RelayConfig, RelayError, StreamKey, StreamSocket,
    Subscription, Unreached,
};
pub use phalanx_wire::bulk::BlobId;
pub use phalanx_wire::frame::FrameKind;
pub use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus};
