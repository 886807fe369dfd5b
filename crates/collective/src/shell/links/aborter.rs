//! Aborting a collective from another thread.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Aborts what a rank's links are doing, from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Aborter {
    shared: Arc<AbortState>,
}

#[derive(Debug)]
struct AbortState {
    reason: OnceLock<String>,
    /// Stays readable once there is a reason, which wakes every waiting thread.
    event: OwnedFd,
}

impl Aborter {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { shared: Arc::new(AbortState { reason: OnceLock::new(), event }) })
    }

    /// Makes the current collective, and all later ones, fail for this reason. The first reason counts.
    pub(crate) fn abort(&self, reason: String) {
        if self.shared.reason.set(reason).is_ok()
            && let Err(error) = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes())
        {
            tracing::warn!(%error, "could not wake the links of an aborted group");
        }
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.shared.reason.get().map(String::as_str)
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}
