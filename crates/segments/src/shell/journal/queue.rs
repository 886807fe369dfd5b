//! What waits for the writer thread, bounded by bytes.

use crate::error::AppendError;
use crate::record::Record;
use crate::shell::snapshot::SnapshotStart;
use crate::{Completion, Position};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a record costs in memory besides its bytes, about.
const OVERHEAD: u64 = 256;

/// A record on its way to the journal.
pub(crate) struct PendingAppend {
    pub(crate) record: Record,
    pub(crate) body_len: u64,
    pub(crate) body_checksum: u32,
    /// Where it was written.
    pub(crate) position: Position,
    pub(crate) done: Completion,
    weight: u64,
}

impl fmt::Debug for PendingAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAppend").field("record", &self.record).finish_non_exhaustive()
    }
}

impl PendingAppend {
    pub(crate) fn new(record: Record, done: Completion) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        record.parts.iter().for_each(|part| hasher.update(part));
        let body_len = record.body_len();
        let unwritten = record.values.iter().filter(|v| !v.is_stored()).map(|v| v.len()).sum::<u64>();
        let weight = body_len.saturating_add(unwritten).saturating_add(OVERHEAD);
        let body_checksum = hasher.finalize();
        Self { record, body_len, body_checksum, position: Position::default(), done, weight }
    }

    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }
}

/// What the writer thread is asked to do.
#[derive(Debug)]
pub(crate) enum Task {
    Append(PendingAppend),
    BeginSnapshot(Sender<Result<SnapshotStart, AppendError>>),
    Probe(Sender<Result<(), AppendError>>),
    Flush(Sender<Result<(), AppendError>>),
}

/// Whether an append waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Wait,
    Reject,
}

/// The tasks of the writer thread, in order.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    limit: u64,
    state: Mutex<QueueState>,
    ready: Condvar,
    room: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    tasks: VecDeque<Task>,
    /// Weight of all appends that are not done.
    in_flight: u64,
    closed: bool,
}

impl TaskQueue {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), ready: Condvar::new(), room: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn append(&self, append: PendingAppend, full: WhenFull) -> Result<(), (Record, AppendError)> {
        let mut state = self.lock();
        // A record that is larger than the limit goes alone.
        let has_room = |state: &QueueState| {
            state.in_flight == 0 || state.in_flight.saturating_add(append.weight) <= self.limit
        };
        if !has_room(&state) && full == WhenFull::Wait {
            let waited = self.room.wait_while(state, |state| !state.closed && !has_room(state));
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err((append.record, AppendError::Closed));
        }
        if !has_room(&state) {
            let error = AppendError::QueueFull { in_flight: state.in_flight, limit: self.limit };
            return Err((append.record, error));
        }
        state.in_flight += append.weight;
        self.push(state, Task::Append(append));
        Ok(())
    }

    /// Adds a task that is no append; `false` when the queue is closed.
    pub(crate) fn ask(&self, task: Task) -> bool {
        let state = self.lock();
        let open = !state.closed;
        if open {
            self.push(state, task);
        }
        open
    }

    fn push(&self, mut state: MutexGuard<'_, QueueState>, task: Task) {
        let was_empty = state.tasks.is_empty();
        state.tasks.push_back(task);
        drop(state);
        if was_empty {
            self.ready.notify_one();
        }
    }

    /// Waits for tasks and takes all; `false` when the queue is closed and empty.
    pub(crate) fn take(&self, tasks: &mut VecDeque<Task>) -> bool {
        let idle = |state: &mut QueueState| state.tasks.is_empty() && !state.closed;
        let state = self.ready.wait_while(self.lock(), idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.tasks, tasks);
        !tasks.is_empty()
    }

    /// Appends of this weight are done.
    pub(crate) fn release(&self, weight: u64) {
        self.lock().in_flight -= weight;
        self.room.notify_all();
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.lock().in_flight
    }

    /// Takes no more tasks.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
        self.room.notify_all();
    }
}
