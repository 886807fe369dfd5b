//! Whole nodes: one that solves jobs, trains and is measured, embedded in a program or as processes of this machine.
//!
//! ```text
//!   Node          a node of this process: jobs (phalanx-jobs), trials (phalanx-trial), training (phalanx-rank), measuring
//!   NodeStore     the store that a node serves (phalanx-store)
//!   ThreadNodes   several of them, each on a thread of its own
//!   LocalNodes    node processes on this machine, of any program that has `node` as a command
//!   Background    a runtime on a thread, for programs that have none
//! ```

mod background;
mod error;
mod local;
mod node;
mod program;
mod store;
mod threads;

pub use background::Background;
pub use error::NodesError;
pub use local::{LocalNodes, LocalSpec};
pub use node::{Node, NodeOptions, machine};
pub use program::{NODE_PROGRAM, Program, node_program};
pub use store::{NodeStore, NodeStoreError, NodeStoreSpec};
pub use threads::{ThreadNodes, ThreadSpec};

use phalanx_types::{DomainName, IdError};

/// A number nobody else has: the standard library seeds this hasher from the operating system.
pub fn random() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id())
}

/// A domain nobody else is in.
///
/// # Errors
/// None that can happen; the name is checked as any other.
pub fn private_domain() -> Result<DomainName, IdError> {
    DomainName::new(format!("local-{:08x}", random() >> 32))
}
