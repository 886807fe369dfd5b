//! Everything that a stream shows of itself.

use super::StreamCore;
use super::explain::ClientWait;
use super::links::Presence;
use crate::cursor::Cursor;
use crate::fact::ReaderEnding;
use crate::settings::{ReaderSettings, StreamSettings};
use crate::state::ReaderState;
use phalanx_types::{ByteSize, Incarnation, ProducerId, ReaderId, Time, TrainerId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A stream with its producers and readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOverview {
    /// Its settings.
    pub settings: StreamSettings,
    /// Whether no more samples will arrive.
    pub ended: bool,
    /// How many samples have arrived.
    pub samples: u64,
    /// How many uploads have arrived.
    pub uploads: u64,
    /// How many uploads are kept.
    pub kept_uploads: u64,
    /// The bytes of samples that are kept.
    pub stored: ByteSize,
    /// The bytes of uploads on their way.
    pub arriving: ByteSize,
    /// Its producers.
    pub producers: Vec<ProducerOverview>,
    /// Its readers.
    pub readers: Vec<ReaderOverview>,
    /// Which clients wait, and why.
    pub waits: Vec<ClientWait>,
}

/// Whether a producer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProducerPresence {
    /// It is connected.
    Open {
        /// How long it has said nothing.
        silent_for: Duration,
    },
    /// It is not connected and has not closed.
    Lost {
        /// For how long.
        lost_for: Duration,
    },
    /// It has no more samples.
    Closed,
}

/// One producer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerOverview {
    /// The producer.
    pub id: ProducerId,
    /// The newest of its lives.
    pub incarnation: Incarnation,
    /// Whether it is there.
    pub presence: ProducerPresence,
    /// The first of its uploads that has not arrived.
    pub next_upload: u64,
    /// How many of its uploads are on their way.
    pub in_flight: u64,
    /// How many of its uploads wait for room.
    pub held: u64,
}

/// One reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderOverview {
    /// The reader.
    pub id: ReaderId,
    /// The newest of its lives.
    pub incarnation: Incarnation,
    /// How it uses the samples.
    pub settings: ReaderSettings,
    /// Its last committed step; `None` before its first pass.
    pub cursor: Option<Cursor>,
    /// How many steps that pass has.
    pub steps: u64,
    /// The last pass that was sealed, if it is a later one.
    pub sealed: Option<Cursor>,
    /// How many samples have arrived that it has not used.
    pub lag: u64,
    /// Why it needs no more samples, if so.
    pub ending: Option<ReaderEnding>,
    /// How long it has had no trainers.
    pub away_for: Option<Duration>,
    /// Its trainers.
    pub trainers: Vec<TrainerOverview>,
}

/// One trainer of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerOverview {
    /// The trainer.
    pub id: TrainerId,
    /// Which share of every batch it takes.
    pub rank: u32,
    /// How many steps of the pass it has done.
    pub done: u64,
    /// Whether it takes a share from the next step on only.
    pub joins: bool,
}

impl StreamCore {
    /// Everything that there is to show at this time.
    pub fn overview(&self, now: Time) -> StreamOverview {
        let uploads = self.state.uploads();
        StreamOverview {
            settings: self.state.settings().clone(),
            ended: self.state.has_ended(),
            samples: uploads.arrived(),
            uploads: uploads.next_sequence().0,
            kept_uploads: uploads.len() as u64,
            stored: uploads.stored(),
            arriving: ByteSize(self.reserved),
            producers: self.producers_overview(now),
            readers: self
                .state
                .readers()
                .iter()
                .map(|(id, state)| self.reader_overview(now, id, state))
                .collect(),
            waits: self.waits(now),
        }
    }

    fn producers_overview(&self, now: Time) -> Vec<ProducerOverview> {
        let known = self.state.producers().iter();
        let one = |(id, state): (&ProducerId, &crate::state::ProducerState)| {
            let link = self.links.get(id);
            let presence = match link.map(|link| link.presence) {
                _ if state.is_closed() => ProducerPresence::Closed,
                Some(Presence::Here { heard }) => ProducerPresence::Open { silent_for: now.since(heard) },
                Some(Presence::Lost { since }) => ProducerPresence::Lost { lost_for: now.since(since) },
                None => ProducerPresence::Lost { lost_for: Duration::ZERO },
            };
            ProducerOverview {
                id: id.clone(),
                incarnation: state.incarnation(),
                presence,
                next_upload: state.next_upload(),
                in_flight: link.map_or(0, |link| link.in_flight.len() as u64),
                held: self.held.iter().filter(|held| held.producer.id == *id).count() as u64,
            }
        };
        known.map(one).collect()
    }

    fn reader_overview(&self, now: Time, id: &ReaderId, state: &ReaderState) -> ReaderOverview {
        let group = self.groups.get(id);
        let trainer = |(id, member): (&TrainerId, &super::group::Member), joins| TrainerOverview {
            id: id.clone(),
            rank: member.rank,
            done: member.done,
            joins,
        };
        let members = group.iter().flat_map(|group| &group.members).map(|member| trainer(member, false));
        let joining = group.iter().flat_map(|group| &group.joining).map(|member| trainer(member, true));
        ReaderOverview {
            id: id.clone(),
            incarnation: state.incarnation(),
            settings: state.settings().clone(),
            cursor: state.cursor(),
            steps: state.cursor().map_or(0, |cursor| cursor.pass(state.settings()).steps()),
            sealed: state.last_sealed().filter(|sealed| Some(sealed.pass) != state.cursor().map(|c| c.pass)),
            lag: self.unused(state),
            ending: state.ending(),
            away_for: group.and_then(|group| group.idle_since).map(|since| now.since(since)),
            trainers: members.chain(joining).collect(),
        }
    }
}
