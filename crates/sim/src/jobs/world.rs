//! The simulated cluster and its run loop.

use super::event::{Event, MainEvent, WorkerEvent};
use super::link::{Link, LinkId, Side};
use super::main_shell::MainNode;
use super::plan::Plan;
use super::worker_shell::WorkerNode;
use super::{Options, Report, Violation};
use crate::dice::Dice;
use crate::event_queue::EventQueue;
use crate::trace::Trace;
use phalanx_types::Time;
use std::time::Duration;

/// How much virtual time the heal phase may take before the cluster counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many events a run may take; more of them are a loop.
const MAX_EVENTS: u64 = 400_000;

/// Random choices by purpose, so that one more of a kind does not shift the others.
#[derive(Debug)]
pub(super) struct DiceSet {
    pub(super) network: Dice,
    pub(super) faults: Dice,
    pub(super) runs: Dice,
    pub(super) shells: Dice,
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: Time,
    pub(super) queue: EventQueue<Event>,
    pub(super) dice: DiceSet,
    pub(super) mains: Vec<MainNode>,
    pub(super) workers: Vec<WorkerNode>,
    pub(super) links: Vec<Link>,
    /// The newest link of each main node to each worker.
    pub(super) pairs: Vec<Vec<Option<LinkId>>>,
    /// Partitions in force, by the index of their fault.
    pub(super) partitions: Vec<(usize, u32)>,
    pub(super) trace: Trace,
    pub(super) events: u64,
    pub(super) violation: Option<Violation>,
}

