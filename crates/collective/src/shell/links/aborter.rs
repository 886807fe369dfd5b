//! Ending a collective from outside.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Ends what a rank's links are doing, from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Aborter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reason: OnceLock<String>,
    /// Readable for ever once there is a reason: wakes whoever waits.
    event: OwnedFd,
}

impl Aborter {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { shared: Arc::new(Shared { reason: OnceLock::new(), event }) })
    }

    /// Makes the collective under way, and all later ones, fail for this reason. The first reason counts.
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
