//! The `python` handler: calls Python functions in worker processes, if the node's owner allows it.
//!
//! ```text
//!   compute thread ── calls, a few ahead ──► worker process        one Unix socket, packets
//!                  ◄──────────── answers ──                        large data in shared memory
//! ```
//! A worker takes one call at a time from its socket. The node keeps both ends, so it can take back what the worker
//! has not taken: when a call lasts long, when it is cancelled, and when the worker dies. Only the call that a worker
//! was at is lost with it. Workers are kept for the next calls, and end with their node.

mod lane;
mod lent;
mod packets;
mod protocol;
mod segments;
mod stand_in;
mod worker;

pub use stand_in::{STAND_IN_ARGUMENTS, stand_in_worker};

use crate::{Handler, HandlerError, JobContext, JobFeed};
use lane::Lane;
use phalanx_types::Parcel;
use std::sync::{Mutex, PoisonError};
use worker::Worker;

/// What `--allow-python` runs when it names no program.
pub const DEFAULT_PROGRAM: &str = "python3";

/// Calls Python functions in worker processes; the payload is a
/// [`PythonCall`](phalanx_wire::python::PythonCall).
#[derive(Debug, Default)]
pub struct Python {
    command: Vec<String>,
    idle: Mutex<Vec<Worker>>,
}

impl Python {
    /// Workers are `program -m phalanx.worker`.
    pub fn new(program: &str) -> Self {
        Self::with_command([program, "-m", "phalanx.worker"].map(str::to_owned).to_vec())
    }

    /// Workers are this command.
    pub fn with_command(command: Vec<String>) -> Self {
        Self { command, idle: Mutex::default() }
    }

    /// Puts a program before the command of every worker, for example one that ties it to the node's life.
    #[must_use]
    pub fn wrapped(mut self, wrapper: Vec<String>) -> Self {
        self.command.splice(0..0, wrapper);
        self
    }

    /// Starts one worker, so that a program that is not there is known at once.
    ///
    /// # Errors
    /// It cannot be started, or is no worker.
    pub fn check(&self) -> std::io::Result<()> {
        let worker = self.worker()?;
        self.give_back(worker);
        Ok(())
    }

    fn worker(&self) -> std::io::Result<Worker> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Worker::start(&self.command), Ok)
    }

    fn give_back(&self, worker: Worker) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
}

impl Handler for Python {
    fn solve(&self, _job: &JobContext) -> Result<Parcel, HandlerError> {
        Err(HandlerError::failed("calls of Python functions come in batches"))
    }

    fn solve_batch(&self, jobs: &JobFeed<'_>) {
        Lane::new(self, jobs).run();
    }

    fn tidy(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is broken is found out with its next call.
        idle.iter_mut().for_each(|worker| drop(worker.tidy()));
    }
}
