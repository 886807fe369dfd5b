//! What readers and trainers of streams ask.

use super::super::error::CommandError;
use super::super::streams::{MOST_ROWS, StreamWaiter, Wants, json, rows_of, run_trainer, said};
use super::super::table::owned;
use super::Call;
use super::streams::{
    Answered, deadline, ensure, feed_and_wait, id, incarnation, number, optional, parsed, retention, wait,
};
use super::tensors::tensor;
use bytes::{BufMut, Bytes, BytesMut};
use phalanx_resp::Reply;
use phalanx_streams::{
    Cursor, ReaderLife, ReaderSettings, Retention, StreamCommand, StreamEvent, StreamRefusal, ToReader,
    TrainerLife,
};
use phalanx_types::{Epoch, Incarnation, ReaderId};

fn told(commands: Vec<StreamCommand>, life: &ReaderLife) -> Option<ToReader> {
    commands.into_iter().rev().find_map(|command| match command {
        StreamCommand::TellReader { reader, message } if reader == *life => Some(message),
        _ => None,
    })
}

fn answer(message: Option<ToReader>) -> Answered {
    match message {
        Some(ToReader::Closed) => Ok(said("CLOSED", []).into()),
        Some(ToReader::Committed { cursor }) => Ok(said("COMMITTED", [json(&cursor)]).into()),
        Some(ToReader::Refused(refusal)) => Err(CommandError::refused(refusal)),
        Some(ToReader::Opened { .. }) | None => Err(CommandError::refused(StreamRefusal::UnknownStream)),
    }
}

/// The newest life of a reader, if it is known.
fn current(call: &Call<'_>, name: &Bytes, reader: &ReaderId) -> Option<Incarnation> {
    let entry = call.store.streams.entries.get(name)?;
    entry.state().readers().get(reader).map(|state| state.incarnation())
}

pub(super) fn open(
    call: &mut Call<'_>,
    name: &Bytes,
    [reader, life, settings, stream, resume]: [&Bytes; 5],
) -> Answered {
    let (reader, given): (ReaderId, _) = (id(reader)?, incarnation(life)?);
    let settings: ReaderSettings = parsed(settings)?;
    let resume: Option<Cursor> = optional(resume).map(parsed).transpose()?;
    // What cannot be is refused before a stream is made for it.
    let known = call.store.streams.entries.get(name).map(|entry| entry.state().settings().retention);
    let kept = known.unwrap_or_else(|| retention(&settings));
    if optional(stream).is_none() {
        settings.validate(kept).map_err(|error| CommandError::refused(error.into()))?;
    }
    ensure(call, name, optional(stream), kept)?;
    let before = current(call, name, &reader).map_or(0, |incarnation| incarnation.0);
    let next = before.checked_add(1).ok_or(CommandError::NotInteger)?;
    let life = ReaderLife { id: reader, incarnation: given.unwrap_or(Incarnation(next)) };
    let opened = StreamEvent::ReaderOpened { reader: life.clone(), settings, resume };
    match told(call.store.feed_stream(call.now, name, opened, call.out), &life) {
        Some(ToReader::Opened { cursor }) => {
            let incarnation = Reply::bulk(life.incarnation.0.to_string());
            Ok(said("OPENED", [incarnation, json(&cursor)]).into())
        }
        other => answer(other),
    }
}

pub(super) fn attach(call: &mut Call<'_>, name: &Bytes, reader: &Bytes, ms: &Bytes) -> Answered {
    let (wants, until) = (Wants::Attach { reader: id(reader)? }, deadline(call, ms)?);
    wait(call, StreamWaiter { stream: name.clone(), wants, seen: Bytes::new(), until })
}

pub(super) fn pass(
    call: &mut Call<'_>,
    name: &Bytes,
    [reader, life, pass, seen, ms]: [&Bytes; 5],
) -> Answered {
    let (reader, given): (ReaderId, _) = (id(reader)?, incarnation(life)?);
    let (pass, until) = (number(pass)?, deadline(call, ms)?);
    if !call.store.streams.entries.contains_key(name) {
        return Err(CommandError::refused(StreamRefusal::UnknownStream));
    }
    let unknown = || CommandError::refused(StreamRefusal::UnknownReader { reader: reader.clone() });
    let incarnation = current(call, name, &reader).ok_or_else(unknown)?;
    if let Some(given) = given.filter(|given| *given != incarnation) {
        let fenced = StreamRefusal::Fenced { incarnation: given, current: incarnation };
        return Err(if given < incarnation { CommandError::refused(fenced) } else { unknown() });
    }
    let life = ReaderLife { id: reader.clone(), incarnation };
    call.store.streams.bind_run(call.client, name, &reader);
    let waiter = StreamWaiter {
        stream: name.clone(),
        wants: Wants::Pass { reader: reader.clone(), pass },
        seen: owned(seen),
        until,
    };
    let known = call.store.streams.entries.get(name).and_then(|entry| entry.state().readers().get(&reader));
    if known.is_none_or(|state| state.sealed_pass(pass).is_none()) {
        let joined = StreamEvent::TrainerJoined { trainer: run_trainer(life.clone()) };
        call.store.feed_stream(call.now, name, joined, call.out);
        call.store.feed_stream(call.now, name, StreamEvent::PassWanted { reader: life, pass }, call.out);
    }
    wait(call, waiter)
}

/// One life of a reader that has to be told.
fn reader_life(reader: &Bytes, life: &Bytes) -> Result<ReaderLife, CommandError> {
    Ok(ReaderLife { id: id(reader)?, incarnation: Incarnation(number(life)?) })
}

