//! Work distribution: main nodes ask, computing nodes solve, and no job is lost.
//!
//! [`MainNode`] submits jobs and hears how each ended; [`ComputingNode`] solves them with
//! [`Handlers`] of its own. [`core`] holds the decisions, `shell` carries them out.

pub mod builtin;
pub mod core;
mod job_ref;
mod shell;

pub use crate::core::{JobSpec, MainCounts, Outcome};
pub use job_ref::JobRef;
pub use shell::{
    AskError, Asker, ComputingNode, Handler, HandlerError, Handlers, JobContext, JobEnd, JobFeed, JobHandle,
    JournalBatch, JournalEntry, JournalError, JournalHistory, JournalPosition, JournaledJob, MainError,
    MainNode, MainOptions, NodeError, Outcomes, PastMain, Recovered, ResultMemory, SolutionRef, Stopper,
    kept_outcome, past_mains, read_journal, read_journal_from,
};
