//! A model of a main node's shell: what it is told, by users, links and time.

use super::event::{Event, MainEvent};
use super::journal::Journal;
use super::link::LinkId;
use super::world::World;
use phalanx_jobs::core::{JobSpec, MainCommand, MainCore, Outcome};
use phalanx_types::{Epoch, JobId, LeaseId, Outbox, SessionId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::decode;
use phalanx_wire::jobs::FromWorker;
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
    pub(super) settling: bool,
    pub(super) wake_at: Option<Time>,
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
            let spec = JobSpec { inputs: record.inputs.clone(), ..self.plan.jobs[record.plan].spec.clone() };
            match &record.outcome {
                Some((_, outcome @ (Outcome::Solved(_) | Outcome::Kept { .. }))) if spec.keep => {
                    core.on_restore_kept(now, spec, record.attempts, outcome.clone())
                }
                Some((_, outcome)) => core.on_restore_ended(&spec.kind, spec.needs, outcome),
                None => {
                    let left = spec.deadline.map(|d| (record.submitted + d).since(now));
                    core.on_restore(now, JobSpec { deadline: left, ..spec }, record.attempts)
                }
            };
        }
        let records = (1..).map(JobId).zip(node.journal.records());
        let released: Vec<JobId> = records.filter(|(_, r)| r.released).map(|(job, _)| job).collect();
        core.on_restored(now, &released, &mut node.out);
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
        node.journal.records_mut().iter_mut().for_each(|record| record.wanted = false);
    }

    pub(super) fn on_submit(&mut self, job: usize) {
        let main = self.plan.jobs[job].main;
        let node = &mut self.mains[main];
        let Some(core) = &mut node.core else {
            node.postponed.push(job);
            return;
        };
        let plan = &self.plan.jobs[job];
        let inputs: Vec<JobId> = plan.takes.iter().filter_map(|taken| node.journal.find(*taken)).collect();
        let recorded = node.journal.submit(self.now, job, inputs.clone());
        let given = core.on_submit(self.now, JobSpec { inputs, ..plan.spec.clone() });
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
        let excused = node.journal.get(lease.job).is_some_and(|r| r.outcome.is_some());
        let waiting = !node.out.is_empty();
        let Some(core) = &mut node.core else { return };
        self.trace.line(self.now, format_args!("m{main} took {lease} {}", parcel.is_some()));
        let missing = parcel.is_none();
        let result = parcel.ok_or_else(|| "the node is gone".to_owned());
        core.on_taken(id.worker_key(), lease, result, &mut node.out);
        if alive && missing && !excused && !waiting {
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

    pub(super) fn main_soon(&mut self, main: usize, micros: u64, event: MainEvent) {
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
}
