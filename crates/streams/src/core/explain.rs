//! Why producers and trainers wait.

use super::links::Presence;
use super::passes::Next;
use super::{StreamCore, StreamOutbox, tell_producer, tell_trainer};
use crate::command::{ToProducer, ToTrainer};
use crate::cursor::Cursor;
use crate::event::{ProducerLife, ReaderLife, TrainerLife};
use crate::settings::ReadMode;
use crate::state::ReaderState;
use crate::wait::{Names, StreamWait};
use phalanx_types::{ByteSize, ProducerId, ReaderId, Time, TrainerId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A client that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitingClient {
    /// A producer with the number of its upload.
    Producer(ProducerLife, u64),
    /// A trainer.
    Trainer(TrainerLife),
}

/// `sim-1 with upload 7`, `trainer-0 of run-1`.
impl fmt::Display for WaitingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Producer(producer, number) => write!(f, "{} with upload {number}", producer.id),
            Self::Trainer(trainer) => write!(f, "{} of {}", trainer.id, trainer.reader.id),
        }
    }
}

/// A client that waits, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientWait {
    /// The client.
    pub waiter: WaitingClient,
    /// Why.
    pub reason: StreamWait,
}

impl StreamCore {
    /// All clients that wait, with reasons as of now.
    pub fn waits(&self, now: Time) -> Vec<ClientWait> {
        let mut waits = Vec::new();
        for held in &self.held {
            let waiter = WaitingClient::Producer(held.producer.clone(), held.number);
            waits.push(ClientWait { waiter, reason: self.room_wait(now) });
        }
        for (reader, group) in &self.groups {
            let Some(state) = self.state.reader(reader).filter(|state| state.ending().is_none()) else {
                continue;
            };
            let life = ReaderLife { id: reader.clone(), incarnation: state.incarnation() };
            for (id, member) in group.all() {
                if let Some(reason) = self.trainer_wait(now, reader, id) {
                    let (reader, id) = (life.clone(), id.clone());
                    let trainer = TrainerLife { reader, id, incarnation: member.incarnation };
                    waits.push(ClientWait { waiter: WaitingClient::Trainer(trainer), reason });
                }
            }
        }
        waits
    }

