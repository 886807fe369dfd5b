//! The simulated world and its run loop.

use super::audit::Audit;
use super::plan::Plan;
use super::producers::Producer;
use super::readers::Driver;
use super::store::Store;
use super::trainers::Trainer;
use super::{Counts, Options, Report, Violation};
use crate::dice::Dice;
use crate::event_queue::EventQueue;
use crate::trace::Trace;
use phalanx_streams::{StreamEvent, ToProducer, ToReader, ToTrainer};
use phalanx_types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// How much virtual time the heal phase may take before the world counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many events a run may take; more of them are a loop.
const MAX_EVENTS: u64 = 60_000;

/// What one sample is: which producer made it, in which upload, at which place.
pub(super) type Tag = (usize, u64, u32);

/// What is to happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A request arrives at the store.
    Request(StreamEvent),
    /// The bytes of an upload arrive at the store.
    Bytes {
        process: usize,
        number: u64,
    },
    ProducerAnswer {
        process: usize,
        message: ToProducer,
    },
    ProducerTimer {
        process: usize,
    },
    Produced {
        process: usize,
    },
    DriverAnswer {
        driver: usize,
        message: ToReader,
    },
    DriverTimer {
        driver: usize,
    },
    TrainerAnswer {
        process: usize,
        message: ToTrainer,
    },
    TrainerTimer {
        process: usize,
    },
    Computed {
        process: usize,
        task: u64,
    },
    Flush,
    Tick,
    StartStore,
    Fault,
    ReviveProducer {
        producer: usize,
    },
    ReviveTrainer {
        driver: usize,
        trainer: usize,
    },
    Heal,
    UserLooks,
}

/// A process that talks to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Client {
    Producer(usize),
    Driver(usize),
    Trainer(usize),
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    ToStore(Client),
    FromStore(Client),
}

/// Random choices by purpose, so that one more of a kind does not shift the others.
#[derive(Debug)]
pub(super) struct DiceSet {
    pub(super) network: Dice,
    pub(super) faults: Dice,
    pub(super) paces: Dice,
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: Time,
    pub(super) queue: EventQueue<Event>,
    pub(super) dice: DiceSet,
    /// When the last message of a lane arrives.
    lanes: BTreeMap<Lane, Time>,
    pub(super) healed: bool,
    pub(super) store: Store,
    pub(super) audit: Audit,
    /// Every process of a producer that ever was.
    pub(super) producers: Vec<Producer>,
    /// Every process that opened a reader.
    pub(super) drivers: Vec<Driver>,
    /// Every process of a trainer that ever was.
    pub(super) trainers: Vec<Trainer>,
    pub(super) trace: Trace,
    pub(super) events: u64,
    pub(super) counts: Counts,
    pub(super) violation: Option<Violation>,
}

impl World {
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let plan = Plan::new(seed);
        let dice = DiceSet {
            network: Dice::new(seed, "network"),
            faults: Dice::new(seed, "faults"),
            paces: Dice::new(seed, "paces"),
        };
        let mut world = Self {
            now: Time::ZERO,
            queue: EventQueue::default(),
            dice,
            lanes: BTreeMap::new(),
            healed: false,
            store: Store::new(&plan),
            audit: Audit::new(&plan),
            producers: Vec::new(),
            drivers: Vec::new(),
            trainers: Vec::new(),
            trace: Trace::new(options.trace),
            events: 0,
            counts: Counts::default(),
            violation: None,
            plan,
        };
        world.schedule();
        world
    }

    fn schedule(&mut self) {
        self.start_store();
        for producer in 0..self.plan.producers.len() {
            self.start_producer(producer, 0);
        }
        for reader in 0..self.plan.readers.len() {
            self.start_driver(reader, None);
        }
        for _ in 0..self.plan.faults {
            let at = Time(self.dice.faults.number(0..self.plan.heal_at.0));
            self.queue.push(at, Event::Fault);
        }
        self.queue.push(self.plan.heal_at, Event::Heal);
    }

    /// Runs until nothing is left to do or something happened that must not.
    pub(super) fn run(&mut self) {
        let limit = self.plan.heal_at + PATIENCE;
        while self.violation.is_none() {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            if at > limit || self.events > MAX_EVENTS {
                let what = self.what_is_stuck();
                return self.violate(what);
            }
            self.trace.mix(at.0);
            self.trace.line(at, format_args!("{event:?}"));
            self.handle(event);
            if self.healed && self.is_over() {
                return self.verdict();
            }
        }
        if self.violation.is_none() {
            self.verdict();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request(event) => self.feed(event),
            Event::Bytes { process, number } => self.bytes_arrived(process, number),
            Event::ProducerAnswer { process, message } => self.producer_told(process, message),
            Event::ProducerTimer { process } => self.producer_timer(process),
            Event::Produced { process } => self.produced(process),
            Event::DriverAnswer { driver, message } => self.driver_told(driver, message),
            Event::DriverTimer { driver } => self.driver_timer(driver),
            Event::TrainerAnswer { process, message } => self.trainer_told(process, message),
            Event::TrainerTimer { process } => self.trainer_timer(process),
            Event::Computed { process, task } => self.computed(process, task),
            Event::Flush => self.flush(),
            Event::Tick => self.tick(),
            Event::StartStore => self.start_store(),
            Event::Fault => self.fault(),
            Event::ReviveProducer { producer } => self.revive_producer(producer),
            Event::ReviveTrainer { driver, trainer } => self.revive_trainer(driver, trainer),
            Event::Heal => self.heal(),
            Event::UserLooks => self.user_looks(),
        }
    }

    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        let at = self.now + delay;
        self.queue.push(at, event);
    }

    pub(super) fn request(&mut self, client: Client, request: StreamEvent) {
        self.send(Lane::ToStore(client), Event::Request(request));
    }

    /// Sends over the network. Without losses a lane keeps the order; else messages are lost, doubled and overtaken.
    pub(super) fn send(&mut self, lane: Lane, event: Event) {
        let dice = &mut self.dice.network;
        let slow = !self.healed && dice.chance(1, 16);
        let delay = if slow { dice.micros(5_000..300_000) } else { dice.micros(50..2_000) };
        if self.plan.loss == 0 {
            let last = self.lanes.entry(lane).or_default();
            *last = (self.now + delay).max(*last + Duration::from_micros(1));
            self.queue.push(*last, event);
            return;
        }
        if !self.healed && dice.chance(1, self.plan.loss) {
            return;
        }
        if !self.healed && dice.chance(1, self.plan.loss) {
            let again = dice.micros(50..200_000);
            self.after(again, event.clone());
        }
        self.after(delay, event);
    }

    pub(super) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.trace.line(self.now, format_args!("violated: {what}"));
            self.violation = Some(Violation { at: self.now, what });
        }
    }

    pub(super) fn into_report(mut self, seed: u64) -> Report {
        Report {
            seed,
            events: self.events,
            ended_at: self.now,
            counts: self.counts,
            trace_hash: self.trace.hash(),
            trace: self.trace.take_text(),
            violation: self.violation,
        }
    }
}
