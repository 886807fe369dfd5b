//! A table of values that is kept in a journal: number `n` of its operations always does the same.

use bytes::Bytes;
use phalanx_segments::{
    Durability, Journal, Record, Recovery, Settings, SnapshotPolicy, Source, StoredValue,
};
use std::collections::BTreeMap;

const KEYS: u64 = 24;
const SET: u8 = 1;
const DELETE: u8 = 2;
const HEAD: u8 = 3;

/// What an entry holds: the bytes of `content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// The operation that made it.
    pub(crate) op: u64,
    pub(crate) len: u64,
}

/// An entry with its bytes.
#[derive(Debug, Clone)]
struct Entry {
    content: Content,
    /// Small values are in memory, large ones in the log.
    small: Option<Bytes>,
    large: Option<StoredValue>,
}

/// What one operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Set { key: u64, content: Content },
    Delete { key: u64 },
    Copy { from: u64, to: u64 },
}

/// How large values are. Without large ones all are in the records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) small: u64,
    pub(crate) large: u64,
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Lengths {
    pub(crate) fn op(self, op: u64) -> Op {
        let dice = mix(op.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let key = dice % KEYS;
        match (dice >> 16) % 12 {
            6..=8 if self.large > 0 => {
                Op::Set { key, content: Content { op, len: self.small + (dice >> 32) % self.large } }
            }
            0..=8 => Op::Set { key, content: Content { op, len: (dice >> 32) % self.small } },
            9 => Op::Delete { key },
            _ => Op::Copy { from: key, to: (dice >> 40) % KEYS },
        }
    }

    /// The table after all operations up to `last`.
    pub(crate) fn model(self, last: u64) -> BTreeMap<u64, Content> {
        let mut model = BTreeMap::new();
        for op in 1..=last {
            match self.op(op) {
                Op::Set { key, content } => drop(model.insert(key, content)),
                Op::Delete { key } => drop(model.remove(&key)),
                Op::Copy { from, to } => {
                    if let Some(content) = model.get(&from).copied() {
                        model.insert(to, content);
                    }
                }
            }
        }
        model
    }
}

fn bytes_of(content: Content) -> Bytes {
    let words = (0..=content.len / 8).flat_map(|word| mix(content.op << 32 | word).to_le_bytes());
    words.take(usize::try_from(content.len).unwrap()).collect::<Vec<u8>>().into()
}

fn words(words: &[u64]) -> Bytes {
    words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into()
}

/// Settings under which everything happens often.
pub(crate) fn small_settings(durability: Durability) -> Settings {
    Settings {
        durability,
        segment_bytes: 256 << 10,
        queue_bytes: 1 << 20,
        compact_percent: 50,
        snapshots: SnapshotPolicy { journal_bytes: 512 << 10, reclaimable_bytes: 512 << 10 },
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) lengths: Lengths,
    entries: BTreeMap<u64, Entry>,
    /// The last operation.
    pub(crate) last: u64,
}

impl Table {
    /// Reads all records. Panics if the journal has a gap or does not go on where the snapshot ends.
    pub(crate) fn read(lengths: Lengths, recovery: &mut Recovery) -> Self {
        let mut table = Self { lengths, entries: BTreeMap::new(), last: 0 };
        let mut expected = None;
        while let Some(record) = recovery.next_record().unwrap() {
            let mut body = record.body.clone();
            let mut word = || u64::from_le_bytes(*body.split_to(8).first_chunk().unwrap());
            let op = word();
            match record.source {
                Source::Journal(_) => assert_eq!(op, table.last + 1, "an operation is missing or doubled"),
                Source::Snapshot if record.kind == HEAD => expected = Some(word()),
                Source::Snapshot => expected = expected.map(|left| left - 1),
            }
            match record.kind {
                SET => {
                    let (key, content) = (word(), Content { op: word(), len: word() });
                    let large = record.values.first().cloned();
                    let small = large.is_none().then_some(body);
                    table.entries.insert(key, Entry { content, small, large });
                }
                DELETE => drop(table.entries.remove(&word())),
                _ => {}
            }
            table.last = op;
        }
        assert!(matches!(expected, None | Some(0)), "the snapshot is not whole");
        table
    }

    /// The record of the next operation. It is not in the table yet.
    pub(crate) fn prepare(&self, journal: &Journal) -> Prepared {
        let op = self.last + 1;
        let (key, entry) = match self.lengths.op(op) {
            Op::Delete { key } => {
                return Prepared { record: Record::new(DELETE, [words(&[op, key])]), key, entry: None };
            }
            Op::Copy { from, to } => match self.entries.get(&from) {
                Some(entry) => (to, entry.clone()),
                // Nothing to copy: an operation that changes nothing.
                None => {
                    let record = Record::new(HEAD, [words(&[op])]);
                    return Prepared { record, key: u64::MAX, entry: None };
                }
            },
            Op::Set { key, content } => {
                let bytes = bytes_of(content);
                if content.len < self.lengths.small {
                    (key, Entry { content, small: Some(bytes), large: None })
                } else {
                    // In two parts, as a head and a body come.
                    let mut rest = bytes;
                    let value = journal.value([rest.split_to(rest.len() / 3), rest]);
                    (key, Entry { content, small: None, large: Some(value) })
                }
            }
        };
        Prepared { record: set_record(op, key, &entry), key, entry: Some(entry) }
    }

    pub(crate) fn commit(&mut self, key: u64, entry: Option<PreparedEntry>) {
        match entry {
            Some(PreparedEntry(entry)) => drop(self.entries.insert(key, entry)),
            None => drop(self.entries.remove(&key)),
        }
        self.last += 1;
    }

    /// What a snapshot of the table holds.
    pub(crate) fn snapshot(&self) -> Vec<Record> {
        let head = Record::new(HEAD, [words(&[self.last, self.entries.len() as u64])]);
        let entries = self.entries.iter().map(|(key, entry)| set_record(self.last, *key, entry));
        std::iter::once(head).chain(entries).collect()
    }

    /// Compares everything with the model, every value byte by byte.
    pub(crate) fn check(&self) {
        let model = self.lengths.model(self.last);
        let contents: BTreeMap<_, _> =
            self.entries.iter().map(|(key, entry)| (*key, entry.content)).collect();
        assert_eq!(contents, model, "after operation {}", self.last);
        for (key, entry) in &self.entries {
            let bytes = match (&entry.small, &entry.large) {
                (Some(small), _) => small.clone(),
                (None, Some(large)) if key % 2 == 0 => large.map().unwrap(),
                (None, Some(large)) => large.read().unwrap(),
                (None, None) => panic!("an entry without bytes"),
            };
            assert!(bytes == bytes_of(entry.content), "key {key} has other bytes: {:?}", entry.content);
        }
    }
}

/// An operation on its way to the journal.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) record: Record,
    pub(crate) key: u64,
    entry: Option<Entry>,
}

#[derive(Debug)]
pub(crate) struct PreparedEntry(Entry);

impl Prepared {
    pub(crate) fn split(self) -> (Record, u64, Option<PreparedEntry>) {
        (self.record, self.key, self.entry.map(PreparedEntry))
    }
}

fn set_record(op: u64, key: u64, entry: &Entry) -> Record {
    let head = words(&[op, key, entry.content.op, entry.content.len]);
    let record = Record::new(SET, std::iter::once(head).chain(entry.small.clone()));
    entry.large.clone().map_or(record.clone(), |value| record.with_value(value))
}
