//! Streams, for clients of our own: `PHALANX.STREAM verb stream …`.

use super::super::error::CommandError;
use super::super::number::unsigned;
use super::super::outcome::Outcome;
use super::super::shards::ShardMap;
use super::super::streams::{MAX_NAME, MAX_STREAMS, StreamWaiter, Wants, default_settings, json, said};
use super::super::table::owned;
use super::{Call, Command, Flags, KeyPlaces, ONE_KEY, streams_produce, streams_read};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::{ReadMode, ReaderSettings, Retention, StreamEvent, StreamRefusal, StreamSettings};
use phalanx_types::{Incarnation, Time};
use serde::de::DeserializeOwned;
use std::time::Duration;

const SECOND: KeyPlaces = (2, 2, 1);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("phalanx.rows", 3, Flags::READ, ONE_KEY, streams_read::rows),
    Command::with_outcome("phalanx.stream", -3, Flags::WRITE.and(Flags::BLOCKING), SECOND, stream),
];

pub(super) type Answered = Result<Outcome, CommandError>;

fn stream(call: &mut Call<'_>) -> Answered {
    let verb = call.arg(1).to_ascii_uppercase();
    let name = call.arg(2);
    match (&verb[..], call.rest(3)) {
        (b"LIST", []) => return Ok(list(call).into()),
        (b"WATCH", [version, ms]) => return watch(call, name, version, ms),
        _ => {}
    }
    if name.is_empty() || name.len() > MAX_NAME || std::str::from_utf8(name).is_err() {
        return Err(CommandError::StreamName);
    }
    let is_shared = call.store.shards.as_ref().is_some_and(ShardMap::is_shared);
    // Braces would decide where the keys of its uploads are.
    if is_shared && name.iter().any(|byte| matches!(byte, b'{' | b'}')) {
        return Err(CommandError::StreamBraces);
    }
    let name = &owned(name);
    match (&verb[..], call.rest(3)) {
        (b"CREATE", [settings]) => {
            ensure(call, name, Some(settings), Retention::Keep)?;
            Ok(Reply::OK.into())
        }
        (b"SEAL", []) => {
            ensure(call, name, None, Retention::Keep)?;
            call.store.feed_stream(call.now, name, StreamEvent::StreamSealed, call.out);
            Ok(Reply::OK.into())
        }
        (b"DELETE", []) => {
            let was_there = call.store.delete_stream(call.now, name, call.out);
            Ok(said(if was_there { "DELETED" } else { "NONE" }, []).into())
        }
        (b"INFO", []) => {
            let info = call.store.stream_info(call.now, name);
            let info = info.ok_or(CommandError::refused(StreamRefusal::UnknownStream))?;
            Ok(said("INFO", [json(&info)]).into())
        }
        (b"FIELDS", [ms]) => {
            let until = deadline(call, ms)?;
            wait(call, StreamWaiter { stream: name.clone(), wants: Wants::Fields, seen: Bytes::new(), until })
        }
        (b"PRODUCER", [id, life, settings]) => streams_produce::open(call, name, [id, life, settings]),
        (b"BEGIN", [id, life, number, samples, bytes, seen, ms, fields @ ..]) => {
            streams_produce::begin(call, name, [id, life, number, samples, bytes, seen, ms], fields)
        }
        (b"COMPLETE", [id, life, number]) => streams_produce::complete(call, name, [id, life, number]),
        (b"ABORT", [id, life, number]) => streams_produce::abort(call, name, [id, life, number]),
        (b"CLOSE", [id, life, uploads]) => streams_produce::close(call, name, [id, life, uploads]),
        (b"ALIVE", [id, life]) => streams_produce::alive(call, name, [id, life]),
        (b"READER", [id, life, settings, stream, resume]) => {
            streams_read::open(call, name, [id, life, settings, stream, resume])
        }
        (b"ATTACH", [id, ms]) => streams_read::attach(call, name, id, ms),
        (b"PASS", [id, life, pass, seen, ms]) => streams_read::pass(call, name, [id, life, pass, seen, ms]),
        (b"COMMIT", [id, life, pass, steps]) => streams_read::commit(call, name, [id, life, pass, steps]),
        (b"READERCLOSE", [id, life]) => streams_read::close(call, name, id, life),
        (b"JOIN", [reader, reader_life, id, life, seen, ms]) => {
            streams_read::join(call, name, [reader, reader_life, id, life], [seen, ms])
        }
        (b"DONE", [reader, reader_life, id, life, epoch, pass, steps, seen, ms]) => {
            let done = [epoch, pass, steps];
            streams_read::done(call, name, [reader, reader_life, id, life], done, [seen, ms])
        }
        (b"LEAVE", [reader, reader_life, id, life]) => {
            streams_read::leave(call, name, [reader, reader_life, id, life])
        }
        (b"UPLOADS", [since]) => streams_read::uploads(call, name, since),
        (b"GATHER", [samples, field]) => streams_read::gather(call, name, samples, field),
        _ => Err(call.unknown_subcommand()),
    }
}

