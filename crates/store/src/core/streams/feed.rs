//! Events into the cores, and their commands out.

use super::super::effects::Effects;
use super::super::keyspace::Keyspace;
use super::record::StreamRecord;
use super::{Machine, REPORTS, StreamEntry, list_producer};
use bytes::Bytes;
use phalanx_streams::{Fact, StreamCommand, StreamCore, StreamEvent, StreamOutbox, StreamReport};
use phalanx_types::Time;

impl Keyspace {
    /// Makes a stream. Datasets of the list of its name are its first uploads.
    pub(crate) fn create_stream(
        &mut self,
        now: Time,
        name: &Bytes,
        settings: phalanx_streams::StreamSettings,
        out: &mut Effects,
    ) {
        self.record_stream(name, &StreamRecord::Created(settings.clone()));
        self.streams.entries.insert(name.clone(), StreamEntry::created(now, settings));
        self.follow_list(now, name, out);
        self.changed(now, name, out);
    }

    /// Deletes a stream with its samples; whether it was there.
    pub(crate) fn delete_stream(&mut self, now: Time, name: &Bytes, out: &mut Effects) -> bool {
        let Some(entry) = self.streams.entries.remove(name) else { return false };
        self.streams.ticks.remove(name);
        self.record_stream(name, &StreamRecord::Deleted);
        for flight in entry.flights.values() {
            self.drop_dataset(now, &flight.base, &flight.fields);
        }
        let fields: Vec<String> = entry.fields.iter().map(|field| field.name.clone()).collect();
        for upload in entry.stored.values() {
            self.drop_upload(now, &upload.base, fields.clone(), out);
        }
        self.streams.refuse_waiters(name, out);
        self.streams.version += 1;
        self.wake_waiters(now, &Bytes::new(), out);
        true
    }

    /// Forgets all streams: there are no keys any more.
    pub(crate) fn clear_streams(&mut self, now: Time, out: &mut Effects) {
        let names: Vec<Bytes> = self.streams.entries.keys().cloned().collect();
        for name in names {
            // Also says that this cannot be taken back: a stream has no undo.
            self.record_stream(&name, &StreamRecord::Deleted);
            self.streams.entries.remove(&name);
            self.streams.ticks.remove(&name);
            self.streams.refuse_waiters(&name, out);
        }
        self.streams.version += 1;
        self.wake_waiters(now, &Bytes::new(), out);
    }

    /// Tells a stream what happened, and carries out what it decides. Gives what clients are told.
    pub(crate) fn feed_stream(
        &mut self,
        now: Time,
        name: &Bytes,
        event: StreamEvent,
        out: &mut Effects,
    ) -> Vec<StreamCommand> {
        let mut outbox = StreamOutbox::default();
        let Some(core) = self.streams.entries.get_mut(name).and_then(StreamEntry::core_mut) else {
            return Vec::new();
        };
        core.on_event(now, event, &mut outbox);
        self.carry_out(now, name, outbox, out)
    }

    fn carry_out(
        &mut self,
        now: Time,
        name: &Bytes,
        mut outbox: StreamOutbox,
        out: &mut Effects,
    ) -> Vec<StreamCommand> {
        let mut told = Vec::new();
        for command in outbox.drain() {
            match command {
                StreamCommand::Record(fact) => self.record_fact(now, name, fact),
                StreamCommand::DiscardUpload { producer, number } => {
                    self.discard_upload(now, name, producer, number);
                }
                StreamCommand::FreeUpload { sequence } => self.free_upload(now, name, sequence, out),
                StreamCommand::ShrinkUpload { sequence, keep } => {
                    self.shrink_upload(now, name, sequence, keep);
                }
                StreamCommand::Report(report) => self.report(now, name, &report, out),
                tell @ (StreamCommand::TellProducer { .. }
                | StreamCommand::TellReader { .. }
                | StreamCommand::TellTrainer { .. }) => {
                    self.tell_waiter(name, &tell, out);
                    self.tell_list(name, &tell);
                    told.push(tell);
                }
            }
        }
        self.changed(now, name, out);
        told
    }

