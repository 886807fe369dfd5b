//! The simulated cluster and its loop.

use super::book::Book;
use super::cluster::{Node, Process, Uplink, Upward};
use super::group::Group;
use super::{Options, Report, Violation};
use crate::dice::Dice;
use crate::event_queue::EventQueue;
use crate::trace::Trace;
use phalanx_protocol::driver::{DriverConfig, DriverCore, DriverEvent, StagedConfig};
use phalanx_protocol::progress::Plan;
use phalanx_protocol::{Every, Length, Limits, mark};
use phalanx_recording::{Limits as RecordingLimits, Recorded, RecordingError};
use phalanx_types::{Epoch, NodeId, Outbox, RunId, Time};
use phalanx_wire::train::{FromReplica, ToReplica};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Names the run in messages.
pub(super) const RUN: RunId = RunId(7);
/// After everything has healed, a run that takes longer is stuck.
const HEALED: Duration = Duration::from_secs(3600);
/// So is one with more events.
const MOST_EVENTS: u64 = 2_000_000;

/// What can happen.
#[derive(Debug)]
pub(super) enum Event {
    Starts {
        node: usize,
    },
    Dies {
        process: Process,
    },
    /// The oldest thing on the way from a process is there.
    Arrives {
        process: Process,
    },
    /// A message of the driver is there.
    Hears {
        process: Process,
        message: Box<ToReplica>,
    },
    ToDriver(Box<DriverEvent>),
    /// A transfer to the driver ends.
    FetchEnds {
        process: Option<Process>,
        fetch: super::shell::Fetch,
    },
    /// A member of a group has got its part of the state, or cannot.
    Acquired {
        process: Process,
        epoch: Epoch,
    },
    /// What a group does ends.
    WorkEnds {
        epoch: Epoch,
        serial: u64,
    },
    /// A copy has arrived at the next stage.
    CopyArrives {
        epoch: Epoch,
        step: u64,
        rank: usize,
    },
    /// A survivor notices that its group is broken.
    Notices {
        process: Process,
        epoch: Epoch,
    },
    /// The driver is not scheduled for a while.
    Slow,
    Tick,
}

/// Random choices, by purpose.
#[derive(Debug)]
pub(super) struct AllDice {
    pub(super) network: Dice,
    pub(super) faults: Dice,
    pub(super) compute: Dice,
    pub(super) planner: Dice,
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) deaths: u64,
    pub(super) groups: u64,
    pub(super) redone: u64,
    pub(super) rewinds: u64,
    pub(super) furthest: u64,
}

#[derive(Debug)]
pub(super) struct World<'o> {
    pub(super) options: &'o Options,
    pub(super) plan: Plan,
    pub(super) now: Time,
    pub(super) queue: EventQueue<Event>,
    pub(super) dice: AllDice,
    pub(super) core: Recorded<DriverCore>,
    pub(super) book: Book,
    pub(super) nodes: Vec<Node>,
    pub(super) uplinks: BTreeMap<Process, Uplink>,
    /// Processes that the driver has a link to.
    pub(super) linked: BTreeMap<NodeId, Process>,
    /// When the last message to a process arrives.
    pub(super) downlinks: BTreeMap<Process, Time>,
    pub(super) group: Option<Group>,
    /// Checkpoints that must be written: their step, and the processes whose parts are not fetched.
    pub(super) owed: BTreeMap<(Epoch, u64), BTreeSet<Process>>,
    pub(super) blobs: u64,
    /// Sums of marks of the samples of a batch.
    pub(super) marks: Vec<u64>,
    pub(super) slow_until: Time,
    next_tick: Option<Time>,
    pub(super) finished: bool,
    pub(super) tally: Tally,
    events: u64,
    pub(super) trace: Trace,
    violation: Option<(Time, String)>,
}

