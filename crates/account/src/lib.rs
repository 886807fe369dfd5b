//! One account per node: jobs, training runs and whatever comes next take cores and memory from it.
//!
//! ```text
//!   training service ── try_claim, wait_for ──►  NodeAccount  ◄── jobs(): what jobs may use, what they do use ── jobs
//!                                                    └──► uses(): node status, `phalanx nodes`
//! ```
//! The sum of all uses never exceeds the capacity of the node, and claims are served in order of arrival.
//! [`core::Account`] decides, without threads or clocks; [`NodeAccount`] is the handle that the services of a node share.

pub mod core;
mod shared;

pub use phalanx_wire::usage::{Holder, NodeUse, Shortage};
pub use shared::{ClaimGuard, JobsAccess, NodeAccount, WaitGuard};
