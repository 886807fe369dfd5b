//! Looking through many keys or fields step by step.

use super::super::error::CommandError;
use super::super::glob;
use super::super::number::{integer_argument, is, unsigned};
use super::super::value::Value;
use super::{Call, Command, Flags, NO_KEYS, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hscan", -3, Flags::READ, ONE_KEY, hscan),
    Command::new("scan", -2, Flags::READ, NO_KEYS, scan),
];

#[derive(Debug)]
struct ScanOptions<'a> {
    cursor: u64,
    pattern: Option<&'a Bytes>,
    kind: Option<&'a Bytes>,
    count: usize,
    no_values: bool,
}

impl ScanOptions<'_> {
    fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Reads a cursor and the options after it.
fn options<'a>(args: &'a [Bytes], of_fields: bool) -> Result<ScanOptions<'a>, CommandError> {
    let (cursor, rest) = args.split_first().ok_or(CommandError::Syntax)?;
    let cursor = unsigned(cursor).ok_or(CommandError::Cursor)?;
    let mut options = ScanOptions { cursor, pattern: None, kind: None, count: 10, no_values: false };
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        if of_fields && is(word, "novalues") {
            options.no_values = true;
            continue;
        }
        let value = rest.next().ok_or(CommandError::Syntax)?;
        if is(word, "match") {
            options.pattern = Some(value);
        } else if is(word, "count") {
            let count = usize::try_from(integer_argument(value)?).ok().filter(|count| *count > 0);
            options.count = count.ok_or(CommandError::Syntax)?;
        } else if !of_fields && is(word, "type") {
            options.kind = Some(value);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

fn page(cursor: u64, items: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(items)])
}

fn scan(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let options = options(call.rest(1), false)?;
    let now = call.now;
    let (next, found) = call.store.database.table().scan(options.cursor, options.count);
    let found = found.into_iter().filter(|(key, entry)| {
        let live = entry.expires.is_none_or(|at| at > now);
        live && options.kind.is_none_or(|kind| is(kind, entry.value.kind())) && options.wants(key)
    });
    Ok(page(next, found.map(|(key, _)| Reply::Bulk(key.clone())).collect()))
}

fn hscan(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let options = options(call.rest(2), true)?;
    let hash = match call.read(call.arg(1)) {
        None => return Ok(page(0, Vec::new())),
        Some(Value::Hash(hash)) => hash,
        Some(_) => return Err(CommandError::WrongType),
    };
    let (next, found) = hash.scan(options.cursor, options.count);
    let mut items = Vec::new();
    for (field, value) in found.into_iter().filter(|(field, _)| options.wants(field)) {
        items.push(Reply::Bulk(field.clone()));
        if !options.no_values {
            items.push(Reply::Bulk(value.clone()));
        }
    }
    Ok(page(next, items))
}
