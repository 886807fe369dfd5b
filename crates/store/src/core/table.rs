use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hasher};

/// A map from keys to values in the order of seeded hashes.
///
/// The order gives scans a cursor that needs no state: the hash where the scan goes on. What is there during a whole
/// scan is seen, however much is added and removed meanwhile. The seed keeps clients from choosing keys that collide.
#[derive(Debug, Clone)]
pub(crate) struct Table<V> {
    seed: u64,
    buckets: BTreeMap<u64, Bucket<V>>,
    len: usize,
}

/// All keys of one hash.
#[derive(Debug, Clone)]
enum Bucket<V> {
    One((Bytes, V)),
    /// Two or more, but for a moment.
    Many(Vec<(Bytes, V)>),
}

impl<V> Bucket<V> {
    fn entries(&self) -> &[(Bytes, V)] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }

    fn entries_mut(&mut self) -> &mut [(Bytes, V)] {
        match self {
            Self::One(entry) => std::slice::from_mut(entry),
            Self::Many(entries) => entries,
        }
    }

    fn push(&mut self, key: Bytes, value: V) {
        match std::mem::replace(self, Self::Many(Vec::new())) {
            Self::One(entry) => *self = Self::Many(vec![entry, (key, value)]),
            Self::Many(mut entries) => {
                entries.push((key, value));
                *self = Self::Many(entries);
            }
        }
    }
}

impl<V: PartialEq> PartialEq for Table<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<V> Table<V> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, buckets: BTreeMap::new(), len: 0 }
    }

    fn hash(&self, key: &Bytes) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(key);
        hasher.finish()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, key: &Bytes) -> Option<&V> {
        let entries = self.buckets.get(&self.hash(key))?.entries();
        entries.iter().find(|(other, _)| other == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &Bytes) -> Option<&mut V> {
        let entries = self.buckets.get_mut(&self.hash(key))?.entries_mut();
        entries.iter_mut().find(|(other, _)| other == key).map(|(_, value)| value)
    }

    /// The value of a key, made if there is none, and whether it was made.
    pub(crate) fn get_or_insert_with(
        &mut self,
        key: &Bytes,
        make: impl FnOnce() -> V,
    ) -> Option<(&mut V, bool)> {
        let bucket = match self.buckets.entry(self.hash(key)) {
            Entry::Vacant(vacant) => {
                self.len += 1;
                let bucket = vacant.insert(Bucket::One((owned(key), make())));
                return bucket.entries_mut().last_mut().map(|(_, value)| (value, true));
            }
            Entry::Occupied(occupied) => occupied.into_mut(),
        };
        let known = bucket.entries().iter().position(|(other, _)| other == key);
        if known.is_none() {
            self.len += 1;
            bucket.push(owned(key), make());
        }
        let at = known.unwrap_or(bucket.entries().len() - 1);
        bucket.entries_mut().get_mut(at).map(|(_, value)| (value, known.is_none()))
    }

    /// Puts a value in; gives the one that was there. The key that was there stays.
    pub(crate) fn insert(&mut self, key: &Bytes, value: V) -> Option<V> {
        self.insert_at(self.hash(key), key, value)
    }

    fn insert_at(&mut self, hash: u64, key: &Bytes, value: V) -> Option<V> {
        match self.buckets.entry(hash) {
            Entry::Vacant(vacant) => drop(vacant.insert(Bucket::One((owned(key), value)))),
            Entry::Occupied(mut occupied) => {
                let bucket = occupied.get_mut();
                match bucket.entries_mut().iter_mut().find(|(other, _)| other == key) {
                    Some((_, old)) => return Some(std::mem::replace(old, value)),
                    None => bucket.push(owned(key), value),
                }
            }
        }
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, key: &Bytes) -> Option<V> {
        self.remove_at(self.hash(key), key)
    }

    fn remove_at(&mut self, hash: u64, key: &Bytes) -> Option<V> {
        let Entry::Occupied(mut occupied) = self.buckets.entry(hash) else { return None };
        let at = occupied.get().entries().iter().position(|(other, _)| other == key)?;
        self.len -= 1;
        let (_, value) = match occupied.get_mut() {
            Bucket::Many(entries) if entries.len() > 1 => entries.swap_remove(at),
            _ => match occupied.remove() {
                Bucket::One(entry) => entry,
                Bucket::Many(entries) => entries.into_iter().next()?,
            },
        };
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        self.buckets.values().flat_map(Bucket::entries).map(|(key, value)| (key, value))
    }

    /// At least `count` entries from `cursor` on, or all that are left, and the cursor of the next; 0 at the end.
    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &V)>) {
        let mut found = Vec::new();
        for (hash, bucket) in self.buckets.range(cursor..) {
            // All keys of one hash come together: the cursor cannot stand between them.
            if found.len() >= count.max(1) {
                return (*hash, found);
            }
            found.extend(bucket.entries().iter().map(|(key, value)| (key, value)));
        }
        (0, found)
    }

    /// The first key at or after a point in the order, around the end.
    pub(crate) fn key_near(&self, point: u64) -> Option<&Bytes> {
        let bucket = self.buckets.range(point..).chain(&self.buckets).next();
        bucket.and_then(|(_, bucket)| bucket.entries().first()).map(|(key, _)| key)
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
    fn keys_of_the_same_hash_are_told_apart() {
        let mut table = Table::new(7);
        let colliding = table.hash(&key(0));
        for n in 0..3 {
            assert_eq!(table.insert_at(colliding, &key(n), n), None);
        }
        assert_eq!((table.insert_at(colliding, &key(1), 9), table.len()), (Some(1), 3));
        assert_eq!(table.get(&key(0)), Some(&0));
        let (cursor, found) = table.scan(colliding, 1);
        assert_eq!((cursor, found.len()), (0, 3), "they come together");
        assert_eq!((table.remove_at(colliding, &key(0)), table.get(&key(0))), (Some(0), None));
        assert_eq!(table.remove_at(colliding, &key(7)), None);
        assert_eq!(table.remove_at(colliding, &key(1)), Some(9));
        assert_eq!((table.remove_at(colliding, &key(2)), table.len()), (Some(2), 0));
        assert!(table.is_empty() && table.buckets.is_empty());
    }

    #[test]
    fn a_value_is_made_where_there_is_none() {
        let mut table = Table::new(7);
        let colliding = table.hash(&key(0));
        table.insert_at(colliding, &key(1), 1);
        assert_eq!(table.get_or_insert_with(&key(0), || 5), Some((&mut 5, true)));
        assert_eq!(table.get_or_insert_with(&key(0), || 6), Some((&mut 5, false)));
        assert_eq!(table.get_or_insert_with(&key(9), || 7), Some((&mut 7, true)));
        assert_eq!((table.len(), table.iter().count()), (3, 3));
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
