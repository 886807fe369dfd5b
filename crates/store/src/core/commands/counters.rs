//! Numbers in strings.

use super::super::error::CommandError;
use super::super::number::{float, integer, integer_argument};
use super::super::value::Value;
use super::{Call, Command, Flags, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("decr", 2, Flags::GROW, ONE_KEY, |call| add(call, -1)),
    Command::new("decrby", 3, Flags::GROW, ONE_KEY, decrby),
    Command::new("incr", 2, Flags::GROW, ONE_KEY, |call| add(call, 1)),
    Command::new("incrby", 3, Flags::GROW, ONE_KEY, incrby),
    Command::new("incrbyfloat", 3, Flags::GROW, ONE_KEY, incrbyfloat),
];

fn add(call: &mut Call<'_>, by: i64) -> Result<Reply, CommandError> {
    let old = match call.string(call.arg(1))? {
        Some(text) => integer(&text).ok_or(CommandError::NotInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(CommandError::Overflow)?;
    store(call, new.to_string().into());
    Ok(Reply::Integer(new))
}

fn store(call: &mut Call<'_>, text: Bytes) {
    let key = call.arg(1);
    let expires = call.store.database.entry(call.now, key).and_then(|entry| entry.expires);
    call.store.database.put(key, Value::String(text), expires);
}

fn incrby(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let by = integer_argument(call.arg(2))?;
    add(call, by)
}

fn decrby(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let by = integer_argument(call.arg(2))?;
    add(call, by.checked_neg().ok_or(CommandError::Overflow)?)
}

fn incrbyfloat(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let by = float(call.arg(2)).ok_or(CommandError::NotFloat)?;
    let old = match call.string(call.arg(1))? {
        Some(text) => float(&text).ok_or(CommandError::NotFloat)?,
        None => 0.0,
    };
    let new = old + by;
    if !new.is_finite() {
        return Err(CommandError::NotFinite);
    }
    let text = Bytes::from(new.to_string());
    store(call, text.clone());
    Ok(Reply::Bulk(text))
}
