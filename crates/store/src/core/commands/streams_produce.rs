//! What producers of streams ask.

use super::super::error::CommandError;
use super::super::streams::{Flight, MAX_FIELDS, MAX_NAME, StreamWaiter, Wants, list_producer, said};
use super::super::table::owned;
use super::Call;
use super::streams::{Answered, deadline, ensure, feed_and_wait, id, incarnation, number, optional};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::{ProducerLife, Retention, StreamCommand, StreamEvent, StreamRefusal, ToProducer};
use phalanx_types::{ByteSize, Incarnation, ProducerId};

/// What a producer was told last.
fn told(commands: Vec<StreamCommand>, life: &ProducerLife) -> Option<ToProducer> {
    commands.into_iter().rev().find_map(|command| match command {
        StreamCommand::TellProducer { producer, message } if producer == *life => Some(message),
        _ => None,
    })
}

fn answer(message: Option<ToProducer>) -> Answered {
    match message {
        Some(ToProducer::Acknowledged { .. }) => Ok(said("ACKNOWLEDGED", []).into()),
        Some(ToProducer::Closed) => Ok(said("CLOSED", []).into()),
        Some(ToProducer::Refused(refusal)) => Err(CommandError::refused(refusal)),
        _ => Err(CommandError::refused(StreamRefusal::UnknownStream)),
    }
}

/// The life that asks; this client stands for it from now on.
fn life(
    call: &mut Call<'_>,
    name: &Bytes,
    producer: &Bytes,
    life: &Bytes,
) -> Result<ProducerLife, CommandError> {
    if !call.store.streams.entries.contains_key(name) {
        // The producer opens it again, after a store without persistence was started anew.
        let producer = id(producer)?;
        return Err(CommandError::refused(StreamRefusal::NotOpen { producer }));
    }
    let life = ProducerLife { id: id(producer)?, incarnation: Incarnation(number(life)?) };
    if life.id == list_producer().id {
        return Err(CommandError::refused(StreamRefusal::ReservedName { producer: life.id }));
    }
    let known =
        call.store.streams.entries.get(name).and_then(|entry| entry.state().producers().get(&life.id));
    if known.is_some_and(|known| known.incarnation() == life.incarnation) {
        call.store.streams.bind_producer(call.client, name, &life);
    }
    Ok(life)
}

pub(super) fn open(call: &mut Call<'_>, name: &Bytes, [producer, life, settings]: [&Bytes; 3]) -> Answered {
    let (producer, given): (ProducerId, _) = (id(producer)?, incarnation(life)?);
    if producer == list_producer().id {
        return Err(CommandError::refused(StreamRefusal::ReservedName { producer }));
    }
    ensure(call, name, optional(settings), Retention::Keep)?;
    let known =
        call.store.streams.entries.get(name).and_then(|entry| entry.state().producers().get(&producer));
    let before = known.map_or(Incarnation(0), |known| known.incarnation());
    let next = before.0.checked_add(1).ok_or(CommandError::NotInteger)?;
    let life = ProducerLife { id: producer, incarnation: given.unwrap_or(Incarnation(next)) };
    let opened = StreamEvent::ProducerOpened { producer: life.clone() };
    match told(call.store.feed_stream(call.now, name, opened, call.out), &life) {
        Some(ToProducer::Opened { next, closed }) => {
            call.store.streams.bind_producer(call.client, name, &life);
            let settings =
                call.store.streams.entries.get(name).map(|entry| entry.state().settings().producer_silence);
            let silence = settings.flatten().map_or(0, |silence| silence.as_millis());
            let silence = u64::try_from(silence).unwrap_or(u64::MAX);
            let numbers = [life.incarnation.0, next, u64::from(closed), silence];
            Ok(said("OPENED", numbers.map(|number| Reply::bulk(number.to_string()))).into())
        }
        other => answer(other),
    }
}

