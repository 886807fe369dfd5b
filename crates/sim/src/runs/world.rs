//! The simulated cluster and its loop.

use super::book::Book;
use super::cluster::{Node, Process, Uplink, Upward};
use super::coverage::Coverage;
use super::event::Event;
use super::group::Group;
use super::pace::{Pace, Progressed};
use super::queries::Queries;
use super::stream::{passes_of, passes_that_need_room};
use super::{Options, Report, Violation, reasons};
use crate::dice::Dice;
use crate::event_queue::EventQueue;
use crate::trace::Trace;
use phalanx_protocol::driver::{DriverConfig, DriverCore, DriverEvent, StagedConfig};
use phalanx_protocol::progress::{Place, Plan};
use phalanx_protocol::{Every, Length, Limits, PassLengths, Passes, mark};
use phalanx_recording::{Limits as RecordingLimits, Recorded, RecordingError};
use phalanx_types::{Epoch, NodeId, Outbox, RunId, Time};
use phalanx_wire::train::{FromReplica, ToReplica};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

/// After everything has healed, a run that takes longer is stuck.
const HEALED: Duration = Duration::from_secs(3600);
/// So is one with more events.
const MOST_EVENTS: u64 = 2_000_000;
/// A run that formed this many groups since its last step will not come to its end.
const MOST_GROUPS: u64 = 200;
/// All seats of all groups of a run that is still worth following.
const MOST_SEATS: u64 = 8_000_000;
/// Clusters of up to this many nodes are checked after every event.
pub(super) const SMALL: usize = 64;

/// Random choices, by purpose.
#[derive(Debug)]
pub(super) struct AllDice {
    pub(super) faults: Dice,
    pub(super) nodes: Dice,
    pub(super) planner: Dice,
    pub(super) driver: Dice,
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) deaths: u64,
    pub(super) groups: u64,
    /// Groups since the last step.
    pub(super) futile: u64,
    pub(super) redone: u64,
    pub(super) rewinds: u64,
    pub(super) restarts: u64,
    pub(super) stops: u64,
    pub(super) failures: u64,
    pub(super) intervals: u64,
    pub(super) furthest: u64,
    pub(super) commits_waited: u64,
}

/// The driver's process.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) core: Recorded<DriverCore>,
    /// Counts the processes.
    pub(super) life: u64,
    pub(super) up: bool,
    /// The user has stopped the run.
    pub(super) stopping: bool,
    /// It dies when it has carried out this many more commands.
    pub(super) dies_within: Option<u64>,
    pub(super) slow_until: Time,
    next_tick: Option<Time>,
    /// Parts that the batches of the last group were cut into, as the run directory says.
    pub(super) micro_batches: Option<usize>,
    /// The same of the plan that was made last.
    pub(super) planned_micro_batches: Option<usize>,
}

#[derive(Debug)]
pub(super) struct World<'o, P> {
    pub(super) options: &'o Options,
    pub(super) pace: P,
    /// All passes of the run, as the store has them.
    pub(super) passes: Passes,
    pub(super) last_step: u64,
    /// Where passes begin for which the store needs the room of all samples before.
    pub(super) needs_room: BTreeSet<u64>,
    /// Steps whose samples the store may free: the run has told it of a checkpoint.
    pub(super) freed: u64,
    pub(super) now: Time,
    /// With the driver's life that an event belongs to.
    queue: EventQueue<(Option<u64>, Event)>,
    pub(super) dice: AllDice,
    pub(super) driver: Driver,
    pub(super) book: Book,
    pub(super) nodes: Vec<Node>,
    pub(super) uplinks: BTreeMap<Process, Uplink>,
    /// Processes that the driver has a link to.
    pub(super) linked: BTreeMap<NodeId, Process>,
    /// By process: which of its links the driver uses, and when the last message on it arrives.
    pub(super) downlinks: BTreeMap<Process, (u32, Time)>,
    pub(super) group: Option<Group>,
    /// Checkpoints that must be written: their step, and the processes whose parts are not fetched.
    pub(super) owed: BTreeMap<(Epoch, u64), BTreeSet<Process>>,
    /// Steps after which a round ended.
    pub(super) round_ends: BTreeSet<u64>,
    /// Steps before and after the round that was done last.
    pub(super) last_round: std::ops::Range<u64>,
    /// Steps that have happened and are held.
    pub(super) committed: u64,
    pub(super) blobs: u64,
    /// Sums of marks of the samples of a pass.
    pub(super) marks: Vec<u64>,
    pub(super) queries: Queries,
    /// A rank has failed as the options want it.
    pub(super) has_failed: bool,
    pub(super) finished: bool,
    pub(super) gave_up: bool,
    pub(super) tally: Tally,
    pub(super) coverage: Coverage,
    events: u64,
    pub(super) trace: Trace,
    violation: Option<(Time, String)>,
}

