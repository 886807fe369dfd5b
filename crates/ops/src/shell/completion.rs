//! An operation that is under way, and how it ended.

use super::buffer::OutputTensor;
use super::shared::Shared;
use crate::core::signature::SetId;
use crate::error::OpsError;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What an operation gave, beside what it wrote into the caller's memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The tensors of an all-gather, all-to-all or reduce-scatter, in the order they were given.
    pub outputs: Vec<OutputTensor>,
    /// The set that was made.
    pub set: Option<SetId>,
    /// The rank that joined last.
    pub last_joined: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Completion {
    done: AtomicBool,
    /// Threads that sleep until it is done; changed while the result is locked.
    sleepers: AtomicUsize,
    result: Mutex<Option<Result<Outcome, OpsError>>>,
    changed: Condvar,
}

impl Completion {
    pub(super) fn finish(&self, result: Result<Outcome, OpsError>) {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(result);
        self.done.store(true, Ordering::Release);
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        drop(slot);
        if sleepers > 0 {
            self.changed.notify_all();
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Sleeps until it is done or the time has come.
    pub(super) fn sleep(&self, until: Option<Instant>) {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        while !self.is_done() {
            let Some(until) = until else {
                result = self.changed.wait(result).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(result, left);
            result = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(result);
    }

    fn take(&self) -> Option<Result<Outcome, OpsError>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An operation that is under way. Dropping it does not end the operation.
pub struct OpHandle {
    pub(super) completion: Arc<Completion>,
    pub(super) shared: Arc<Shared>,
}

impl OpHandle {
    /// Whether [`OpHandle::wait`] would return at once.
    pub fn poll(&self) -> bool {
        self.completion.is_done()
    }

    /// Waits until the operation has ended. The calling thread computes meanwhile, if no other thread does.
    ///
    /// # Errors
    /// The operation failed; or it is not done in time, and then the handle may be waited for again.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Outcome, OpsError> {
        let began = Instant::now();
        let until = timeout.and_then(|timeout| began.checked_add(timeout));
        while !self.completion.is_done() {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(OpsError::Timeout { waited: began.elapsed() });
            }
            self.shared.drive_for(&self.completion, until);
            if !self.completion.is_done() {
                self.completion.sleep(until);
            }
        }
        let taken = Err(OpsError::ShutDown { rank: self.shared.place.rank });
        self.completion.take().unwrap_or(taken)
    }
}

impl fmt::Debug for OpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpHandle").field("done", &self.poll()).finish_non_exhaustive()
    }
}
