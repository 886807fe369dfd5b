//! The decisions of work distribution, without a clock, sockets or threads.
//!
//! ```text
//!   MainCore                                   WorkerCore
//!     | -- Invite(session, epoch) ----------------> |
//!     | <---------------- Join(kinds, held, done) -- |
//!     | -- Dispatch(offers, acks, cancels, …) -----> |   queue → start → finish
//!     | <---------- Report(started, done, window) -- |
//!     | -- Dispatch(keeps, drops, offers with inputs) -> |   solutions that stay, for other jobs to take
//! ```
//! [`MainCore`] owns the jobs of one main node and decides who may run which. [`WorkerCore`] owns
//! what one computing node holds and decides what it starts. Both take `(now, event)` and push
//! commands; the shell, or the simulator, carries them out.

pub mod bugs;
mod job;
mod main;
mod queue;
mod recorded;
mod table;
mod worker;

pub use job::{DEFAULT_ATTEMPTS, JobSpec, Outcome};
pub use main::{InputAt, MainCommand, MainCore, MainCounts, MainEvent, OfferView, WorkerKey};
pub use worker::{
    BatchId, HandlerEnd, MainKey, Run, RunInput, RunKey, WorkerCommand, WorkerConfig, WorkerCore,
};
