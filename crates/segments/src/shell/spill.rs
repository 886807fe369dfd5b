//! Values that do not fit in memory, in files that end with the process.

use super::directory::Directory;
use super::values::{LogKind, PutError, StoredValue, ValueLog, new_value};
use crate::error::SpillError;
use crate::settings::SpillSettings;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

/// A spill of one process.
///
/// Its files have no names, so nothing is left behind when the process dies. Calls block on the disk.
#[derive(Debug, Clone)]
pub struct Spill {
    log: Arc<ValueLog>,
}

impl Spill {
    /// Opens a spill in an existing directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(directory: &Path, settings: &SpillSettings) -> Result<Self, SpillError> {
        let kind = LogKind::Nameless { limit: settings.limit_bytes };
        let directory = Arc::new(Directory::open(directory)?);
        Ok(Self { log: Arc::new(ValueLog::new(directory, kind, settings.segment_bytes)) })
    }

    /// Writes a value, given in parts. Its space is freed when the last clone of the result is dropped.
    ///
    /// # Errors
    /// The values together would pass the limit, or the system refuses the write.
    pub fn put(&self, parts: impl IntoIterator<Item = Bytes>) -> Result<StoredValue, SpillError> {
        let value = new_value(&self.log, parts.into_iter().collect());
        match value.store() {
            Ok(_) => Ok(value),
            Err(PutError::Full { used, limit }) => Err(SpillError::Full { len: value.len(), used, limit }),
            Err(PutError::File(error)) => Err(error.into()),
        }
    }

    /// Bytes that count towards the limit: all values, each rounded up to whole pages.
    pub fn used_bytes(&self) -> u64 {
        self.log.held_bytes()
    }

    /// Lets go of the memory that views of values take; they are read again when they are used.
    pub fn trim_views(&self) {
        self.log.trim_views();
    }

    /// How many files there are.
    pub fn segments(&self) -> usize {
        self.log.segments()
    }
}