impl<'o, P: Pace> World<'o, P> {
    /// A cluster before its first event. What the driver's core is told is recorded if a file is given.
    pub(super) fn new(
        seed: u64,
        options: &'o Options,
        pace: P,
        recording: Option<&Path>,
    ) -> Result<Self, RecordingError> {
        let plan = Plan {
            passes: PassLengths::Fixed(options.pass),
            length: Length::Steps(options.steps),
            validate: if options.validates { Every::Passes(1) } else { Every::Never },
            checkpoint: options.checkpoint_every.map_or(Every::Never, Every::Steps),
            until: None,
        };
        let (passes, last_step) = passes_of(seed, options, plan);
        let needs_room = passes_that_need_room(seed, options, &passes, last_step);
        let mut dice = AllDice {
            faults: Dice::new(seed, "faults"),
            nodes: Dice::new(seed, "nodes"),
            planner: Dice::new(seed, "planner"),
            driver: Dice::new(seed, "driver"),
        };
        let config = config(options, passes.plan(), &mut dice.planner, 1, (Place::default(), 0), None);
        let driver = Driver {
            core: match recording {
                Some(path) => Recorded::begin(config, path, RecordingLimits::default())?,
                None => Recorded::off(DriverCore::new(config)),
            },
            life: 1,
            up: true,
            stopping: false,
            dies_within: None,
            slow_until: Time::ZERO,
            next_tick: None,
            micro_batches: None,
            planned_micro_batches: None,
        };
        let samples = options.pass.saturating_mul(options.batch as u64);
        let sums = (0..samples).scan(0_u64, |sum, sample| {
            *sum = sum.wrapping_add(mark(sample));
            Some(*sum)
        });
        Ok(Self {
            options,
            pace,
            book: Book::new(passes.clone()),
            passes,
            last_step,
            needs_room,
            freed: 0,
            now: Time::ZERO,
            queue: EventQueue::default(),
            dice,
            driver,
            nodes: (0..options.nodes).map(|_| Node::default()).collect(),
            uplinks: BTreeMap::new(),
            linked: BTreeMap::new(),
            downlinks: BTreeMap::new(),
            group: None,
            owed: BTreeMap::new(),
            round_ends: BTreeSet::from([0]),
            last_round: 0..0,
            committed: 0,
            blobs: 0,
            marks: std::iter::once(0).chain(sums).collect(),
            queries: Queries::default(),
            has_failed: false,
            finished: false,
            gave_up: false,
            tally: Tally::default(),
            coverage: Coverage::default(),
            events: 0,
            trace: Trace::new(options.trace),
            violation: None,
        })
    }

    pub(super) fn run(&mut self) {
        self.schedule_first();
        self.drive(DriverEvent::Started);
        while !self.finished && self.violation.is_none() {
            let Some((at, (life, event))) = self.queue.pop() else {
                let phase = self.driver.core.phase();
                return self.violate(format!("nothing happens any more; the driver: {phase:?}"));
            };
            if life.is_some_and(|life| life != self.driver.life) {
                continue;
            }
            self.now = self.now.max(at);
            self.events += 1;
            if self.is_stuck() {
                return;
            }
            self.trace.mix(at.0);
            self.on(event);
            self.check();
        }
    }

    fn schedule_first(&mut self) {
        for node in 0..self.options.nodes {
            let at = self.now + self.pace.starting();
            self.schedule(at, Event::Starts { node });
        }
        if self.options.slow_driver {
            let at = self.now + self.dice.driver.millis(1000..20_000);
            self.schedule(at, Event::Slow);
        }
        if let Some(at) = self.options.stop_at {
            self.schedule(Time::ZERO + at, Event::StopAsked);
        }
        self.schedule_death_of_driver();
        self.schedule_query();
    }