    /// Tells clients why they wait, if they do not know.
    pub(super) fn tell_waits(&mut self, now: Time, out: &mut StreamOutbox) {
        if !self.held.is_empty() {
            let reason = self.room_wait(now);
            for held in &mut self.held {
                if held.told.as_ref().is_none_or(|told| !told.same_kind(&reason)) {
                    held.told = Some(reason.clone());
                    let message = ToProducer::Wait { number: held.number, reason: reason.clone() };
                    tell_producer(&held.producer, message, out);
                }
            }
        }
        for reader in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.tell_trainers(now, &reader, out);
        }
    }

    fn tell_trainers(&mut self, now: Time, reader: &ReaderId, out: &mut StreamOutbox) {
        let Some(state) = self.state.reader(reader).filter(|state| state.ending().is_none()) else { return };
        let life = ReaderLife { id: reader.clone(), incarnation: state.incarnation() };
        // All wait for the same pass: the reason is found once.
        let (cursor, for_pass) = match state.open_pass() {
            Some((cursor, _)) => (Some(cursor), None),
            None => (None, Some(self.pass_wait(now, state))),
        };
        let Some(group) = self.groups.get(reader) else { return };
        let mut told = Vec::new();
        for (id, member) in group.all() {
            let joins = group.joining.contains_key(id);
            let waits = joins || cursor.is_none_or(|cursor| member.done > cursor.step);
            let same = |told: &StreamWait| for_pass.as_ref().is_none_or(|reason| reason.same_kind(told));
            if !waits || member.told.as_ref().is_some_and(same) {
                continue;
            }
            let reason = for_pass.clone().or_else(|| self.trainer_wait(now, reader, id));
            told.extend(reason.map(|reason| (id.clone(), member.incarnation, reason)));
        }
        for (id, incarnation, reason) in told {
            if let Some(member) = self.groups.get_mut(reader).and_then(|group| group.get_mut(&id)) {
                member.told = Some(reason.clone());
            }
            tell_trainer(TrainerLife { reader: life.clone(), id, incarnation }, ToTrainer::Wait(reason), out);
        }
    }

    /// Why a trainer waits; `None` if it has a share to do.
    fn trainer_wait(&self, now: Time, reader: &ReaderId, trainer: &TrainerId) -> Option<StreamWait> {
        let state = self.state.reader(reader)?;
        let group = self.groups.get(reader)?;
        let Some((cursor, _)) = state.open_pass() else { return Some(self.pass_wait(now, state)) };
        let Cursor { pass, step, .. } = cursor;
        match group.members.get(trainer) {
            None => Some(StreamWait::NextStep { pass, step }),
            Some(member) if member.done > step => {
                let busy = group.members.iter().filter(|(_, member)| member.done <= step);
                Some(StreamWait::OtherTrainers { pass, step, busy: busy.map(|(id, _)| id.clone()).collect() })
            }
            Some(_) => None,
        }
    }

    /// Why the next pass of a reader does not begin.
    pub(super) fn pass_wait(&self, now: Time, reader: &ReaderState) -> StreamWait {
        let unclosed = || self.state.producers().iter().filter(|(_, known)| !known.is_closed());
        let open: Names<ProducerId> =
            unclosed().map(|(id, _)| id).filter(|id| self.is_here(id)).cloned().collect();
        let lost = unclosed().filter_map(|(id, _)| match self.links.get(id)?.presence {
            Presence::Lost { since } => Some((since, id)),
            Presence::Here { .. } => None,
        });
        if open.count == 0
            && let Some((since, producer)) = lost.clone().max()
        {
            let others = u32::try_from(lost.count() - 1).unwrap_or(u32::MAX);
            return StreamWait::ProducerLost {
                producer: producer.clone(),
                lost_for: now.since(since),
                others,
            };
        }
        match self.next_pass(reader) {
            Next::Samples { arrived, needed } => StreamWait::Samples { arrived, needed, open },
            Next::NewSamples { arrived, needed } => StreamWait::NewSamples { arrived, needed, open },
            Next::EndOfStream | Next::Seal { .. } | Next::Finish(_) => {
                let closed = self.state.producers().values().filter(|known| known.is_closed()).count();
                StreamWait::EndOfStream {
                    arrived: self.state.uploads().arrived(),
                    closed: u32::try_from(closed).unwrap_or(u32::MAX),
                    expected: self.state.settings().expected_producers,
                    open,
                }
            }
        }
    }

    /// Why there is no room for an upload.
    fn room_wait(&self, now: Time) -> StreamWait {
        let (used, budget) = (self.used(), self.state.settings().budget.unwrap_or(ByteSize(0)));
        let readers = self.state.readers().iter().filter(|(_, state)| state.ending().is_none());
        let Some((reader, state)) = readers.max_by_key(|(_, state)| self.unused(state)) else {
            return StreamWait::NoReader { used, budget };
        };
        let Some(group) = self.groups.get(reader) else { return StreamWait::NoReader { used, budget } };
        if let Some(since) = group.idle_since {
            let away_for = now.since(since);
            return StreamWait::ReaderAway { used, budget, reader: reader.clone(), away_for };
        }
        let last = group.members.iter().min_by_key(|(_, member)| member.done).map(|(id, _)| id.clone());
        let trainer = last.filter(|_| group.members.len() > 1);
        StreamWait::Budget { used, budget, behind: Some((reader.clone(), self.unused(state))), trainer }
    }

    /// How many samples a reader has not used; samples of a reservoir are used again and again.
    pub(super) fn unused(&self, reader: &ReaderState) -> u64 {
        let arrived = self.state.uploads().arrived();
        let horizon = reader.cursor().map_or(reader.start(), |cursor| cursor.horizon);
        let later = arrived.saturating_sub(horizon);
        let now = match (reader.settings().mode, reader.open_pass()) {
            (ReadMode::Once { .. }, Some((cursor, pass))) => pass.len() - pass.positions(cursor.step).start,
            _ => 0,
        };
        later + now
    }
}
