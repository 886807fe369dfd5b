//! The simulated cluster and its run loop.

use super::event::Event;
use super::group::Group;
use super::network::Network;
use super::node::{Node, Process};
use super::options::Options;
use super::step::Rhythm;
use super::tally::Tally;
use super::work::Work;
use crate::dice::Dice;
use crate::event_queue::EventQueue;
use crate::trace::Trace;
use phalanx_protocol::{FormationCommand, FormationCore, Limits, mark};
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// A run that formed so many groups since its last step will not come to its end.
const MOST_GROUPS: u64 = 200;
/// All seats of all groups of a run that is still worth following.
const MOST_SEATS: u64 = 8_000_000;
/// More events than any run that goes well.
const MOST_EVENTS: u64 = 20_000_000;
/// How long the driver waits for all nodes at the start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Up to so many nodes every message is an event of its own.
pub(super) const SMALL: usize = 64;

/// Random choices by purpose, so that one more of a kind does not shift the others.
#[derive(Debug)]
pub(super) struct DiceSet {
    pub(super) faults: Dice,
    pub(super) compute: Dice,
    pub(super) network: Dice,
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) work: &'a Work,
    pub(super) options: &'a Options,
    pub(super) now: Time,
    pub(super) queue: EventQueue<Event>,
    pub(super) dice: DiceSet,
    pub(super) core: FormationCore,
    pub(super) out: Outbox<FormationCommand>,
    pub(super) nodes: Vec<Node>,
    /// Every process that the driver has heard of.
    pub(super) processes: BTreeMap<NodeId, Process>,
    pub(super) network: Network,
    /// By the size of a group.
    pub(super) rhythms: BTreeMap<usize, Rhythm>,
    pub(super) group: Option<Group>,
    /// Sums of the marks of the samples before each sample of a batch.
    pub(super) marks: Vec<u64>,
    /// Steps that have happened.
    pub(super) committed: u64,
    /// Steps of the newest checkpoint.
    pub(super) saved: u64,
    pub(super) tally: Tally,
    /// When the first group began.
    pub(super) began: Option<Time>,
    /// Since when nobody computes.
    pub(super) idle_since: Option<Time>,
    pub(super) last_epoch: Epoch,
    pub(super) ended: bool,
    pub(super) gave_up: bool,
    pub(super) trace: Trace,
    pub(super) events: u64,
    pub(super) violation: Option<(Time, String)>,
    tick_at: Option<Time>,
}

impl<'a> World<'a> {
    pub(super) fn new(work: &'a Work, options: &'a Options, seed: u64) -> Self {
        let limits = Limits {
            min: options.min.clamp(1, options.replicas),
            wanted: options.replicas,
            // A node may be back before its death is known.
            max: options.replicas * 2,
            patience: PATIENCE,
        };
        let slow = |node: usize| match options.slow {
            Some(slow) if is_slow(node, slow.part) => slow.times,
            _ => 1.0,
        };
        let mut world = Self {
            work,
            options,
            now: Time::ZERO,
            queue: EventQueue::default(),
            dice: DiceSet {
                faults: Dice::new(seed, "faults"),
                compute: Dice::new(seed, "compute"),
                network: Dice::new(seed, "network"),
            },
            core: FormationCore::new(limits),
            out: Outbox::default(),
            nodes: (0..options.replicas).map(|node| Node::new(slow(node))).collect(),
            processes: BTreeMap::new(),
            network: Network::new(options),
            rhythms: BTreeMap::new(),
            group: None,
            marks: marks(options.batch),
            committed: 0,
            saved: 0,
            tally: Tally::default(),
            began: None,
            idle_since: None,
            last_epoch: Epoch(0),
            ended: false,
            gave_up: false,
            trace: Trace::new(options.trace),
            events: 0,
            violation: None,
            tick_at: None,
        };
        for node in 0..options.replicas {
            let at = world.dice.network.micros(0..100_000);
            world.queue.push(Time::ZERO + at, Event::Starts { node });
        }
        world
    }

