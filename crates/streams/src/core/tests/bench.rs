//! A core on a bench: feeds events and takes commands.

use crate::*;
use phalanx_types::{ByteSize, Epoch, Incarnation, ProducerId, ReaderId, Seed, Time, TrainerId};

pub(super) struct Bench {
    pub(super) core: StreamCore,
    pub(super) now: Time,
    /// All facts so far.
    pub(super) journal: Vec<Fact>,
    settings: StreamSettings,
}

pub(super) fn producer(name: &str, incarnation: u64) -> ProducerLife {
    ProducerLife { id: ProducerId::new(name).unwrap(), incarnation: Incarnation(incarnation) }
}

pub(super) fn reader(incarnation: u64) -> ReaderLife {
    ReaderLife { id: ReaderId::new("run").unwrap(), incarnation: Incarnation(incarnation) }
}

pub(super) fn trainer(name: &str) -> TrainerLife {
    TrainerLife { reader: reader(1), id: TrainerId::new(name).unwrap(), incarnation: Incarnation(1) }
}

pub(super) fn grow(batch: u64) -> ReaderSettings {
    ReaderSettings::new(ReadMode::Grow { min_samples: 0, new_samples: 0 }, Seed(7), batch)
}

pub(super) fn once(window: u64, batch: u64) -> ReaderSettings {
    ReaderSettings::new(ReadMode::Once { window }, Seed(7), batch)
}

pub(super) fn freeing(budget: u64) -> StreamSettings {
    StreamSettings { retention: Retention::Free, budget: Some(ByteSize(budget)), ..StreamSettings::default() }
}

impl Bench {
    pub(super) fn new(settings: StreamSettings) -> Self {
        let mut out = StreamOutbox::default();
        let core = StreamCore::new(Time::ZERO, StreamState::new(settings.clone()), &mut out);
        assert!(out.is_empty());
        Self { core, now: Time::ZERO, journal: Vec::new(), settings }
    }

    /// Feeds one event and returns every command but the facts, which are written down.
    pub(super) fn feed(&mut self, event: StreamEvent) -> Vec<StreamCommand> {
        self.feed_all(event).into_iter().filter(|c| !matches!(c, StreamCommand::Record(_))).collect()
    }

    /// The same with the facts.
    pub(super) fn feed_all(&mut self, event: StreamEvent) -> Vec<StreamCommand> {
        let mut out = StreamOutbox::default();
        self.core.on_event(self.now, event, &mut out);
        self.core.check_invariants();
        let commands: Vec<StreamCommand> = out.drain().collect();
        self.journal.extend(commands.iter().filter_map(|command| match command {
            StreamCommand::Record(fact) => Some(fact.clone()),
            _ => None,
        }));
        commands
    }

    pub(super) fn open(&mut self, producer: &ProducerLife) -> Vec<StreamCommand> {
        self.feed(StreamEvent::ProducerOpened { producer: producer.clone() })
    }

    pub(super) fn begin(&mut self, producer: &ProducerLife, number: u64, samples: u32) -> Vec<StreamCommand> {
        let (producer, bytes) = (producer.clone(), ByteSize(u64::from(samples) * 10));
        self.feed(StreamEvent::UploadBegun { producer, number, samples, bytes })
    }

    pub(super) fn complete(&mut self, producer: &ProducerLife, number: u64) -> Vec<StreamCommand> {
        self.feed(StreamEvent::UploadCompleted { producer: producer.clone(), number })
    }

    /// A whole upload; what the completion led to.
    pub(super) fn upload(
        &mut self,
        producer: &ProducerLife,
        number: u64,
        samples: u32,
    ) -> Vec<StreamCommand> {
        assert_eq!(
            self.begin(producer, number, samples),
            [told(producer, ToProducer::Admitted { number })],
            "upload {number}"
        );
        self.complete(producer, number)
    }

    pub(super) fn open_reader(&mut self, settings: ReaderSettings) -> Vec<StreamCommand> {
        self.feed(StreamEvent::ReaderOpened { reader: reader(1), settings, resume: None })
    }

    pub(super) fn join(&mut self, name: &str) -> Vec<StreamCommand> {
        self.feed(StreamEvent::TrainerJoined { trainer: trainer(name) })
    }

    pub(super) fn done(&mut self, name: &str, epoch: u64, pass: u64, steps: u64) -> Vec<StreamCommand> {
        self.feed(StreamEvent::StepsDone { trainer: trainer(name), epoch: Epoch(epoch), pass, steps })
    }

    /// Restarts the store with these facts.
    pub(super) fn restart(&mut self, facts: usize) -> Vec<StreamCommand> {
        self.journal.truncate(facts);
        let mut state = StreamState::new(self.settings.clone());
        self.journal.iter().for_each(|fact| state.apply(fact).unwrap());
        let mut out = StreamOutbox::default();
        self.core = StreamCore::new(self.now, state, &mut out);
        self.core.check_invariants();
        out.drain().collect()
    }
}

pub(super) fn told(producer: &ProducerLife, message: ToProducer) -> StreamCommand {
    StreamCommand::TellProducer { producer: producer.clone(), message }
}

pub(super) fn share(name: &str, epoch: u64, rank: u32, ranks: u32, place: (u64, u64, u64)) -> StreamCommand {
    let (pass, horizon, step) = place;
    let cursor = Cursor { seed: Seed(7), pass, base: 0, horizon, step };
    let assignment = Assignment { epoch: Epoch(epoch), rank, ranks, cursor };
    StreamCommand::TellTrainer { trainer: trainer(name), message: ToTrainer::Assigned(assignment) }
}

pub(super) fn waits(name: &str, reason: StreamWait) -> StreamCommand {
    StreamCommand::TellTrainer { trainer: trainer(name), message: ToTrainer::Wait(reason) }
}
