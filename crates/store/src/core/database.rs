use super::change::Change;
use super::effects::Effects;
use super::spilling::Spilling;
use super::table::{Table, owned};
use super::touched::Touched;
use super::undo::{ClearedKeys, Undo, inverse};
use super::value::{ENTRY_OVERHEAD, Hash, List, Value};
use bytes::Bytes;
use phalanx_types::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Values of this size are dropped by the caller, outside of its lock.
const LARGE_GARBAGE: u64 = 64 << 10;

/// Something that was removed and is to be dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "it is only dropped")]
pub struct Garbage(Removed);

#[derive(Debug)]
#[expect(dead_code, reason = "it is only dropped")]
enum Removed {
    Value(Value),
    Database(Table<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    pub(crate) expires: Option<Time>,
}

/// Keys and values, when they end, and what they take. Knows nothing of clients and commands.
#[derive(Debug)]
pub(crate) struct Database {
    table: Table<Entry>,
    /// The keys that end, by time.
    expirations: BTreeSet<(Time, Bytes)>,
    used: u64,
    /// Whether changes are recorded: without persistence they are not worth their time.
    recording: bool,
    changes: Vec<Change>,
    /// What takes the changes back, in their order.
    undo: Vec<Undo>,
    garbage: Vec<Garbage>,
    /// Whether changed keys are noted.
    noting: bool,
    touched: Touched,
    read_ending: bool,
    /// What may leave memory, if anything may.
    spilling: Option<Spilling>,
    expired: u64,
}

impl Database {
    pub(crate) fn new(seed: u64, recording: bool) -> Self {
        Self {
            table: Table::new(seed),
            expirations: BTreeSet::new(),
            used: 0,
            recording,
            changes: Vec::new(),
            undo: Vec::new(),
            garbage: Vec::new(),
            noting: false,
            touched: Touched::default(),
            read_ending: false,
            spilling: None,
            expired: 0,
        }
    }

    pub(crate) fn table(&self) -> &Table<Entry> {
        &self.table
    }

    /// The bytes that all keys and values take.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Large values may leave memory.
    pub(crate) fn allow_spilling(&mut self) {
        self.spilling = Some(Spilling::default());
    }

    pub(crate) fn spilling(&self) -> Option<&Spilling> {
        self.spilling.as_ref()
    }

    /// The bytes that are not in memory.
    pub(crate) fn away(&self) -> u64 {
        self.spilling.as_ref().map_or(0, Spilling::away)
    }

    pub(crate) fn spilled_parts(&mut self) -> Option<(&mut Table<Entry>, &mut Spilling)> {
        Some((&mut self.table, self.spilling.as_mut()?))
    }

    /// How many keys ended by time.
    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    /// How many keys will end.
    pub(crate) fn expiring(&self) -> usize {
        self.expirations.len()
    }

    /// Hands over what has gathered since the last time.
    pub(crate) fn drain(&mut self, out: &mut Effects) {
        out.changes.append(&mut self.changes);
        out.undo.append(&mut self.undo);
        out.garbage.append(&mut self.garbage);
        out.touched.take_from(&mut self.touched);
        out.read_ending |= std::mem::take(&mut self.read_ending);
    }

    /// Notes the slots of keys that change from now on.
    pub(crate) fn note_touched(&mut self) {
        self.noting = true;
    }

    fn touch(&mut self, key: &Bytes) {
        if self.noting {
            self.touched.slots.push(phalanx_resp::slot(key));
        }
    }

    pub(crate) fn get(&mut self, now: Time, key: &Bytes) -> Option<&Value> {
        self.entry(now, key).map(|entry| &entry.value)
    }

    /// The entry of a key that has not ended.
    pub(crate) fn entry(&mut self, now: Time, key: &Bytes) -> Option<&Entry> {
        if !self.expirations.is_empty() {
            match self.table.get(key).and_then(|entry| entry.expires) {
                Some(at) if at <= now => {
                    self.expired += 1;
                    self.remove(now, key);
                    return None;
                }
                Some(_) => self.read_ending = true,
                None => {}
            }
        }
        self.table.get(key)
    }

