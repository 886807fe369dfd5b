//! Datasets that programs append to the list of a stream's name: uploads of a producer that does not know it.

use super::super::effects::Effects;
use super::super::keyspace::Keyspace;
use super::super::value::Value;
use super::list_producer;
use super::uploads::{Flight, FoundTensor};
use bytes::Bytes;
use phalanx_streams::{StreamCommand, StreamEvent, StreamRefusal, ToProducer};
use phalanx_types::Time;

/// The most datasets of one list that wait to be counted.
const MOST_PENDING: usize = 1 << 20;

impl Keyspace {
    pub(super) fn list_items(&mut self, now: Time, name: &Bytes) -> Vec<Bytes> {
        match self.database.get(now, name) {
            Some(Value::List(list)) => list.items().iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Takes note of elements in order; one that is known counts once.
    pub(super) fn list_appended(&mut self, name: &Bytes, items: Vec<Bytes>) {
        let Some(entry) = self.streams.entries.get_mut(name) else { return };
        for item in items {
            let known = entry.bases.contains(&item);
            if !known && entry.pending.len() < MOST_PENDING {
                entry.bases.insert(item.clone());
                entry.pending.push_back(item);
            }
        }
    }

    /// Counts the datasets of a list that are whole, in order, as far as there is room.
    pub(super) fn take_datasets(&mut self, now: Time, name: &Bytes, out: &mut Effects) {
        loop {
            let Some(entry) = self.streams.entries.get(name) else { return };
            let Some(base) = entry.pending.front().cloned() else { return };
            let found = match self.part_elsewhere(&base) {
                Some(part) => {
                    let Some(found) = self.description(name, &base, part, out) else { return };
                    Ok(found)
                }
                None => {
                    let Some(names) = self.dataset_names(now, &base) else { return };
                    let number = self.next_of_list(name);
                    self.find_tensors(now, number, &base, &names)
                }
            };
            let list = list_producer();
            let entry = self.streams.entries.get(name);
            if !entry.is_some_and(|entry| entry.state().producers().contains_key(&list.id)) {
                let opened = StreamEvent::ProducerOpened { producer: list.clone() };
                let told = self.feed_stream(now, name, opened, out);
                if let Some(refusal) = told.iter().find_map(refused) {
                    self.leave_out(now, name, &base, &refusal, out);
                    continue;
                }
            }
            let taken = found.and_then(|found| self.take_dataset(now, name, &base, found, out));
            match taken {
                Ok(true) => {}
                // There is no room: the stream says when there is.
                Ok(false) => return,
                Err(refusal) => {
                    self.leave_out(now, name, &base, &refusal, out);
                    continue;
                }
            }
            self.next_dataset(name);
        }
    }

    fn next_dataset(&mut self, name: &Bytes) {
        if let Some(entry) = self.streams.entries.get_mut(name) {
            entry.pending.pop_front();
            entry.lookup = None;
        }
    }

    /// The number of the next upload of a list.
    fn next_of_list(&self, name: &Bytes) -> u64 {
        let known = self.streams.entries.get(name).map(|entry| entry.state().producers());
        known.and_then(|known| known.get(&list_producer().id)).map_or(0, |list| list.next_upload())
    }

    /// Goes on after the first dataset that waits, which does not count.
    fn leave_out(
        &mut self,
        now: Time,
        name: &Bytes,
        base: &Bytes,
        refusal: &StreamRefusal,
        out: &mut Effects,
    ) {
        let text = format!("dataset {} of the list is left out: {refusal}", base.escape_ascii());
        self.report_text(now, name, text, out);
        self.next_dataset(name);
    }

    /// Counts a dataset as the next upload of its list; false if there is no room for it now.
    fn take_dataset(
        &mut self,
        now: Time,
        name: &Bytes,
        base: &Bytes,
        found: Vec<FoundTensor>,
        out: &mut Effects,
    ) -> Result<bool, StreamRefusal> {
        let (producer, number) = (list_producer(), self.next_of_list(name));
        let (samples, bytes, fields) = self.inspect_tensors(name, number, found)?;
        let names = fields.iter().map(|field| field.name.clone()).collect();
        let flight = Flight { base: base.clone(), fields: names, samples, bytes };
        if let Some(entry) = self.streams.entries.get_mut(name) {
            // Only as long as it is being decided: a dataset of a list is not dropped if it does not count.
            entry.flights.insert((producer.clone(), number), flight);
        }
        let begun = StreamEvent::UploadBegun { producer: producer.clone(), number, samples, bytes };
        let told = self.feed_stream(now, name, begun, out);
        let admitted = decision(&told, number);
        if admitted == Some(Ok(())) {
            self.learn_fields(name, fields);
            let completed = StreamEvent::UploadCompleted { producer: producer.clone(), number };
            self.feed_stream(now, name, completed, out);
            return Ok(true);
        }
        if let Some(entry) = self.streams.entries.get_mut(name) {
            entry.flights.remove(&(producer, number));
        }
        match admitted {
            Some(Err(refusal)) => Err(refusal),
            _ => {
                self.streams.entries.get_mut(name).into_iter().for_each(|entry| entry.list_held = true);
                Ok(false)
            }
        }
    }

    /// Takes note of what a stream says to its list.
    pub(super) fn tell_list(&mut self, name: &Bytes, command: &StreamCommand) {
        if let StreamCommand::TellProducer { producer, message } = command
            && !matches!(message, ToProducer::Wait { .. })
            && *producer == list_producer()
            && let Some(entry) = self.streams.entries.get_mut(name)
        {
            entry.list_held = false;
        }
    }
}

/// Why the list may not append to the stream, if that is what it was told.
fn refused(told: &StreamCommand) -> Option<StreamRefusal> {
    match told {
        StreamCommand::TellProducer { producer, message: ToProducer::Refused(refusal) } => {
            (*producer == list_producer()).then(|| refusal.clone())
        }
        _ => None,
    }
}

/// Whether an upload of the list may be sent; nothing if it waits.
fn decision(told: &[StreamCommand], wanted: u64) -> Option<Result<(), StreamRefusal>> {
    told.iter().find_map(|command| match command {
        StreamCommand::TellProducer { message, producer } if *producer == list_producer() => match message {
            ToProducer::Admitted { number } if *number == wanted => Some(Ok(())),
            ToProducer::Refused(refusal) => Some(Err(refusal.clone())),
            _ => None,
        },
        _ => None,
    })
}
