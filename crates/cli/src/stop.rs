//! Ctrl-C and the signal that `kill` sends.

use crate::failure::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both ways of asking a process to stop.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(Failure::infrastructure)?,
            terminate: signal(SignalKind::terminate()).map_err(Failure::infrastructure)?,
        })
    }

    /// Returns when the process is asked to stop; may be awaited again for the next time.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
