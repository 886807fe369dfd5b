//! Moves the values of little used segments together, so that the segments can be deleted.

use super::stored::{ValuePlace, ValueSlot};
use super::{LogKind, PutError, ValueLog, lock};
use crate::error::ReadError;
use phalanx_types::Class;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;

/// Why a segment was not compacted. Its values are where they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The system refused to write a copy of a value.
    #[error("could not write a value")]
    Write(#[source] std::io::Error),
    /// A value cannot be read.
    #[error("could not read a value")]
    Read(#[source] ReadError),
}

impl CompactError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        match self {
            Self::Write(_) => Class::Retry,
            Self::Read(error) => error.class(),
        }
    }
}

impl ValueLog {
    /// Compacts the segment that is worth it most; `false` when none is.
    pub(crate) fn compact_one(&self) -> Result<bool, CompactError> {
        let LogKind::Named { compact_percent } = self.kind else { return Ok(false) };
        let (number, slots) = {
            let state = lock(&self.state);
            let Some(number) = state.live.to_compact(self.segment_bytes, compact_percent) else {
                return Ok(false);
            };
            let slots: Vec<Arc<ValueSlot>> = state
                .values
                .range((number, 0)..=(number, u64::MAX))
                .filter_map(|(_, w)| Weak::upgrade(w))
                .collect();
            (number, slots)
        };
        for slot in slots {
            if let Err(error) = self.relocate(number, &slot) {
                if let CompactError::Read(_) = error {
                    lock(&self.state).live.on_stuck(number);
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Copies a value from this segment to the active one.
    fn relocate(&self, from: u64, slot: &Arc<ValueSlot>) -> Result<(), CompactError> {
        let Ok((file, reference)) = slot.disk_place() else { return Ok(()) };
        let bytes = file.map(&reference, slot.clone()).map_err(CompactError::Read)?;
        let mut active = lock(&self.active);
        if !matches!(&*slot.place(), ValuePlace::Disk { file, .. } if file.number() == from) {
            return Ok(());
        }
        match self.write(&mut active, slot.len(), &[bytes]) {
            Ok((file, offset)) => self.move_to(slot, file, offset),
            Err(PutError::File(error)) => return Err(CompactError::Write(error.source)),
            Err(PutError::Full { .. }) => {
                return Err(CompactError::Write(std::io::ErrorKind::StorageFull.into()));
            }
        }
        Ok(())
    }

    /// Waits until there is something to compact; `false` when the log is closed.
    fn wait_for_work(&self, percent: u64) -> bool {
        let state = lock(&self.state);
        let idle = |state: &mut super::LogState| {
            !state.stop && (state.paused || state.live.to_compact(self.segment_bytes, percent).is_none())
        };
        let state = self.wake_compactor.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        !state.stop
    }
}

/// The thread that compacts a log.
#[derive(Debug)]
pub(crate) struct Compactor {
    log: Arc<ValueLog>,
    thread: Option<JoinHandle<()>>,
}

impl Compactor {
    pub(crate) fn start(log: Arc<ValueLog>) -> std::io::Result<Self> {
        let LogKind::Named { compact_percent } = log.kind else { return Ok(Self { log, thread: None }) };
        lock(&log.state).stop = false;
        let own = log.clone();
        let thread = std::thread::Builder::new().name("segments-compact".to_owned()).spawn(move || {
            while own.wait_for_work(compact_percent) {
                if let Err(error) = own.compact_one() {
                    tracing::warn!(%error, cause = ?error, "could not compact a segment");
                    if let CompactError::Write(_) = error {
                        lock(&own.state).paused = true;
                    }
                }
            }
        })?;
        Ok(Self { log, thread: Some(thread) })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        lock(&self.log.state).stop = true;
        self.log.wake_compactor.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread that compacts segments panicked");
        }
    }
}
