//! The processes that open readers: one for each life of a training run.

use super::world::{Client, Event, Lane, World};
use phalanx_streams::{Cursor, ReaderLife, Retention, StreamEvent, StreamRefusal, ToReader};
use phalanx_types::{Incarnation, ReaderId, Time};

/// One life of a training run.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) reader: usize,
    pub(super) life: ReaderLife,
    pub(super) phase: DriverPhase,
    resume: Option<Cursor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriverPhase {
    Opening,
    Running,
    Closing,
    Ended,
    Dead,
}

pub(super) fn reader_id(index: usize) -> ReaderId {
    ReaderId::new(format!("run-{index}")).expect("a name")
}

impl World {
    /// Starts a new life of a reader, which goes on at its checkpoint if it has one.
    pub(super) fn start_driver(&mut self, reader: usize, resume: Option<Cursor>) {
        let lives = self.drivers.iter().filter(|driver| driver.reader == reader).count() as u64;
        let life = ReaderLife { id: reader_id(reader), incarnation: Incarnation(lives + 1) };
        self.drivers.push(Driver { reader, life, phase: DriverPhase::Opening, resume });
        let driver = self.drivers.len() - 1;
        let at = self.plan.readers[reader].opens_at.max(self.now);
        self.queue.push(at, Event::DriverTimer { driver });
    }

    pub(super) fn driver_timer(&mut self, driver: usize) {
        let Driver { reader, life, phase, resume } = &self.drivers[driver];
        let plan = &self.plan.readers[*reader];
        let (reader, life, resume) = (*reader, life.clone(), *resume);
        match phase {
            DriverPhase::Opening => {
                let settings = plan.settings.clone();
                self.request(
                    Client::Driver(driver),
                    StreamEvent::ReaderOpened { reader: life, settings, resume },
                );
            }
            DriverPhase::Running => {
                let Some(steps) = plan.close_after else { return };
                if self.audit.committed(reader) >= steps {
                    self.drivers[driver].phase = DriverPhase::Closing;
                    self.request(Client::Driver(driver), StreamEvent::ReaderClosed { reader: life });
                }
            }
            DriverPhase::Closing => {
                self.request(Client::Driver(driver), StreamEvent::ReaderClosed { reader: life });
            }
            DriverPhase::Ended | DriverPhase::Dead => return,
        }
        let delay = self.dice.paces.millis(200..500);
        self.after(delay, Event::DriverTimer { driver });
    }

    pub(super) fn answer_driver(&mut self, life: &ReaderLife, message: ToReader) {
        if let Some(driver) = self.drivers.iter().position(|driver| driver.life == *life) {
            self.send(Lane::FromStore(Client::Driver(driver)), Event::DriverAnswer { driver, message });
        }
    }

    pub(super) fn driver_told(&mut self, driver: usize, message: ToReader) {
        let Driver { reader, life, phase, .. } = &mut self.drivers[driver];
        match message {
            ToReader::Opened { .. } if *phase == DriverPhase::Opening => {
                *phase = DriverPhase::Running;
                let (reader, life) = (*reader, life.clone());
                self.audit.opened(reader, life.incarnation);
                for trainer in 0..self.plan.readers[reader].trainers {
                    let late = self.dice.paces.chance(1, 3);
                    let delay = self.dice.paces.micros(1..if late { 400_000 } else { 2_000 });
                    self.after(delay, Event::ReviveTrainer { driver, trainer });
                }
            }
            ToReader::Opened { .. } => {}
            ToReader::Committed { .. } => {}
            ToReader::Closed => *phase = DriverPhase::Ended,
            ToReader::Refused(refusal) => self.driver_refused(driver, &refusal),
        }
    }

    fn driver_refused(&mut self, driver: usize, refusal: &StreamRefusal) {
        let keeps = self.plan.settings.retention == Retention::Keep;
        let Driver { phase, resume, .. } = &mut self.drivers[driver];
        match refusal {
            StreamRefusal::Fenced { .. } => {
                self.counts.fenced += 1;
                *phase = DriverPhase::Dead;
            }
            StreamRefusal::ReaderClosed { .. } | StreamRefusal::ReaderReleased { .. } => {
                *phase = DriverPhase::Ended
            }
            // Its checkpoint is older than what is committed, and those samples are freed.
            StreamRefusal::Freed { .. } if !keeps => *resume = None,
            StreamRefusal::UnknownReader { .. } if *phase == DriverPhase::Closing => {
                *phase = DriverPhase::Opening
            }
            refusal => self.violate(format!("a driver is refused: {refusal}")),
        }
    }

    /// Kills all processes of a training run, and starts it again at once or when all heals.
    pub(super) fn restart_driver(&mut self, driver: usize, at_once: bool) {
        let reader = self.drivers[driver].reader;
        self.drivers[driver].phase = DriverPhase::Dead;
        let life = self.drivers[driver].life.clone();
        let zombies = self.dice.faults.chance(1, 4);
        for process in 0..self.trainers.len() {
            if self.trainers[process].life.reader == life && !zombies {
                self.kill_trainer(process, true);
            }
        }
        if !at_once {
            return;
        }
        let told = self.audit.told(reader);
        let pick = (!told.is_empty()).then(|| self.dice.faults.index(told.len()));
        let checkpoint = pick.and_then(|pick| told.get(pick).copied());
        let newest = told.last().copied();
        let keeps = self.plan.settings.retention == Retention::Keep;
        let resume = match self.dice.faults.number(0..3) {
            0 => None,
            1 => newest,
            _ if keeps => checkpoint,
            _ => None,
        };
        if resume.is_some() {
            self.counts.rewinds += 1;
        }
        self.start_driver(reader, resume);
    }

    /// The driver of the newest life of a reader.
    pub(super) fn newest_driver(&self, reader: usize) -> Option<usize> {
        (0..self.drivers.len()).rev().find(|driver| self.drivers[*driver].reader == reader)
    }

    /// Whether the run has not even begun.
    pub(super) fn opens_later(&self, reader: usize) -> bool {
        self.plan.readers[reader].opens_at + std::time::Duration::from_millis(1) > self.now.max(Time(1))
    }
}
