//! The thread that writes the journal: it takes what waits and writes it in one go.

use super::queue::{PendingAppend, Task};
use super::shared::{Health, JournalFile, JournalShared, lock};
use crate::core::{FileKind, FrameClass, HEADER_LEN, Position, ValueRef};
use crate::error::AppendError;
use crate::settings::Durability;
use crate::shell::directory::{file_name, new_header};
use crate::shell::file_error::FileError;
use crate::shell::frames::{FrameBatch, FrameBody};
use crate::shell::snapshot::SnapshotStart;
use crate::shell::values::PutError;
use crate::shell::write_at::write_all_at;
use std::collections::VecDeque;
use std::sync::Arc;

/// A barrier is written at least this often, so that damage is told from a torn tail.
const BARRIER_EVERY: u64 = 1 << 20;
/// A probe needs this much room, so that it does not succeed in the rest of a page.
const PROBE: &[u8] = &[0; 64 << 10];

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<JournalShared>,
    current: JournalFile,
    /// Where the next record goes in the current file.
    end: u64,
    /// The position that the last barrier named.
    named: Position,
    frames: FrameBatch,
}

/// Closes the queue when the thread ends, however it ends.
#[derive(Debug)]
struct CloseQueue(Arc<JournalShared>);

impl Drop for CloseQueue {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<JournalShared>, current: JournalFile, end: u64) -> Self {
        let named = Position { segment: current.number, offset: 0 };
        Self { shared, current, end, named, frames: FrameBatch::default() }
    }

    pub(crate) fn run(mut self) {
        let _close = CloseQueue(self.shared.clone());
        let mut tasks = VecDeque::new();
        while self.shared.queue.take(&mut tasks) {
            while let Some(task) = tasks.pop_front() {
                self.execute(task, &mut tasks);
            }
        }
        if let Err(error) = self.finish() {
            tracing::warn!(%error, cause = ?error, "the end of a journal may not be on disk");
        }
    }

    fn execute(&mut self, task: Task, tasks: &mut VecDeque<Task>) {
        match task {
            Task::Append(first) => {
                let mut batch = vec![first];
                while let Some(Task::Append(_)) = tasks.front() {
                    let Some(Task::Append(next)) = tasks.pop_front() else { break };
                    batch.push(next);
                }
                self.append(batch);
            }
            // Whoever asked may have stopped to wait.
            Task::BeginSnapshot(reply) => drop(reply.send(self.begin_snapshot())),
            Task::Probe(reply) => drop(reply.send(self.probe())),
            Task::Flush(reply) => drop(reply.send(self.shared.sync())),
        }
    }

    fn append(&mut self, mut batch: Vec<PendingAppend>) {
        let result = self.shared.health().check().and_then(|()| self.write(&mut batch));
        let weight = batch.iter().map(PendingAppend::weight).sum();
        self.frames.clear();
        for append in batch {
            let PendingAppend { record, position, done, .. } = append;
            drop(record);
            done(result.clone().map(|()| position));
        }
        self.shared.queue.release(weight);
    }

    /// Writes a batch: all of it, or nothing that is ever read.
    fn write(&mut self, batch: &mut [PendingAppend]) -> Result<(), AppendError> {
        if self.end >= self.shared.settings.segment_bytes {
            self.rotate()?;
        }
        let every_write = self.shared.settings.durability == Durability::EveryWrite;
        let mut references = Vec::with_capacity(batch.len());
        let mut has_values = false;
        for append in batch.iter() {
            has_values |= !append.record.values.is_empty();
            references.push(self.store_values(append)?);
        }
        if every_write && has_values {
            // Before the record is written: a record on disk refers to values on disk.
            self.shared.values.sync().map_err(|error| self.shared.set_lost(error))?;
        }
        self.frames.clear();
        let synced = lock(&self.shared.synced).synced;
        let here = Position { segment: self.current.number, offset: self.end };
        if synced > self.named && (has_values || is_far(self.named, here)) {
            self.frames.push_barrier(self.current.salt, self.end, synced);
            self.named = synced;
        }
        for (append, references) in batch.iter_mut().zip(references) {
            append.position = Position { segment: here.segment, offset: self.end + self.frames.len() };
            let body = FrameBody {
                kind: append.record.kind,
                parts: &append.record.parts,
                len: append.body_len,
                checksum: append.body_checksum,
            };
            self.frames.push(self.current.salt, self.end, body, references.into_iter());
        }
        self.write_frames()?;
        if every_write { self.sync_current() } else { Ok(()) }
    }

    fn store_values(&self, append: &PendingAppend) -> Result<Vec<ValueRef>, AppendError> {
        let stored = append.record.values.iter().map(|value| value.store());
        stored.collect::<Result<_, _>>().map_err(|error| match error {
            PutError::File(error) => self.shared.set_failed(error),
            // Only a spill has a limit.
            PutError::Full { used, limit } => AppendError::QueueFull { in_flight: used, limit },
        })
    }

    /// Writes the gathered frames to the end of the current file.
    fn write_frames(&mut self) -> Result<(), AppendError> {
        if let Err(source) = self.frames.write(&self.current.file, self.end) {
            self.cut();
            // The barrier may be among what was cut off.
            self.named = Position { segment: self.current.number, offset: 0 };
            return Err(self.shared.set_failed(FileError::when("write", &self.current.path)(source)));
        }
        self.end += self.frames.len();
        lock(&self.shared.synced).written = Position { segment: self.current.number, offset: self.end };
        lock(&self.shared.sizes).journal += self.frames.len();
        Ok(())
    }

    /// Cuts off what a failed write left behind the end. If that fails, a probe does it.
    fn cut(&self) {
        if let Err(error) = self.current.file.set_len(self.end) {
            tracing::warn!(%error, file = %self.current.path.display(), "could not cut a journal");
        }
    }

    fn sync_current(&mut self) -> Result<(), AppendError> {
        if let Err(source) = self.current.file.sync_data() {
            return Err(self.shared.set_lost(FileError::when("flush", &self.current.path)(source)));
        }
        lock(&self.shared.synced).synced = Position { segment: self.current.number, offset: self.end };
        Ok(())
    }

    /// Goes on in a new file.
    fn rotate(&mut self) -> Result<(), AppendError> {
        let before = self.end;
        self.frames.clear();
        self.frames.push_own(self.current.salt, self.end, FrameClass::End, &[]);
        self.write_frames()?;
        if self.shared.settings.durability == Durability::EveryWrite {
            self.sync_current()?;
        }
        let number = self.current.number + 1;
        match create_journal(&self.shared, number) {
            Ok(next) => {
                self.named = Position { segment: number, offset: 0 };
                self.end = HEADER_LEN as u64;
                let mut state = lock(&self.shared.synced);
                state.files.push(next.clone());
                state.written = Position { segment: number, offset: self.end };
                self.current = next;
                Ok(())
            }
            Err(error) => {
                // The file goes on, so its end is not its end.
                self.end = before;
                self.cut();
                let mut state = lock(&self.shared.synced);
                state.written = Position { segment: self.current.number, offset: before };
                state.synced = state.synced.min(state.written);
                drop(state);
                Err(self.shared.set_failed(error))
            }
        }
    }

    /// Begins a new file, so that a snapshot covers all files before it.
    fn begin_snapshot(&mut self) -> Result<SnapshotStart, AppendError> {
        self.shared.health().check()?;
        if self.end > HEADER_LEN as u64 {
            self.rotate()?;
        }
        let covered = lock(&self.shared.sizes).journal;
        let unused = self.shared.values.empty_segments();
        Ok(SnapshotStart { number: self.current.number, covered, unused })
    }

    /// Tries to write after a failure.
    fn probe(&mut self) -> Result<(), AppendError> {
        match self.shared.health() {
            Health::Failed(_) => {}
            health => return health.check(),
        }
        let probed = self.current.file.set_len(self.end).and_then(|()| {
            write_all_at(&self.current.file, self.end, [PROBE])?;
            self.current.file.set_len(self.end)?;
            self.current.file.sync_data()
        });
        match probed {
            Ok(()) => {
                self.shared.set_good();
                Ok(())
            }
            Err(source) => {
                self.cut();
                Err(self.shared.set_failed(FileError::when("write", &self.current.path)(source)))
            }
        }
    }

    /// Brings everything to disk and says so in the journal: from then on any damage is found.
    fn finish(&mut self) -> Result<(), AppendError> {
        self.shared.health().check()?;
        self.shared.sync()?;
        let here = Position { segment: self.current.number, offset: self.end };
        if self.end > HEADER_LEN as u64 && self.named < here {
            self.frames.clear();
            self.frames.push_barrier(self.current.salt, self.end, here);
            self.write_frames()?;
            self.shared.sync()?;
        }
        Ok(())
    }
}

fn is_far(named: Position, here: Position) -> bool {
    named.segment != here.segment || here.offset.saturating_sub(named.offset) >= BARRIER_EVERY
}

/// Makes the journal segment with this number.
pub(crate) fn create_journal(shared: &JournalShared, number: u64) -> Result<JournalFile, FileError> {
    let name = file_name(FileKind::Journal, number);
    let path = shared.directory.path_of(&name);
    let synced = lock(&shared.synced).synced;
    let header = new_header(FileKind::Journal, number, synced).map_err(FileError::when("make", &path))?;
    let file = Arc::new(shared.directory.create(&name, &header)?);
    Ok(JournalFile { number, file, path, salt: header.salt })
}
