//! The journal: records in order, with references to large values.

mod flusher;
mod queue;
mod shared;
mod writer;

pub(crate) use shared::{JournalFile, JournalShared, JournalSizes, SyncState, lock};
pub(crate) use writer::create_journal;

use super::snapshot::PendingSnapshot;
use super::values::{CompactError, Compactor, StoredValue, new_value};
use crate::core::{Position, SnapshotReason, snapshot_due};
use crate::error::{AppendError, SnapshotError};
use crate::record::Record;
use crate::settings::Durability;
use bytes::Bytes;
use flusher::Flusher;
use queue::{PendingAppend, Task, WhenFull};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use writer::Writer;

/// Called once with the outcome of an append, on the thread of the journal, in the order of the records.
/// It must not block or panic.
pub type Completion = Box<dyn FnOnce(Result<Position, AppendError>) + Send>;

/// A record can refer to this many values.
pub(crate) const MOST_VALUES: usize = u16::MAX as usize;

/// A journal that is open for writing. Dropping it writes what waits and brings it to disk.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<JournalShared>,
    writer: Option<JoinHandle<()>>,
    // Dropped behind the writer.
    _flusher: Option<Flusher>,
    _compactor: Compactor,
}

/// A record that was not taken. Its completion is not called.
#[derive(Debug, thiserror::Error)]
#[error("record was not taken")]
pub struct Rejected {
    pub record: Record,
    #[source]
    pub reason: AppendError,
}

/// Sizes of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalStatus {
    /// Bytes of records and values that wait to be written.
    pub in_flight_bytes: u64,
    /// Bytes of the journal that a recovery would read.
    pub journal_bytes: u64,
    /// Bytes of the newest snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of values that are referred to, each rounded up to 64.
    pub value_bytes: u64,
    /// Bytes of all files with values.
    pub value_file_bytes: u64,
    /// Bytes of files with values that the next snapshot deletes.
    pub reclaimable_bytes: u64,
    /// Everything before is on disk.
    pub synced: Position,
}

impl Journal {
    pub(crate) fn start(shared: Arc<JournalShared>, current: JournalFile, end: u64) -> io::Result<Self> {
        let compactor = Compactor::start(shared.values.clone())?;
        let flusher = match shared.settings.durability {
            Durability::EverySecond => Some(Flusher::start(shared.clone())?),
            Durability::EveryWrite | Durability::Never => None,
        };
        let writer = Writer::new(shared.clone(), current, end);
        let thread = std::thread::Builder::new().name("segments-journal".to_owned());
        let writer = thread.spawn(move || writer.run())?;
        Ok(Self { shared, writer: Some(writer), _flusher: flusher, _compactor: compactor })
    }

    /// A large value for records of this journal. It is written with the first record that refers to it.
    pub fn value(&self, parts: impl IntoIterator<Item = Bytes>) -> StoredValue {
        new_value(&self.shared.values, parts.into_iter().collect())
    }

    /// Appends a record. Waits while too much is in flight.
    ///
    /// # Errors
    /// The journal refuses records, and `done` is not called.
    pub fn append(&self, record: Record, done: Completion) -> Result<(), Rejected> {
        self.push(record, done, WhenFull::Wait)
    }

    /// Appends a record unless too much is in flight.
    ///
    /// # Errors
    /// There is no room, or the journal refuses records, and `done` is not called.
    pub fn try_append(&self, record: Record, done: Completion) -> Result<(), Rejected> {
        self.push(record, done, WhenFull::Reject)
    }

    fn push(&self, record: Record, done: Completion, full: WhenFull) -> Result<(), Rejected> {
        let count = record.values.len();
        if count > MOST_VALUES {
            return Err(Rejected {
                record,
                reason: AppendError::TooManyValues { count, limit: MOST_VALUES },
            });
        }
        if let Err(reason) = self.shared.health().check() {
            return Err(Rejected { record, reason });
        }
        let pushed = self.shared.queue.append(PendingAppend::new(record, done), full);
        pushed.map_err(|(record, reason)| Rejected { record, reason })
    }

    /// Appends a record and waits until it is acknowledged.
    ///
    /// # Errors
    /// It was not appended.
    pub fn append_and_wait(&self, record: Record) -> Result<Position, AppendError> {
        let (reply, answer) = channel();
        let done = Box::new(move |result| drop(reply.send(result)));
        self.append(record, done).map_err(|rejected| rejected.reason)?;
        answer.recv().unwrap_or(Err(AppendError::Closed))
    }

    /// Tries to write after a failed write; when it succeeds, records are taken again.
    ///
    /// # Errors
    /// The system refuses to write still, or it lost writes.
    pub fn probe(&self) -> Result<(), AppendError> {
        self.ask(Task::Probe)?
    }

    /// Brings everything that was appended before to disk, whatever the durability.
    ///
    /// # Errors
    /// The system could not.
    pub fn flush(&self) -> Result<(), AppendError> {
        self.ask(Task::Flush)?
    }

    fn ask<T>(&self, task: impl FnOnce(Sender<T>) -> Task) -> Result<T, AppendError> {
        let (reply, answer) = channel();
        if !self.shared.queue.ask(task(reply)) {
            return Err(AppendError::Closed);
        }
        answer.recv().map_err(|_closed| AppendError::Closed)
    }

    /// Why a snapshot should be taken now, if it should.
    pub fn snapshot_due(&self) -> Option<SnapshotReason> {
        if self.shared.snapshot_running.load(Ordering::Acquire) {
            return None;
        }
        snapshot_due(&self.shared.settings.snapshots, self.shared.policy_sizes())
    }

    /// Marks the place in the journal up to which a snapshot reaches. Does not wait.
    ///
    /// The caller's table must be what all records appended before this call make of it, and nothing may be appended
    /// until the caller has copied its references. The records are written by [`PendingSnapshot::write`] while the
    /// journal goes on.
    ///
    /// # Errors
    /// A snapshot is being written already, or the journal is closed.
    pub fn begin_snapshot(&self) -> Result<PendingSnapshot, SnapshotError> {
        let (reply, start) = channel();
        let pending = PendingSnapshot::new(self.shared.clone(), start)?;
        if self.shared.queue.ask(Task::BeginSnapshot(reply)) {
            return Ok(pending);
        }
        Err(SnapshotError::Journal(AppendError::Closed))
    }

    /// Sizes at this moment.
    pub fn status(&self) -> JournalStatus {
        let sizes = self.shared.policy_sizes();
        JournalStatus {
            in_flight_bytes: self.shared.queue.in_flight(),
            journal_bytes: sizes.journal,
            snapshot_bytes: sizes.snapshot,
            value_bytes: self.shared.values.live_bytes(),
            value_file_bytes: self.shared.values.file_bytes(),
            reclaimable_bytes: sizes.reclaimable,
            synced: lock(&self.shared.synced).synced,
        }
    }

    /// Lets go of the memory that views of values take; they are read again when they are used.
    pub fn trim_views(&self) {
        self.shared.values.trim_views();
    }

    /// Compacts value segments until none is worth it; returns how many. A background thread does the same, one by
    /// one, whenever a segment has become little used.
    ///
    /// # Errors
    /// A value cannot be read or written.
    pub fn compact(&self) -> Result<u64, CompactError> {
        let mut compacted = 0;
        while self.shared.values.compact_one()? {
            compacted += 1;
        }
        Ok(compacted)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.close();
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::warn!("the thread that writes a journal panicked");
        }
    }
}
