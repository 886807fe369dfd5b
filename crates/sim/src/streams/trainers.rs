//! The processes of trainers: they join, read and compute their shares, and say so.

use super::readers::DriverPhase;
use super::world::{Client, Event, Lane, Tag, World};
use phalanx_streams::{Assignment, StreamEvent, StreamRefusal, ToTrainer, TrainerLife};
use phalanx_types::{Incarnation, TrainerId};
use std::time::Duration;

/// One life of a trainer.
#[derive(Debug)]
pub(super) struct Trainer {
    pub(super) driver: usize,
    pub(super) trainer: usize,
    pub(super) life: TrainerLife,
    pub(super) phase: TrainerPhase,
    task: Option<Assignment>,
    tasks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainerPhase {
    Joining,
    Waiting,
    Computing,
    Reported,
    Ended,
    Dead,
}

impl Trainer {
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.phase, TrainerPhase::Ended | TrainerPhase::Dead)
    }

    fn report(&self) -> Option<StreamEvent> {
        let Assignment { epoch, cursor, .. } = self.task?;
        let trainer = self.life.clone();
        Some(StreamEvent::StepsDone { trainer, epoch, pass: cursor.pass, steps: cursor.step + 1 })
    }
}

impl World {
    pub(super) fn start_trainer(&mut self, driver: usize, trainer: usize) {
        let reader = self.drivers[driver].life.clone();
        let id = TrainerId::new(format!("t{trainer}")).expect("a name");
        let same = |process: &&Trainer| process.life.reader == reader && process.trainer == trainer;
        let lives = self.trainers.iter().filter(same).count() as u64;
        let life = TrainerLife { reader, id, incarnation: Incarnation(lives + 1) };
        let phase = TrainerPhase::Joining;
        self.trainers.push(Trainer { driver, trainer, life, phase, task: None, tasks: 0 });
        self.trainer_timer(self.trainers.len() - 1);
    }

    pub(super) fn revive_trainer(&mut self, driver: usize, trainer: usize) {
        let running = self.drivers[driver].phase == DriverPhase::Running;
        let alive = self.trainers.iter().any(|p| p.driver == driver && p.trainer == trainer && p.is_alive());
        if running && !alive {
            self.start_trainer(driver, trainer);
        }
    }

    pub(super) fn trainer_timer(&mut self, process: usize) {
        let state = &self.trainers[process];
        let trainer = state.life.clone();
        let request = match state.phase {
            TrainerPhase::Joining => Some(StreamEvent::TrainerJoined { trainer }),
            // On a reliable network a trainer that was told to wait is woken.
            TrainerPhase::Waiting if self.plan.loss == 0 => Some(StreamEvent::TrainerHeard { trainer }),
            TrainerPhase::Waiting => Some(StreamEvent::TrainerJoined { trainer }),
            TrainerPhase::Computing => Some(StreamEvent::TrainerHeard { trainer }),
            TrainerPhase::Reported => state.report(),
            TrainerPhase::Ended | TrainerPhase::Dead => return,
        };
        if let Some(request) = request {
            self.request(Client::Trainer(process), request);
        }
        let delay = self.dice.paces.millis(300..600);
        self.after(delay, Event::TrainerTimer { process });
    }

    pub(super) fn answer_trainer(&mut self, life: &TrainerLife, message: ToTrainer) {
        if let Some(process) = self.trainers.iter().position(|process| process.life == *life) {
            self.send(Lane::FromStore(Client::Trainer(process)), Event::TrainerAnswer { process, message });
        }
    }

    pub(super) fn trainer_told(&mut self, process: usize, message: ToTrainer) {
        let state = &mut self.trainers[process];
        if !state.is_alive() {
            return;
        }
        match message {
            ToTrainer::Assigned(assignment) => self.assigned(process, assignment),
            ToTrainer::Wait(reason) => {
                self.counts.waits += 1;
                assert!(reason.to_string().starts_with("waiting: "), "{reason}");
                if matches!(state.phase, TrainerPhase::Joining | TrainerPhase::Reported) {
                    state.phase = TrainerPhase::Waiting;
                }
            }
            ToTrainer::Finished(_) => state.phase = TrainerPhase::Ended,
            ToTrainer::Refused(StreamRefusal::Fenced { .. }) => {
                self.counts.fenced += 1;
                state.phase = TrainerPhase::Dead;
            }
            ToTrainer::Refused(StreamRefusal::NotJoined { .. }) => self.reconnect_trainer(process),
            ToTrainer::Refused(StreamRefusal::UnknownReader { .. }) => {}
            ToTrainer::Refused(StreamRefusal::ReaderClosed { .. } | StreamRefusal::ReaderReleased { .. }) => {
                state.phase = TrainerPhase::Ended;
            }
            ToTrainer::Refused(refusal) => self.violate(format!("a trainer is refused: {refusal}")),
        }
    }

