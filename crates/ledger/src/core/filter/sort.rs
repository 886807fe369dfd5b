//! The order of a listing: `-val_acc,started`.

use super::Column;

/// One key of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    pub column: Column,
    pub descending: bool,
    /// Where it stands in the text, in characters.
    pub position: usize,
}

/// Reads an order: names with commas between, a minus before those with the largest first.
pub fn parse_sort(text: &str) -> Vec<SortKey> {
    let mut position = 0;
    let mut keys = Vec::new();
    for part in text.split(',') {
        let name = part.trim();
        let (descending, bare) = match name.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, name.strip_prefix('+').unwrap_or(name)),
        };
        if !bare.is_empty() {
            keys.push(SortKey { column: Column::named(bare), descending, position });
        }
        position += part.chars().count() + 1;
    }
    keys
}