    /// Runs to the last step, or until something happened that must not, or as long as it makes sense.
    pub(super) fn run(&mut self) {
        while self.violation.is_none() && !self.ended {
            let Some((at, event)) = self.queue.pop() else {
                self.violate("nothing is left to happen and the run has not ended".to_owned());
                return;
            };
            self.now = at;
            self.events += 1;
            let seats = self.tally.groups * self.nodes.len() as u64;
            if self.tally.futile > MOST_GROUPS || seats > MOST_SEATS || self.events > MOST_EVENTS {
                self.give_up();
                return;
            }
            self.trace.mix(at.0);
            self.handle(event);
            self.carry_all();
            self.schedule_tick();
            self.check();
        }
    }

    /// A run that nothing disturbs any more must end.
    fn give_up(&mut self) {
        self.gave_up = true;
        let healed = self.options.faults.is_none_or(|faults| self.tally.deaths >= faults.most);
        if healed {
            self.violate("nothing fails any more, and the run does not end".to_owned());
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Starts { node } => self.on_starts(node),
            Event::Dies { process } => self.on_dies(process),
            Event::Seen { process } => self.on_seen(process),
            Event::Lost { process } => self.on_lost(process),
            Event::Enlisted { process } => self.on_enlisted(process),
            Event::Restored { process, step } => self.on_restored(process, step),
            Event::Prepared { epoch, processes } => self.on_prepared(epoch, &processes),
            Event::Begins { epoch } => self.on_begins(epoch),
            Event::RoundEnds { epoch, round } => self.on_round_ends(epoch, round),
            Event::Saved { process, step } => self.on_saved(process, step),
            Event::GoesOn { epoch, round } => self.on_goes_on(epoch, round),
            Event::Asked { process, epoch } => self.on_asked(process, epoch),
            Event::Stops { epoch } => self.on_stops(epoch),
            Event::Left { epoch, left } => self.on_left(epoch, left),
            Event::Tick => {
                self.tick_at = None;
                self.core.on_tick(self.now, &mut self.out);
            }
        }
    }

    fn schedule_tick(&mut self) {
        if let Some(at) = self.core.next_tick()
            && self.tick_at.is_none_or(|set| at < set)
            && at > self.now
        {
            self.tick_at = Some(at);
            self.queue.push(at, Event::Tick);
        }
    }

    pub(super) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.trace.line(self.now, format_args!("VIOLATION {what}"));
            self.violation = Some((self.now, what));
        }
    }

    pub(super) fn latency(&self) -> Duration {
        self.network.latency()
    }

    /// What a message takes to the driver or from it.
    pub(super) fn message(&mut self) -> Duration {
        let latency = self.network.latency();
        let most = (latency.as_micros() as u64 / 4).max(100);
        latency + self.dice.network.micros(0..most)
    }

    /// Whether a process is still there.
    pub(super) fn lives(&self, process: Process) -> bool {
        let node = &self.nodes[process.node];
        node.up && node.life == process.life
    }

    pub(super) fn process(&self, node: usize) -> Process {
        Process { node, life: self.nodes[node].life }
    }

    /// A time of which the mean is known, and nothing else.
    pub(super) fn exponential(&mut self, mean: Duration) -> Duration {
        const FINE: u64 = 1 << 53;
        let part = (self.dice.faults.number(0..FINE) as f64 + 0.5) / FINE as f64;
        Duration::try_from_secs_f64(-part.ln() * mean.as_secs_f64()).unwrap_or(Duration::MAX)
    }
}

/// Spreads a part of all nodes evenly.
fn is_slow(node: usize, part: f64) -> bool {
    ((node + 1) as f64 * part).floor() > (node as f64 * part).floor()
}

fn marks(batch: usize) -> Vec<u64> {
    let sums = (0..batch as u64).scan(0_u64, |sum, sample| {
        *sum = sum.wrapping_add(mark(sample));
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}