impl CommandError {
    pub(super) fn refused(refusal: StreamRefusal) -> Self {
        CommandError::StreamRefused(Box::new(refusal))
    }
}

pub(super) fn number(text: &Bytes) -> Result<u64, CommandError> {
    unsigned(text).ok_or(CommandError::NotInteger)
}

/// Nothing for `-`.
pub(super) fn optional(text: &Bytes) -> Option<&Bytes> {
    Some(text).filter(|text| &text[..] != b"-")
}

pub(super) fn incarnation(text: &Bytes) -> Result<Option<Incarnation>, CommandError> {
    optional(text).map(|text| number(text).map(Incarnation)).transpose()
}

/// A name of a client.
pub(super) fn id<I: std::str::FromStr>(text: &Bytes) -> Result<I, CommandError> {
    let text = std::str::from_utf8(text).ok().ok_or(CommandError::StreamClient)?;
    text.parse().ok().ok_or(CommandError::StreamClient)
}

pub(super) fn parsed<T: DeserializeOwned>(text: &Bytes) -> Result<T, CommandError> {
    serde_json::from_slice(text).ok().ok_or(CommandError::StreamJson)
}

pub(super) fn deadline(call: &Call<'_>, ms: &Bytes) -> Result<Time, CommandError> {
    Ok(call.now + Duration::from_millis(number(ms)?))
}

/// How a reader's samples are kept if it makes the stream.
pub(super) fn retention(settings: &ReaderSettings) -> Retention {
    match settings.mode {
        ReadMode::Static | ReadMode::Grow { .. } => Retention::Keep,
        ReadMode::Once { .. } | ReadMode::Reservoir { .. } => Retention::Free,
    }
}

/// Makes the stream if it is not there.
pub(super) fn ensure(
    call: &mut Call<'_>,
    name: &Bytes,
    settings: Option<&Bytes>,
    retention: Retention,
) -> Result<(), CommandError> {
    let settings: Option<StreamSettings> = settings.map(parsed).transpose()?;
    if let Some(entry) = call.store.streams.entries.get(name) {
        return match settings.is_some_and(|settings| settings != *entry.state().settings()) {
            true => Err(CommandError::refused(StreamRefusal::StreamDiffers)),
            false => Ok(()),
        };
    }
    if call.store.streams.entries.len() >= MAX_STREAMS {
        return Err(CommandError::refused(StreamRefusal::TooMany { max: MAX_STREAMS as u64 }));
    }
    let settings = settings.unwrap_or_else(|| default_settings(retention));
    settings.validate().map_err(|error| CommandError::refused(error.into()))?;
    call.store.create_stream(call.now, name, settings, call.out);
    Ok(())
}

/// Answers a client if its wait is over, and makes it wait if not.
pub(super) fn wait(call: &mut Call<'_>, waiter: StreamWaiter) -> Answered {
    let time_is_up = waiter.until <= call.now;
    if let Some(reply) = call.store.stream_answer(call.now, &waiter, time_is_up) {
        return Ok(reply.into());
    }
    call.store.streams.waiters.insert(call.client, waiter);
    Ok(Outcome::Blocked)
}

/// Feeds an event whose answer may come later to this client.
pub(super) fn feed_and_wait(
    call: &mut Call<'_>,
    name: &Bytes,
    event: StreamEvent,
    waiter: StreamWaiter,
) -> Answered {
    let (client, until) = (call.client, waiter.until);
    call.store.streams.waiters.insert(client, waiter);
    call.store.feed_stream(call.now, name, event, call.out);
    if let Some(at) = call.out.messages.iter().position(|(told, _)| *told == client) {
        return Ok(call.out.messages.remove(at).1.into());
    }
    if until <= call.now
        && let Some(waiter) = call.store.streams.waiters.remove(client)
        && let Some(reply) = call.store.stream_answer(call.now, &waiter, true)
    {
        return Ok(reply.into());
    }
    Ok(Outcome::Blocked)
}

fn list(call: &Call<'_>) -> Reply {
    let names = call.store.streams.entries.keys().map(|name| Reply::Bulk(name.clone()));
    said("LIST", names)
}

fn watch(call: &mut Call<'_>, name: &Bytes, version: &Bytes, ms: &Bytes) -> Answered {
    let (wants, until) = (Wants::Watch { version: number(version)? }, deadline(call, ms)?);
    wait(call, StreamWaiter { stream: owned(name), wants, seen: Bytes::new(), until })
}
