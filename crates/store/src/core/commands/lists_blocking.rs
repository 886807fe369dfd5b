//! Lists whose elements clients wait for.

use super::super::blocking::Wanted;
use super::super::error::CommandError;
use super::super::number::float;
use super::super::outcome::Outcome;
use super::super::table::owned;
use super::super::value::Side;
use super::{Call, Command, Flags, TWO_KEYS, lists};
use bytes::Bytes;
use phalanx_types::Time;
use std::time::Duration;

const TAKE: Flags = Flags::WRITE.and(Flags::BLOCKING);
const MOVE: Flags = Flags::GROW.and(Flags::BLOCKING);

pub(super) const COMMANDS: &[Command] = &[
    Command::with_outcome("blmove", 6, MOVE, TWO_KEYS, blmove),
    Command::with_outcome("blpop", -3, TAKE, (1, -2, 1), |call| pop(call, Side::Left)),
    Command::with_outcome("brpop", -3, TAKE, (1, -2, 1), |call| pop(call, Side::Right)),
    Command::with_outcome("brpoplpush", 4, MOVE, TWO_KEYS, brpoplpush),
];

/// The end of a wait; none for the time 0.
fn until(call: &Call<'_>, seconds: &Bytes) -> Result<Option<Time>, CommandError> {
    let seconds = float(seconds).ok_or(CommandError::TimeoutFloat)?;
    if seconds < 0.0 {
        return Err(CommandError::TimeoutNegative);
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    let wait = Duration::try_from_secs_f64(seconds).ok().ok_or(CommandError::TimeoutFloat)?;
    // Less than a microsecond is a wait, too.
    Ok(Some(call.now + wait.max(Duration::from_micros(1))))
}

/// Takes from the first list that has something, or waits for all of them.
fn take(
    call: &mut Call<'_>,
    keys: &[Bytes],
    wanted: Wanted,
    until: Option<Time>,
) -> Result<Outcome, CommandError> {
    for key in keys {
        if lists::len(call, key)? == 0 {
            continue;
        }
        if let Wanted::Move { destination, .. } = &wanted {
            lists::len(call, destination)?;
        }
        return Ok(call.store.take_element(call.now, key, &wanted).into());
    }
    call.store.block(call.client, keys, wanted, until);
    Ok(Outcome::Blocked)
}

fn pop(call: &mut Call<'_>, side: Side) -> Result<Outcome, CommandError> {
    let Some((seconds, keys)) = call.rest(1).split_last() else { return Err(CommandError::Syntax) };
    let until = until(call, seconds)?;
    take(call, keys, Wanted::Pop(side), until)
}

fn move_from(call: &mut Call<'_>, from: Side, to: Side, seconds: &Bytes) -> Result<Outcome, CommandError> {
    let until = until(call, seconds)?;
    let wanted = Wanted::Move { from, to, destination: owned(call.arg(2)) };
    take(call, call.args.get(1..2).unwrap_or_default(), wanted, until)
}

fn blmove(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    let (from, to) = (lists::side(call.arg(3))?, lists::side(call.arg(4))?);
    move_from(call, from, to, call.arg(5))
}

fn brpoplpush(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    move_from(call, Side::Right, Side::Left, call.arg(3))
}
