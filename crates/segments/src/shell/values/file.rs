//! One segment of values.
#![expect(unsafe_code, reason = "maps values where they lie")]

use super::super::file_error::FileError;
use super::stored::ValueSlot;
use crate::core::ValueRef;
use crate::error::ReadError;
use bytes::Bytes;
use memmap2::{Mmap, MmapOptions, UncheckedAdvice};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much is read at a time to verify a value.
const CHECKED_AT_ONCE: usize = 1 << 20;

/// A segment file. Its bytes never change once they are written, and it never gets shorter than its values.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    number: u64,
    file: File,
    path: PathBuf,
    /// Something was written since it was brought to disk.
    dirty: AtomicBool,
    /// The map that views of values are parts of: one for the whole file, since a process can have only so many.
    views: Mutex<Option<Arc<Mmap>>>,
}

impl SegmentFile {
    pub(crate) fn new(number: u64, file: File, path: PathBuf) -> Self {
        Self { number, file, path, dirty: AtomicBool::new(false), views: Mutex::new(None) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn set_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    pub(super) fn sync(&self) -> Result<(), FileError> {
        // Cleared before: what is written meanwhile makes it dirty again.
        self.dirty.store(false, Ordering::Release);
        self.file.sync_data().map_err(FileError::when("flush", &self.path))
    }

    /// Gives the space of a value back to the file system; `false` if it cannot.
    pub(super) fn give_back(&self, offset: u64, len: u64) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, offset, len).is_ok()
    }

    fn failed(&self, value: &ValueRef, source: std::io::Error) -> ReadError {
        ReadError::Io { len: value.len, offset: value.offset, path: self.path.clone(), source }
    }

    fn verified(&self, value: &ValueRef, bytes: Bytes) -> Result<Bytes, ReadError> {
        if crc32fast::hash(&bytes) == value.checksum {
            return Ok(bytes);
        }
        Err(ReadError::Damaged { len: value.len, offset: value.offset, path: self.path.clone() })
    }

    /// Reads a value into memory.
    pub(super) fn read(&self, value: &ValueRef) -> Result<Bytes, ReadError> {
        let Ok(len) = usize::try_from(value.len) else { return Err(ReadError::TooLarge { len: value.len }) };
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, value.offset) {
            Ok(()) => self.verified(value, bytes.into()),
            Err(source) => Err(self.failed(value, source)),
        }
    }

    /// Verifies a value without keeping its bytes.
    pub(super) fn check(&self, value: &ValueRef) -> Result<(), ReadError> {
        let mut buffer = vec![0; CHECKED_AT_ONCE.min(usize::try_from(value.len).unwrap_or(usize::MAX))];
        let mut hasher = crc32fast::Hasher::new();
        let mut done = 0;
        while done < value.len {
            let len = usize::try_from(value.len - done).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..len).unwrap_or_default();
            let read = self.file.read_exact_at(part, value.offset + done);
            read.map_err(|source| self.failed(value, source))?;
            hasher.update(part);
            done += len as u64;
        }
        if hasher.finalize() == value.checksum {
            return Ok(());
        }
        Err(ReadError::Damaged { len: value.len, offset: value.offset, path: self.path.clone() })
    }

    fn view_map(&self) -> MutexGuard<'_, Option<Arc<Mmap>>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value as a part of the map of its file, not verified. `expected` is what the file may grow to.
    pub(super) fn view(
        self: Arc<Self>,
        value: &ValueRef,
        slot: Arc<ValueSlot>,
        expected: u64,
    ) -> Result<Bytes, ReadError> {
        let too_large = || ReadError::TooLarge { len: value.len };
        if value.len == 0 {
            return Ok(Bytes::new());
        }
        let file_len = self.file.metadata().map_err(|source| self.failed(value, source))?.len();
        let end = value.end().filter(|end| *end <= file_len).ok_or_else(|| ReadError::Damaged {
            len: value.len,
            offset: value.offset,
            path: self.path.clone(),
        })?;
        let start = usize::try_from(value.offset).map_err(|_large| too_large())?;
        let end = usize::try_from(end).map_err(|_large| too_large())?;
        let mut views = self.view_map();
        let map = match &*views {
            Some(map) if map.len() >= end => map.clone(),
            _ => {
                let len = end.max(usize::try_from(expected.max(file_len)).unwrap_or(end));
                // SAFETY: only places that were written are read, see `MappedValue` and `map`; the map may be longer
                // than the file, which grows into it.
                let map = unsafe { MmapOptions::new().len(len).map(&self.file) };
                let map = Arc::new(map.map_err(|source| self.failed(value, source))?);
                *views = Some(map.clone());
                map
            }
        };
        drop(views);
        Ok(Bytes::from_owner(ValueView { map, range: start..end, _file: self, _slot: slot }))
    }

    /// Lets go of the memory of views. They are read from the file again when they are used.
    pub(super) fn trim_views(&self) {
        let Some(map) = self.view_map().clone() else { return };
        // SAFETY: the map is of a file and only read. Its pages hold what the file holds, and come back from there.
        let trimmed = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        if let Err(error) = trimmed {
            tracing::debug!(%error, file = %self.path.display(), "could not let go of a map");
        }
    }

    /// Maps a value. The map keeps the file and the value.
    pub(super) fn map(self: Arc<Self>, value: &ValueRef, slot: Arc<ValueSlot>) -> Result<Bytes, ReadError> {
        let Ok(len) = usize::try_from(value.len) else { return Err(ReadError::TooLarge { len: value.len }) };
        if len == 0 {
            return Ok(Bytes::new());
        }
        // A file of another process that was cut would end this one when the map is read.
        let file_len = self.file.metadata().map_err(|source| self.failed(value, source))?.len();
        if value.end().is_none_or(|end| end > file_len) {
            return Err(ReadError::Damaged { len: value.len, offset: value.offset, path: self.path.clone() });
        }
        let mut options = MmapOptions::new();
        let options = options.offset(value.offset).len(len);
        // SAFETY: the range is inside the file. The file is private to this process: it is in a directory of mode
        // 0700 that is locked, or it has no name. This process never writes to a place twice, and cuts or empties only
        // places to which no value refers, while the map holds on to its value.
        let map = unsafe { options.map(&self.file) }.map_err(|source| self.failed(value, source))?;
        let file = self.clone();
        self.verified(value, Bytes::from_owner(MappedValue { map, _file: file, _slot: slot }))
    }
}

/// The owner of mapped bytes.
#[derive(Debug)]
struct MappedValue {
    map: Mmap,
    _file: Arc<SegmentFile>,
    _slot: Arc<ValueSlot>,
}

impl AsRef<[u8]> for MappedValue {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

/// The owner of bytes that are a part of the map of a file.
#[derive(Debug)]
struct ValueView {
    map: Arc<Mmap>,
    range: Range<usize>,
    _file: Arc<SegmentFile>,
    _slot: Arc<ValueSlot>,
}

impl AsRef<[u8]> for ValueView {
    fn as_ref(&self) -> &[u8] {
        self.map.get(self.range.clone()).unwrap_or_default()
    }
}
