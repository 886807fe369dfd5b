//! When keys end.

use super::super::error::CommandError;
use super::super::number::{integer_argument, is};
use super::{Call, Command, Flags, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Time;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("expire", -3, Flags::WRITE, ONE_KEY, |call| expire(call, Unit::Seconds, "expire")),
    Command::new("expireat", -3, Flags::WRITE, ONE_KEY, |call| expire(call, Unit::AtSeconds, "expireat")),
    Command::new("expiretime", 2, Flags::READ, ONE_KEY, |call| end(call, |at, _| at / 1_000_000)),
    Command::new("persist", 2, Flags::WRITE, ONE_KEY, persist),
    Command::new("pexpire", -3, Flags::WRITE, ONE_KEY, |call| expire(call, Unit::Milliseconds, "pexpire")),
    Command::new("pexpireat", -3, Flags::WRITE, ONE_KEY, |call| {
        expire(call, Unit::AtMilliseconds, "pexpireat")
    }),
    Command::new("pexpiretime", 2, Flags::READ, ONE_KEY, |call| end(call, |at, _| at / 1000)),
    Command::new("pttl", 2, Flags::READ, ONE_KEY, |call| end(call, |at, now| (at - now) / 1000)),
    // Rounded: a key set for 10 seconds has 10 seconds at once after.
    Command::new("ttl", 2, Flags::READ, ONE_KEY, |call| {
        end(call, |at, now| (at - now + 500_000) / 1_000_000)
    }),
];

/// How the end of a key is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    AtSeconds,
    AtMilliseconds,
}

impl Unit {
    /// The unit that an option of `SET` means.
    pub(super) fn option(word: &Bytes) -> Option<Self> {
        let units = [
            ("ex", Unit::Seconds),
            ("px", Unit::Milliseconds),
            ("exat", Unit::AtSeconds),
            ("pxat", Unit::AtMilliseconds),
        ];
        units.into_iter().find(|(name, _)| is(word, name)).map(|(_, unit)| unit)
    }

    /// The moment in microseconds, which may be before the beginning of time.
    fn moment(self, now: Time, number: i64) -> Option<i64> {
        let now = i64::try_from(now.0).ok()?;
        match self {
            Unit::Seconds => number.checked_mul(1_000_000)?.checked_add(now),
            Unit::Milliseconds => number.checked_mul(1000)?.checked_add(now),
            Unit::AtSeconds => number.checked_mul(1_000_000),
            Unit::AtMilliseconds => number.checked_mul(1000),
        }
    }
}

/// The end that a write gives a key: it must be a positive number.
pub(super) fn deadline(
    now: Time,
    number: &Bytes,
    unit: Unit,
    name: &'static str,
) -> Result<Time, CommandError> {
    let wrong = CommandError::ExpireTime(name);
    let number = integer_argument(number)?;
    if number <= 0 {
        return Err(wrong);
    }
    let at = unit.moment(now, number).and_then(|at| u64::try_from(at).ok());
    at.map(Time).ok_or(wrong)
}

fn expire(call: &mut Call<'_>, unit: Unit, name: &'static str) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let number = integer_argument(call.arg(2))?;
    let at = unit.moment(call.now, number).ok_or(CommandError::ExpireTime(name))?;
    let at = Time(u64::try_from(at).unwrap_or(0));
    let Some(before) = call.store.database.entry(call.now, key).map(|entry| entry.expires) else {
        return Ok(Reply::Integer(0));
    };
    for condition in call.rest(3) {
        let met = if is(condition, "nx") {
            before.is_none()
        } else if is(condition, "xx") {
            before.is_some()
        } else if is(condition, "gt") {
            before.is_some_and(|before| at > before)
        } else if is(condition, "lt") {
            before.is_none_or(|before| at < before)
        } else {
            return Err(CommandError::Syntax);
        };
        if !met {
            return Ok(Reply::Integer(0));
        }
    }
    if at <= call.now {
        call.store.database.remove(call.now, key);
    } else {
        call.store.database.set_expiry(key, Some(at));
    }
    Ok(Reply::Integer(1))
}

fn end(call: &mut Call<'_>, show: fn(i64, i64) -> i64) -> Result<Reply, CommandError> {
    let now = call.now;
    let micros = |time: Time| i64::try_from(time.0).unwrap_or(i64::MAX);
    Ok(Reply::Integer(match call.store.database.entry(now, call.arg(1)) {
        None => -2,
        Some(entry) => entry.expires.map_or(-1, |at| show(micros(at), micros(now))),
    }))
}

fn persist(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let ends = call.store.database.entry(call.now, key).is_some_and(|entry| entry.expires.is_some());
    if ends {
        call.store.database.set_expiry(key, None);
    }
    Ok(Reply::Integer(i64::from(ends)))
}