    /// Sets value and end of a key.
    pub(crate) fn put(&mut self, key: &Bytes, value: Value, expires: Option<Time>) {
        self.touch(key);
        self.used += value.size();
        if self.recording {
            self.changes.push(Change::Put { key: owned(key), value: value.clone(), expires });
        }
        if let Some(spilling) = &mut self.spilling {
            spilling.on_written(&owned(key), value.size());
        }
        match self.table.insert(key, Entry { value, expires }) {
            Some(old) => {
                self.used -= old.value.size();
                self.unschedule(key, old.expires);
                self.discard(&old.value);
                self.record_undo(|| Change::Put { key: key.clone(), value: old.value, expires: old.expires });
            }
            None => {
                self.used += key.len() as u64 + ENTRY_OVERHEAD;
                self.record_undo(|| Change::Delete { key: key.clone() });
            }
        }
        if let Some(at) = expires {
            self.expirations.insert((at, owned(key)));
        }
    }

    /// Removes a key, and says what it held; nothing when it had ended.
    pub(crate) fn remove(&mut self, now: Time, key: &Bytes) -> Option<Entry> {
        let old = self.table.remove(key)?;
        self.touch(key);
        if let Some(spilling) = &mut self.spilling {
            spilling.on_removed(key);
        }
        self.used -= old.value.size() + key.len() as u64 + ENTRY_OVERHEAD;
        self.unschedule(key, old.expires);
        self.record(|| Change::Delete { key: owned(key) });
        self.record_undo(|| Change::Put { key: owned(key), value: old.value.clone(), expires: old.expires });
        self.discard(&old.value);
        Some(old).filter(|entry| entry.expires.is_none_or(|at| at > now))
    }

    /// Sets when a key ends. The key must be there.
    pub(crate) fn set_expiry(&mut self, key: &Bytes, at: Option<Time>) {
        let Some(entry) = self.table.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.expires, at);
        self.touch(key);
        let key = owned(key);
        self.unschedule(&key, before);
        if let Some(at) = at {
            self.expirations.insert((at, key.clone()));
        }
        self.record(|| Change::Expire { key: key.clone(), at });
        self.record_undo(|| Change::Expire { key, at: before });
    }

    /// Removes a key whose time is up.
    pub(crate) fn end_if_due(&mut self, now: Time, key: &Bytes) {
        // Most databases have no key that ends: then nothing is looked up.
        if !self.expirations.is_empty() {
            let _remaining = self.entry(now, key);
        }
    }

    /// Changes a collection in place, which is made when it is not there; the caller says what changes. One that became
    /// empty is removed. Nothing happens when the key holds something else.
    fn edit<R>(
        &mut self,
        key: &Bytes,
        (make, fits): (impl FnOnce() -> Value, fn(&Value) -> bool),
        change: impl FnOnce() -> Change,
        edit: impl FnOnce(&mut Value) -> Option<R>,
    ) -> Option<R> {
        let (entry, is_new) =
            self.table.get_or_insert_with(key, || Entry { value: make(), expires: None })?;
        if !fits(&entry.value) {
            return None;
        }
        if is_new {
            self.used += key.len() as u64 + ENTRY_OVERHEAD + entry.value.size();
        }
        let before = entry.value.size();
        if self.recording {
            let change = change();
            self.undo.extend(inverse(&change, &entry.value).into_iter().map(Undo::Change));
            self.changes.push(change);
        }
        let result = edit(&mut entry.value);
        self.used = self.used + entry.value.size() - before;
        let empty = entry.value.is_empty_collection();
        if let Some(spilling) = &mut self.spilling {
            spilling.on_written(&owned(key), entry.value.size());
        }
        self.touch(key);
        if empty {
            self.remove(Time::ZERO, key);
        }
        result
    }

    /// Changes a hash, which is made when it is not there; nothing if the key holds something else.
    pub(crate) fn edit_hash<R>(
        &mut self,
        key: &Bytes,
        change: impl FnOnce() -> Change,
        edit: impl FnOnce(&mut Hash) -> R,
    ) -> Option<R> {
        let seed = self.table.seed();
        let make = || Value::Hash(Arc::new(Hash::new(seed)));
        self.edit(key, (make, |value| matches!(value, Value::Hash(_))), change, |value| match value {
            Value::Hash(hash) => Some(edit(Arc::make_mut(hash))),
            _ => None,
        })
    }