impl World {
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let plan = Plan::new(seed, options);
        let dice = DiceSet {
            network: Dice::new(seed, "network"),
            faults: Dice::new(seed, "faults"),
            runs: Dice::new(seed, "runs"),
            shells: Dice::new(seed, "shells"),
        };
        let mut world = Self {
            now: Time::ZERO,
            queue: EventQueue::default(),
            dice,
            mains: (0..plan.mains).map(MainNode::new).collect(),
            workers: plan.workers.iter().map(|_| WorkerNode::default()).collect(),
            links: Vec::new(),
            pairs: vec![vec![None; plan.workers.len()]; plan.mains],
            partitions: Vec::new(),
            trace: Trace::new(options.trace),
            events: 0,
            violation: None,
            plan,
        };
        world.schedule_plan();
        world
    }

    fn schedule_plan(&mut self) {
        for main in 0..self.mains.len() {
            self.queue.push(Time::ZERO, Event::StartMain { main });
        }
        for worker in 0..self.workers.len() {
            let late = if self.dice.faults.chance(1, 4) { 100_000 } else { 1_000 };
            let at = Time(self.dice.faults.number(0..late));
            self.queue.push(at, Event::StartWorker { worker });
        }
        for (job, plan) in self.plan.jobs.iter().enumerate() {
            self.queue.push(plan.submit_at, Event::Submit { job });
            if let Some(at) = plan.cancel_at {
                self.queue.push(at, Event::UserCancels { job });
            }
            if let Some(at) = plan.wanted_at {
                self.queue.push(at, Event::UserWants { job });
            }
            if let Some(at) = plan.released_at {
                self.queue.push(at, Event::UserReleases { job });
            }
        }
        for (index, (at, _)) in self.plan.faults.iter().enumerate() {
            self.queue.push(*at, Event::Fault { index });
        }
        for (index, training) in self.plan.trainings.iter().enumerate() {
            self.queue.push(training.at, Event::TrainingArrives { index });
        }
        self.queue.push(self.plan.heal_at, Event::Heal);
    }

    /// Runs until nothing is left to happen or something happened that must not.
    pub(super) fn run(&mut self) {
        let limit = self.plan.heal_at + PATIENCE;
        while self.violation.is_none() {
            let Some((at, event)) = self.queue.pop() else {
                self.verdict();
                return;
            };
            self.now = at;
            self.events += 1;
            if at > limit || self.events > MAX_EVENTS {
                self.violate(self.what_is_stuck());
                return;
            }
            self.trace.mix(at.0);
            self.handle(event);
            self.check();
        }
    }

    pub(super) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.trace.line(self.now, format_args!("VIOLATION {what}"));
            self.violation = Some(Violation { at: self.now, what });
        }
    }

    pub(super) fn handle(&mut self, event: Event) {
        if let Some(worker) = self.frozen_target(&event) {
            self.workers[worker].backlog.push_back(event);
            return;
        }
        match event {
            Event::Submit { job } => self.on_submit(job),
            Event::UserCancels { job } => self.on_user_cancels(job),
            Event::UserWants { job } => self.on_user_wants(job),
            Event::UserReleases { job } => self.on_user_releases(job),
            Event::Connect { main, worker } => self.on_connect(main, worker),
            Event::Deliver { link, to, bytes } => {
                if !self.links[link.0].cut {
                    self.deliver(link, to, &bytes);
                }
            }
            Event::Goodbye { link } => self.on_goodbye(link),
            Event::LinkDown { link, side } => self.on_link_down(link, side),
            Event::HeartbeatMissed { link, freeze } => self.on_heartbeat_missed(link, freeze),
            Event::Main { main, life, event } => self.on_main_event(main, life, event),
            Event::Worker { worker, life, event } => self.on_worker_event(worker, life, event),
            Event::Fault { index } => self.on_fault(index),
            Event::PartitionHeals { index } => self.on_partition_heals(index),
            Event::Thaw { worker, freeze } => self.on_thaw(worker, freeze),
            Event::StartWorker { worker } => self.on_start_worker(worker),
            Event::StartMain { main } => self.on_start_main(main),
            Event::TrainingArrives { index } => self.on_training_arrives(index),
            Event::Heal => self.on_heal(),
        }
    }

    /// Brings a message to its receiver, unless that is another process by now.
    pub(super) fn deliver(&mut self, id: LinkId, to: Side, bytes: &[u8]) {
        self.trace.mix(id.0 as u64);
        self.trace.mix_bytes(bytes);
        match to {
            Side::Main => self.deliver_to_main(id, bytes),
            Side::Worker => self.deliver_to_worker(id, bytes),
        }
    }

    /// The frozen worker that an event would have to wait for.
    fn frozen_target(&self, event: &Event) -> Option<usize> {
        let worker = match event {
            Event::Worker { worker, .. } => *worker,
            // What arrives before the link is cut waits in the socket; the rest never arrives.
            Event::Deliver { link, to: Side::Worker, .. } if !self.links[link.0].cut => {
                self.links[link.0].worker
            }
            Event::LinkDown { link, side: Side::Worker } => self.links[link.0].worker,
            _ => return None,
        };
        self.workers[worker].frozen.then_some(worker)
    }

    fn on_main_event(&mut self, main: usize, life: u64, event: MainEvent) {
        if self.mains[main].life != life || self.mains[main].core.is_none() {
            return;
        }
        match event {
            MainEvent::Settle => self.settle_main(main),
            MainEvent::Wake => self.wake_main(main),
            MainEvent::Taken { link, lease, blob } => self.on_taken(main, link, lease, blob),
            MainEvent::Brought { link, job, blob } => self.on_brought(main, link, job, blob),
        }
    }

    fn on_worker_event(&mut self, worker: usize, life: u64, event: WorkerEvent) {
        if self.workers[worker].life != life || self.workers[worker].core.is_none() {
            return;
        }
        match event {
            WorkerEvent::Settle => self.settle_worker(worker),
            WorkerEvent::Wake => self.wake_worker(worker),
            WorkerEvent::Fetched { link, key } => self.on_fetched(worker, link, key),
            WorkerEvent::InputFetched { session, input, node, blob } => {
                self.on_input_fetched(worker, (session, input), &node, blob);
            }
            WorkerEvent::RunEnds { batch, key } => self.on_run_ends(worker, batch, key),
            WorkerEvent::Progress { key } => self.on_progress(worker, key),
            WorkerEvent::TakenBack { batch, runs } => self.on_taken_back(worker, batch, runs),
            WorkerEvent::TrainingTries { index, waits } => self.on_training_tries(worker, index, waits),
            WorkerEvent::TrainingEnds { claim } => self.on_training_ends(worker, claim),
        }
    }

    pub(super) fn into_report(mut self, seed: u64) -> Report {
        Report {
            seed,
            events: self.events,
            ended_at: self.now,
            outcomes: self.outcomes(),
            trace_hash: self.trace.hash(),
            trace: self.trace.take_text(),
            violation: self.violation,
        }
    }
}