pub(super) fn commit(
    call: &mut Call<'_>,
    name: &Bytes,
    [reader, life, pass, steps]: [&Bytes; 4],
) -> Answered {
    let life = reader_life(reader, life)?;
    let (pass, steps) = (number(pass)?, number(steps)?);
    let event = StreamEvent::RunCommitted { reader: life.clone(), pass, steps };
    answer(told(call.store.feed_stream(call.now, name, event, call.out), &life))
}

pub(super) fn close(call: &mut Call<'_>, name: &Bytes, reader: &Bytes, life: &Bytes) -> Answered {
    let life = reader_life(reader, life)?;
    let event = StreamEvent::ReaderClosed { reader: life.clone() };
    answer(told(call.store.feed_stream(call.now, name, event, call.out), &life))
}

fn trainer_life([reader, reader_life_, trainer, life]: [&Bytes; 4]) -> Result<TrainerLife, CommandError> {
    let reader = reader_life(reader, reader_life_)?;
    Ok(TrainerLife { reader, id: id(trainer)?, incarnation: Incarnation(number(life)?) })
}

pub(super) fn join(
    call: &mut Call<'_>,
    name: &Bytes,
    life: [&Bytes; 4],
    [seen, ms]: [&Bytes; 2],
) -> Answered {
    let trainer = trainer_life(life)?;
    ask_for_share(call, name, StreamEvent::TrainerJoined { trainer: trainer.clone() }, (trainer, seen, ms))
}

pub(super) fn done(
    call: &mut Call<'_>,
    name: &Bytes,
    life: [&Bytes; 4],
    [epoch, pass, steps]: [&Bytes; 3],
    [seen, ms]: [&Bytes; 2],
) -> Answered {
    let trainer = trainer_life(life)?;
    let (epoch, pass, steps) = (Epoch(number(epoch)?), number(pass)?, number(steps)?);
    let event = StreamEvent::StepsDone { trainer: trainer.clone(), epoch, pass, steps };
    ask_for_share(call, name, event, (trainer, seen, ms))
}

fn ask_for_share(
    call: &mut Call<'_>,
    name: &Bytes,
    event: StreamEvent,
    (trainer, seen, ms): (TrainerLife, &Bytes, &Bytes),
) -> Answered {
    let until = deadline(call, ms)?;
    if !call.store.streams.entries.contains_key(name) {
        return Err(CommandError::refused(StreamRefusal::UnknownStream));
    }
    call.store.streams.bind_trainer(call.client, name, &trainer);
    let waiter =
        StreamWaiter { stream: name.clone(), wants: Wants::Share { trainer }, seen: owned(seen), until };
    feed_and_wait(call, name, event, waiter)
}

pub(super) fn leave(call: &mut Call<'_>, name: &Bytes, life: [&Bytes; 4]) -> Answered {
    let trainer = trainer_life(life)?;
    call.store.feed_stream(call.now, name, StreamEvent::TrainerLeft { trainer }, call.out);
    Ok(Reply::OK.into())
}

/// Uploads that have arrived since this many samples had: first sample and number of samples of each, and what their keys
/// begin with. All that are kept, if samples are freed.
pub(super) fn uploads(call: &mut Call<'_>, name: &Bytes, since: &Bytes) -> Answered {
    let since = number(since)?;
    let Some(entry) = call.store.streams.entries.get(name) else {
        return Err(CommandError::refused(StreamRefusal::UnknownStream));
    };
    let is_all = entry.state().settings().retention == Retention::Free || since == 0;
    let since = if is_all { 0 } else { since };
    let mut places = BytesMut::new();
    let mut bases = Vec::new();
    for upload in entry.state().uploads().iter_from(since) {
        let Some(base) = entry.base_of(upload.sequence) else { continue };
        places.put_u64_le(upload.first);
        places.put_u64_le(u64::from(upload.samples));
        bases.push(Reply::Bulk(base));
    }
    let arrived = entry.state().uploads().arrived().to_string();
    let head = [Reply::bulk(arrived), Reply::Integer(i64::from(is_all)), Reply::bulk(places.freeze())];
    Ok(said("UPLOADS", head.into_iter().chain(bases)).into())
}

/// Numbers of 8 bytes, one after the other.
fn row_numbers(blob: &Bytes) -> Result<Vec<u64>, CommandError> {
    let (numbers, rest) = blob.as_chunks::<8>();
    if !rest.is_empty() || numbers.len() > MOST_ROWS {
        return Err(CommandError::StreamSamples);
    }
    Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

fn blob(numbers: impl Iterator<Item = u64>) -> Reply {
    let mut blob = BytesMut::new();
    numbers.for_each(|number| blob.put_u64_le(number));
    Reply::bulk(blob.freeze())
}

pub(super) fn gather(call: &mut Call<'_>, name: &Bytes, samples: &Bytes, field: &Bytes) -> Answered {
    let samples = row_numbers(samples)?;
    let field = std::str::from_utf8(field).ok().ok_or(CommandError::StreamFields)?;
    let gathered = call.store.gather(call.now, name, field, &samples).map_err(CommandError::refused)?;
    let elsewhere = gathered.elsewhere.into_iter().flat_map(|(key, rows)| {
        let (numbers, rows): (Vec<u64>, Vec<u64>) = rows.into_iter().unzip();
        [Reply::Bulk(key), blob(numbers.into_iter()), blob(rows.into_iter())]
    });
    Ok(said("ROWS", [gathered.parts].into_iter().chain(elsewhere)).into())
}

/// `PHALANX.ROWS key rows`: some rows of a tensor.
pub(super) fn rows(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let rows = row_numbers(call.arg(2))?;
    let tensor = tensor(call, call.arg(1))?;
    rows_of(&tensor, &rows).ok_or(CommandError::StreamSamples)
}
