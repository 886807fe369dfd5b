//! Producers come, are lost, come back and close.

use super::links::{Presence, ProducerLink};
use super::{StreamCore, StreamOutbox, tell_producer};
use crate::bugs::{StreamBug, planted};
use crate::command::{StreamCommand, StreamReport, ToProducer};
use crate::event::ProducerLife;
use crate::fact::Fact;
use crate::refusal::StreamRefusal;
use crate::settings::MAX_PRODUCERS;
use phalanx_types::Time;
use std::time::Duration;

impl StreamCore {
    pub(super) fn on_producer_opened(&mut self, now: Time, producer: ProducerLife, out: &mut StreamOutbox) {
        if let Err(refusal) = self.may_open(&producer) {
            return tell_producer(&producer, ToProducer::Refused(refusal), out);
        }
        let known = self.state.producers().get(&producer.id);
        let before = known.map(|known| known.incarnation());
        if before != Some(producer.incarnation) {
            if let Some(incarnation) = before {
                let old = ProducerLife { id: producer.id.clone(), incarnation };
                self.drop_uploads(&old, out);
                let fenced = StreamRefusal::Fenced { incarnation, current: producer.incarnation };
                tell_producer(&old, ToProducer::Refused(fenced), out);
            }
            let fact =
                Fact::ProducerOpened { producer: producer.id.clone(), incarnation: producer.incarnation };
            self.record(fact, out);
        }
        let link = self.links.entry(producer.id.clone()).or_insert_with(|| ProducerLink::here(now));
        let was_lost = matches!(link.presence, Presence::Lost { .. });
        link.presence = Presence::Here { heard: now };
        if let Some(known) = self.state.producers().get(&producer.id) {
            let (next, closed) = (known.next_upload(), known.is_closed());
            tell_producer(&producer, ToProducer::Opened { next, closed }, out);
            if was_lost && !closed {
                out.push(StreamCommand::Report(StreamReport::ProducerBack { producer: producer.id }));
            }
        }
    }

    fn may_open(&self, producer: &ProducerLife) -> Result<(), StreamRefusal> {
        let known = self.state.producers().get(&producer.id);
        if let Some(known) = known.filter(|known| known.incarnation() > producer.incarnation) {
            return Err(fenced(producer, known.incarnation()));
        }
        if self.state.has_ended() && known.is_none_or(|known| !known.is_closed()) {
            return Err(StreamRefusal::Ended { samples: self.state.uploads().arrived() });
        }
        if known.is_none() && self.state.producers().len() >= MAX_PRODUCERS {
            return Err(StreamRefusal::TooMany { max: MAX_PRODUCERS as u64 });
        }
        Ok(())
    }

    /// Whether a request comes from the current life of a connected producer; if so, it was heard.
    pub(super) fn admit_producer(&mut self, now: Time, producer: &ProducerLife) -> Result<(), StreamRefusal> {
        let Some(known) = self.state.producers().get(&producer.id) else {
            return Err(StreamRefusal::NotOpen { producer: producer.id.clone() });
        };
        if known.incarnation() > producer.incarnation && !planted(StreamBug::AdmitsOldIncarnations) {
            return Err(fenced(producer, known.incarnation()));
        }
        if known.incarnation() < producer.incarnation || !self.is_here(&producer.id) {
            return Err(StreamRefusal::NotOpen { producer: producer.id.clone() });
        }
        if let Some(link) = self.links.get_mut(&producer.id) {
            link.presence = Presence::Here { heard: now };
        }
        Ok(())
    }

    pub(super) fn on_producer_heard(&mut self, now: Time, producer: &ProducerLife) {
        // A producer that is not known, fenced or lost learns that from its next request.
        let _known = self.admit_producer(now, producer).is_ok();
    }

    pub(super) fn on_producer_lost(&mut self, now: Time, producer: &ProducerLife, out: &mut StreamOutbox) {
        let current = self.state.producers().get(&producer.id).map(|known| known.incarnation());
        if current == Some(producer.incarnation) {
            self.lose_producer(now, producer, Duration::ZERO, out);
        }
    }

    pub(super) fn lose_producer(
        &mut self,
        now: Time,
        producer: &ProducerLife,
        silent_for: Duration,
        out: &mut StreamOutbox,
    ) {
        if !self.is_here(&producer.id) {
            return;
        }
        if !planted(StreamBug::KeepsHalfWritten) {
            self.drop_uploads(producer, out);
        }
        if let Some(link) = self.links.get_mut(&producer.id) {
            link.presence = Presence::Lost { since: now };
        }
        if self.state.producers().get(&producer.id).is_some_and(|known| !known.is_closed()) {
            let producer = producer.id.clone();
            out.push(StreamCommand::Report(StreamReport::ProducerLost { producer, silent_for }));
        }
    }

    pub(super) fn on_producer_closed(
        &mut self,
        now: Time,
        producer: &ProducerLife,
        uploads: u64,
        out: &mut StreamOutbox,
    ) {
        let checked = self.admit_producer(now, producer).and_then(|()| self.may_close(producer, uploads));
        match checked {
            Ok(true) => tell_producer(producer, ToProducer::Closed, out),
            Ok(false) => {
                self.drop_uploads(producer, out);
                self.record(Fact::ProducerClosed { producer: producer.id.clone() }, out);
                tell_producer(producer, ToProducer::Closed, out);
                let closed = self.state.producers().values().filter(|known| known.is_closed()).count();
                let expected = self.state.settings().expected_producers;
                let all = closed == self.state.producers().len();
                if all && expected.is_some_and(|expected| closed >= expected as usize) {
                    self.end_stream(out);
                }
            }
            Err(refusal) => tell_producer(producer, ToProducer::Refused(refusal), out),
        }
    }

    /// Whether it has closed before; an error if it must not.
    fn may_close(&self, producer: &ProducerLife, uploads: u64) -> Result<bool, StreamRefusal> {
        let Some(known) = self.state.producers().get(&producer.id) else { return Ok(false) };
        if known.is_closed() {
            return Ok(true);
        }
        if self.state.has_ended() {
            return Err(StreamRefusal::Ended { samples: self.state.uploads().arrived() });
        }
        match known.next_upload() < uploads {
            true => Err(StreamRefusal::Incomplete { missing: known.next_upload(), uploads }),
            false => Ok(false),
        }
    }

    pub(super) fn end_stream(&mut self, out: &mut StreamOutbox) {
        if self.state.has_ended() {
            return;
        }
        self.record(Fact::StreamEnded, out);
        let samples = self.state.uploads().arrived();
        for held in std::mem::take(&mut self.held) {
            tell_producer(&held.producer, ToProducer::Refused(StreamRefusal::Ended { samples }), out);
        }
        let lives: Vec<ProducerLife> = self.lives().collect();
        for producer in lives {
            if self.drop_uploads(&producer, out) {
                tell_producer(&producer, ToProducer::Refused(StreamRefusal::Ended { samples }), out);
            }
        }
        out.push(StreamCommand::Report(StreamReport::StreamEnded { samples }));
    }

    /// The current lives of all producers.
    pub(super) fn lives(&self) -> impl Iterator<Item = ProducerLife> {
        let producers = self.state.producers().iter();
        producers.map(|(id, known)| ProducerLife { id: id.clone(), incarnation: known.incarnation() })
    }
}

fn fenced(producer: &ProducerLife, current: phalanx_types::Incarnation) -> StreamRefusal {
    StreamRefusal::Fenced { incarnation: producer.incarnation, current }
}
