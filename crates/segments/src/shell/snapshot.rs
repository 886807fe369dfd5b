//! Snapshots: all records that rebuild the caller's table, written while the journal goes on.

use super::directory::{UNFINISHED_SNAPSHOT, file_name, new_header};
use super::file_error::FileError;
use super::frames::{FrameBatch, FrameBody};
use super::journal::{JournalShared, MOST_VALUES, lock};
use super::values::PutError;
use crate::core::{FileHeader, FileKind, FrameClass, HEADER_LEN, Position, ValueRef};
use crate::error::{AppendError, SnapshotError};
use crate::record::Record;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

/// Records are written when this many bytes have gathered.
const GATHER: u64 = 4 << 20;
const GATHER_HEADS: usize = 256 << 10;

/// Where a snapshot begins.
#[derive(Debug)]
pub(crate) struct SnapshotStart {
    /// The first journal segment that it does not cover.
    pub(crate) number: u64,
    /// Bytes of the journal that it covers.
    pub(crate) covered: u64,
    /// Value segments that only older records refer to.
    pub(crate) unused: Vec<u64>,
}

/// What a snapshot took and freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotReport {
    pub records: u64,
    /// Bytes of the snapshot, without the values that it refers to.
    pub bytes: u64,
    /// Bytes of journal and value segments that were deleted.
    pub freed_bytes: u64,
}

/// A snapshot whose place in the journal is marked.
#[derive(Debug)]
pub struct PendingSnapshot {
    shared: Arc<JournalShared>,
    start: Receiver<Result<SnapshotStart, AppendError>>,
}

impl PendingSnapshot {
    pub(crate) fn new(
        shared: Arc<JournalShared>,
        start: Receiver<Result<SnapshotStart, AppendError>>,
    ) -> Result<Self, SnapshotError> {
        if shared.snapshot_running.swap(true, Ordering::AcqRel) {
            return Err(SnapshotError::Running);
        }
        Ok(Self { shared, start })
    }

    /// Writes the records beside the newest snapshot, replaces it, and deletes what no recovery needs any more.
    ///
    /// Blocks on the disk; values that are in a segment are not written again.
    ///
    /// # Errors
    /// The system refuses a write. Then the snapshot before stays the newest.
    pub fn write(self, records: impl IntoIterator<Item = Record>) -> Result<SnapshotReport, SnapshotError> {
        let start = self.start.recv().unwrap_or(Err(AppendError::Closed)).map_err(SnapshotError::Journal)?;
        match self.write_file(start.number, records) {
            Ok((records, bytes)) => {
                let freed_bytes = self.clean_up(&start, bytes);
                Ok(SnapshotReport { records, bytes, freed_bytes })
            }
            Err(error) => {
                // An unfinished file is removed by the next snapshot or recovery, too.
                drop(self.shared.directory.remove(UNFINISHED_SNAPSHOT));
                Err(error)
            }
        }
    }

    fn write_file(
        &self,
        number: u64,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(u64, u64), SnapshotError> {
        let directory = &self.shared.directory;
        let path = directory.path_of(UNFINISHED_SNAPSHOT);
        // An earlier one may have left it.
        drop(directory.remove(UNFINISHED_SNAPSHOT));
        let header = new_header(FileKind::Snapshot, number, Position::default())
            .map_err(FileError::when("make", &path))?;
        let file = directory.create(UNFINISHED_SNAPSHOT, &header)?;
        let mut writer =
            SnapshotWriter { file, header, end: HEADER_LEN as u64, batch: FrameBatch::default() };
        let mut count = 0_u64;
        for record in records {
            let refs = stored(&record)?;
            writer.push(&record, refs).map_err(FileError::when("write", &path))?;
            count += 1;
        }
        writer.finish(count).map_err(FileError::when("write", &path))?;
        // Compaction may have moved values to places that are not on disk yet.
        let synced = self.shared.values.sync().map_err(|error| self.shared.set_lost(error));
        synced.map_err(SnapshotError::Journal)?;
        writer.file.sync_all().map_err(FileError::when("flush", &path))?;
        directory.rename(UNFINISHED_SNAPSHOT, &file_name(FileKind::Snapshot, number))?;
        Ok((count, writer.end))
    }

    /// Deletes what the new snapshot covers. What cannot be deleted is left to the next recovery.
    fn clean_up(&self, start: &SnapshotStart, bytes: u64) -> u64 {
        let mut freed = 0;
        for kind in [FileKind::Snapshot, FileKind::Journal] {
            match delete_before(&self.shared, kind, start.number) {
                Ok(deleted) => freed += deleted,
                Err(error) => {
                    tracing::warn!(%error, cause = ?error, "could not delete files that a snapshot covers");
                }
            }
        }
        match self.shared.values.delete(&start.unused) {
            Ok(deleted) => freed += deleted,
            Err(error) => {
                tracing::warn!(error = %error.source, file = %error.path.display(), "could not delete a segment");
            }
        }
        lock(&self.shared.synced).files.retain(|file| file.number >= start.number);
        let mut sizes = lock(&self.shared.sizes);
        sizes.journal = sizes.journal.saturating_sub(start.covered);
        sizes.snapshot = bytes;
        freed
    }
}

impl Drop for PendingSnapshot {
    fn drop(&mut self) {
        self.shared.snapshot_running.store(false, Ordering::Release);
    }
}

fn stored(record: &Record) -> Result<Vec<ValueRef>, SnapshotError> {
    let count = record.values.len();
    if count > MOST_VALUES {
        return Err(SnapshotError::TooManyValues { count, limit: MOST_VALUES });
    }
    let stored = record.values.iter().map(|value| value.store());
    stored.collect::<Result<_, _>>().map_err(|error| match error {
        PutError::File(error) => error.into(),
        // Only a spill has a limit.
        PutError::Full { used, limit } => {
            SnapshotError::Journal(AppendError::QueueFull { in_flight: used, limit })
        }
    })
}

fn delete_before(
    shared: &JournalShared,
    kind: FileKind,
    number: u64,
) -> Result<u64, crate::error::OpenError> {
    let mut freed = 0;
    for old in shared.directory.numbers(kind)?.into_iter().filter(|old| *old < number) {
        let name = file_name(kind, old);
        freed += shared.directory.open_file(&name)?.len;
        shared.directory.remove(&name)?;
    }
    Ok(freed)
}

#[derive(Debug)]
struct SnapshotWriter {
    file: File,
    header: FileHeader,
    end: u64,
    batch: FrameBatch,
}

impl SnapshotWriter {
    fn push(&mut self, record: &Record, refs: Vec<ValueRef>) -> io::Result<()> {
        let mut hasher = crc32fast::Hasher::new();
        record.parts.iter().for_each(|part| hasher.update(part));
        let (kind, parts, len) = (record.kind, record.parts.as_slice(), record.body_len());
        let body = FrameBody { kind, parts, len, checksum: hasher.finalize() };
        self.batch.push(self.header.salt, self.end, body, refs.into_iter());
        if self.batch.len() >= GATHER || self.batch.memory() >= GATHER_HEADS { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        self.batch.write(&self.file, self.end)?;
        self.end += self.batch.len();
        self.batch.clear();
        Ok(())
    }

    /// Ends the file with the number of its records: a snapshot without it is not whole.
    fn finish(&mut self, count: u64) -> io::Result<()> {
        self.batch.push_own(self.header.salt, self.end, FrameClass::End, &count.to_le_bytes());
        self.write()
    }
}
