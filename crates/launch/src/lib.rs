//! Starts the ranks of a program, on this machine or on the nodes of a domain, and watches over them.
//!
//! ```text
//!   launch ── core::supervisor: which ranks are started, which end, how it went
//!      ├── local: processes of this machine, a thread each
//!      ├── domain: processes of nodes, a stream each; core::placement: which node runs which rank
//!      └── phalanx_ops::RendezvousServer: where they become ranks, and meet again after a loss
//!   host ── the side of a node: claims cores, runs ranks, sends their output
//! ```

mod core;
mod domain;
mod frames;
mod host;
mod launch;
mod local;
mod output;
mod place;
mod process;

pub use crate::core::placement::{NodeChoice, PlaceWait};
pub use crate::core::supervisor::{ElasticLimits, LaunchFailure, LaunchSize, ProcessExit};
pub use domain::DomainPlace;
pub use host::{PROGRAMS, serve_ranks};
pub use launch::{LaunchControl, LaunchError, LaunchNotice, LaunchPlace, LaunchSpec, LaunchSummary, launch};
