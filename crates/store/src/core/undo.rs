//! Taking back changes that could not be recorded.

use super::change::Change;
use super::database::Entry;
use super::table::Table;
use super::value::{Side, Value};
use bytes::Bytes;
use phalanx_types::Time;
use std::collections::BTreeSet;

/// A step that takes back a change. Steps are taken in the reverse order of the changes.
#[derive(Debug)]
pub enum Undo {
    /// Do this.
    Change(Change),
    /// Put back everything that was cleared.
    Cleared(ClearedKeys),
}

/// All keys and values, from before they were cleared.
#[derive(Debug)]
pub struct ClearedKeys {
    pub(super) table: Table<Entry>,
    pub(super) expirations: BTreeSet<(Time, Bytes)>,
    pub(super) used: u64,
}

impl Change {
    /// Whether the keyspace gives an [`Undo`] for it. Other changes stay when they cannot be recorded at once, and
    /// are recorded as soon as that is possible.
    pub fn has_undo(&self) -> bool {
        match self {
            Change::Put { .. }
            | Change::Delete { .. }
            | Change::Expire { .. }
            | Change::Push { .. }
            | Change::Pop { .. }
            | Change::SetFields { .. }
            | Change::DeleteFields { .. }
            | Change::Clear => true,
            Change::Stream { .. } => false,
        }
    }
}

/// What takes back a change of a value in place, given the value before. A collection costs only what changes of it.
pub(super) fn inverse(change: &Change, before: &Value) -> Vec<Change> {
    match (change, before) {
        (Change::Push { key, side, items }, Value::List(_)) => {
            vec![Change::Pop { key: key.clone(), side: *side, count: items.len() }]
        }
        (Change::Pop { key, side, count }, Value::List(list)) => {
            let items = list.items();
            let kept = items.len().saturating_sub(*count);
            let popped: Vec<Bytes> = match side {
                Side::Left => items.iter().take(*count).rev().cloned().collect(),
                Side::Right => items.iter().skip(kept).cloned().collect(),
            };
            vec![Change::Push { key: key.clone(), side: *side, items: popped.into() }]
        }
        (Change::SetFields { key, fields }, Value::Hash(hash)) => {
            let names = || fields.iter().map(|(name, _)| name);
            let old = names().filter_map(|name| Some((name.clone(), hash.get(name)?.clone()))).collect();
            let new = names().filter(|name| hash.get(name).is_none()).cloned().collect();
            vec![
                Change::SetFields { key: key.clone(), fields: old },
                Change::DeleteFields { key: key.clone(), fields: new },
            ]
        }
        (Change::DeleteFields { key, fields }, Value::Hash(hash)) => {
            let old = fields.iter().filter_map(|name| Some((name.clone(), hash.get(name)?.clone())));
            vec![Change::SetFields { key: key.clone(), fields: old.collect() }]
        }
        _ => Vec::new(),
    }
}
