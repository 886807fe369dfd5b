//! Waiting for memory, for clients of our own: other clients are refused at once.

use super::super::blocking::Wanted;
use super::super::error::CommandError;
use super::super::number::integer;
use super::super::outcome::Outcome;
use super::{Call, Command, Flags, NO_KEYS};
use phalanx_resp::Reply;
use std::time::Duration;

/// `PHALANX.ROOM bytes milliseconds`.
pub(super) const COMMANDS: &[Command] =
    &[Command::with_outcome("phalanx.room", 3, Flags::OTHER.and(Flags::BLOCKING), NO_KEYS, room)];

/// Answers 1 when there is room for this many bytes, and says why there is none when the time is up.
fn room(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    let number = |at: usize| integer(call.arg(at)).and_then(|number| u64::try_from(number).ok());
    let (bytes, timeout) = number(1).zip(number(2)).ok_or(CommandError::NotInteger)?;
    if call.store.has_room(bytes) {
        return Ok(Reply::Integer(1).into());
    }
    if timeout == 0 || bytes > call.store.max_memory() {
        return Err(call.store.why_full(bytes));
    }
    let until = call.now + Duration::from_millis(timeout);
    call.store.block(call.client, &[], Wanted::Room(bytes), Some(until));
    Ok(Outcome::Blocked)
}
