//! A trial of a search as a job.
//!
//! ```text
//!   TrialClient (main node)                      TrialHost (computing node)
//!     submit: order, data by hash,      job        solve: trains from one budget to another, or runs a program
//!             run directory         ─────────►            in a directory of its own
//!     updates                       ◄─ reports ─
//!     take: result, run directory   ◄─ solution ─
//! ```
//! Which candidate is trained how far is decided elsewhere. A trial whose node is lost is repeated by the jobs layer: a
//! training goes on from the newest checkpoint that the node has sent, a program from the run directory that it was ordered
//! with. A trial that is cancelled ends within a step.

mod bundle;
mod client;
mod error;
mod host;
pub mod latency;
mod lines;
mod link;
mod offered;
mod order;
mod program;
mod saved;
mod service;
#[cfg(test)]
mod tests;
mod train;

pub use bundle::BundleError;
pub use client::{TrialClient, TrialTerms, TrialUpdate, TrialUpdates};
pub use error::TrialError;
pub use host::{TrialHost, TrialHostOptions};
pub use order::OrderError;
pub use phalanx_wire::trial::{TrialOrder, TrialPoint, TrialResult, TrialWork};

/// The kind of jobs that train a model; every node solves it.
pub const KIND: &str = "trial";

/// The kind of jobs that run a program; only nodes that allow `exec` solve it.
pub const PROGRAM_KIND: &str = "trial-program";

/// The bytes of a message.
fn encode<T: serde::Serialize>(message: &T) -> Result<bytes::Bytes, phalanx_wire::codec::CodecError> {
    let mut bytes = bytes::BytesMut::new();
    phalanx_wire::codec::encode_into(message, &mut bytes)?;
    Ok(bytes.freeze())
}
