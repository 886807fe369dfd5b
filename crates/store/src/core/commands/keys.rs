//! Keys of any kind.

use super::super::database::Entry;
use super::super::error::CommandError;
use super::super::glob;
use super::super::number::{integer, is};
use super::super::value::Value;
use super::{ALL_KEYS, Call, Command, Flags, NO_KEYS, ONE_KEY, TWO_KEYS};
use bytes::Bytes;
use phalanx_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("copy", -3, Flags::GROW, TWO_KEYS, copy),
    Command::new("dbsize", 1, Flags::READ, NO_KEYS, |call| {
        Ok(Reply::count(call.store.database.table().len()))
    }),
    Command::new("del", -2, Flags::WRITE, ALL_KEYS, del),
    Command::new("exists", -2, Flags::READ, ALL_KEYS, exists),
    Command::new("flushall", -1, Flags::WRITE, NO_KEYS, flush),
    Command::new("flushdb", -1, Flags::WRITE, NO_KEYS, flush),
    Command::new("keys", 2, Flags::READ, NO_KEYS, keys),
    Command::new("object", -2, Flags::READ, (2, 2, 1), object),
    Command::new("randomkey", 1, Flags::READ, NO_KEYS, randomkey),
    Command::new("rename", 3, Flags::WRITE, TWO_KEYS, rename),
    Command::new("renamenx", 3, Flags::WRITE, TWO_KEYS, renamenx),
    Command::new("touch", -2, Flags::READ, ALL_KEYS, exists),
    Command::new("type", 2, Flags::READ, ONE_KEY, kind),
    Command::new("unlink", -2, Flags::WRITE, ALL_KEYS, del),
];

fn del(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let removed =
        call.rest(1).iter().filter(|key| call.store.database.remove(call.now, key).is_some()).count();
    Ok(Reply::count(removed))
}

fn exists(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let found = call.rest(1).iter().filter(|key| call.store.database.get(call.now, key).is_some()).count();
    Ok(Reply::count(found))
}

fn kind(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let value = call.store.database.get(call.now, call.arg(1));
    Ok(Reply::simple(value.map_or("none", Value::kind)))
}

fn keys(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let pattern = call.arg(1);
    let now = call.now;
    let live = |entry: &Entry| entry.expires.is_none_or(|at| at > now);
    let all = call.store.database.table().iter();
    let found = all.filter(|(key, entry)| live(entry) && glob::matches(pattern, key));
    Ok(Reply::bulks(found.map(|(key, _)| key.clone())))
}

fn randomkey(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let point = call.store.draw();
    let now = call.now;
    loop {
        let Some(key) = call.store.database.table().key_near(point).cloned() else { return Ok(Reply::Null) };
        // A key that has ended is removed by looking at it.
        if call.store.database.get(now, &key).is_some() {
            return Ok(Reply::Bulk(key));
        }
    }
}

fn moved(call: &mut Call<'_>, from: &Bytes, to: &Bytes) -> Result<(), CommandError> {
    let Some(Entry { value, expires }) = call.store.database.remove(call.now, from) else {
        return Err(CommandError::NoKey);
    };
    call.store.database.put(to, value, expires);
    call.store.written(to);
    Ok(())
}

fn rename(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    moved(call, call.arg(1), call.arg(2))?;
    Ok(Reply::OK)
}

fn renamenx(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (from, to) = (call.arg(1), call.arg(2));
    if call.store.database.get(call.now, from).is_none() {
        return Err(CommandError::NoKey);
    }
    if call.store.database.get(call.now, to).is_some() {
        return Ok(Reply::Integer(0));
    }
    moved(call, from, to)?;
    Ok(Reply::Integer(1))
}

fn copy(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (from, to) = (call.arg(1), call.arg(2));
    let mut replace = false;
    let mut options = call.rest(3).iter();
    while let Some(option) = options.next() {
        if is(option, "replace") {
            replace = true;
        } else if is(option, "db") {
            let number = options.next().and_then(|number| integer(number));
            match number {
                Some(0) => {}
                Some(_) => return Err(CommandError::Database),
                None => return Err(CommandError::NotInteger),
            }
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if from == to {
        return Err(CommandError::SameKey);
    }
    let Some(Entry { value, expires }) = call.store.database.entry(call.now, from).cloned() else {
        return Ok(Reply::Integer(0));
    };
    if !replace && call.store.database.get(call.now, to).is_some() {
        return Ok(Reply::Integer(0));
    }
    call.store.admit_bytes(value.size())?;
    call.store.database.put(to, value, expires);
    call.store.written(to);
    Ok(Reply::Integer(1))
}

fn flush(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match call.rest(1) {
        [] => {}
        [word] if is(word, "async") || is(word, "sync") => {}
        _ => return Err(CommandError::Syntax),
    }
    call.store.database.clear();
    call.store.runs.clear();
    call.store.clear_streams(call.now, call.out);
    Ok(Reply::OK)
}

fn object(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let subcommand = call.arg(1);
    if !["encoding", "refcount", "idletime", "freq"].iter().any(|known| is(subcommand, known)) {
        return Err(call.unknown_subcommand());
    }
    if call.args.len() != 3 {
        return Err(call.subcommand_arity());
    }
    let Some(value) = call.store.database.get(call.now, call.arg(2)) else { return Ok(Reply::Null) };
    if is(subcommand, "encoding") {
        return Ok(Reply::bulk(encoding(value)));
    }
    if is(subcommand, "refcount") {
        return Ok(Reply::Integer(1));
    }
    Ok(Reply::Integer(0))
}

fn encoding(value: &Value) -> &'static str {
    match value {
        Value::String(text) if integer(text).is_some() => "int",
        Value::String(text) if text.len() <= 44 => "embstr",
        Value::Hash(_) => "hashtable",
        Value::List(_) => "quicklist",
        _ => "raw",
    }
}
