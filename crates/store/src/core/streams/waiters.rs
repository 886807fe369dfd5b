//! Clients that wait for a stream.

use super::super::effects::Effects;
use super::super::error::CommandError;
use super::super::keyspace::Keyspace;
use super::super::session::ClientId;
use super::Streams;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::{
    PassAnswer, ProducerLife, StreamCommand, StreamRefusal, StreamWait, ToProducer, ToTrainer, TrainerLife,
    WaitingClient,
};
use phalanx_types::{ReaderId, Time};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a client waits for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wants {
    /// That an upload may be sent.
    Upload { producer: ProducerLife, number: u64 },
    /// A share for a trainer.
    Share { trainer: TrainerLife },
    /// A pass.
    Pass { reader: ReaderId, pass: u64 },
    /// That a reader is there.
    Attach { reader: ReaderId },
    /// That the fields are known.
    Fields,
    /// That something changes.
    Watch { version: u64 },
}

/// A client that waits.
#[derive(Debug, Clone)]
pub(crate) struct StreamWaiter {
    /// Empty for all streams.
    pub(crate) stream: Bytes,
    pub(crate) wants: Wants,
    /// The kind of reason that the client knows; another one is told at once.
    pub(crate) seen: Bytes,
    pub(crate) until: Time,
}

/// All clients that wait.
#[derive(Debug, Default)]
pub(crate) struct StreamWaiters {
    by_client: BTreeMap<ClientId, StreamWaiter>,
    by_stream: BTreeMap<Bytes, BTreeSet<ClientId>>,
    deadlines: BTreeSet<(Time, ClientId)>,
}

impl StreamWaiters {
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(crate) fn insert(&mut self, client: ClientId, waiter: StreamWaiter) {
        self.remove(client);
        self.deadlines.insert((waiter.until, client));
        self.by_stream.entry(waiter.stream.clone()).or_default().insert(client);
        self.by_client.insert(client, waiter);
    }

    pub(crate) fn remove(&mut self, client: ClientId) -> Option<StreamWaiter> {
        let waiter = self.by_client.remove(&client)?;
        self.deadlines.remove(&(waiter.until, client));
        if let Some(clients) = self.by_stream.get_mut(&waiter.stream) {
            clients.remove(&client);
            if clients.is_empty() {
                self.by_stream.remove(&waiter.stream);
            }
        }
        Some(waiter)
    }

    fn of(&self, stream: &Bytes) -> Vec<(ClientId, StreamWaiter)> {
        let clients = self.by_stream.get(stream).into_iter().flatten();
        clients.filter_map(|client| Some((*client, self.by_client.get(client)?.clone()))).collect()
    }

    fn due(&self, now: Time) -> Option<ClientId> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, client)| *client)
    }
}

/// An answer: a word and what belongs to it.
pub(crate) fn said(word: &'static str, rest: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(std::iter::once(Reply::simple(word)).chain(rest).collect())
}

pub(crate) fn json<T: Serialize>(value: &T) -> Reply {
    Reply::bulk(serde_json::to_vec(value).unwrap_or_default())
}

/// `WAIT kind sentence json`.
pub(crate) fn wait_reply(reason: &StreamWait) -> Reply {
    said("WAIT", [Reply::bulk(reason.kind()), Reply::bulk(reason.to_string()), json(reason)])
}

pub(crate) fn refusal_reply(refusal: StreamRefusal) -> Reply {
    CommandError::StreamRefused(Box::new(refusal)).into()
}

fn producer_reply(waiter: &Wants, producer: &ProducerLife, message: &ToProducer) -> Option<(Reply, bool)> {
    let Wants::Upload { producer: waits, number: wanted } = waiter else { return None };
    if waits != producer {
        return None;
    }
    match message {
        ToProducer::Admitted { number } if number == wanted => Some((said("ADMITTED", []), true)),
        ToProducer::Acknowledged { number } if number == wanted => Some((said("ACKNOWLEDGED", []), true)),
        ToProducer::Wait { number, reason } if number == wanted => Some((wait_reply(reason), false)),
        ToProducer::Refused(refusal) => Some((refusal_reply(refusal.clone()), true)),
        _ => None,
    }
}

fn trainer_reply(waiter: &Wants, trainer: &TrainerLife, message: &ToTrainer) -> Option<(Reply, bool)> {
    if !matches!(waiter, Wants::Share { trainer: waits } if waits == trainer) {
        return None;
    }
    Some(match message {
        ToTrainer::Assigned(share) => (said("ASSIGNED", [json(share)]), true),
        ToTrainer::Wait(reason) => (wait_reply(reason), false),
        ToTrainer::Finished(ending) => (said("FINISHED", [json(ending)]), true),
        ToTrainer::Refused(refusal) => (refusal_reply(refusal.clone()), true),
    })
}

fn kind_of(command: &StreamCommand) -> Option<&'static str> {
    match command {
        StreamCommand::TellProducer { message: ToProducer::Wait { reason, .. }, .. }
        | StreamCommand::TellTrainer { message: ToTrainer::Wait(reason), .. } => Some(reason.kind()),
        _ => None,
    }
}

