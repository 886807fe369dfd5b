//! A rank of a formation: a node's side of a run, and the whole of a run in one process.
//!
//! ```text
//!   driver ──messages──► service ──orders──► worker (a thread) ──► session: one group, from its first step to its end
//!          ◄─────────────        ◄─reports──    part: what this node holds of the model
//!                                               group_setup, acquire_state: how it comes into a group
//!   Trainer (in_process): a formation of one rank, which reports to its own records
//! ```
//! Data-parallel replicas are ranks that hold the whole model, stages hold a part of it; both run the same session.
//! [`phalanx_protocol`] decides; here are sockets, threads and clocks.

mod acquire_state;
mod budget;
mod connector;
mod control_lane;
mod copies;
mod data_roots;
mod error;
mod exchange;
mod files;
mod frame;
mod group_setup;
mod in_process;
mod live_query;
mod mailbox;
mod outlet;
mod part;
mod part_frames;
mod pipe;
mod refusal;
mod rings;
mod run_files;
mod service;
mod session;
mod spans;
mod streams;
mod sync;
#[cfg(test)]
mod tests;
mod waiting;
mod worker;

pub use budget::longest_file;
pub use data_roots::DataRoots;
pub use error::{FileProblem, RankError};
pub use files::{FileCache, FileHash, FileHashes, WantedFile};
pub use in_process::Trainer;
pub use part::names_of;
pub use refusal::fault_in;
pub use run_files::{FilesOfRun, MOST_FILES, bring_all, files_of, parse_of_peer};
pub use service::{Offer, serve};
pub use streams::take_part;
