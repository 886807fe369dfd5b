//! A model of a main node's shell: a journal, links, and the core's commands carried out.

use super::event::{Event, MainEvent};
use super::journal::Journal;
use super::link::LinkId;
use super::world::World;
use phalanx_jobs::core::{JobSpec, MainCommand, MainCore, Outcome, WorkerKey};
use phalanx_types::{Epoch, JobId, LeaseId, Outbox, SessionId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::decode;
use phalanx_wire::jobs::{Dispatch, FromWorker, Offer, OfferGroup, ParcelRef, ToWorker};
use std::collections::BTreeMap;

const FIRST_SESSION: u64 = 100;

/// A main node, up or down.
#[derive(Debug)]
pub(super) struct MainNode {
    pub(super) session: SessionId,
    /// `None` while the process is down.
    pub(super) core: Option<MainCore>,
    /// Counts the processes; also the epoch.
    pub(super) life: u64,
    pub(super) out: Outbox<MainCommand>,
    settling: bool,
    wake_at: Option<Time>,
    pub(super) journal: Journal,
    /// Jobs that users wanted to submit while it was down.
    postponed: Vec<usize>,
    /// The newest lease of each job in this life.
    pub(super) numbers: BTreeMap<JobId, u32>,
}

impl MainNode {
    pub(super) fn new(index: usize) -> Self {
        Self {
            session: SessionId(FIRST_SESSION + index as u64),
            core: None,
            life: 0,
            out: Outbox::default(),
            settling: false,
            wake_at: None,
            journal: Journal::default(),
            postponed: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }
}

/// One message for each worker there is something to say to.
struct Letters {
    epoch: Epoch,
    by_worker: BTreeMap<WorkerKey, Dispatch>,
}

impl Letters {
    fn to(&mut self, worker: WorkerKey) -> &mut Dispatch {
        let empty = Dispatch { epoch: self.epoch, ..Dispatch::default() };
        self.by_worker.entry(worker).or_insert(empty)
    }
}

/// The main node a session belongs to.
pub(super) fn main_of(session: SessionId) -> usize {
    (session.0 - FIRST_SESSION) as usize
}

impl World {
    /// Starts the process and reads its journal.
    pub(super) fn on_start_main(&mut self, main: usize) {
        let now = self.now;
        let node = &mut self.mains[main];
        if node.core.is_some() {
            return;
        }
        node.life += 1;
        self.trace.line(now, format_args!("m{main} starts e{}", node.life));
        let mut core = MainCore::new(node.session, Epoch(node.life));
        for record in node.journal.records() {
            let spec = &self.plan.jobs[record.plan].spec;
            match &record.outcome {
                Some((_, outcome)) => core.on_restore_ended(&spec.kind, spec.needs, outcome),
                None => {
                    let left = spec.deadline.map(|d| (record.submitted + d).since(now));
                    core.on_restore(now, JobSpec { deadline: left, ..spec.clone() }, record.attempts)
                }
            };
        }
        node.core = Some(core);
        for job in std::mem::take(&mut node.postponed) {
            self.on_submit(job);
        }
        for worker in 0..self.workers.len() {
            self.plan_connect(main, worker);
        }
        self.touch_main(main);
    }

    /// Kills the process; only the journal stays.
    pub(super) fn crash_main(&mut self, main: usize) {
        let node = &mut self.mains[main];
        node.core = None;
        node.out = Outbox::default();
        node.settling = false;
        node.wake_at = None;
        node.numbers.clear();
    }

    pub(super) fn on_submit(&mut self, job: usize) {
        let main = self.plan.jobs[job].main;
        let node = &mut self.mains[main];
        let Some(core) = &mut node.core else {
            node.postponed.push(job);
            return;
        };
        let recorded = node.journal.submit(self.now, job);
        let given = core.on_submit(self.now, self.plan.jobs[job].spec.clone());
        self.trace.line(self.now, format_args!("m{main} submit {given} {:?}", self.plan.jobs[job].behaviour));
        if recorded != given {
            self.violate(format!("job {recorded} of the journal is job {given} of the core"));
        }
        self.touch_main(main);
    }

    pub(super) fn on_user_cancels(&mut self, job: usize) {
        let main = self.plan.jobs[job].main;
        let node = &mut self.mains[main];
        if let (Some(core), Some(id)) = (&mut node.core, node.journal.find(job)) {
            self.trace.line(self.now, format_args!("m{main} user cancels {id}"));
            core.on_cancel(id, &mut node.out);
            self.touch_main(main);
        }
    }

    pub(super) fn main_loses(&mut self, id: LinkId, goodbye: bool) {
        let link = &mut self.links[id.0];
        let node = &mut self.mains[link.main];
        if !link.main_up || node.life != link.main_life {
            return;
        }
        let Some(core) = &mut node.core else { return };
        link.main_up = false;
        link.leased.clear();
        let main = link.main;
        self.trace.line(self.now, format_args!("m{main} loses l{} goodbye={goodbye}", id.0));
        core.on_worker_lost(id.worker_key(), goodbye, &mut node.out);
        self.touch_main(main);
    }

    pub(super) fn deliver_to_main(&mut self, id: LinkId, bytes: &[u8]) {
        let link = &self.links[id.0];
        let main = link.main;
        let node = &mut self.mains[main];
        if !link.main_up || node.life != link.main_life {
            return;
        }
        let Some(core) = &mut node.core else { return };
        self.trace.line(self.now, format_args!("m{main} hears l{}", id.0));
        match decode(bytes) {
            Ok(FromWorker::Join(join)) => {
                let said = node.out.commands().len();
                let (window, held) = (join.window, join.held.clone());
                core.on_join(self.now, id.worker_key(), join, &mut node.out);
                let answers = node.out.commands()[said..].to_vec();
                self.note_join(id, window, &held, &answers);
            }
            Ok(FromWorker::Report(report)) => {
                self.links[id.0].note_report(&report);
                core.on_report(self.now, id.worker_key(), report, &mut node.out);
            }
            Err(error) => self.violate(format!("a worker's message does not decode: {error}")),
        }
        self.touch_main(main);
    }

    pub(super) fn on_taken(&mut self, main: usize, id: LinkId, lease: LeaseId, blob: BlobId) {
        let link = &self.links[id.0];
        let worker = &self.workers[link.worker];
        let alive = !link.cut && worker.life == link.worker_life && worker.core.is_some();
        if alive && worker.frozen {
            let event = MainEvent::Taken { link: id, lease, blob };
            self.main_soon(main, 5_000, event);
            return;
        }
        let parcel = worker.blobs.get(&blob).filter(|_| alive).cloned();
        let node = &mut self.mains[main];
        let ended = node.journal.get(lease.job).is_some_and(|r| r.outcome.is_some());
        let waiting = !node.out.is_empty();
        let Some(core) = &mut node.core else { return };
        self.trace.line(self.now, format_args!("m{main} took {lease} {}", parcel.is_some()));
        let missing = parcel.is_none();
        let result = parcel.ok_or_else(|| "the node is gone".to_owned());
        core.on_taken(id.worker_key(), lease, result, &mut node.out);
        if alive && missing && !ended && !waiting {
            self.violate(format!("m{main}: the solution of {lease} was forgotten before it was recorded"));
        }
        self.touch_main(main);
    }

    /// Something changed: settles at once, or after a few more events.
    pub(super) fn touch_main(&mut self, main: usize) {
        if self.dice.shells.chance(3, 4) {
            self.settle_main(main);
        } else if !self.mains[main].settling {
            self.mains[main].settling = true;
            let delay = self.dice.shells.number(0..300);
            self.main_soon(main, delay, MainEvent::Settle);
        }
    }

    fn main_soon(&mut self, main: usize, micros: u64, event: MainEvent) {
        let life = self.mains[main].life;
        self.queue.push(Time(self.now.0 + micros), Event::Main { main, life, event });
    }

    pub(super) fn wake_main(&mut self, main: usize) {
        let node = &mut self.mains[main];
        if node.wake_at != Some(self.now) {
            return;
        }
        node.wake_at = None;
        if let Some(core) = &mut node.core {
            core.on_tick(self.now, &mut node.out);
        }
        self.touch_main(main);
    }

    /// Leases what waits, carries out all commands, and sends each worker one message.
    pub(super) fn settle_main(&mut self, main: usize) {
        let node = &mut self.mains[main];
        let Some(core) = &mut node.core else { return };
        node.settling = false;
        core.dispatch(self.now, &mut node.out);
        let commands: Vec<MainCommand> = node.out.drain().collect();
        let mut letters = Letters { epoch: Epoch(node.life), by_worker: BTreeMap::new() };
        for command in commands {
            self.carry_main(main, command, &mut letters);
        }
        for (key, letter) in letters.by_worker {
            self.send_to_worker(LinkId::from(key), &ToWorker::Dispatch(letter));
        }
        let node = &mut self.mains[main];
        let Some(wake) = node.core.as_ref().map(MainCore::next_wake) else { return };
        if wake != Time::NEVER && node.wake_at.is_none_or(|at| wake < at) {
            let at = wake.max(self.now);
            node.wake_at = Some(at);
            self.main_soon(main, at.0 - self.now.0, MainEvent::Wake);
        }
    }

    fn carry_main(&mut self, main: usize, command: MainCommand, letters: &mut Letters) {
        self.trace.line(self.now, format_args!("m{main} {command:?}"));
        match command {
            MainCommand::Invite { worker } => {
                let (session, epoch) = (self.mains[main].session, letters.epoch);
                self.send_to_worker(LinkId::from(worker), &ToWorker::Invite { session, epoch });
            }
            MainCommand::Offer { worker, lease } => {
                self.check_offer(main, LinkId::from(worker), lease);
                self.write_offer(main, letters.to(worker), lease);
            }
            MainCommand::Ack { worker, lease } => letters.to(worker).acks.push(lease),
            MainCommand::Go { worker, lease } => letters.to(worker).go.push(lease),
            MainCommand::Cancel { worker, lease } => {
                self.links[LinkId::from(worker).0].release(lease);
                letters.to(worker).cancels.push(lease);
            }
            MainCommand::Recall { worker, lease } => letters.to(worker).recalls.push(lease),
            MainCommand::Take { worker, lease, blob, .. } => {
                let delay = self.dice.shells.number(100..5_000);
                self.main_soon(main, delay, MainEvent::Taken { link: worker.into(), lease, blob });
            }
            MainCommand::Attempt { job, attempts } => self.record_attempt(main, job, attempts),
            MainCommand::Finished { job, outcome } => self.record_outcome(main, job, outcome),
            MainCommand::Explain { .. } => {}
            MainCommand::CutOff { worker, why } => {
                self.violate(format!("m{main} cuts off an honest worker (l{}): {why}", worker.0));
            }
        }
    }

    fn write_offer(&mut self, main: usize, letter: &mut Dispatch, lease: LeaseId) {
        let node = &self.mains[main];
        let view = node.core.as_ref().and_then(|core| core.offer_of(lease.job));
        let (Some(view), Some(record)) = (view, node.journal.get(lease.job)) else {
            self.violate(format!("m{main} offers {lease}, which it does not have"));
            return;
        };
        let payload = if self.plan.jobs[record.plan].large.0 {
            ParcelRef::Blob { head: view.payload.head(), blob: BlobId(lease.job.0) }
        } else {
            ParcelRef::inline(view.payload)
        };
        let offer = Offer { lease, priority: view.priority, careful: view.careful, payload };
        match letter.offers.iter_mut().find(|g| g.kind == *view.kind && g.needs == view.needs) {
            Some(group) => group.offers.push(offer),
            None => {
                let (kind, needs) = (view.kind.clone(), view.needs);
                letter.offers.push(OfferGroup { kind, needs, offers: vec![offer] });
            }
        }
    }

    fn record_attempt(&mut self, main: usize, job: JobId, attempts: u32) {
        let Some(record) = self.mains[main].journal.get_mut(job) else { return };
        let before = std::mem::replace(&mut record.attempts, attempts);
        if attempts != before + 1 {
            self.violate(format!("m{main}: attempt {attempts} of job {job} follows attempt {before}"));
        }
    }

    fn record_outcome(&mut self, main: usize, job: JobId, outcome: Outcome) {
        let now = self.now;
        for link in &mut self.links {
            if link.main == main {
                link.leased.remove(&job);
            }
        }
        let Some(record) = self.mains[main].journal.get_mut(job) else {
            self.violate(format!("m{main}: job {job} ends and never was"));
            return;
        };
        if let Some((at, first)) = &record.outcome {
            let what = format!("m{main}: job {job} ends as {outcome:?}, after it ended as {first:?} at {at}");
            self.violate(what);
        } else {
            record.outcome = Some((now, outcome));
        }
    }
}
