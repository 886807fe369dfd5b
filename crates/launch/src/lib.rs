//! Starts the ranks of a program on this machine and watches over them.
//!
//! ```text
//!   launch ── core::supervisor: who is started, who ends, how it went
//!      ├── local: processes of this machine, a thread each; their output, line by line
//!      └── phalanx_ops::RendezvousServer: where they become ranks, and meet again after a loss
//! ```
//! Only `local` knows that ranks are processes of this machine: ranks on nodes of a domain would be another module
//! that starts what [`StartOrder`] says and reports the same events.

mod core;
mod launch;
mod local;
mod output;

pub use crate::core::supervisor::{ElasticLimits, LaunchFailure, LaunchSize, ProcessExit};
pub use launch::{LaunchControl, LaunchError, LaunchSpec, LaunchSummary, launch};
pub use local::StartOrder;
