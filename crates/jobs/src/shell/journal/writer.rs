//! Writing a journal.

use super::record::{Header, Record, put};
use super::{JournalError, JournalHistory, history, lock};
use crate::shell::main_node::unix_millis;
use bytes::BytesMut;
use phalanx_types::{Epoch, SessionId};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Records are written once they pass this many bytes, whether or not somebody waits for them.
const GATHER: usize = 1 << 20;

/// A journal open for writing, by one main node at a time.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Arc<File>,
    buffer: BytesMut,
    /// The time that was recorded last, in milliseconds since 1970.
    clock: u64,
    unsynced: bool,
    failed: Option<JournalError>,
}

/// Payloads and solutions are private to their user; journals of earlier versions may be open to others.
fn make_private(file: &File) -> std::io::Result<()> {
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(mode & 0o700))?;
    }
    Ok(())
}

impl Journal {
    /// Opens or makes a journal, cuts off a torn tail, and begins the next life of its session.
    pub(crate) fn open(path: &Path, new_session: SessionId) -> Result<(Self, JournalHistory), JournalError> {
        let failed =
            |doing: &'static str| move |source| JournalError::Io { doing, path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(failed("open"))?;
        make_private(&file).map_err(failed("protect"))?;
        lock(&file, path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let header = Header { session: new_session };
        let mut past = if header.is_unfinished(&bytes) {
            // New, or killed before its first record: nothing was promised yet.
            file.set_len(0).map_err(failed("write"))?;
            file.seek(SeekFrom::Start(0)).map_err(failed("write"))?;
            file.write_all(&header.to_bytes()).map_err(failed("write"))?;
            history(path, &header.to_bytes())?
        } else {
            history(path, &bytes)?
        };
        if past.torn_bytes > 0 {
            let whole = bytes.len() as u64 - past.torn_bytes;
            tracing::warn!(bytes = past.torn_bytes, journal = %path.display(), "cut a torn record off the end");
            file.set_len(whole).map_err(failed("cut"))?;
        }
        file.seek(SeekFrom::End(0)).map_err(failed("open"))?;
        past.epoch = Epoch(past.epoch.0 + 1);
        let mut journal = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            buffer: BytesMut::new(),
            clock: 0,
            unsynced: false,
            failed: None,
        };
        journal.add(&Record::Opened { epoch: past.epoch });
        journal.write()?;
        Ok((journal, past))
    }

    /// Adds a record to what the next [`Journal::write`] writes. When much has gathered it is
    /// written at once; if that fails, the next [`Journal::write`] says so.
    pub(crate) fn add(&mut self, record: &Record) {
        // Records that are written together were made together.
        if self.buffer.is_empty() {
            let unix_ms = unix_millis();
            if unix_ms != std::mem::replace(&mut self.clock, unix_ms) {
                put(&Record::Clock { unix_ms }, &mut self.buffer);
            }
        }
        put(record, &mut self.buffer);
        if self.buffer.len() > GATHER && self.failed.is_none() {
            self.failed = self.write().err();
        }
    }

    /// Hands everything added to the operating system: from here on it survives this process.
    pub(crate) fn write(&mut self) -> Result<(), JournalError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = (&*self.file).write_all(&self.buffer);
        self.buffer.clear();
        if self.buffer.capacity() > 2 * GATHER {
            self.buffer = BytesMut::new();
        }
        self.unsynced = true;
        written.map_err(|source| JournalError::Io { doing: "write", path: self.path.clone(), source })
    }

    /// The file, when something in it may not survive the machine yet.
    pub(crate) fn take_unsynced(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.unsynced).then(|| self.file.clone())
    }
}
