//! Sockets, threads, timers and files around the cores.

mod asker;
mod batching;
mod computing_node;
mod executor;
mod feed;
mod handler;
mod intake;
mod journal;
mod main_actor;
mod main_node;
mod results;
mod solution;
mod wake;

pub use asker::{AskError, Asker, PastMain, kept_outcome, past_mains};
pub use computing_node::{ComputingNode, NodeError, Stopper};
pub use feed::JobFeed;
pub use handler::{Handler, HandlerError, Handlers, JobContext};
pub use journal::{
    JournalBatch, JournalEntry, JournalError, JournalHistory, JournalPosition, JournaledJob, read_journal,
    read_journal_from,
};
pub use main_node::{JobEnd, JobHandle, MainError, MainNode, MainOptions, Outcomes, Recovered};
pub use results::ResultMemory;
pub use solution::SolutionRef;