impl Keyspace {
    /// Gives a message of a stream to the client that waits for it.
    pub(super) fn tell_waiter(&mut self, stream: &Bytes, command: &StreamCommand, out: &mut Effects) {
        for (client, waiter) in self.streams.waiters.of(stream) {
            let reply = match command {
                StreamCommand::TellProducer { producer, message } => {
                    producer_reply(&waiter.wants, producer, message)
                }
                StreamCommand::TellTrainer { trainer, message } => {
                    trainer_reply(&waiter.wants, trainer, message)
                }
                _ => None,
            };
            let Some((mut reply, decided)) = reply else { continue };
            if !decided && kind_of(command).is_some_and(|kind| waiter.seen == kind.as_bytes()) {
                continue;
            }
            if let (Wants::Upload { producer, number }, Reply::Array(items)) = (&waiter.wants, &mut reply)
                && items.first() == Some(&Reply::simple("ADMITTED"))
            {
                let entry = self.streams.entries.get(stream);
                let flight = entry.and_then(|entry| entry.flights.get(&(producer.clone(), *number)));
                items.extend(flight.map(|flight| Reply::Bulk(flight.base.clone())));
            }
            if let (Wants::Upload { producer, number }, Reply::Error(_)) = (&waiter.wants, &reply)
                && let Some(entry) = self.streams.entries.get_mut(stream)
            {
                entry.flights.remove(&(producer.clone(), *number));
            }
            self.streams.waiters.remove(client);
            out.messages.push((client, reply));
        }
    }

    /// Answers clients that wait for something that a stream now has.
    pub(super) fn wake_waiters(&mut self, now: Time, stream: &Bytes, out: &mut Effects) {
        let all = self.streams.waiters.of(stream).into_iter().chain(self.streams.waiters.of(&Bytes::new()));
        for (client, waiter) in all {
            if let Some(reply) = self.stream_answer(now, &waiter, false) {
                self.streams.waiters.remove(client);
                out.messages.push((client, reply));
            }
        }
    }

    /// What a client that waits is told now; nothing if it has to wait longer and may.
    pub(crate) fn stream_answer(&self, now: Time, waiter: &StreamWaiter, time_is_up: bool) -> Option<Reply> {
        if let Wants::Watch { version } = waiter.wants {
            return self.watch_answer(now, &waiter.stream, version, time_is_up);
        }
        let Some(entry) = self.streams.entries.get(&waiter.stream) else {
            return match waiter.wants {
                Wants::Attach { .. } | Wants::Fields if !time_is_up => None,
                Wants::Attach { .. } | Wants::Fields => Some(said("NONE", [])),
                _ => Some(refusal_reply(StreamRefusal::UnknownStream)),
            };
        };
        let told = |reason: StreamWait| {
            (time_is_up || waiter.seen != reason.kind().as_bytes()).then(|| wait_reply(&reason))
        };
        match &waiter.wants {
            Wants::Fields if !entry.fields.is_empty() => Some(said("FIELDS", [json(&entry.fields)])),
            Wants::Attach { reader } if entry.state().readers().contains_key(reader) => {
                let state = entry.state().readers().get(reader)?;
                let life = Reply::bulk(state.incarnation().0.to_string());
                Some(said("ATTACHED", [life, json(state.settings()), json(&state.cursor())]))
            }
            Wants::Fields | Wants::Attach { .. } => time_is_up.then(|| said("NONE", [])),
            Wants::Pass { reader, pass } => match entry.core()?.pass_answer(now, reader, *pass) {
                Ok(PassAnswer::Sealed(cursor)) => Some(said("SEALED", [json(&cursor)])),
                Ok(PassAnswer::Finished(ending)) => Some(said("FINISHED", [json(&ending)])),
                // More samples would come if the node that has the next dataset could be asked.
                Ok(PassAnswer::Waiting(reason)) => match self.list_wait(&waiter.stream) {
                    Some(lost @ StreamWait::DatasetNode { .. }) if reason.is_for_samples() => told(lost),
                    _ => told(reason),
                },
                Err(refusal) => Some(refusal_reply(refusal)),
            },
            Wants::Upload { .. } | Wants::Share { .. } if !time_is_up => None,
            wants @ (Wants::Upload { .. } | Wants::Share { .. }) => {
                let is_it = |waiting: &WaitingClient| match (wants, waiting) {
                    (Wants::Upload { producer, number }, WaitingClient::Producer(waits, upload)) => {
                        producer == waits && number == upload
                    }
                    (Wants::Share { trainer }, WaitingClient::Trainer(waits)) => trainer == waits,
                    _ => false,
                };
                let waits = entry.core()?.waits(now).into_iter().find(|wait| is_it(&wait.waiter));
                // What it asked for was dropped with an earlier connection.
                let nothing = || {
                    refusal_reply(match wants {
                        Wants::Share { trainer } => {
                            StreamRefusal::NotJoined { reader: trainer.reader.id.clone() }
                        }
                        Wants::Upload { producer, .. } => {
                            StreamRefusal::NotOpen { producer: producer.id.clone() }
                        }
                        _ => StreamRefusal::UnknownStream,
                    })
                };
                Some(waits.map_or_else(nothing, |wait| wait_reply(&wait.reason)))
            }
            Wants::Watch { .. } => None,
        }
    }

    /// Answers clients whose time is up.
    pub(super) fn expire_stream_waits(&mut self, now: Time, out: &mut Effects) {
        while let Some(client) = self.streams.waiters.due(now) {
            let Some(waiter) = self.streams.waiters.remove(client) else { return };
            let reply = self.stream_answer(now, &waiter, true);
            out.messages.push((client, reply.unwrap_or(Reply::Null)));
        }
    }
}

impl Streams {
    /// Ends all waits for a stream that is gone.
    pub(crate) fn refuse_waiters(&mut self, stream: &Bytes, out: &mut Effects) {
        for (client, _) in self.waiters.of(stream) {
            self.waiters.remove(client);
            out.messages.push((client, refusal_reply(StreamRefusal::UnknownStream)));
        }
    }
}
