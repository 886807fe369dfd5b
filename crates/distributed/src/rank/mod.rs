//! A rank of a formation: a node's side of a run.
//!
//! ```text
//!   driver ──messages──► service ──orders──► worker (a thread) ──► session: one group, from its first step to its end
//!          ◄─────────────        ◄─reports──    part: what this node holds of the model
//!                                               group_setup, acquire_state: how it comes into a group
//! ```
//! Data-parallel replicas are ranks that hold the whole model, stages hold a part of it; both run the same session.

mod acquire_state;
mod connector;
mod control_lane;
mod copies;
mod exchange;
mod files;
mod frame;
mod group_setup;
mod live_query;
mod mailbox;
mod outlet;
mod part;
mod part_frames;
mod pipe;
mod report_log;
mod rings;
mod service;
mod session;
mod spans;
mod streams;
#[cfg(test)]
mod tests;
mod waiting;
mod worker;

pub(crate) use mailbox::Mailbox;
pub(crate) use outlet::{Outlet, Recorder};
pub(crate) use part::{Part, names_of};
pub use service::serve;
pub(crate) use session::{Ended, Session};
pub(crate) use streams::take_part;
pub(crate) use worker::{Report, Worker};
