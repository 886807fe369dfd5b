//! Runs a formation: one rank in this process, or on nodes, a driver and the ranks that nodes hold.
//!
//! ```text
//!   drive ──► driver ◄── messages ──► rank::serve (every node) ──► worker: replicas and stages
//!                └─► Book (the run directory), Events
//! ```
//! [`phalanx_protocol`] decides; here are sockets, threads and clocks.

mod driver;
mod error;
mod in_process;
pub mod live;
pub mod rank;

pub use driver::{DriverOptions, drive};
pub use error::{DistributedError, shortfall_hint};
pub use in_process::Trainer;
