//! Large values in segment files, each written once.
//!
//! A log of a journal has named files. What a segment lost all references to is deleted after the next snapshot, since
//! an older snapshot and the journal may still name it. A log of a spill has files without names, and gives space back
//! as soon as a value is freed.
//!
//! Locks are taken in this order: `active`, the place of a value, `state`.

mod compact;
mod file;
mod stored;

pub use compact::CompactError;
pub(crate) use compact::Compactor;
pub(crate) use file::SegmentFile;
pub use stored::StoredValue;
pub(crate) use stored::ValueSlot;

use super::directory::{Directory, file_name, new_header};
use super::file_error::FileError;
use super::write_at::write_all_at;
use crate::core::{FileKind, HEADER_LEN, LiveTable, Position, ValueRef};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use stored::ValuePlace;

/// With the least segment this leaves a full one far above the bound, in spite of its header.
const MOST_COMPACT_PERCENT: u64 = 75;
const LEAST_SEGMENT: u64 = 4096;

/// Where the files of a log are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// They have names and survive the process.
    Named { compact_percent: u64 },
    /// They end with the process, and their values together stay under a limit.
    Nameless { limit: u64 },
}

/// A log of values.
#[derive(Debug)]
pub(crate) struct ValueLog {
    directory: Arc<Directory>,
    kind: LogKind,
    segment_bytes: u64,
    /// The segment to which values are added. Held while a value is written.
    active: Mutex<Option<ActiveSegment>>,
    state: Mutex<LogState>,
    /// Something may have to be compacted.
    wake_compactor: Condvar,
}

#[derive(Debug)]
struct ActiveSegment {
    file: Arc<SegmentFile>,
    end: u64,
}

#[derive(Debug, Default)]
struct LogState {
    files: BTreeMap<u64, Arc<SegmentFile>>,
    live: LiveTable,
    /// The values of all segments, by segment and offset.
    values: BTreeMap<(u64, u64), Weak<ValueSlot>>,
    /// Space that a spill holds in each segment.
    held: BTreeMap<u64, u64>,
    next_number: u64,
    /// Compaction waits until a value was written, since its last write failed.
    paused: bool,
    stop: bool,
}

/// Why a value was not written.
#[derive(Debug)]
pub(crate) enum PutError {
    Full { used: u64, limit: u64 },
    File(FileError),
}

