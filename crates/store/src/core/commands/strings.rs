//! Strings.

use super::super::error::CommandError;
use super::super::number::{integer_argument, is, range};
use super::super::table::owned;
use super::super::value::Value;
use super::expiry::{Unit, deadline};
use super::{ALL_KEYS, Call, Command, Flags, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Time;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("append", 3, Flags::GROW, ONE_KEY, append),
    Command::new("get", 2, Flags::READ, ONE_KEY, get),
    Command::new("getdel", 2, Flags::WRITE, ONE_KEY, getdel),
    Command::new("getex", -2, Flags::WRITE, ONE_KEY, getex),
    Command::new("getrange", 4, Flags::READ, ONE_KEY, getrange),
    Command::new("getset", 3, Flags::GROW, ONE_KEY, getset),
    Command::new("mget", -2, Flags::READ, ALL_KEYS, mget),
    Command::new("mset", -3, Flags::GROW, (1, -1, 2), mset),
    Command::new("msetnx", -3, Flags::GROW, (1, -1, 2), msetnx),
    Command::new("psetex", 4, Flags::GROW, ONE_KEY, psetex),
    Command::new("set", -3, Flags::GROW, ONE_KEY, set),
    Command::new("setex", 4, Flags::GROW, ONE_KEY, setex),
    Command::new("setnx", 3, Flags::GROW, ONE_KEY, setnx),
    Command::new("setrange", 4, Flags::GROW, ONE_KEY, setrange),
    Command::new("strlen", 2, Flags::READ, ONE_KEY, strlen),
    Command::new("substr", 4, Flags::READ, ONE_KEY, getrange),
];

/// Strings that are written piece by piece end here, as in Redis; whole values may be longer.
const LONGEST: usize = 512 << 20;

fn get(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    call.string(call.arg(1)).map(Reply::optional)
}

#[derive(Debug, Default)]
struct SetOptions {
    expires: Option<Time>,
    keep_ttl: bool,
    only_new: bool,
    only_old: bool,
    give_old: bool,
}

fn set_options(call: &Call<'_>) -> Result<SetOptions, CommandError> {
    let mut options = SetOptions::default();
    let mut args = call.rest(3).iter();
    let mut timed = false;
    while let Some(arg) = args.next() {
        let unit = Unit::option(arg);
        if let Some(unit) = unit {
            let number = args.next().ok_or(CommandError::Syntax)?;
            if timed || options.keep_ttl {
                return Err(CommandError::Syntax);
            }
            timed = true;
            options.expires = Some(deadline(call.now, number, unit, "set")?);
        } else if is(arg, "nx") && !options.only_old {
            options.only_new = true;
        } else if is(arg, "xx") && !options.only_new {
            options.only_old = true;
        } else if is(arg, "get") {
            options.give_old = true;
        } else if is(arg, "keepttl") && !timed {
            options.keep_ttl = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

fn set(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let options = set_options(call)?;
    let key = call.arg(1);
    let plain = !(options.keep_ttl || options.only_new || options.only_old || options.give_old);
    if plain {
        call.store.database.put(key, Value::String(owned(call.arg(2))), options.expires);
        return Ok(Reply::OK);
    }
    let old = if options.give_old { call.string(key)? } else { None };
    let before = call.store.database.entry(call.now, key).map(|entry| entry.expires);
    let refused = (options.only_new && before.is_some()) || (options.only_old && before.is_none());
    if !refused {
        let expires = if options.keep_ttl { before.flatten() } else { options.expires };
        call.store.database.put(key, Value::String(owned(call.arg(2))), expires);
    }
    Ok(match (options.give_old, refused) {
        (true, _) => Reply::optional(old),
        (false, true) => Reply::Null,
        (false, false) => Reply::OK,
    })
}

fn set_for(call: &mut Call<'_>, unit: Unit, name: &'static str) -> Result<Reply, CommandError> {
    let expires = deadline(call.now, call.arg(2), unit, name)?;
    call.store.database.put(call.arg(1), Value::String(owned(call.arg(3))), Some(expires));
    Ok(Reply::OK)
}

fn setex(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    set_for(call, Unit::Seconds, "setex")
}

fn psetex(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    set_for(call, Unit::Milliseconds, "psetex")
}

fn setnx(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    if call.store.database.get(call.now, call.arg(1)).is_some() {
        return Ok(Reply::Integer(0));
    }
    call.store.database.put(call.arg(1), Value::String(owned(call.arg(2))), None);
    Ok(Reply::Integer(1))
}

fn getset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let old = call.string(call.arg(1))?;
    call.store.database.put(call.arg(1), Value::String(owned(call.arg(2))), None);
    Ok(Reply::optional(old))
}

fn getdel(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let old = call.string(call.arg(1))?;
    call.store.database.remove(call.now, call.arg(1));
    Ok(Reply::optional(old))
}

fn getex(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let at = match call.rest(2) {
        [] => return get(call),
        [word] if is(word, "persist") => None,
        [word, number] => {
            let unit = Unit::option(word).ok_or(CommandError::Syntax)?;
            Some(deadline(call.now, number, unit, "getex")?)
        }
        _ => return Err(CommandError::Syntax),
    };
    let value = call.string(key)?;
    if value.is_some() {
        call.store.database.set_expiry(key, at);
    }
    Ok(Reply::optional(value))
}

fn mget(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let values = call.rest(1).iter().map(|key| match call.read(key) {
        Some(Value::String(bytes)) => Reply::Bulk(bytes.clone()),
        _ => Reply::Null,
    });
    Ok(Reply::Array(values.collect()))
}

fn pairs<'a>(call: &Call<'a>) -> Result<&'a [[Bytes; 2]], CommandError> {
    match call.rest(1).as_chunks::<2>() {
        (pairs, []) => Ok(pairs),
        _ => Err(CommandError::Arity(call.arg(0).escape_ascii().to_string().to_lowercase())),
    }
}