fn field_names(fields: &[Bytes]) -> Result<Vec<String>, CommandError> {
    let name = |field: &Bytes| {
        let text = std::str::from_utf8(field).ok()?;
        // `meta` is where a dataset has its description.
        let fits = !text.is_empty() && text.len() <= MAX_NAME && text != "meta";
        fits.then(|| text.to_owned())
    };
    let names: Option<Vec<String>> = fields.iter().map(name).collect();
    let fits = (1..=MAX_FIELDS).contains(&fields.len());
    let names = names.filter(|_| fits).ok_or(CommandError::StreamFields)?;
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    if distinct.len() == names.len() { Ok(names) } else { Err(CommandError::StreamFields) }
}

pub(super) fn begin(
    call: &mut Call<'_>,
    name: &Bytes,
    [producer, incarnation, upload, samples, bytes, seen, ms]: [&Bytes; 7],
    fields: &[Bytes],
) -> Answered {
    let upload = number(upload)?;
    let samples = u32::try_from(number(samples)?).ok().ok_or(CommandError::NotInteger)?;
    let (bytes, until) = (ByteSize(number(bytes)?), deadline(call, ms)?);
    let fields = field_names(fields)?;
    let life = life(call, name, producer, incarnation)?;
    let flight = Flight { base: call.store.upload_base(name, &life, upload), fields, samples, bytes };
    call.store.note_flight(name, &life, upload, flight);
    let wants = Wants::Upload { producer: life.clone(), number: upload };
    let waiter = StreamWaiter { stream: name.clone(), wants, seen: owned(seen), until };
    let event = StreamEvent::UploadBegun { producer: life, number: upload, samples, bytes };
    feed_and_wait(call, name, event, waiter)
}

pub(super) fn complete(
    call: &mut Call<'_>,
    name: &Bytes,
    [producer, incarnation, upload]: [&Bytes; 3],
) -> Answered {
    let upload = number(upload)?;
    let life = life(call, name, producer, incarnation)?;
    if let Some(flight) = call.store.flight(name, &life, upload) {
        let checked = call.store.inspect_upload(call.now, name, upload, &flight.base, &flight.fields);
        let checked = checked.and_then(|(samples, bytes, fields)| {
            let announced = (flight.samples, flight.bytes);
            match (samples, bytes) == announced {
                true => Ok(fields),
                false => {
                    Err(StreamRefusal::UploadDiffers { number: upload, announced, found: (samples, bytes) })
                }
            }
        });
        match checked {
            Ok(fields) => {
                call.store.complete_dataset(&flight.base, &flight.fields);
                call.store.learn_fields(name, fields);
            }
            Err(refusal) => {
                let aborted = StreamEvent::UploadAborted { producer: life, number: upload };
                call.store.feed_stream(call.now, name, aborted, call.out);
                return Err(CommandError::refused(refusal));
            }
        }
    }
    let event = StreamEvent::UploadCompleted { producer: life.clone(), number: upload };
    answer(told(call.store.feed_stream(call.now, name, event, call.out), &life))
}

pub(super) fn abort(
    call: &mut Call<'_>,
    name: &Bytes,
    [producer, incarnation, upload]: [&Bytes; 3],
) -> Answered {
    let upload = number(upload)?;
    let producer = life(call, name, producer, incarnation)?;
    call.store.feed_stream(call.now, name, StreamEvent::UploadAborted { producer, number: upload }, call.out);
    Ok(Reply::OK.into())
}

pub(super) fn close(
    call: &mut Call<'_>,
    name: &Bytes,
    [producer, incarnation, uploads]: [&Bytes; 3],
) -> Answered {
    let uploads = number(uploads)?;
    let life = life(call, name, producer, incarnation)?;
    let event = StreamEvent::ProducerClosed { producer: life.clone(), uploads };
    answer(told(call.store.feed_stream(call.now, name, event, call.out), &life))
}

/// Notes that a producer lives. It may say so over another connection than the one whose end means that it is lost.
pub(super) fn alive(call: &mut Call<'_>, name: &Bytes, [producer, incarnation]: [&Bytes; 2]) -> Answered {
    let producer = ProducerLife { id: id(producer)?, incarnation: Incarnation(number(incarnation)?) };
    call.store.feed_stream(call.now, name, StreamEvent::ProducerHeard { producer }, call.out);
    Ok(Reply::OK.into())
}
