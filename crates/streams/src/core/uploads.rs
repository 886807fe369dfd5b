//! Uploads begin, wait for room, and count once.

use super::links::{Held, InFlight};
use super::{StreamCore, StreamOutbox, tell_producer};
use crate::bugs::{StreamBug, planted};
use crate::command::{StreamCommand, ToProducer};
use crate::event::ProducerLife;
use crate::fact::Fact;
use crate::refusal::StreamRefusal;
use phalanx_types::{ByteSize, Time};

impl StreamCore {
    pub(super) fn on_upload_begun(&mut self, now: Time, upload: Held, out: &mut StreamOutbox) {
        let Held { producer, number, .. } = &upload;
        if let Err(refusal) = self.admit_producer(now, producer) {
            return tell_producer(producer, ToProducer::Refused(refusal), out);
        }
        if self.has_upload(producer, *number) && !planted(StreamBug::CountsUploadsTwice) {
            return tell_producer(producer, ToProducer::Acknowledged { number: *number }, out);
        }
        if let Err(refusal) = self.may_begin(&upload) {
            return tell_producer(producer, ToProducer::Refused(refusal), out);
        }
        let link = self.links.get(&producer.id);
        match link.and_then(|link| link.in_flight.get(number)) {
            Some(known) if *known == upload.upload => {
                return tell_producer(producer, ToProducer::Admitted { number: *number }, out);
            }
            // Begun again with another content: what came of the first is dropped.
            Some(_) => self.drop_upload(producer, *number, out),
            None => {}
        }
        // A repeated request keeps its turn and is answered again.
        match self.held.iter_mut().find(|held| held.producer == *producer && held.number == *number) {
            Some(held) => *held = upload,
            None => self.held.push_back(upload),
        }
    }

    fn has_upload(&self, producer: &ProducerLife, number: u64) -> bool {
        let known = self.state.producers().get(&producer.id);
        known.is_some_and(|known| known.has(number))
    }

    /// Whether an upload that has not arrived may be begun.
    fn may_begin(&self, Held { producer, number, upload, .. }: &Held) -> Result<(), StreamRefusal> {
        let settings = self.state.settings();
        let uploads = self.state.uploads();
        let Some(known) = self.state.producers().get(&producer.id) else {
            return Err(StreamRefusal::NotOpen { producer: producer.id.clone() });
        };
        if known.is_closed() {
            return Err(StreamRefusal::ProducerClosed {
                producer: producer.id.clone(),
                uploads: known.next_upload(),
            });
        }
        if self.state.has_ended() {
            return Err(StreamRefusal::Ended { samples: uploads.arrived() });
        }
        if upload.samples == 0 {
            return Err(StreamRefusal::Empty { number: *number });
        }
        if upload.bytes.0 < u64::from(upload.samples) {
            let (number, samples, bytes) = (*number, upload.samples, upload.bytes);
            return Err(StreamRefusal::TooManyInBytes { number, samples, bytes });
        }
        let missing = known.next_upload();
        if *number - missing.min(*number) >= u64::from(settings.uploads_in_flight) {
            return Err(StreamRefusal::TooFarAhead { number: *number, missing });
        }
        let on_their_way = self.links.values().flat_map(|link| link.in_flight.values());
        let samples: u64 = on_their_way.map(|upload| u64::from(upload.samples)).sum();
        let more = samples.saturating_add(u64::from(upload.samples));
        if uploads.arrived().checked_add(more).is_none() {
            return Err(StreamRefusal::TooManySamples);
        }
        match settings.budget {
            Some(budget) if upload.bytes > budget => {
                Err(StreamRefusal::TooLarge { bytes: upload.bytes, budget })
            }
            Some(budget) if !self.state.frees() && !self.fits(upload.bytes) => {
                Err(StreamRefusal::Full { used: self.used(), budget, bytes: upload.bytes })
            }
            Some(_) => Ok(()),
            None => match self
                .reserved
                .checked_add(uploads.stored().0)
                .map(|used| used.checked_add(upload.bytes.0))
            {
                Some(Some(_)) => Ok(()),
                Some(None) | None => Err(StreamRefusal::TooManySamples),
            },
        }
    }

    /// The bytes of samples and of uploads on their way.
    pub(super) fn used(&self) -> ByteSize {
        let reserved = if planted(StreamBug::IgnoresReservations) { 0 } else { self.reserved };
        ByteSize(self.state.uploads().stored().0.saturating_add(reserved))
    }

    pub(super) fn fits(&self, bytes: ByteSize) -> bool {
        let budget = self.state.settings().budget;
        budget.is_none_or(|budget| self.used().0.saturating_add(bytes.0) <= budget.0)
    }

    /// Admits uploads that wait, in order, as far as there is room.
    pub(super) fn admit_held(&mut self, out: &mut StreamOutbox) {
        while let Some(bytes) = self.held.front().map(|held| held.upload.bytes)
            && self.fits(bytes)
            && let Some(held) = self.held.pop_front()
        {
            let Some(link) = self.links.get_mut(&held.producer.id) else { continue };
            self.reserved += held.upload.bytes.0;
            link.in_flight.insert(held.number, held.upload);
            tell_producer(&held.producer, ToProducer::Admitted { number: held.number }, out);
        }
    }

    pub(super) fn on_upload_completed(
        &mut self,
        now: Time,
        producer: &ProducerLife,
        number: u64,
        out: &mut StreamOutbox,
    ) {
        if let Err(refusal) = self.admit_producer(now, producer) {
            return tell_producer(producer, ToProducer::Refused(refusal), out);
        }
        match self.take_in_flight(producer, number) {
            Some(upload) => {
                let fact = Fact::UploadAccepted {
                    sequence: self.state.uploads().next_sequence(),
                    producer: producer.id.clone(),
                    number,
                    samples: upload.samples,
                    bytes: upload.bytes,
                };
                self.record(fact, out);
                tell_producer(producer, ToProducer::Acknowledged { number }, out);
            }
            None if self.has_upload(producer, number) => {
                tell_producer(producer, ToProducer::Acknowledged { number }, out);
            }
            None => tell_producer(producer, ToProducer::Refused(StreamRefusal::NotBegun { number }), out),
        }
    }

    pub(super) fn on_upload_aborted(
        &mut self,
        now: Time,
        producer: &ProducerLife,
        number: u64,
        out: &mut StreamOutbox,
    ) {
        if self.admit_producer(now, producer).is_ok() {
            self.held.retain(|held| held.producer != *producer || held.number != number);
            self.drop_upload(producer, number, out);
        }
    }

    fn take_in_flight(&mut self, producer: &ProducerLife, number: u64) -> Option<InFlight> {
        let upload = self.links.get_mut(&producer.id)?.in_flight.remove(&number)?;
        self.reserved -= upload.bytes.0;
        Some(upload)
    }

    fn drop_upload(&mut self, producer: &ProducerLife, number: u64, out: &mut StreamOutbox) {
        if self.take_in_flight(producer, number).is_some() {
            out.push(StreamCommand::DiscardUpload { producer: producer.clone(), number });
        }
    }

    /// Drops all that a producer has not completed; false if there was nothing.
    pub(super) fn drop_uploads(&mut self, producer: &ProducerLife, out: &mut StreamOutbox) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.producer.id != producer.id);
        let link = self.links.get(&producer.id);
        let numbers: Vec<u64> = link.iter().flat_map(|link| link.in_flight.keys().copied()).collect();
        numbers.iter().for_each(|number| self.drop_upload(producer, *number, out));
        before != self.held.len() || !numbers.is_empty()
    }
}
