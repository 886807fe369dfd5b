//! What the handle of a journal and its threads share.

use super::queue::TaskQueue;
use crate::core::{Position, Sizes};
use crate::error::AppendError;
use crate::settings::Settings;
use crate::shell::directory::{Directory, DirectoryLock};
use crate::shell::file_error::FileError;
use crate::shell::values::ValueLog;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State of a journal that several threads use.
#[derive(Debug)]
pub(crate) struct JournalShared {
    pub(crate) directory: Arc<Directory>,
    pub(crate) _lock: DirectoryLock,
    pub(crate) settings: Settings,
    pub(crate) values: Arc<ValueLog>,
    pub(crate) queue: TaskQueue,
    health: Mutex<Health>,
    pub(crate) synced: Mutex<SyncState>,
    pub(crate) sizes: Mutex<JournalSizes>,
    pub(crate) snapshot_running: AtomicBool,
}

/// Whether records are taken.
#[derive(Debug, Clone)]
pub(crate) enum Health {
    Good,
    /// A write failed; a probe may succeed.
    Failed(Arc<io::Error>),
    /// The system lost what it had taken. Only a new process can tell what is on disk.
    Lost(Arc<io::Error>),
}

impl Health {
    pub(crate) fn check(&self) -> Result<(), AppendError> {
        match self {
            Self::Good => Ok(()),
            Self::Failed(source) => Err(AppendError::Refused { source: source.clone() }),
            Self::Lost(source) => Err(AppendError::SyncFailed { source: source.clone() }),
        }
    }
}

/// What of the journal is on disk.
#[derive(Debug)]
pub(crate) struct SyncState {
    /// Files with records that may not be on disk, the current one included.
    pub(crate) files: Vec<JournalFile>,
    /// Where the next record goes.
    pub(crate) written: Position,
    /// Everything before is on disk, and so are the values that it refers to.
    pub(crate) synced: Position,
}

/// A journal segment that is open for writing.
#[derive(Debug, Clone)]
pub(crate) struct JournalFile {
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) salt: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JournalSizes {
    /// Bytes of the journal that a recovery would read.
    pub(crate) journal: u64,
    /// Bytes of the newest snapshot.
    pub(crate) snapshot: u64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl JournalShared {
    pub(crate) fn new(
        (directory, lock): (Arc<Directory>, DirectoryLock),
        settings: Settings,
        values: Arc<ValueLog>,
        synced: SyncState,
        sizes: JournalSizes,
    ) -> Self {
        Self {
            directory,
            _lock: lock,
            queue: TaskQueue::new(settings.queue_bytes),
            settings,
            values,
            health: Mutex::new(Health::Good),
            synced: Mutex::new(synced),
            sizes: Mutex::new(sizes),
            snapshot_running: AtomicBool::new(false),
        }
    }

    pub(crate) fn health(&self) -> Health {
        lock(&self.health).clone()
    }

    /// Appends are taken again, unless the system lost something meanwhile.
    pub(crate) fn set_good(&self) {
        let mut health = lock(&self.health);
        if let Health::Failed(_) = *health {
            *health = Health::Good;
        }
    }

    /// Refuses appends until a probe succeeds.
    pub(crate) fn set_failed(&self, error: FileError) -> AppendError {
        let source = Arc::new(error.source);
        let mut health = lock(&self.health);
        if let Health::Good = *health {
            *health = Health::Failed(source.clone());
        }
        AppendError::Io { doing: error.doing, path: error.path, source }
    }

    /// Refuses appends for good.
    pub(crate) fn set_lost(&self, error: FileError) -> AppendError {
        tracing::error!(error = %error.source, file = %error.path.display(), "the disk lost writes");
        let source = Arc::new(error.source);
        *lock(&self.health) = Health::Lost(source.clone());
        AppendError::SyncFailed { source }
    }

    /// Brings everything to disk that was written before this call.
    pub(crate) fn sync(&self) -> Result<(), AppendError> {
        let (files, written) = {
            let state = lock(&self.synced);
            if state.synced == state.written {
                return Ok(());
            }
            (state.files.clone(), state.written)
        };
        // Values first: a record on disk refers to values on disk.
        self.values.sync().map_err(|error| self.set_lost(error))?;
        for file in &files {
            let flushed = file.file.sync_data().map_err(FileError::when("flush", &file.path));
            flushed.map_err(|error| self.set_lost(error))?;
        }
        let mut state = lock(&self.synced);
        state.synced = state.synced.max(written);
        state.files.retain(|file| file.number >= written.segment);
        Ok(())
    }

    pub(crate) fn policy_sizes(&self) -> Sizes {
        let JournalSizes { journal, snapshot } = *lock(&self.sizes);
        Sizes { journal, snapshot, reclaimable: self.values.empty_bytes() }
    }
}
