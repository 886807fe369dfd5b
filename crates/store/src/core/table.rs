use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::hash::{DefaultHasher, Hasher};

/// A map from keys to values in the order of seeded hashes.
///
/// The order gives scans a cursor that needs no state: the hash where the scan goes on. What is there during a whole
/// scan is seen, however much is added and removed meanwhile. The seed keeps clients from choosing keys that collide.
#[derive(Debug, Clone)]
pub(crate) struct Table<V> {
    seed: u64,
    entries: BTreeMap<(u64, Bytes), V>,
}

impl<V: PartialEq> PartialEq for Table<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<V> Table<V> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, entries: BTreeMap::new() }
    }

    fn place(&self, key: &Bytes) -> (u64, Bytes) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(key);
        (hasher.finish(), key.clone())
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: &Bytes) -> Option<&V> {
        self.entries.get(&self.place(key))
    }

    pub(crate) fn get_mut(&mut self, key: &Bytes) -> Option<&mut V> {
        let place = self.place(key);
        self.entries.get_mut(&place)
    }

    /// Puts a value in; gives the one that was there. The key that was there stays.
    pub(crate) fn insert(&mut self, key: &Bytes, value: V) -> Option<V> {
        let (hash, key) = self.place(key);
        self.entries.insert((hash, owned(&key)), value)
    }

    pub(crate) fn remove(&mut self, key: &Bytes) -> Option<V> {
        let place = self.place(key);
        self.entries.remove(&place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        self.entries.iter().map(|((_, key), value)| (key, value))
    }

    /// At least `count` entries from `cursor` on, if there are so many, and the cursor of the next; 0 at the end.
    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &V)>) {
        let mut found = Vec::new();
        let mut last = None;
        for ((hash, key), value) in self.from(cursor) {
            // All keys of one hash come together: the cursor cannot stand between them.
            if found.len() >= count.max(1) && last != Some(*hash) {
                return (*hash, found);
            }
            last = Some(*hash);
            found.push((key, value));
        }
        (0, found)
    }

    /// The first key at or after a point in the order, around the end.
    pub(crate) fn key_near(&self, point: u64) -> Option<&Bytes> {
        self.from(point).next().or_else(|| self.from(0).next()).map(|((_, key), _)| key)
    }

    fn from(&self, hash: u64) -> Range<'_, (u64, Bytes), V> {
        self.entries.range((hash, Bytes::new())..)
    }
}

/// Bytes that do not keep a larger buffer alive: arguments of requests are parts of what was read from the socket.
pub(crate) fn owned(bytes: &Bytes) -> Bytes {
    if bytes.len() >= phalanx_resp::LARGE { bytes.clone() } else { Bytes::copy_from_slice(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Bytes {
        format!("key{n}").into()
    }

    #[test]
    fn a_scan_sees_what_stays_while_the_table_changes() {
        let mut table = Table::new(7);
        for n in 0..1000 {
            table.insert(&key(n), n);
        }
        let (mut cursor, mut seen, mut turn) = (0, Vec::new(), 0);
        loop {
            let (next, found) = table.scan(cursor, 10);
            assert!(found.len() >= 10 || next == 0);
            seen.extend(found.into_iter().map(|(_, n)| *n));
            // The even ones stay, odd ones go, new ones come.
            table.remove(&key(2 * turn + 1));
            table.insert(&key(1000 + turn), 1000 + turn);
            turn += 1;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        seen.sort_unstable();
        let kept: Vec<_> = seen.iter().copied().filter(|n| n % 2 == 0 && *n < 1000).collect();
        assert_eq!(kept, (0..1000).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn tables_are_equal_whatever_their_seed() {
        let (mut a, mut b) = (Table::new(1), Table::new(2));
        for n in 0..20 {
            a.insert(&key(n), n);
            b.insert(&key(19 - n), 19 - n);
        }
        assert_eq!(a, b);
        b.insert(&key(3), 4);
        assert_ne!(a, b);
    }

    #[test]
    fn a_stored_key_keeps_no_buffer_alive() {
        let buffer = Bytes::from(vec![1; 1000]);
        let part = buffer.slice(10..20);
        assert_ne!(owned(&part).as_ptr(), part.as_ptr());
    }
}
