//! The tensor store: a server that speaks the Redis protocol, for SmartRedis programs and every Redis tool.
//!
//! [`core`] decides: keys and values, clients and commands, as a pure state machine.
//! `shell` acts: sockets, threads, time. [`Server`] is both together.

#![warn(missing_docs)]

pub mod core;
mod shell;

pub use core::{ShardMember, ShardPlace, ShardPlaceError};
pub use phalanx_segments::Durability;
pub use shell::{
    ModelAnswer, ModelDone, ModelFailure, ModelResult, ModelRunner, PeerAccess, Server, ServerConfig,
    ServerTls, ShardConfig, ShardMembers, StartError, StoreClient, TlsFilesError,
};