fn mset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    for [key, value] in pairs(call)? {
        call.store.database.put(key, Value::String(owned(value)), None);
    }
    Ok(Reply::OK)
}

fn msetnx(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let pairs = pairs(call)?;
    if pairs.iter().any(|[key, _]| call.store.database.get(call.now, key).is_some()) {
        return Ok(Reply::Integer(0));
    }
    mset(call)?;
    Ok(Reply::Integer(1))
}

/// Replaces the string of a key and keeps its end.
fn rewrite(call: &mut Call<'_>, key: &Bytes, value: Bytes) {
    let expires = call.store.database.entry(call.now, key).and_then(|entry| entry.expires);
    call.store.database.put(key, Value::String(value), expires);
}

fn append(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (key, more) = (call.arg(1), call.arg(2));
    let Some(old) = call.string(key)? else {
        call.store.database.put(key, Value::String(owned(more)), None);
        return Ok(Reply::count(more.len()));
    };
    let len = old.len() + more.len();
    call.store.admit_bytes(len as u64)?;
    rewrite(call, key, [&old[..], more].concat().into());
    Ok(Reply::count(len))
}

fn strlen(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let value = call.string(call.arg(1))?;
    Ok(Reply::count(value.map_or(0, |value| value.len())))
}

fn getrange(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (start, stop) = (integer_argument(call.arg(2))?, integer_argument(call.arg(3))?);
    let value = call.string(call.arg(1))?.unwrap_or_default();
    Ok(Reply::Bulk(value.slice(range(start, stop, value.len()))))
}

fn setrange(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let offset = usize::try_from(integer_argument(call.arg(2))?).ok().ok_or(CommandError::OffsetRange)?;
    let (key, part) = (call.arg(1), call.arg(3));
    let old = call.string(key)?.unwrap_or_default();
    if part.is_empty() {
        return Ok(Reply::count(old.len()));
    }
    let end = offset.saturating_add(part.len());
    if end > LONGEST.max(old.len()) {
        return Err(CommandError::LongString);
    }
    call.store.admit_bytes(end.max(old.len()) as u64)?;
    let mut new = Vec::with_capacity(end.max(old.len()));
    new.extend_from_slice(&old);
    new.resize(end.max(old.len()), 0);
    if let Some(place) = new.get_mut(offset..end) {
        place.copy_from_slice(part);
    }
    let len = new.len();
    rewrite(call, key, new.into());
    Ok(Reply::count(len))
}
