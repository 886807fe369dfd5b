//! Which bytes in memory are which value on disk.
//!
//! The keyspace knows bytes only. A large value gets an owner that notes its address here for as long as it is in
//! memory, so that every record and snapshot that names it refers to the one copy on disk.

use crate::core::STORED_APART;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_segments::StoredValue;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Place = (usize, usize);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ValueIndex {
    values: Mutex<BTreeMap<Place, IndexedValue>>,
    /// How many of them are views of files.
    views: AtomicUsize,
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
        let value = values.entry(place).or_insert_with(|| {
            self.views.fetch_add(usize::from(is_view), Ordering::Relaxed);
            IndexedValue { stored, is_view, owners: 0 }
        });
        value.owners += 1;
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

    /// What of a reply lies in files: parts of one value that follow each other count as one value.
    pub(crate) fn views_in(&self, reply: &Reply) -> ViewsRead {
        let mut read = ViewsRead::default();
        // Most stores have none, and most replies are not worth the lock.
        if self.views.load(Ordering::Relaxed) > 0 && has_bulk(reply) {
            let values = self.values();
            let mut last = None;
            each_bulk(reply, &mut |bytes| {
                let view = place_of_view(&values, bytes);
                if view.is_some() {
                    read.bytes += bytes.len() as u64;
                    read.values += u64::from(view != last);
                }
                last = view;
            });
        }
        read
    }

    /// All values, each once.
    pub(crate) fn all(&self) -> Vec<StoredValue> {
        self.values().values().filter_map(|value| value.stored.clone()).collect()
    }
}

/// Values that were read from files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ViewsRead {
    pub(crate) values: u64,
    pub(crate) bytes: u64,
}

/// The view that bytes are a part of.
fn place_of_view(values: &BTreeMap<Place, IndexedValue>, bytes: &[u8]) -> Option<Place> {
    let (start, len) = place(bytes);
    let (at, value) = values.range(..=(start, usize::MAX)).next_back()?;
    (value.is_view && len > 0 && start + len <= at.0 + at.1).then_some(*at)
}

fn has_bulk(reply: &Reply) -> bool {
    matches!(reply, Reply::Bulk(_) | Reply::Array(_) | Reply::Map(_))
}

/// Visits the values of a reply in their order.
fn each_bulk(reply: &Reply, visit: &mut impl FnMut(&Bytes)) {
    match reply {
        Reply::Bulk(bytes) => visit(bytes),
        Reply::Array(items) => items.iter().for_each(|item| each_bulk(item, visit)),
        Reply::Map(pairs) => pairs.iter().for_each(|(_, value)| each_bulk(value, visit)),
        _ => {}
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
        let views = usize::from(ended.as_ref().is_some_and(|value| value.is_view));
        self.index.views.fetch_sub(views, Ordering::Relaxed);
        drop(values);
        // Behind the lock: it may give space back to the disk.
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_replies_that_are_views_of_files_are_counted() {
        let index = Arc::new(ValueIndex::default());
        let in_memory = Bytes::from(vec![1; 1000]);
        let reply = Reply::Array(vec![Reply::Bulk(in_memory.clone()), Reply::Integer(3)]);
        assert_eq!(index.views_in(&reply), ViewsRead::default());
        let view = index.keep_view(Bytes::from(vec![2; 1000]), None);
        let other = index.keep_view(Bytes::from(vec![3; 500]), None);
        assert_eq!(index.views_in(&reply), ViewsRead::default());
        let rows = [view.slice(10..20), view.slice(500..600), in_memory, other.clone(), view.slice(990..)];
        let reply = Reply::Array(vec![Reply::simple("ROWS"), Reply::bulks(rows.to_vec())]);
        assert_eq!(index.views_in(&reply), ViewsRead { values: 3, bytes: 10 + 100 + 500 + 10 });
        drop((rows, reply, view));
        assert_eq!(index.views_in(&Reply::Bulk(other.clone())), ViewsRead { values: 1, bytes: 500 });
        drop(other);
        assert_eq!(index.views.load(Ordering::Relaxed), 0);
    }
}