impl<'o> World<'o> {
    /// A world before its first event. What the driver's core is told is recorded if a file is given.
    pub(super) fn new(
        seed: u64,
        options: &'o Options,
        recording: Option<&Path>,
    ) -> Result<Self, RecordingError> {
        let plan = Plan {
            batches_per_pass: options.pass,
            length: Length::Steps(options.steps),
            validate: Every::Passes(1),
            checkpoint: Every::Steps(options.checkpoint_every),
        };
        let mut dice = AllDice {
            network: Dice::new(seed, "network"),
            faults: Dice::new(seed, "faults"),
            compute: Dice::new(seed, "compute"),
            planner: Dice::new(seed, "planner"),
        };
        let staged =
            StagedConfig { measures: dice.planner.chance(1, 2), calibrates: true, micro_batches: None };
        let patience = Duration::from_secs(10);
        let limits = match options.stages {
            0 => Limits { min: 1 + options.nodes / 3, wanted: options.nodes, max: options.nodes, patience },
            stages => Limits { min: 1, wanted: stages, max: usize::MAX, patience },
        };
        let config = DriverConfig {
            driver: NodeId::new("driver").expect("letters make a name"),
            run: RUN,
            plan,
            validates: true,
            limits,
            operators: options.operators as usize,
            staged: (options.stages > 0).then_some(staged),
            private_nodes: None,
            step: 0,
            validated: 0,
        };
        let mut marks = vec![0u64];
        for sample in 0..options.batch as u64 {
            marks.push(marks[sample as usize].wrapping_add(mark(sample)));
        }
        let core = match recording {
            Some(path) => Recorded::begin(config, path, RecordingLimits::default())?,
            None => Recorded::off(DriverCore::new(config)),
        };
        Ok(Self {
            options,
            plan,
            now: Time::ZERO,
            queue: EventQueue::default(),
            dice,
            core,
            book: Book::new(plan),
            nodes: (0..options.nodes).map(|_| Node::default()).collect(),
            uplinks: BTreeMap::new(),
            linked: BTreeMap::new(),
            downlinks: BTreeMap::new(),
            group: None,
            owed: BTreeMap::new(),
            blobs: 0,
            marks,
            slow_until: Time::ZERO,
            next_tick: None,
            finished: false,
            tally: Tally::default(),
            events: 0,
            trace: Trace::new(options.trace),
            violation: None,
        })
    }

    pub(super) fn run(&mut self) {
        for node in 0..self.options.nodes {
            let at = self.now + self.dice.faults.millis(0..3000);
            self.queue.push(at, Event::Starts { node });
        }
        if self.options.slow_driver {
            let at = self.now + self.dice.faults.millis(1000..20_000);
            self.queue.push(at, Event::Slow);
        }
        self.drive(DriverEvent::Started);
        while !self.finished && self.violation.is_none() {
            let Some((at, event)) = self.queue.pop() else {
                let phase = self.core.phase();
                return self.violate(format!("nothing happens any more; the driver: {phase:?}"));
            };
            self.now = self.now.max(at);
            self.events += 1;
            if self.events > MOST_EVENTS || self.now > Time::ZERO + self.options.heals_at + HEALED {
                let (phase, step) = (self.core.phase(), self.core.recorded().step);
                return self.violate(format!("the run does not end; at step {step} the driver: {phase:?}"));
            }
            self.on(event);
            self.check();
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Starts { node } => self.on_starts(node),
            Event::Dies { process } => self.on_dies(process),
            Event::Arrives { process } if self.now < self.slow_until => {
                let at = self.slow_until + self.dice.network.millis(0..50);
                self.queue.push(at, Event::Arrives { process });
            }
            Event::Arrives { process } => self.on_arrives(process),
            Event::Hears { process, message } => self.on_hears(process, *message),
            Event::ToDriver(event) if self.now < self.slow_until => {
                self.queue.push(self.slow_until, Event::ToDriver(event));
            }
            Event::ToDriver(event) => self.drive(*event),
            Event::FetchEnds { process, fetch } => self.on_fetch_ends(process, fetch),
            Event::Acquired { process, epoch } => self.on_acquired(process, epoch),
            Event::WorkEnds { epoch, serial } => self.on_work_ends(epoch, serial),
            Event::CopyArrives { epoch, step, rank } => self.on_copy_arrives(epoch, step, rank),
            Event::Notices { process, epoch } => self.leave_broken(process, epoch, "a rank is gone"),
            Event::Slow => self.on_slow(),
            Event::Tick => {
                self.next_tick = None;
                if self.now < self.slow_until {
                    self.queue.push(self.slow_until, Event::ToDriver(Box::new(DriverEvent::Tick)));
                } else {
                    self.drive(DriverEvent::Tick);
                }
            }
        }
    }