    fn record_fact(&mut self, now: Time, name: &Bytes, fact: Fact) {
        if let Fact::UploadAccepted { sequence, producer, number, samples, .. } = &fact
            && let Some(entry) = self.streams.entries.get_mut(name)
        {
            let incarnation = entry.state().producers().get(producer).map(|known| known.incarnation());
            let life = phalanx_streams::ProducerLife {
                id: producer.clone(),
                incarnation: incarnation.unwrap_or_default(),
            };
            entry.first_upload.get_or_insert(now);
            entry.last_upload = Some(now);
            entry.arrived_since += u64::from(*samples);
            if let Some(flight) = entry.flights.remove(&(life, *number)) {
                entry.remember(*sequence, flight.base.clone());
                let stored = StreamRecord::Stored { sequence: *sequence, base: flight.base.to_vec() };
                self.record_stream(name, &stored);
            }
        }
        self.record_stream(name, &StreamRecord::Fact(fact));
    }

    fn report(&mut self, now: Time, name: &Bytes, report: &StreamReport, out: &mut Effects) {
        self.report_text(now, name, report.to_string(), out);
    }

    pub(super) fn report_text(&mut self, now: Time, name: &Bytes, text: String, out: &mut Effects) {
        if let Some(entry) = self.streams.entries.get_mut(name) {
            if entry.reports.len() == REPORTS {
                entry.reports.pop_front();
            }
            entry.reports.push_back((now, text.clone()));
        }
        out.reports.push((name.clone(), text));
    }

    /// A stream is another than before.
    pub(super) fn changed(&mut self, now: Time, name: &Bytes, out: &mut Effects) {
        self.streams.version += 1;
        let Some(entry) = self.streams.entries.get_mut(name) else { return };
        entry.version = self.streams.version;
        match entry.core().and_then(StreamCore::next_tick) {
            Some(at) => drop(self.streams.ticks.insert(name.clone(), at)),
            None => drop(self.streams.ticks.remove(name)),
        }
        self.wake_waiters(now, name, out);
    }

    /// Makes cores of streams that were rebuilt from records.
    pub(crate) fn wake_streams(&mut self, now: Time, out: &mut Effects) {
        if !std::mem::take(&mut self.streams.asleep) {
            return;
        }
        let names: Vec<Bytes> = self.streams.entries.keys().cloned().collect();
        for name in names {
            let Some(entry) = self.streams.entries.get_mut(&name) else { continue };
            let Machine::Asleep(state) = &entry.machine else { continue };
            let mut outbox = StreamOutbox::default();
            let core = StreamCore::new(now, state.clone(), &mut outbox);
            entry.machine = Machine::Awake(core);
            self.carry_out(now, &name, outbox, out);
            self.drop_half_written(now, &name);
            self.follow_list(now, &name, out);
        }
    }

    /// What the streams have to do between commands: elements of lists, and datasets that became whole.
    pub(crate) fn settle_streams(&mut self, now: Time, out: &mut Effects) {
        self.wake_streams(now, out);
        if self.streams.is_empty() {
            return;
        }
        for (name, items) in std::mem::take(&mut self.streams.appended) {
            self.list_appended(&name, items);
        }
        let waiting =
            self.streams.entries.iter().filter(|(_, entry)| !entry.pending.is_empty() && !entry.list_held);
        let names: Vec<Bytes> = waiting.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.take_datasets(now, &name, out);
        }
    }

    /// What is to be done by time.
    pub(crate) fn tick_streams(&mut self, now: Time, out: &mut Effects) {
        self.settle_streams(now, out);
        self.lose_departed(now, out);
        let due: Vec<Bytes> =
            self.streams.ticks.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            // A list is as alive as the store.
            self.feed_stream(now, &name, StreamEvent::ProducerHeard { producer: list_producer() }, out);
            self.feed_stream(now, &name, StreamEvent::Ticked, out);
        }
        self.expire_stream_waits(now, out);
    }

    /// The list of a stream's name is one of its producers.
    pub(super) fn follow_list(&mut self, now: Time, name: &Bytes, out: &mut Effects) {
        let list = self.list_items(now, name);
        if list.is_empty() && !self.knows_list(name) {
            return;
        }
        self.feed_stream(now, name, StreamEvent::ProducerOpened { producer: list_producer() }, out);
        self.list_appended(name, list);
        self.take_datasets(now, name, out);
    }

    fn knows_list(&self, name: &Bytes) -> bool {
        let entry = self.streams.entries.get(name);
        entry.is_some_and(|entry| entry.state().producers().contains_key(&list_producer().id))
    }
}
