//! Rebuilds the keyspace from a directory.

use super::value_index::ValueIndex;
use crate::core::{Keyspace, decode_changes};
use crate::shell::error::StartError;
use bytes::Bytes;
use phalanx_segments::{Durability, Journal, Note, Settings, recover};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Progress is logged this often.
const LOG_EVERY: Duration = Duration::from_secs(2);

/// A directory that is open, whose records are in the keyspace.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) journal: Journal,
    pub(crate) index: Arc<ValueIndex>,
}

/// Opens a directory, reads everything into the keyspace, and begins to write. Blocks on the disk.
///
/// Large values stay on disk; their bytes are read when a client wants them. All of them are verified now.
///
/// # Errors
/// Another process uses the directory, it is damaged, or another version wrote it.
pub(crate) fn open(
    directory: &Path,
    durability: Durability,
    keyspace: &mut Keyspace,
) -> Result<Opened, StartError> {
    let failed = |source| StartError::Persist { directory: directory.to_owned(), source: Box::new(source) };
    // The bound of what waits to be written is the connections': the lock of the keyspace must not wait.
    let settings = Settings { durability, queue_bytes: u64::MAX, ..Settings::default() };
    let mut recovery = recover(directory, settings).map_err(failed)?;
    for note in recovery.notes() {
        log_note(note);
    }
    let index = Arc::new(ValueIndex::default());
    let mut progress = Progress::new();
    let mut records = 0u64;
    while let Some(record) = recovery.next_record().map_err(failed)? {
        let view = |stored: &phalanx_segments::StoredValue| match stored.view() {
            Ok(bytes) => Ok(index.keep_view(bytes, Some(stored.clone()))),
            Err(source) => Err(StartError::PersistedValue { source: Box::new(source) }),
        };
        let values: Vec<Bytes> = record.values.iter().map(view).collect::<Result<_, _>>()?;
        let changes = decode_changes(record.kind, &record.body, &values, keyspace.seed());
        let changes = changes.map_err(|source| StartError::PersistedRecord {
            record: records,
            directory: directory.to_owned(),
            source,
        })?;
        for change in &changes {
            keyspace.apply(change).map_err(|source| StartError::PersistedStream {
                record: records,
                directory: directory.to_owned(),
                source,
            })?;
        }
        records += 1;
        progress.log(|| tracing::info!(records, "reading what is on disk"));
    }
    let values = index.all();
    for (done, value) in values.iter().enumerate() {
        value.check().map_err(|source| StartError::PersistedValue { source: Box::new(source) })?;
        progress.log(|| tracing::info!(done, of = values.len(), "verifying values on disk"));
    }
    // All large values are views of files, and not in memory.
    for candidate in keyspace.spill_candidates(0, u64::MAX) {
        let away = candidate.parts.iter().map(|part| part.len() as u64).sum();
        keyspace.on_spilled(&candidate, &|_| None, away, true);
    }
    let took = progress.began.elapsed();
    tracing::info!(
        records,
        values = values.len(),
        keys = keyspace.keys_held(),
        ?took,
        "read what was on disk"
    );
    let journal = recovery.start().map_err(failed)?;
    Ok(Opened { journal, index })
}

fn log_note(note: &Note) {
    match note {
        Note::TornTail { path, offset, bytes } => {
            tracing::warn!(offset, bytes, file = %path.display(), "cut off what was being written at the end");
        }
        Note::SegmentBehindTornTail { path, bytes } => {
            tracing::warn!(bytes, file = %path.display(), "removed a file behind an unfinished record");
        }
        Note::UnfinishedFile { path } | Note::CoveredFile { path } => {
            tracing::debug!(file = %path.display(), "removed a file that is not needed");
        }
    }
}

struct Progress {
    began: Instant,
    logged: Instant,
}

impl Progress {
    fn new() -> Self {
        let began = Instant::now();
        Self { began, logged: began }
    }

    fn log(&mut self, log: impl FnOnce()) {
        if self.logged.elapsed() >= LOG_EVERY {
            self.logged = Instant::now();
            log();
        }
    }
}
