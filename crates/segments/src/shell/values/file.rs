//! One segment of values.
#![expect(unsafe_code, reason = "maps values where they lie")]

use super::super::file_error::FileError;
use super::stored::ValueSlot;
use crate::core::ValueRef;
use crate::error::ReadError;
use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A segment file. Its bytes never change once they are written, and it never gets shorter than its values.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    number: u64,
    file: File,
    path: PathBuf,
    /// Something was written since it was brought to disk.
    dirty: AtomicBool,
}

impl SegmentFile {
    pub(crate) fn new(number: u64, file: File, path: PathBuf) -> Self {
        Self { number, file, path, dirty: AtomicBool::new(false) }
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
