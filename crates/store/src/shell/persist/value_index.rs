//! Which bytes in memory are which value on disk.
//!
//! The keyspace knows bytes only. A large value gets an owner that notes its address here for as long as it is in
//! memory, so that every record and snapshot that names it refers to the one copy on disk.

use crate::core::STORED_APART;
use bytes::Bytes;
use phalanx_segments::StoredValue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Place = (usize, usize);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ValueIndex {
    values: Mutex<BTreeMap<Place, IndexedValue>>,
}

#[derive(Debug)]
struct IndexedValue {
    /// The value of the journal; none for values of a spill.
    stored: Option<StoredValue>,
    /// The bytes of a file.
    is_view: bool,
    /// Views of one value have one address.
    owners: usize,
}

fn place(bytes: &[u8]) -> Place {
    (bytes.as_ptr().addr(), bytes.len())
}

impl ValueIndex {
    fn values(&self) -> MutexGuard<'_, BTreeMap<Place, IndexedValue>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value on disk that these bytes are.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<StoredValue> {
        self.values().get(&place(bytes)).and_then(|value| value.stored.clone())
    }

    /// Whether these bytes are a view of a file.
    pub(crate) fn is_view(&self, bytes: &[u8]) -> bool {
        self.values().get(&place(bytes)).is_some_and(|value| value.is_view)
    }

    /// The same bytes, known as a value of the journal.
    pub(crate) fn keep(self: &Arc<Self>, bytes: Bytes, stored: StoredValue) -> Bytes {
        self.add(bytes, Some(stored), false)
    }

    /// The same bytes, known as a view of a file.
    pub(crate) fn keep_view(self: &Arc<Self>, bytes: Bytes, stored: Option<StoredValue>) -> Bytes {
        self.add(bytes, stored, true)
    }

    fn add(self: &Arc<Self>, bytes: Bytes, stored: Option<StoredValue>, is_view: bool) -> Bytes {
        let place = place(&bytes);
        let mut values = self.values();
        values.entry(place).or_insert(IndexedValue { stored, is_view, owners: 0 }).owners += 1;
        drop(values);
        Bytes::from_owner(KeptBytes { bytes, place, index: self.clone() })
    }

    /// Arguments whose large ones are known as values; `None` when there are none to make known.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        args: &[Bytes],
        make: impl Fn(Bytes) -> StoredValue,
    ) -> Option<Vec<Bytes>> {
        let is_new = |arg: &Bytes| arg.len() >= STORED_APART && self.find(arg).is_none();
        if !args.iter().any(is_new) {
            return None;
        }
        let adopted = args
            .iter()
            .map(|arg| if is_new(arg) { self.keep(arg.clone(), make(arg.clone())) } else { arg.clone() });
        Some(adopted.collect())
    }

    /// All values, each once.
    pub(crate) fn all(&self) -> Vec<StoredValue> {
        self.values().values().filter_map(|value| value.stored.clone()).collect()
    }
}

/// The owner of bytes that are a value on disk.
#[derive(Debug)]
struct KeptBytes {
    bytes: Bytes,
    place: Place,
    index: Arc<ValueIndex>,
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        let mut values = self.index.values();
        let Some(value) = values.get_mut(&self.place) else { return };
        value.owners -= 1;
        let ended = if value.owners == 0 { values.remove(&self.place) } else { None };
        drop(values);
        // Behind the lock: it may give space back to the disk.
        drop(ended);
    }
}
