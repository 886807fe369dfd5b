use super::file::SegmentFile;
use super::{PutError, ValueLog, lock};
use crate::core::ValueRef;
use crate::error::ReadError;
use bytes::{Bytes, BytesMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A large value of a journal or a spill.
///
/// Clones are the same value. Its space is freed when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct StoredValue {
    slot: Arc<ValueSlot>,
}

impl StoredValue {
    pub(crate) fn from_slot(slot: Arc<ValueSlot>) -> Self {
        Self { slot }
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        self.slot.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.slot.len == 0
    }

    /// Where it lies; `None` while it waits to be written. Compaction may move it later.
    pub fn reference(&self) -> Option<ValueRef> {
        match &*self.slot.place() {
            ValuePlace::Memory(_) => None,
            ValuePlace::Disk { file, offset } => Some(self.slot.reference_at(file.number(), *offset)),
        }
    }

    /// Whether it is in a segment, so that its bytes may be dropped from memory.
    pub fn is_stored(&self) -> bool {
        matches!(&*self.slot.place(), ValuePlace::Disk { .. })
    }

    /// Reads the value into memory and verifies its checksum. Blocks on the disk.
    ///
    /// # Errors
    /// The segment cannot be read or is damaged.
    pub fn read(&self) -> Result<Bytes, ReadError> {
        match self.slot.disk_place() {
            Ok((file, reference)) => file.read(&reference),
            Err(parts) => Ok(joined(&parts)),
        }
    }

    /// Maps the value and verifies its checksum. Blocks on the disk.
    ///
    /// The bytes are those of the page cache, which the system may drop and read again. They keep the value's space.
    ///
    /// # Errors
    /// The segment cannot be mapped or is damaged.
    pub fn map(&self) -> Result<Bytes, ReadError> {
        match self.slot.disk_place() {
            Ok((file, reference)) => file.map(&reference, self.slot.clone()),
            Err(parts) => Ok(joined(&parts)),
        }
    }

    /// The value as a part of the map of its file. Does not wait for the disk: its bytes are read when they are used,
    /// and nothing verifies them; see [`Self::check`].
    ///
    /// # Errors
    /// The segment cannot be mapped.
    pub fn view(&self) -> Result<Bytes, ReadError> {
        match self.slot.disk_place() {
            Ok((file, reference)) => {
                file.view(&reference, self.slot.clone(), self.slot.log.expected_segment_bytes())
            }
            Err(parts) => Ok(joined(&parts)),
        }
    }

    /// Verifies the checksum. Blocks on the disk.
    ///
    /// # Errors
    /// The segment cannot be read or is damaged.
    pub fn check(&self) -> Result<(), ReadError> {
        match self.slot.disk_place() {
            Ok((file, reference)) => file.check(&reference),
            Err(_in_memory) => Ok(()),
        }
    }

    /// Writes the value unless it is in a segment, and tells where it is.
    pub(crate) fn store(&self) -> Result<ValueRef, PutError> {
        self.slot.log.store(&self.slot)
    }
}

fn joined(parts: &[Bytes]) -> Bytes {
    if let [whole] = parts {
        return whole.clone();
    }
    let mut bytes = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.freeze()
}

/// What all clones of a value share.
#[derive(Debug)]
pub(crate) struct ValueSlot {
    log: Arc<ValueLog>,
    len: u64,
    checksum: u32,
    place: Mutex<ValuePlace>,
}

#[derive(Debug)]
pub(super) enum ValuePlace {
    /// Not written yet.
    Memory(Vec<Bytes>),
    Disk {
        file: Arc<SegmentFile>,
        offset: u64,
    },
}

impl ValueSlot {
    pub(super) fn in_memory(log: Arc<ValueLog>, parts: Vec<Bytes>) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        parts.iter().for_each(|part| hasher.update(part));
        let len = parts.iter().map(|part| part.len() as u64).sum();
        Self { log, len, checksum: hasher.finalize(), place: Mutex::new(ValuePlace::Memory(parts)) }
    }

    pub(super) fn on_disk(log: Arc<ValueLog>, reference: ValueRef, file: Arc<SegmentFile>) -> Self {
        let place = Mutex::new(ValuePlace::Disk { file, offset: reference.offset });
        Self { log, len: reference.len, checksum: reference.checksum, place }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn place(&self) -> MutexGuard<'_, ValuePlace> {
        lock(&self.place)
    }

    pub(super) fn reference_at(&self, segment: u64, offset: u64) -> ValueRef {
        ValueRef { segment, offset, len: self.len, checksum: self.checksum }
    }

    /// Whether the value is the one that a reference to its place describes.
    pub(super) fn is(&self, reference: &ValueRef) -> bool {
        (self.len, self.checksum) == (reference.len, reference.checksum)
    }

    /// The segment and the place in it, or the parts in memory.
    pub(super) fn disk_place(&self) -> Result<(Arc<SegmentFile>, ValueRef), Vec<Bytes>> {
        match &*self.place() {
            ValuePlace::Memory(parts) => Err(parts.clone()),
            ValuePlace::Disk { file, offset } => {
                Ok((file.clone(), self.reference_at(file.number(), *offset)))
            }
        }
    }
}

impl Drop for ValueSlot {
    fn drop(&mut self) {
        let slot = std::ptr::from_ref(self);
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let ValuePlace::Disk { file, offset } = place {
            self.log.on_dropped(slot, self.len, file, *offset);
        }
    }
}