impl From<FileError> for PutError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// A panicking thread leaves what these locks guard consistent: nothing between two changes panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ValueLog {
    pub(crate) fn new(directory: Arc<Directory>, kind: LogKind, segment_bytes: u64) -> Self {
        let state = Mutex::new(LogState { next_number: 1, ..LogState::default() });
        // A segment that is full of used values must not look little used, or it is compacted for ever.
        let kind = match kind {
            LogKind::Named { compact_percent } => {
                LogKind::Named { compact_percent: compact_percent.min(MOST_COMPACT_PERCENT) }
            }
            LogKind::Nameless { .. } => kind,
        };
        let segment_bytes = segment_bytes.max(LEAST_SEGMENT);
        Self {
            directory,
            kind,
            segment_bytes,
            active: Mutex::new(None),
            state,
            wake_compactor: Condvar::new(),
        }
    }

    /// Values are aligned, so that a map of a tensor is; in a spill to whole pages, which can be given back.
    fn aligned(&self, len: u64) -> u64 {
        let alignment = match self.kind {
            LogKind::Named { .. } => 64,
            LogKind::Nameless { .. } => 4096,
        };
        len.saturating_add(alignment - 1) / alignment * alignment
    }

    /// What a value takes of its segment. A value without bytes has a place of its own all the same.
    fn space(&self, len: u64) -> u64 {
        self.aligned(len.max(1))
    }

    /// Takes over a segment of an earlier process. Nothing is added to it.
    pub(crate) fn adopt_file(&self, file: SegmentFile, len: u64) {
        let mut state = lock(&self.state);
        let number = file.number();
        state.live.on_created(number, len);
        state.live.on_sealed(number);
        state.next_number = state.next_number.max(number + 1);
        state.files.insert(number, Arc::new(file));
    }

    /// The value at a place that a record names; `None` when there is no such place.
    pub(crate) fn adopt_value(self: &Arc<Self>, reference: ValueRef) -> Option<StoredValue> {
        let end = reference.end()?;
        let mut state = lock(&self.state);
        let file = state.files.get(&reference.segment)?.clone();
        if reference.offset < HEADER_LEN as u64 || end > state.live.len(reference.segment) {
            return None;
        }
        let key = (reference.segment, reference.offset);
        let known = state.values.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known {
            // Dropped behind the lock if it is another value, since dropping takes the lock.
            drop(state);
            return known.is(&reference).then(|| StoredValue::from_slot(known));
        }
        let slot = Arc::new(ValueSlot::on_disk(self.clone(), reference, file));
        // A value of this place that is just being dropped leaves the count to the new one.
        if state.values.insert(key, Arc::downgrade(&slot)).is_none() {
            state.live.on_live(reference.segment, self.space(reference.len), end);
        }
        Some(StoredValue::from_slot(slot))
    }

    /// Makes sure that a value is in a segment, and tells where.
    pub(crate) fn store(&self, slot: &Arc<ValueSlot>) -> Result<ValueRef, PutError> {
        let mut active = lock(&self.active);
        let parts = match &*slot.place() {
            ValuePlace::Disk { file, offset } => return Ok(slot.reference_at(file.number(), *offset)),
            ValuePlace::Memory(parts) => parts.clone(),
        };
        let (file, offset) = self.write(&mut active, slot.len(), &parts)?;
        self.move_to(slot, file, offset);
        Ok(slot.reference_at(active.as_ref().map_or(0, |a| a.file.number()), offset))
    }

    /// Writes a value to the end of the active segment.
    fn write(
        &self,
        active: &mut Option<ActiveSegment>,
        len: u64,
        parts: &[impl AsRef<[u8]>],
    ) -> Result<(Arc<SegmentFile>, u64), PutError> {
        self.check_limit(len)?;
        if active.as_ref().is_some_and(|a| a.end >= self.segment_bytes) {
            self.seal(active);
        }
        let current = match active {
            Some(current) => current,
            None => active.insert(self.create()?),
        };
        let offset = self.aligned(current.end);
        let written = write_all_at(current.file.file(), offset, parts.iter().map(AsRef::as_ref));
        if let Err(source) = written {
            // Give back what was written of it. Nothing refers to bytes behind the end, so no map reaches there.
            if let Err(error) = current.file.file().set_len(current.end) {
                tracing::warn!(%error, file = %current.file.path().display(), "could not cut a segment");
            }
            return Err(FileError::when("write", current.file.path())(source).into());
        }
        current.file.set_dirty();
        current.end = offset + len.max(1);
        Ok((current.file.clone(), offset))
    }

    fn check_limit(&self, len: u64) -> Result<(), PutError> {
        let LogKind::Nameless { limit } = self.kind else { return Ok(()) };
        let used = self.held_bytes();
        let fits = used.checked_add(self.space(len)).is_some_and(|sum| sum <= limit);
        if fits { Ok(()) } else { Err(PutError::Full { used, limit }) }
    }

    fn seal(&self, active: &mut Option<ActiveSegment>) {
        if let Some(old) = active.take() {
            let mut state = lock(&self.state);
            state.live.on_sealed(old.file.number());
            if let LogKind::Nameless { .. } = self.kind {
                forget_if_empty(&mut state, old.file.number());
            }
        }
    }

    fn create(&self) -> Result<ActiveSegment, FileError> {
        let number = lock(&self.state).next_number;
        let (file, path, end) = match self.kind {
            LogKind::Named { .. } => {
                let name = file_name(FileKind::Values, number);
                let path = self.directory.path_of(&name);
                let header = new_header(FileKind::Values, number, Position::default())
                    .map_err(FileError::when("make", &path))?;
                (self.directory.create(&name, &header)?, path, HEADER_LEN as u64)
            }
            LogKind::Nameless { .. } => {
                (self.directory.create_nameless()?, self.directory.path().to_owned(), 0)
            }
        };
        let file = Arc::new(SegmentFile::new(number, file, path));
        let mut state = lock(&self.state);
        state.next_number = number + 1;
        state.live.on_created(number, end);
        state.files.insert(number, file.clone());
        Ok(ActiveSegment { file, end })
    }

    /// Notes that a value lies at a place from now on.
    fn move_to(&self, slot: &Arc<ValueSlot>, file: Arc<SegmentFile>, offset: u64) {
        let key = (file.number(), offset);
        let mut place = slot.place();
        let mut state = lock(&self.state);
        state.values.insert(key, Arc::downgrade(slot));
        state.live.on_live(key.0, self.space(slot.len()), offset + slot.len());
        if let LogKind::Nameless { .. } = self.kind {
            *state.held.entry(key.0).or_default() += self.space(slot.len());
        }
        if std::mem::take(&mut state.paused) {
            self.wake_compactor.notify_one();
        }
        let old = std::mem::replace(&mut *place, ValuePlace::Disk { file, offset });
        if let ValuePlace::Disk { file, offset } = &old
            && state.values.remove(&(file.number(), *offset)).is_some()
        {
            state.live.on_freed(file.number(), self.space(slot.len()));
        }
        drop((state, place));
        // Behind the locks: what owns the bytes may be another value, whose end takes them.
        drop(old);
    }

    /// A value is dropped.
    fn on_dropped(&self, slot: *const ValueSlot, len: u64, file: &SegmentFile, offset: u64) {
        let number = file.number();
        let nameless = matches!(self.kind, LogKind::Nameless { .. });
        let given_back = nameless && file.give_back(offset, self.space(len));
        let mut state = lock(&self.state);
        // Another value may have taken its place during recovery.
        if state.values.get(&(number, offset)).is_none_or(|w| !std::ptr::eq(w.as_ptr(), slot)) {
            return;
        }
        state.values.remove(&(number, offset));
        state.live.on_freed(number, self.space(len));
        match self.kind {
            LogKind::Named { compact_percent } => {
                if state.live.is_little_used(number, self.segment_bytes, compact_percent) {
                    self.wake_compactor.notify_one();
                }
            }
            LogKind::Nameless { .. } => {
                if given_back && let Some(held) = state.held.get_mut(&number) {
                    *held = held.saturating_sub(self.space(len));
                }
                forget_if_empty(&mut state, number);
            }
        }
    }

    /// Brings all written values to disk.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        let files: Vec<_> = lock(&self.state).files.values().filter(|f| f.is_dirty()).cloned().collect();
        files.iter().try_for_each(|file| file.sync())
    }

    /// Brings all values to disk, also those that an earlier process wrote.
    pub(crate) fn sync_all(&self) -> Result<(), FileError> {
        lock(&self.state).files.values().for_each(|file| file.set_dirty());
        self.sync()
    }

    /// Segments that nothing refers to. They may be deleted after a snapshot that begins now.
    pub(crate) fn empty_segments(&self) -> Vec<u64> {
        lock(&self.state).live.empty().collect()
    }

    /// Deletes segments that [`ValueLog::empty_segments`] named; returns how many bytes that freed.
    pub(crate) fn delete(&self, segments: &[u64]) -> Result<u64, FileError> {
        let mut freed = 0;
        for number in segments {
            self.directory.remove(&file_name(FileKind::Values, *number))?;
            let mut state = lock(&self.state);
            freed += state.live.len(*number);
            state.live.on_deleted(*number);
            state.files.remove(number);
        }
        Ok(freed)
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        lock(&self.state).live.live_bytes()
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        lock(&self.state).live.file_bytes()
    }

    pub(crate) fn empty_bytes(&self) -> u64 {
        lock(&self.state).live.empty_bytes()
    }

    /// Space that a spill holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        lock(&self.state).held.values().sum()
    }

    /// What a segment grows to, about.
    pub(super) fn expected_segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Lets go of the memory that views of values take.
    pub(crate) fn trim_views(&self) {
        let files: Vec<_> = lock(&self.state).files.values().cloned().collect();
        files.iter().for_each(|file| file.trim_views());
    }

    /// How many segments there are.
    pub(crate) fn segments(&self) -> usize {
        lock(&self.state).files.len()
    }
}

/// Closes a segment of a spill that holds nothing: without a name that deletes it.
fn forget_if_empty(state: &mut LogState, number: u64) {
    if state.live.is_empty(number) {
        state.live.on_deleted(number);
        state.held.remove(&number);
        state.files.remove(&number);
    }
}

/// A value that is not in a segment yet.
pub(crate) fn new_value(log: &Arc<ValueLog>, parts: Vec<Bytes>) -> StoredValue {
    StoredValue::from_slot(Arc::new(ValueSlot::in_memory(log.clone(), parts)))
}
