//! Clients that say nothing for too long are lost; readers without trainers are released.

use super::links::Presence;
use super::{StreamCore, StreamOutbox};
use crate::event::{ProducerLife, ReaderLife, TrainerLife};
use phalanx_types::{ReaderId, Time};
use std::time::Duration;

impl StreamCore {
    /// When the core wants [`StreamEvent::Ticked`](crate::StreamEvent::Ticked), if nothing happens before.
    pub fn next_tick(&self) -> Option<Time> {
        let settings = self.state.settings();
        let producers = settings
            .producer_silence
            .into_iter()
            .flat_map(|silence| self.silent_producers().map(move |(_, heard)| heard + silence));
        let trainers = settings.trainer_silence.into_iter().flat_map(|silence| {
            self.groups.values().flat_map(|group| group.all()).map(move |(_, member)| member.heard + silence)
        });
        let readers = settings
            .release_readers_after
            .into_iter()
            .flat_map(|after| self.absent_readers().map(move |(_, since)| since + after));
        producers.chain(trainers).chain(readers).min()
    }

    pub(super) fn on_ticked(&mut self, now: Time, out: &mut StreamOutbox) {
        let settings = self.state.settings().clone();
        if let Some(silence) = settings.producer_silence {
            let lost: Vec<(ProducerLife, Duration)> = self
                .silent_producers()
                .filter(|(_, heard)| *heard + silence <= now)
                .map(|(producer, heard)| (producer, now.since(heard)))
                .collect();
            for (producer, silent_for) in lost {
                self.lose_producer(now, &producer, silent_for, out);
            }
        }
        if let Some(silence) = settings.trainer_silence {
            for (trainer, heard) in self.silent_trainers(now, silence) {
                self.lose_trainer(now, &trainer, now.since(heard), out);
            }
        }
        if let Some(after) = settings.release_readers_after {
            let absent = self.absent_readers().filter(|(_, since)| *since + after <= now);
            let absent: Vec<ReaderId> = absent.map(|(reader, _)| reader.clone()).collect();
            for reader in absent {
                self.release_reader(now, &reader, out);
            }
        }
    }

    /// Producers that are connected and have not closed, and when they were heard last.
    fn silent_producers(&self) -> impl Iterator<Item = (ProducerLife, Time)> {
        self.lives().filter_map(|producer| {
            let closed = self.state.producers().get(&producer.id).is_some_and(|known| known.is_closed());
            match self.links.get(&producer.id)?.presence {
                Presence::Here { heard } if !closed => Some((producer, heard)),
                Presence::Here { .. } | Presence::Lost { .. } => None,
            }
        })
    }

    fn silent_trainers(&self, now: Time, silence: Duration) -> Vec<(TrainerLife, Time)> {
        let mut silent = Vec::new();
        for (reader, group) in &self.groups {
            let Some(state) = self.state.reader(reader) else { continue };
            let life = ReaderLife { id: reader.clone(), incarnation: state.incarnation() };
            for (id, member) in group.all().filter(|(_, member)| member.heard + silence <= now) {
                let (reader, id) = (life.clone(), id.clone());
                silent.push((TrainerLife { reader, id, incarnation: member.incarnation }, member.heard));
            }
        }
        silent
    }

    /// Readers without trainers that samples are kept for, and since when.
    fn absent_readers(&self) -> impl Iterator<Item = (&ReaderId, Time)> {
        self.groups.iter().filter_map(|(reader, group)| {
            let state = self.state.reader(reader)?;
            let waits = state.ending().is_none();
            group.idle_since.filter(|_| waits).map(|since| (reader, since))
        })
    }
}
