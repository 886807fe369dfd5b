//! All segments that this process has mapped, by address and by token.

use crate::segment::{Segment, Token};
use phalanx_wire::bulk::SharedPlace;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
struct Table {
    /// By the address of the first byte.
    addresses: BTreeMap<usize, Weak<Segment>>,
    tokens: BTreeMap<Token, Weak<Segment>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { addresses: BTreeMap::new(), tokens: BTreeMap::new() });

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add(segment: &Arc<Segment>) {
    let mut table = table();
    table.addresses.insert(segment.range().start, Arc::downgrade(segment));
    table.tokens.insert(segment.token(), Arc::downgrade(segment));
}

/// Called by the segment when its last reference is gone, before its memory is unmapped.
pub(crate) fn remove(segment: &Segment) {
    let mut table = table();
    table.addresses.remove(&segment.range().start);
    // Another thread may have mapped the same segment again meanwhile.
    if table.tokens.get(&segment.token()).is_some_and(|other| other.strong_count() == 0) {
        table.tokens.remove(&segment.token());
    }
}

/// How many segments this process has mapped.
pub(crate) fn count() -> usize {
    table().addresses.len()
}

/// Retires everything that is in use: a process that is forked now has it, too, and cannot be asked.
pub fn retire_all() {
    let all: Vec<Arc<Segment>> = table().addresses.values().filter_map(Weak::upgrade).collect();
    for segment in all {
        segment.retire();
    }
}

/// The segment with this token, if this process has mapped it.
pub fn known(token: Token) -> Option<Arc<Segment>> {
    table().tokens.get(&token).and_then(Weak::upgrade)
}

/// Where some bytes lie.
#[derive(Debug, Clone)]
pub struct Located {
    pub segment: Arc<Segment>,
    pub offset: usize,
    pub len: usize,
}

impl Located {
    /// How another process of this host finds them.
    pub fn place(&self) -> SharedPlace {
        self.segment.place(self.offset, self.len)
    }
}

/// The segment in which these bytes lie, if they lie in one.
pub fn locate(bytes: &[u8]) -> Option<Located> {
    let start = bytes.as_ptr().addr();
    let segment = table().addresses.range(..=start).next_back().and_then(|(_, segment)| segment.upgrade())?;
    let range = segment.range();
    let inside = !bytes.is_empty() && start + bytes.len() <= range.end;
    inside.then(|| Located { offset: start - range.start, len: bytes.len(), segment })
}

/// Sees to it that the memory of these bytes is not written again, even when the last reference to them is gone.
pub fn retire(bytes: &[u8]) {
    if let Some(located) = locate(bytes) {
        located.segment.retire();
    }
}