    /// Whether the run does not come to its end; a run that nothing disturbs any more must.
    fn is_stuck(&mut self) -> bool {
        if self.options.gives_up {
            let seats = self.tally.groups.saturating_mul(self.nodes.len() as u64);
            self.gave_up = self.tally.futile > MOST_GROUPS || seats > MOST_SEATS;
            if self.gave_up && self.has_healed() {
                self.violate("nothing fails any more, and the run does not end".to_owned());
            }
            return self.gave_up;
        }
        let late = self.has_healed() && self.now > Time::ZERO + self.options.heals_at + HEALED;
        let stuck = self.events > MOST_EVENTS || late;
        if stuck {
            let (phase, step) = (self.driver.core.phase(), self.driver.core.recorded().step);
            self.violate(format!("the run does not end; at step {step} the driver: {phase:?}"));
        }
        stuck
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Starts { node } => self.on_starts(node),
            Event::Fails { process } => self.on_fails(process),
            Event::Replaced { process } => self.on_replaced(process),
            Event::Relinks { process } => self.on_relinks(process),
            Event::Arrives { process } if self.now < self.driver.slow_until => {
                let at = self.driver.slow_until + self.dice.driver.millis(0..50);
                self.schedule(at, Event::Arrives { process });
            }
            Event::Arrives { process } => self.on_arrives(process),
            Event::Hears { process, link, message } => {
                if self.lives(process) && self.nodes[process.node].link == link {
                    self.on_hears(process, *message);
                }
            }
            Event::ToDriver(event) if self.now < self.driver.slow_until => {
                self.schedule(self.driver.slow_until, Event::ToDriver(event));
            }
            Event::ToDriver(event) => self.drive(*event),
            Event::FetchEnds { process, fetch } => self.on_fetch_ends(process, fetch),
            Event::Acquired { process, epoch } => self.on_acquired(process, epoch),
            Event::Caught { process, epoch, part } => self.on_caught(process, epoch, part),
            Event::WorkEnds { epoch, serial } => self.on_work_ends(epoch, serial),
            Event::CopyArrives { epoch, step, rank } => self.on_copy_arrives(epoch, step, rank),
            Event::Notices { process, epoch } => self.leave_broken(process, epoch),
            Event::Query => self.on_query(),
            Event::Slow => self.on_slow(),
            Event::DriverDies => self.on_driver_dies(),
            Event::Resumes => self.on_resumes(),
            Event::StopAsked => self.on_stop_asked(),
            Event::Tick => {
                self.driver.next_tick = None;
                if self.now < self.driver.slow_until {
                    self.schedule(self.driver.slow_until, Event::ToDriver(Box::new(DriverEvent::Tick)));
                } else {
                    self.drive(DriverEvent::Tick);
                }
            }
        }
    }

    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        let life = (!event.outlives_the_driver()).then_some(self.driver.life);
        self.queue.push(at, (life, event));
    }

    /// Names the run in messages; every driver gives it another name.
    pub(super) fn run_id(&self) -> RunId {
        RunId(self.driver.life)
    }

    /// Gives the driver an event and does what it wants.
    pub(super) fn drive(&mut self, event: DriverEvent) {
        if !self.driver.up {
            return;
        }
        self.trace.line(self.now, format_args!("driver <- {event:?}"));
        self.coverage.on_event(&event);
        let mut out = Outbox::default();
        self.driver.core.feed(self.now, event, &mut out);
        let mut commands: VecDeque<_> = out.drain().collect();
        while let Some(command) = commands.pop_front() {
            if self.is_killed_here() {
                return self.kill_driver();
            }
            self.trace.line(self.now, format_args!("driver -> {command:?}"));
            self.coverage.on_command(&command);
            if let Some(reply) = self.execute(command) {
                self.trace.line(self.now, format_args!("driver <- {reply:?}"));
                self.coverage.on_event(&reply);
                self.driver.core.feed(self.now, reply, &mut out);
                out.drain().rev().for_each(|command| commands.push_front(command));
            }
            if !self.driver.up {
                return;
            }
        }
        self.check_records();
        if let Some(due) = self.driver.core.next_tick()
            && self.driver.next_tick.is_none_or(|next| due < next)
        {
            let due = due.max(self.now + Duration::from_millis(1));
            self.driver.next_tick = Some(due);
            self.schedule(due, Event::Tick);
        }
    }

    /// A driver takes the run up as its directory has it.
    pub(super) fn start_driver(&mut self) {
        let (step, validated) = self.book.reopen();
        // A run that opens its stream tells the store where it goes on.
        self.freed = self.freed.max(step);
        let recorded = (self.place_on_disk(step), validated);
        let driver = &mut self.driver;
        let (life, before) = (driver.life, driver.micro_batches);
        let config = config(self.options, self.passes.plan(), &mut self.dice.planner, life, recorded, before);
        // Only the first process of the driver is recorded: a recording is of one core.
        driver.core = Recorded::off(DriverCore::new(config));
        (driver.up, driver.stopping, driver.next_tick) = (true, false, None);
        self.drive(DriverEvent::Started);
    }

    /// Whether a process still runs.
    pub(super) fn lives(&self, process: Process) -> bool {
        let node = &self.nodes[process.node];
        node.up && node.life == process.life
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
        if !self.driver.up {
            return;
        }
        let at = self.now + takes + self.pace.message();
        let uplink = self.uplinks.entry(process).or_default();
        uplink.last = uplink.last.max(at);
        let at = uplink.last;
        uplink.queue.push_back((at, upward));
        self.schedule(at, Event::Arrives { process });
    }

    fn on_arrives(&mut self, process: Process) {
        let now = self.now;
        let due = |uplink: &mut Uplink| uplink.queue.pop_front_if(|(at, _)| *at <= now);
        let Some((_, upward)) = self.uplinks.get_mut(&process).and_then(due) else { return };
        self.trace.mix(process.node as u64);
        let node = process.id();
        match upward {
            Upward::Up { link } => {
                self.linked.insert(node.clone(), process);
                self.downlinks.insert(process, (link, now));
                if self.dice.driver.chance(1, 20) {
                    // Both sides have dialed: the second link takes the place of the first.
                    self.drive(DriverEvent::NodeUp { node: node.clone() });
                }
                self.drive(DriverEvent::NodeUp { node });
            }
            Upward::Says(message) => {
                self.excuse_redone(&message);
                self.drive(DriverEvent::Message { node, message });
            }
            Upward::Down => {
                self.uplinks.retain(|of, uplink| *of != process || !uplink.queue.is_empty());
                self.linked.remove(&node);
                self.drive(reasons::node_down(node));
            }
        }
    }

    /// The driver tells a process something.
    pub(super) fn tell(&mut self, node: &NodeId, message: ToReplica) {
        let Some(process) = self.linked.get(node).copied() else { return };
        let takes = self.pace.message();
        let Some((link, last)) = self.downlinks.get_mut(&process) else { return };
        let at = self.now + takes;
        *last = at.max(*last);
        let (link, at) = (*link, *last);
        self.schedule(at, Event::Hears { process, link, message: Box::new(message) });
    }

    pub(super) fn progress(&mut self, what: Progressed) {
        self.pace.on_progress(self.now, what);
    }

    pub(super) fn violate(&mut self, what: String) {
        self.trace.line(self.now, format_args!("violated: {what}"));
        self.violation.get_or_insert((self.now, what));
    }

    pub(super) fn into_report(mut self, seed: u64) -> (Report, P) {
        let valid = |line: &&super::book::Line| matches!(line, super::book::Line::Valid(_));
        let validations = self.book.lines.iter().filter(valid).count() as u64;
        let Tally { deaths, groups, redone, rewinds, restarts, stops, failures, intervals, .. } = self.tally;
        let Tally { commits_waited, .. } = self.tally;
        let report = Report {
            seed,
            steps: self.book.lines.len() as u64 - validations,
            validations,
            checkpoints: self.book.saved.len() as u64,
            groups,
            deaths,
            redone,
            rewinds,
            restarts,
            stops,
            failures,
            intervals,
            commits_waited,
            held: self.committed,
            gave_up: self.gave_up,
            unknown: (self.book.unknown_steps.len() + self.book.unknown_validations.len()) as u64,
            answers: self.queries.answered(),
            events: self.events,
            ended_at: self.now,
            kinds: self.coverage.into_kinds(),
            trace_hash: self.trace.hash(),
            trace: self.trace.take_text(),
            violation: self.violation.map(|(at, what)| Violation { at, what }),
        };
        (report, self.pace)
    }
}

/// What a driver is told of the run. `recorded` is the place after the last step and the last validation in its directory.
fn config(
    options: &Options,
    plan: Plan,
    dice: &mut Dice,
    life: u64,
    recorded: (Place, u64),
    micro_batches: Option<usize>,
) -> DriverConfig {
    let staged = StagedConfig {
        measures: !options.private && dice.chance(1, 2),
        calibrates: options.overlap.is_none(),
        micro_batches,
    };
    let patience = options.patience;
    let limits = match options.stages {
        0 => Limits { min: options.min, wanted: options.nodes, max: options.max, patience },
        stages => Limits { min: 1, wanted: stages, max: usize::MAX, patience },
    };
    DriverConfig {
        driver: NodeId::new("driver").expect("letters make a name"),
        run: RunId(life),
        plan,
        validates: options.validates,
        limits,
        operators: options.operators as usize,
        staged: (options.stages > 0).then_some(staged),
        private_nodes: options.private.then_some(options.nodes),
        place: recorded.0,
        validated: recorded.1,
    }
}
