//! Which values may leave memory: the large ones, those that were written longest ago first.

use super::change_bytes::STORED_APART;
use super::keyspace::Keyspace;
use super::value::Value;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Entries with less are not worth a look.
const LEAST: u64 = STORED_APART as u64;

/// What is known of the large values of a database.
#[derive(Debug, Default)]
pub(crate) struct Spilling {
    next: u64,
    /// Keys whose values may be in memory, in the order in which they were written.
    order: BTreeMap<u64, Bytes>,
    entries: BTreeMap<Bytes, SpillEntry>,
    /// Bytes of all entries that are not in memory.
    away: u64,
}

#[derive(Debug)]
struct SpillEntry {
    order: u64,
    away: u64,
}

impl Spilling {
    pub(crate) fn away(&self) -> u64 {
        self.away
    }

    /// A key has this value from now on. It counts as in memory, whatever it is made of.
    pub(crate) fn on_written(&mut self, key: &Bytes, size: u64) {
        self.on_removed(key);
        if size >= LEAST {
            self.next += 1;
            self.order.insert(self.next, key.clone());
            self.entries.insert(key.clone(), SpillEntry { order: self.next, away: 0 });
        }
    }

    pub(crate) fn on_removed(&mut self, key: &Bytes) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.order);
            self.away -= entry.away;
        }
    }

    pub(crate) fn clear(&mut self) {
        let next = self.next;
        *self = Self { next, ..Self::default() };
    }

    /// The value that was written as the `order`-th has this much that is not in memory; nothing of a whole one is.
    fn on_away(&mut self, key: &Bytes, order: u64, away: u64, is_whole: bool) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.order == order) else { return };
        self.away = self.away - entry.away + away;
        entry.away = away;
        if is_whole {
            self.order.remove(&order);
        }
    }

    fn is_current(&self, key: &Bytes, order: u64) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.order == order)
    }
}

/// A value that may leave memory.
#[derive(Debug)]
pub struct SpillCandidate {
    /// Its key.
    pub key: Bytes,
    /// When it was written: later ones have larger numbers.
    pub order: u64,
    /// Its large parts.
    pub parts: Vec<Bytes>,
}

impl Keyspace {
    /// The bytes of keys and values that are in memory.
    pub fn resident(&self) -> u64 {
        self.used().saturating_sub(self.database.away())
    }

    /// Clients have read values that were not in memory.
    pub fn note_read_back(&mut self, values: u64, bytes: u64) {
        self.statistics.read_back += values;
        self.statistics.read_back_bytes += bytes;
    }

    /// Values that may leave memory, of those that were written after `after`: at least one, if there is one, and
    /// about `bytes` together.
    pub fn spill_candidates(&self, after: u64, bytes: u64) -> Vec<SpillCandidate> {
        let Some(spilling) = self.database.spilling() else { return Vec::new() };
        let mut found = Vec::new();
        let mut sum = 0;
        for (order, key) in spilling.order.range(after + 1..) {
            if sum >= bytes {
                break;
            }
            let Some(entry) = self.database.table().get(key) else { continue };
            let parts = large_parts(&entry.value);
            sum += parts.iter().map(|part| part.len() as u64).sum::<u64>().max(1);
            found.push(SpillCandidate { key: key.clone(), order: *order, parts });
        }
        found
    }

    /// Parts of a value have left memory: `replacement` gives bytes that are the same and lie elsewhere, for those of
    /// its parts that have; `away` is how much is not in memory then, and `is_whole` says whether no large part is.
    /// Nothing happens when the key was written since.
    /// What is returned takes time to drop, and needs no lock.
    pub fn on_spilled(
        &mut self,
        candidate: &SpillCandidate,
        replacement: &dyn Fn(&Bytes) -> Option<Bytes>,
        away: u64,
        is_whole: bool,
    ) -> Option<Value> {
        let SpillCandidate { key, order, .. } = candidate;
        let (table, spilling) = self.database.spilled_parts()?;
        if !spilling.is_current(key, *order) {
            return None;
        }
        let entry = table.get_mut(key)?;
        let old = replaced(&entry.value, replacement).map(|value| std::mem::replace(&mut entry.value, value));
        spilling.on_away(key, *order, away, is_whole);
        old
    }
}

fn large_parts(value: &Value) -> Vec<Bytes> {
    let large = |bytes: &&Bytes| bytes.len() >= STORED_APART;
    match value {
        Value::String(bytes) => [bytes].into_iter().filter(large).cloned().collect(),
        Value::Hash(hash) => hash.iter().map(|(_, bytes)| bytes).filter(large).cloned().collect(),
        Value::List(list) => list.items().iter().filter(large).cloned().collect(),
        Value::Tensor(tensor) => [tensor.data()].into_iter().filter(large).cloned().collect(),
        Value::Model(model) => [&model.blob].into_iter().filter(large).cloned().collect(),
        Value::Script(script) => [&script.source].into_iter().filter(large).cloned().collect(),
    }
}

/// The same value with other bytes for some of its large parts; none when there are no others.
fn replaced(value: &Value, replacement: &dyn Fn(&Bytes) -> Option<Bytes>) -> Option<Value> {
    let other = |bytes: &Bytes| if bytes.len() >= STORED_APART { replacement(bytes) } else { None };
    match value {
        Value::String(bytes) => other(bytes).map(Value::String),
        Value::Hash(hash) => {
            let others: Vec<_> =
                hash.iter().filter_map(|(name, bytes)| Some((name.clone(), other(bytes)?))).collect();
            let mut hash = (!others.is_empty()).then(|| (**hash).clone())?;
            for (name, bytes) in others {
                hash.insert(&name, bytes);
            }
            Some(Value::Hash(hash.into()))
        }
        Value::List(list) => {
            let items: Vec<_> = list.items().iter().map(|item| (item, other(item))).collect();
            let any = items.iter().any(|(_, other)| other.is_some());
            let all = items.into_iter().map(|(item, other)| other.unwrap_or_else(|| item.clone()));
            any.then(|| Value::List(super::value::List::from_items(all.collect()).into()))
        }
        Value::Tensor(tensor) => {
            let data = other(tensor.data())?;
            let tensor = phalanx_types::Tensor::new(tensor.dtype(), tensor.shape().to_vec(), data).ok()?;
            Some(Value::Tensor(tensor.into()))
        }
        Value::Model(model) => {
            let blob = other(&model.blob)?;
            Some(Value::Model(super::value::Model { blob, ..(**model).clone() }.into()))
        }
        Value::Script(script) => {
            let source = other(&script.source)?;
            Some(Value::Script(super::value::Script { source, ..(**script).clone() }.into()))
        }
    }
}
