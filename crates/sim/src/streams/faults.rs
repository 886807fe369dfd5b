//! What goes wrong, and how it heals.

use super::producers::Phase;
use super::readers::{DriverPhase, reader_id};
use super::world::{Event, World};
use phalanx_streams::StreamEvent;
use std::time::Duration;

impl World {
    pub(super) fn fault(&mut self) {
        if self.healed {
            return;
        }
        let noticed = self.dice.faults.chance(1, 2);
        match self.dice.faults.number(0..11) {
            0 | 1 => self.producer_fault(noticed),
            2 => {
                // Two lives at once.
                if let Some(process) = self.some_producer() {
                    let producer = self.producers[process].producer;
                    self.start_producer(producer, self.checkpoint(producer));
                }
            }
            3 | 4 => self.trainer_fault(noticed),
            5 => {
                if let Some(process) = self.some_trainer() {
                    let (driver, trainer) = (self.trainers[process].driver, self.trainers[process].trainer);
                    self.start_trainer(driver, trainer);
                }
            }
            6 => {
                // One more than there were.
                let reader = self.dice.faults.index(self.plan.readers.len());
                if let Some(driver) = self.newest_driver(reader)
                    && self.drivers[driver].phase == DriverPhase::Running
                {
                    let trainer = 6 + self.dice.faults.index(3);
                    self.revive_trainer(driver, trainer);
                }
            }
            7..10 => {
                let reader = self.dice.faults.index(self.plan.readers.len());
                if let Some(driver) = self.newest_driver(reader)
                    && self.drivers[driver].phase != DriverPhase::Ended
                    && !self.opens_later(reader)
                {
                    let at_once = self.dice.faults.chance(3, 4);
                    self.restart_driver(driver, at_once);
                }
            }
            _ => self.crash_store(),
        }
    }

    fn producer_fault(&mut self, noticed: bool) {
        let Some(process) = self.some_producer() else { return };
        if self.dice.faults.chance(1, 3) {
            // Only the connection breaks.
            let producer = self.producers[process].life.clone();
            self.feed(StreamEvent::ProducerLost { producer });
            return self.reconnect_producer(process);
        }
        let producer = self.producers[process].producer;
        self.kill_producer(process, noticed);
        let delay = self.dice.faults.micros(1_000..2_500_000);
        self.after(delay, Event::ReviveProducer { producer });
    }

    fn trainer_fault(&mut self, noticed: bool) {
        let Some(process) = self.some_trainer() else { return };
        let trainer = self.trainers[process].life.clone();
        match self.dice.faults.number(0..4) {
            0 => {
                self.feed(StreamEvent::TrainerLost { trainer });
                self.reconnect_trainer(process);
            }
            1 => {
                self.kill_trainer(process, false);
                self.feed(StreamEvent::TrainerLeft { trainer });
            }
            _ => {
                self.kill_trainer(process, noticed);
                let delay = self.dice.faults.micros(1_000..2_500_000);
                let (driver, trainer) = (self.trainers[process].driver, self.trainers[process].trainer);
                self.after(delay, Event::ReviveTrainer { driver, trainer });
            }
        }
    }

    fn some_producer(&mut self) -> Option<usize> {
        let alive = |process: &usize| self.producers[*process].phase != Phase::Dead;
        let alive: Vec<usize> = (0..self.producers.len()).filter(alive).collect();
        (!alive.is_empty()).then(|| alive[self.dice.faults.index(alive.len())])
    }

    fn some_trainer(&mut self) -> Option<usize> {
        let alive: Vec<usize> =
            (0..self.trainers.len()).filter(|process| self.trainers[*process].is_alive()).collect();
        (!alive.is_empty()).then(|| alive[self.dice.faults.index(alive.len())])
    }

    /// How many uploads of a producer its own checkpoint may know of.
    fn checkpoint(&self, producer: usize) -> u64 {
        self.audit.next_upload(producer)
    }

    pub(super) fn revive_producer(&mut self, producer: usize) {
        let alive = |phase: Phase| phase != Phase::Dead;
        if !self.producers.iter().any(|process| process.producer == producer && alive(process.phase)) {
            self.start_producer(producer, self.checkpoint(producer));
        }
    }

    /// All connections break: the store was restarted.
    pub(super) fn break_connections(&mut self) {
        for process in 0..self.producers.len() {
            self.reconnect_producer(process);
        }
        for process in 0..self.trainers.len() {
            self.reconnect_trainer(process);
        }
    }

    /// Nothing goes wrong any more, and what is dead comes back.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        for producer in 0..self.plan.producers.len() {
            self.revive_producer(producer);
        }
        for reader in 0..self.plan.readers.len() {
            let Some(driver) = self.newest_driver(reader) else { continue };
            if self.drivers[driver].phase == DriverPhase::Dead {
                self.start_driver(reader, None);
            } else if self.drivers[driver].phase == DriverPhase::Running {
                self.revive_trainer(driver, 0);
            }
        }
        self.after(Duration::from_millis(500), Event::UserLooks);
    }

    /// The user seals the stream when all producers have closed, or when no reader is left.
    pub(super) fn user_looks(&mut self) {
        self.after(Duration::from_millis(500), Event::UserLooks);
        let Some(core) = &self.store.core else { return };
        let state = core.state();
        let closed = (0..self.plan.producers.len()).all(|index| {
            let known = state.producers().get(&super::producers::producer_id(index));
            known.is_some_and(|known| known.is_closed())
        });
        let unused = (0..self.plan.readers.len()).all(|index| {
            state.readers().get(&reader_id(index)).is_some_and(|reader| reader.ending().is_some())
        });
        if (closed || unused) && !state.has_ended() {
            self.audit.sealed_early = !closed;
            self.feed(StreamEvent::StreamSealed);
        }
        // A run whose trainers were all lost starts one again.
        for reader in 0..self.plan.readers.len() {
            if let Some(driver) = self.newest_driver(reader) {
                self.revive_trainer(driver, 0);
            }
        }
    }
}