    fn assigned(&mut self, process: usize, assignment: Assignment) {
        let state = &mut self.trainers[process];
        let key = |a: &Assignment| (a.epoch, a.cursor.pass, a.cursor.step);
        let waits = matches!(state.phase, TrainerPhase::Waiting | TrainerPhase::Joining);
        match &state.task {
            // A message that was overtaken by a newer one, or came twice.
            Some(task) if key(task) > key(&assignment) => return,
            Some(task) if key(task) == key(&assignment) && !waits => return,
            Some(_) | None => {}
        }
        state.task = Some(assignment);
        state.phase = TrainerPhase::Computing;
        state.tasks += 1;
        let task = state.tasks;
        let reader = self.drivers[state.driver].reader;
        let incarnation = state.life.reader.incarnation;
        self.audit.assigned(reader, incarnation, assignment.cursor);
        let pace = self.plan.readers[reader].pace;
        let delay = self.dice.paces.micros(pace / 2..pace + 1);
        self.after(delay, Event::Computed { process, task });
    }

    pub(super) fn computed(&mut self, process: usize, task: u64) {
        let state = &self.trainers[process];
        if state.phase != TrainerPhase::Computing || state.tasks != task {
            return;
        }
        if self.store.core.is_none() {
            return self.after(Duration::from_millis(40), Event::Computed { process, task });
        }
        let Some(assignment) = state.task else { return };
        let reader = self.drivers[state.driver].reader;
        let incarnation = state.life.reader.incarnation;
        if let Some(share) = self.read_share(reader, incarnation, assignment) {
            self.counts.shares += 1;
            self.audit.worked(reader, assignment, share);
        }
        self.trainers[process].phase = TrainerPhase::Reported;
        if let Some(report) = self.trainers[process].report() {
            self.request(Client::Trainer(process), report);
        }
    }

    /// Reads the samples of a share; `None` if the assignment is out of date.
    fn read_share(&mut self, reader: usize, incarnation: Incarnation, task: Assignment) -> Option<Vec<Tag>> {
        let core = self.store.core.as_ref()?;
        let id = super::readers::reader_id(reader);
        let state = core.state().readers().get(&id)?;
        let current = state.incarnation() == incarnation
            && state.epoch() == task.epoch
            && state.cursor() == Some(task.cursor)
            && state.ending().is_none();
        if !current {
            return None;
        }
        let pass = task.cursor.pass(state.settings());
        let start = pass.positions(task.cursor.step).start;
        let places = core.places(&id, task.cursor.step);
        let mut share = Vec::new();
        for position in pass.share(task.cursor.step, task.rank, task.ranks) {
            let place = places.get((position - start) as usize).copied().flatten();
            let samples =
                place.and_then(|place| Some((self.store.samples.get(&place.sequence)?, place.sample)));
            match samples.and_then(|(samples, sample)| samples.get(sample as usize).copied().flatten()) {
                Some(tag) => share.push(tag),
                None => {
                    let what =
                        format!("{id} cannot read position {position} of {:?}: it is freed", task.cursor);
                    self.violate(what);
                    return None;
                }
            }
        }
        Some(share)
    }

    pub(super) fn kill_trainer(&mut self, process: usize, noticed: bool) {
        if !self.trainers[process].is_alive() {
            return;
        }
        self.trainers[process].phase = TrainerPhase::Dead;
        let trainer = self.trainers[process].life.clone();
        if noticed || self.plan.settings.trainer_silence.is_none() {
            self.after(Duration::from_millis(2), Event::Request(StreamEvent::TrainerLost { trainer }));
        }
    }

    /// The process learns that its connection is gone, and joins again.
    pub(super) fn reconnect_trainer(&mut self, process: usize) {
        let state = &mut self.trainers[process];
        if state.is_alive() {
            state.phase = TrainerPhase::Joining;
            let trainer = state.life.clone();
            self.request(Client::Trainer(process), StreamEvent::TrainerJoined { trainer });
        }
    }
}
