//! One replica of a model among others: a node's side of a run.
//!
//! ```text
//!   driver ──messages──► service ──orders──► worker (a thread) ──► session: one group, from level to broken
//!          ◄─────────────        ◄─reports──                          step:  gradients exchanged, all or nothing
//!                                                                     round: some steps alone, then what was learned
//!                                  └─► stage: the same for a node that holds one part of the model
//! ```

mod asks;
mod catch_up;
mod control;
mod exchange;
mod files;
mod lanes;
mod level;
mod report_log;
mod round;
mod service;
mod session;
mod spans;
mod stage;
mod streams;
mod together;
mod waiting;
mod worker;

pub use service::serve;
pub(crate) use stage::names_of;
pub(crate) use streams::take_part;