    /// Changes a list, which is made when it is not there.
    pub(crate) fn edit_list<R: Default>(
        &mut self,
        key: &Bytes,
        change: impl FnOnce() -> Change,
        edit: impl FnOnce(&mut List) -> R,
    ) -> R {
        let make = || Value::List(Arc::default());
        let edited =
            self.edit(key, (make, |value| matches!(value, Value::List(_))), change, |value| match value {
                Value::List(list) => Some(edit(Arc::make_mut(list))),
                _ => None,
            });
        edited.unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        let empty = Table::new(self.table.seed());
        self.touched.all = self.noting;
        let table = std::mem::replace(&mut self.table, empty);
        let expirations = std::mem::take(&mut self.expirations);
        let used = std::mem::take(&mut self.used);
        if let Some(spilling) = &mut self.spilling {
            spilling.clear();
        }
        if self.recording {
            self.changes.push(Change::Clear);
            self.undo.push(Undo::Cleared(ClearedKeys { table, expirations, used }));
        } else {
            self.garbage.push(Garbage(Removed::Database(table)));
        }
    }

    /// When the next key ends.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expirations.first().map(|(at, _)| *at)
    }

    /// Removes up to `most` keys that have ended.
    pub(crate) fn expire(&mut self, now: Time, most: usize) {
        for _ in 0..most {
            let Some(key) = self.expirations.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())
            else {
                return;
            };
            self.expired += 1;
            self.remove(now, &key);
        }
    }

    fn unschedule(&mut self, key: &Bytes, at: Option<Time>) {
        if let Some(at) = at {
            self.expirations.remove(&(at, key.clone()));
        }
    }

    pub(crate) fn record(&mut self, change: impl FnOnce() -> Change) {
        if self.recording {
            self.changes.push(change());
        }
    }

    fn record_undo(&mut self, change: impl FnOnce() -> Change) {
        if self.recording {
            self.undo.push(Undo::Change(change()));
        }
    }

    /// Takes changes back, the last one first. Nothing of it is recorded.
    pub(crate) fn undo(&mut self, steps: Vec<Undo>) {
        let recording = std::mem::replace(&mut self.recording, false);
        for step in steps.into_iter().rev() {
            match step {
                Undo::Change(change) => self.apply(&change),
                Undo::Cleared(cleared) => {
                    self.table = cleared.table;
                    self.expirations = cleared.expirations;
                    self.used = cleared.used;
                    if let Some(spilling) = &mut self.spilling {
                        spilling.clear();
                        let written = self.table.iter().map(|(key, entry)| (key, entry.value.size()));
                        written.for_each(|(key, size)| spilling.on_written(key, size));
                    }
                }
            }
        }
        self.recording = recording;
    }

    fn discard(&mut self, value: &Value) {
        if value.size() >= LARGE_GARBAGE {
            self.garbage.push(Garbage(Removed::Value(value.clone())));
        }
    }

    /// Does what a recorded change says.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { key, value, expires } => self.put(key, value.clone(), *expires),
            Change::Delete { key } => {
                self.remove(Time::ZERO, key);
            }
            Change::Expire { key, at } => self.set_expiry(key, *at),
            Change::Push { key, side, items } => {
                self.edit_list(
                    key,
                    || change.clone(),
                    |list| items.iter().for_each(|item| list.push(*side, item.clone())),
                );
            }
            Change::Pop { key, side, count } => self.edit_list(
                key,
                || change.clone(),
                |list| {
                    for _ in 0..*count {
                        list.pop(*side);
                    }
                },
            ),
            Change::SetFields { key, fields } => {
                let set = |hash: &mut Hash| {
                    for (field, value) in fields {
                        hash.insert(field, value.clone());
                    }
                };
                self.edit_hash(key, || change.clone(), set);
            }
            Change::DeleteFields { key, fields } => {
                let delete = |hash: &mut Hash| {
                    for field in fields {
                        hash.remove(field);
                    }
                };
                self.edit_hash(key, || change.clone(), delete);
            }
            // Not of the database.
            Change::Stream { .. } => {}
            Change::Clear => self.clear(),
        }
    }

    /// What all keys and values take, counted anew; for tests.
    #[cfg(test)]
    pub(crate) fn counted(&self) -> u64 {
        self.table.iter().map(|(key, entry)| key.len() as u64 + ENTRY_OVERHEAD + entry.value.size()).sum()
    }
}
