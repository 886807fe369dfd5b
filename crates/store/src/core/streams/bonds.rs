//! Which client stands for which producer or trainer: with its connection they are lost.

use super::super::effects::Effects;
use super::super::keyspace::Keyspace;
use super::super::session::ClientId;
use super::Streams;
use super::record::StreamRecord;
use super::uploads::upload_number;
use bytes::Bytes;
use phalanx_streams::{ProducerLife, ReaderLife, StreamEvent, StreamField, TrainerLife};
use phalanx_types::{ReaderId, Time, TrainerId};

/// The trainer that stands for a run which shares its batches out itself.
pub(crate) fn run_trainer(reader: ReaderLife) -> TrainerLife {
    let incarnation = reader.incarnation;
    let id = TrainerId::new("run").expect("the letters are allowed");
    TrainerLife { reader, id, incarnation }
}

impl Streams {
    fn bind(&mut self, client: ClientId, stream: &Bytes) {
        self.bonds.entry(client).or_default().insert(stream.clone());
    }

    pub(crate) fn bind_producer(&mut self, client: ClientId, stream: &Bytes, producer: &ProducerLife) {
        self.bind(client, stream);
        if let Some(entry) = self.entries.get_mut(stream) {
            entry
                .producers
                .retain(|known, _| known.id != producer.id || known.incarnation >= producer.incarnation);
            entry.producers.insert(producer.clone(), client);
        }
    }

    pub(crate) fn bind_trainer(&mut self, client: ClientId, stream: &Bytes, trainer: &TrainerLife) {
        self.bind(client, stream);
        if let Some(entry) = self.entries.get_mut(stream) {
            entry.trainers.insert(trainer.clone(), client);
        }
    }

    /// A run is there as long as one of its processes is.
    pub(crate) fn bind_run(&mut self, client: ClientId, stream: &Bytes, reader: &ReaderId) {
        self.bind(client, stream);
        if let Some(entry) = self.entries.get_mut(stream) {
            entry.runs.entry(reader.clone()).or_default().insert(client);
        }
    }

    /// A connection has ended.
    pub(crate) fn depart(&mut self, client: ClientId) {
        self.waiters.remove(client);
        if let Some(streams) = self.bonds.remove(&client) {
            self.departed.push((client, streams));
        }
    }
}

impl Keyspace {
    /// Tells streams of connections that have ended, unless the same client has a newer one.
    pub(super) fn lose_departed(&mut self, now: Time, out: &mut Effects) {
        for (client, streams) in std::mem::take(&mut self.streams.departed) {
            for name in streams {
                let Some(entry) = self.streams.entries.get_mut(&name) else { continue };
                let gone = |held: &ClientId| *held == client;
                let producers = entry.producers.extract_if(.., |_, held| gone(held)).map(|(life, _)| life);
                let producers: Vec<ProducerLife> = producers.collect();
                let trainers = entry.trainers.extract_if(.., |_, held| gone(held)).map(|(life, _)| life);
                let mut trainers: Vec<TrainerLife> = trainers.collect();
                entry.runs.values_mut().for_each(|clients| {
                    clients.remove(&client);
                });
                let ended: Vec<ReaderId> =
                    entry.runs.extract_if(.., |_, clients| clients.is_empty()).map(|(id, _)| id).collect();
                for id in ended {
                    let incarnation = entry.state().readers().get(&id).map(|state| state.incarnation());
                    let life = incarnation.map(|incarnation| ReaderLife { id, incarnation });
                    trainers.extend(life.map(run_trainer));
                }
                for producer in producers {
                    self.feed_stream(now, &name, StreamEvent::ProducerLost { producer }, out);
                }
                for trainer in trainers {
                    self.feed_stream(now, &name, StreamEvent::TrainerLost { trainer }, out);
                }
            }
        }
    }

    /// The first upload decides which tensors all have.
    pub(crate) fn learn_fields(&mut self, name: &Bytes, fields: Vec<StreamField>) {
        let Some(entry) = self.streams.entries.get_mut(name).filter(|entry| entry.fields.is_empty()) else {
            return;
        };
        entry.fields.clone_from(&fields);
        self.record_stream(name, &StreamRecord::Fields(fields));
    }

    /// After a restart: drops keys of uploads that were begun and do not count.
    pub(super) fn drop_half_written(&mut self, now: Time, name: &Bytes) {
        let Some(entry) = self.streams.entries.get(name) else { return };
        let Ok(text) = std::str::from_utf8(name) else { return };
        let begins = format!("{{{text}.");
        // Only producers of the stream have keys that begin so, with their name, incarnation and number.
        let is_upload = |key: &Bytes| {
            let key = std::str::from_utf8(key).ok()?.strip_prefix(&begins)?;
            let (inner, _) = key.split_once('}')?;
            let mut parts = inner.rsplitn(3, '.');
            let (number, life, id) = (parts.next()?, parts.next()?, parts.next()?);
            upload_number(number)?;
            life.parse::<u64>().ok()?;
            let known = entry.state().producers().keys().any(|producer| producer.as_str() == id);
            known.then(|| Bytes::from(format!("{begins}{inner}}}")))
        };
        let unknown: Vec<Bytes> = self
            .database
            .table()
            .iter()
            .filter(|(key, _)| is_upload(key).is_some_and(|base| !entry.bases.contains(&base)))
            .map(|(key, _)| key.clone())
            .collect();
        for key in unknown {
            self.database.remove(now, &key);
        }
    }
}