    /// Gives the driver an event and does what it wants.
    pub(super) fn drive(&mut self, event: DriverEvent) {
        self.trace.line(self.now, format_args!("driver <- {event:?}"));
        let mut out = Outbox::default();
        self.core.feed(self.now, event, &mut out);
        let mut commands: std::collections::VecDeque<_> = out.drain().collect();
        while let Some(command) = commands.pop_front() {
            self.trace.line(self.now, format_args!("driver -> {command:?}"));
            if let Some(reply) = self.execute(command) {
                self.trace.line(self.now, format_args!("driver <- {reply:?}"));
                self.core.feed(self.now, reply, &mut out);
                out.drain().rev().for_each(|command| commands.push_front(command));
            }
        }
        if let Some(due) = self.core.next_tick()
            && self.next_tick.is_none_or(|next| due < next)
        {
            let due = due.max(self.now + Duration::from_millis(1));
            self.next_tick = Some(due);
            self.queue.push(due, Event::Tick);
        }
    }

    /// Whether a process still runs.
    pub(super) fn lives(&self, process: Process) -> bool {
        let node = &self.nodes[process.node];
        node.up && node.life == process.life
    }

    /// How long a message travels.
    pub(super) fn message(&mut self) -> Duration {
        let jitter = self.dice.network.micros(0..20_000);
        // Links stall at times.
        let stall =
            if self.dice.network.chance(1, 50) { self.dice.network.millis(0..2000) } else { Duration::ZERO };
        self.options.latency + jitter + stall
    }

    /// How long a part of the state travels.
    pub(super) fn transfer(&mut self) -> Duration {
        let part = self.dice.network.number(200..1000) as f64 / 1e3;
        self.message() + Duration::from_secs_f64(self.options.state_seconds * part)
    }

    /// A process says something to the driver.
    pub(super) fn say(&mut self, process: Process, message: FromReplica) {
        self.send_up(process, Upward::Says(message));
    }

    pub(super) fn send_up(&mut self, process: Process, upward: Upward) {
        self.send_up_after(process, Duration::ZERO, upward);
    }

    /// The same, after something that takes a while.
    pub(super) fn send_up_after(&mut self, process: Process, takes: Duration, upward: Upward) {
        let at = self.now + takes + self.message();
        let uplink = self.uplinks.entry(process).or_default();
        uplink.last = uplink.last.max(at);
        let at = uplink.last;
        uplink.queue.push_back((at, upward));
        self.queue.push(at, Event::Arrives { process });
    }

    fn on_arrives(&mut self, process: Process) {
        let now = self.now;
        let due = |uplink: &mut Uplink| uplink.queue.pop_front_if(|(at, _)| *at <= now);
        let Some((_, upward)) = self.uplinks.get_mut(&process).and_then(due) else { return };
        self.trace.mix(process.node as u64);
        let node = process.id();
        match upward {
            Upward::Up => {
                self.linked.insert(node.clone(), process);
                self.drive(DriverEvent::NodeUp { node });
            }
            Upward::Says(message) => {
                self.excuse_redone(&message);
                self.drive(DriverEvent::Message { node, message });
            }
            Upward::Down { loss } => {
                self.uplinks.remove(&process);
                self.linked.remove(&node);
                self.drive(DriverEvent::NodeDown { node, loss });
            }
        }
    }

    /// The driver tells a process something.
    pub(super) fn tell(&mut self, node: &NodeId, message: ToReplica) {
        let Some(process) = self.linked.get(node).copied() else { return };
        let last = self.downlinks.get(&process).copied().unwrap_or(Time::ZERO);
        let at = last.max(self.now + self.message());
        self.downlinks.insert(process, at);
        self.queue.push(at, Event::Hears { process, message: Box::new(message) });
    }

    pub(super) fn violate(&mut self, what: String) {
        self.trace.line(self.now, format_args!("violated: {what}"));
        self.violation.get_or_insert((self.now, what));
    }

    pub(super) fn into_report(mut self, seed: u64) -> Report {
        let valid = |line: &&super::book::Line| matches!(line, super::book::Line::Valid(_));
        let validations = self.book.lines.iter().filter(valid).count() as u64;
        Report {
            seed,
            steps: self.book.lines.len() as u64 - validations,
            validations,
            checkpoints: self.book.saved.len() as u64,
            groups: self.tally.groups,
            deaths: self.tally.deaths,
            redone: self.tally.redone,
            rewinds: self.tally.rewinds,
            unknown: (self.book.unknown_steps.len() + self.book.unknown_validations.len()) as u64,
            events: self.events,
            ended_at: self.now,
            trace_hash: self.trace.hash(),
            trace: self.trace.take_text(),
            violation: self.violation.map(|(at, what)| Violation { at, what }),
        }
    }
}
