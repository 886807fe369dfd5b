//! Waiting until a key is there, for clients of our own: other clients ask again and again.

use super::super::blocking::{Condition, Wanted};
use super::super::error::CommandError;
use super::super::number::{integer, is};
use super::super::outcome::Outcome;
use super::super::table::owned;
use super::{Call, Command, Flags, KeyPlaces};
use phalanx_resp::Reply;
use std::time::Duration;

const THIRD: KeyPlaces = (3, 3, 1);

/// `PHALANX.WAIT milliseconds EXISTS key`, `… FIELD key field`, `… LENGTH key length`.
pub(super) const COMMANDS: &[Command] =
    &[Command::with_outcome("phalanx.wait", -4, Flags::READ.and(Flags::BLOCKING), THIRD, wait)];

/// Answers 1 when the key is as wanted, and null when the time is up.
fn wait(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    let timeout =
        integer(call.arg(1)).and_then(|ms| u64::try_from(ms).ok()).ok_or(CommandError::NotInteger)?;
    let condition = match call.rest(2) {
        [word, _] if is(word, "exists") => Condition::Exists,
        [word, _, field] if is(word, "field") => Condition::Field(owned(field)),
        [word, _, length] if is(word, "length") => {
            let length = integer(length).and_then(|length| u64::try_from(length).ok());
            Condition::Length(length.ok_or(CommandError::NotInteger)?)
        }
        _ => return Err(CommandError::Syntax),
    };
    let key = call.arg(3);
    if condition.holds(call.store.database.get(call.now, key)) {
        return Ok(Reply::Integer(1).into());
    }
    if timeout == 0 {
        return Ok(Reply::Null.into());
    }
    let until = call.now + Duration::from_millis(timeout);
    call.store.block(call.client, std::slice::from_ref(key), Wanted::Told(condition), Some(until));
    Ok(Outcome::Blocked)
}
