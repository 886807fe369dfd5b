//! Hashes.

use super::super::change::Change;
use super::super::error::CommandError;
use super::super::number::{integer, integer_argument};
use super::super::table::owned;
use super::super::value::{Hash, Value};
use super::{Call, Command, Flags, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hdel", -3, Flags::WRITE, ONE_KEY, hdel),
    Command::new("hexists", 3, Flags::READ, ONE_KEY, hexists),
    Command::new("hget", 3, Flags::READ, ONE_KEY, hget),
    Command::new("hgetall", 2, Flags::READ, ONE_KEY, hgetall),
    Command::new("hincrby", 4, Flags::GROW, ONE_KEY, hincrby),
    Command::new("hkeys", 2, Flags::READ, ONE_KEY, hkeys),
    Command::new("hlen", 2, Flags::READ, ONE_KEY, hlen),
    Command::new("hmget", -3, Flags::READ, ONE_KEY, hmget),
    Command::new("hmset", -4, Flags::GROW, ONE_KEY, hmset),
    Command::new("hset", -4, Flags::GROW, ONE_KEY, hset),
    Command::new("hsetnx", 4, Flags::GROW, ONE_KEY, hsetnx),
    Command::new("hstrlen", 3, Flags::READ, ONE_KEY, hstrlen),
    Command::new("hvals", 2, Flags::READ, ONE_KEY, hvals),
];

/// The hash at the first argument.
fn hash(call: &mut Call<'_>) -> Result<Option<Arc<Hash>>, CommandError> {
    match call.read(call.arg(1)) {
        None => Ok(None),
        Some(Value::Hash(hash)) => Ok(Some(hash.clone())),
        Some(_) => Err(CommandError::WrongType),
    }
}

fn field(call: &mut Call<'_>, name: &Bytes) -> Result<Option<Bytes>, CommandError> {
    match call.read(call.arg(1)) {
        None => Ok(None),
        Some(Value::Hash(hash)) => Ok(hash.get(name).cloned()),
        Some(_) => Err(CommandError::WrongType),
    }
}

/// Sets fields; says how many are new. Fails when the key holds something else than a hash.
fn put_fields(call: &mut Call<'_>, pairs: &[[Bytes; 2]]) -> Result<usize, CommandError> {
    let key = call.arg(1);
    call.store.database.end_if_due(call.now, key);
    let change = || Change::SetFields {
        key: owned(key),
        fields: pairs.iter().map(|[name, value]| (owned(name), owned(value))).collect(),
    };
    let added = call.store.database.edit_hash(key, change, |hash| {
        pairs.iter().filter(|[name, value]| hash.insert(name, owned(value))).count()
    });
    added.ok_or(CommandError::WrongType)
}

fn put_all(call: &mut Call<'_>, name: &str) -> Result<usize, CommandError> {
    match call.rest(2).as_chunks::<2>() {
        (pairs, []) => put_fields(call, pairs),
        _ => Err(CommandError::Arity(name.to_owned())),
    }
}

fn hset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    put_all(call, "hset").map(Reply::count)
}

fn hmset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    put_all(call, "hmset").map(|_new| Reply::OK)
}

fn hsetnx(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    if field(call, call.arg(2))?.is_some() {
        return Ok(Reply::Integer(0));
    }
    put_fields(call, &[[call.arg(2).clone(), call.arg(3).clone()]])?;
    Ok(Reply::Integer(1))
}

fn hget(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    field(call, call.arg(2)).map(Reply::optional)
}

fn hexists(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    Ok(Reply::Integer(i64::from(field(call, call.arg(2))?.is_some())))
}

fn hstrlen(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    Ok(Reply::count(field(call, call.arg(2))?.map_or(0, |value| value.len())))
}

fn hmget(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let names = call.rest(2);
    let hash = hash(call)?;
    let value = |name: &Bytes| hash.as_ref().and_then(|hash| hash.get(name).cloned());
    Ok(Reply::Array(names.iter().map(|name| Reply::optional(value(name))).collect()))
}

fn hgetall(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let hash = hash(call)?;
    let fields = hash.iter().flat_map(|hash| hash.iter());
    Ok(Reply::Map(
        fields.map(|(name, value)| (Reply::Bulk(name.clone()), Reply::Bulk(value.clone()))).collect(),
    ))
}

fn hkeys(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let hash = hash(call)?;
    Ok(Reply::bulks(hash.iter().flat_map(|hash| hash.iter()).map(|(name, _)| name.clone())))
}

fn hvals(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let hash = hash(call)?;
    Ok(Reply::bulks(hash.iter().flat_map(|hash| hash.iter()).map(|(_, value)| value.clone())))
}

fn hlen(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    Ok(Reply::count(hash(call)?.map_or(0, |hash| hash.len())))
}

fn hdel(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let Some(hash) = hash(call)? else { return Ok(Reply::Integer(0)) };
    let mut found: Vec<_> = call.rest(2).iter().filter(|name| hash.get(name).is_some()).map(owned).collect();
    drop(hash);
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Ok(Reply::Integer(0));
    }
    let key = call.arg(1);
    let change = || Change::DeleteFields { key: owned(key), fields: found.clone() };
    call.store.database.edit_hash(key, change, |hash| found.iter().for_each(|name| drop(hash.remove(name))));
    Ok(Reply::count(found.len()))
}

fn hincrby(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let by = integer_argument(call.arg(3))?;
    let old = match field(call, call.arg(2))? {
        Some(text) => integer(&text).ok_or(CommandError::HashNotInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(CommandError::Overflow)?;
    put_fields(call, &[[call.arg(2).clone(), new.to_string().into()]])?;
    Ok(Reply::Integer(new))
}
