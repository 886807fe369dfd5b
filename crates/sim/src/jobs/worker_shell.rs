//! A model of a computing node's shell: links, blobs, and the core's commands carried out.

use super::event::{Event, WorkerEvent};
use super::link::LinkId;
use super::threads::Threads;
use super::world::World;
use phalanx_account::core::Account;
use phalanx_jobs::core::{RunKey, WorkerCommand, WorkerConfig, WorkerCore};
use phalanx_types::{LeaseId, Needs, NodeId, Outbox, Parcel, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::decode;
use phalanx_wire::jobs::{Dispatch, FromWorker, ToWorker};
use std::collections::{BTreeMap, VecDeque};

/// A computing node, up or down.
#[derive(Debug, Default)]
pub(super) struct WorkerNode {
    /// `None` while the process is down.
    pub(super) core: Option<WorkerCore>,
    /// What jobs and training share.
    pub(super) account: Option<Account>,
    /// Counts the processes.
    pub(super) life: u64,
    pub(super) out: Outbox<WorkerCommand>,
    settling: bool,
    wake_at: Option<Time>,
    pub(super) threads: Threads,
    pub(super) blobs: BTreeMap<BlobId, Parcel>,
    pub(super) next_blob: u64,
    /// What the offers said that each job needs.
    pub(super) needs: BTreeMap<RunKey, Needs>,
    /// It was asked to drain.
    pub(super) draining: bool,
    /// It has drained and leaves.
    drained: bool,
    pub(super) frozen: bool,
    pub(super) freeze: u64,
    /// What waits for a frozen process.
    pub(super) backlog: VecDeque<Event>,
}

impl WorkerNode {
    pub(super) fn node_id(&self, index: usize) -> NodeId {
        NodeId::with_suffix(&format!("w{index}"), self.life as u16).expect("a good name")
    }
}

impl World {
    pub(super) fn on_start_worker(&mut self, worker: usize) {
        let plan = &self.plan.workers[worker];
        let node = &mut self.workers[worker];
        if node.core.is_some() {
            return;
        }
        let config = WorkerConfig {
            kinds: plan.kinds.clone(),
            capacity: plan.capacity,
            once: plan.once,
            prefetch: phalanx_types::ByteSize(64),
            orphan_grace: self.plan.orphan_grace,
        };
        *node = WorkerNode {
            account: Some(Account::new(config.capacity)),
            core: Some(WorkerCore::new(config)),
            life: node.life + 1,
            freeze: node.freeze + 1,
            ..WorkerNode::default()
        };
        self.trace.line(self.now, format_args!("w{worker} starts, life {}", node.life));
        for main in 0..self.mains.len() {
            self.plan_connect(main, worker);
        }
    }

    /// Ends the process, whatever it was doing.
    pub(super) fn end_worker(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        *node = WorkerNode { life: node.life, freeze: node.freeze + 1, ..WorkerNode::default() };
    }

    pub(super) fn worker_loses(&mut self, id: LinkId) {
        let link = &mut self.links[id.0];
        let node = &mut self.workers[link.worker];
        if !link.worker_up || node.life != link.worker_life {
            return;
        }
        let Some(core) = &mut node.core else { return };
        link.worker_up = false;
        link.held.clear();
        let worker = link.worker;
        self.trace.line(self.now, format_args!("w{worker} loses l{}", id.0));
        core.on_main_lost(self.now, id.main_key(), false, &mut node.out);
        self.touch_worker(worker);
    }

    pub(super) fn deliver_to_worker(&mut self, id: LinkId, bytes: &[u8]) {
        let link = &self.links[id.0];
        let worker = link.worker;
        let node = &mut self.workers[worker];
        if !link.worker_up || node.life != link.worker_life {
            return;
        }
        let Some(core) = &mut node.core else { return };
        self.trace.line(self.now, format_args!("w{worker} hears l{}", id.0));
        match decode(bytes) {
            Ok(ToWorker::Invite { session, epoch }) => {
                core.on_invite(id.main_key(), session, epoch, &mut node.out);
            }
            Ok(ToWorker::Dispatch(dispatch)) => {
                self.note_offers(id, &dispatch);
                let node = &mut self.workers[worker];
                let Some(core) = &mut node.core else { return };
                core.on_dispatch(self.now, id.main_key(), dispatch, &mut node.out);
            }
            Err(error) => self.violate(format!("a main node's message does not decode: {error}")),
        }
        self.touch_worker(worker);
    }

    fn note_offers(&mut self, id: LinkId, dispatch: &Dispatch) {
        let link = &mut self.links[id.0];
        // What an older link of the same pair brings is dropped when the newer one is answered.
        if self.pairs[link.main][link.worker] == Some(id) {
            link.note_dispatch(dispatch);
        }
        let (session, worker) = (self.mains[link.main].session, link.worker);
        for group in &dispatch.offers {
            for offer in &group.offers {
                let key = RunKey { session, lease: offer.lease };
                self.workers[worker].needs.insert(key, group.needs);
            }
        }
    }

    /// Something changed: settles at once, or after a few more events.
    pub(super) fn touch_worker(&mut self, worker: usize) {
        if self.dice.shells.chance(3, 4) {
            self.settle_worker(worker);
        } else if !self.workers[worker].settling {
            self.workers[worker].settling = true;
            let delay = self.dice.shells.number(0..300);
            self.worker_soon(worker, delay, WorkerEvent::Settle);
        }
    }

    pub(super) fn worker_soon(&mut self, worker: usize, micros: u64, event: WorkerEvent) {
        let life = self.workers[worker].life;
        self.queue.push(Time(self.now.0 + micros), Event::Worker { worker, life, event });
    }

    pub(super) fn wake_worker(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        // A thawed process may come to its alarm late.
        if node.wake_at.is_none_or(|at| at > self.now) {
            return;
        }
        node.wake_at = None;
        if let Some(core) = &mut node.core {
            core.on_tick(self.now, &mut node.out);
        }
        self.touch_worker(worker);
    }

    /// Starts what fits, reports, carries out all commands.
    pub(super) fn settle_worker(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        let Some(core) = &mut node.core else { return };
        node.settling = false;
        core.on_room(self.now, &mut node.out);
        core.flush(&mut node.out);
        let commands: Vec<WorkerCommand> = node.out.drain().collect();
        for command in commands {
            self.carry_worker(worker, command);
        }
        if self.workers[worker].drained {
            self.leave(worker);
            return;
        }
        let node = &mut self.workers[worker];
        let Some(wake) = node.core.as_ref().map(WorkerCore::next_wake) else { return };
        if wake != Time::NEVER && node.wake_at.is_none_or(|at| wake < at) {
            let at = wake.max(self.now);
            node.wake_at = Some(at);
            self.worker_soon(worker, at.0 - self.now.0, WorkerEvent::Wake);
        }
    }

    fn carry_worker(&mut self, worker: usize, command: WorkerCommand) {
        self.trace.line(self.now, format_args!("w{worker} {command:?}"));
        match command {
            WorkerCommand::Join { main, join } => {
                let link = &mut self.links[LinkId::from(main).0];
                // Once drained it leaves, though its main node came back at the last moment.
                let staying = !self.workers[worker].drained;
                let kept = join.held.iter().map(|h| h.lease).chain(join.done.iter().map(|d| d.lease));
                let kept = kept.filter(|_| staying);
                link.held = kept.map(|LeaseId { job, number }| (job, number)).collect();
                self.send_to_main(main.into(), FromWorker::Join(join));
            }
            WorkerCommand::Report { main, report } => {
                for lease in report.handed_back.iter().chain(report.missing.iter().map(|m| &m.lease)) {
                    self.links[LinkId::from(main).0].let_go(*lease);
                }
                self.send_to_main(main.into(), FromWorker::Report(report));
            }
            WorkerCommand::Fetch { main, key, .. } => {
                let delay = self.dice.shells.number(100..5_000);
                self.worker_soon(worker, delay, WorkerEvent::Fetched { link: main.into(), key });
            }
            WorkerCommand::FetchInput { session, input, node, blob, .. } => {
                let delay = self.dice.shells.number(100..5_000);
                self.worker_soon(worker, delay, WorkerEvent::InputFetched { session, input, node, blob });
            }
            WorkerCommand::Start { batch, runs } => self.start_batch(worker, batch, runs),
            WorkerCommand::TakeBack { batch } => {
                let runs = self.workers[worker].threads.take_rest(batch);
                let delay = self.dice.shells.number(0..50);
                self.worker_soon(worker, delay, WorkerEvent::TakenBack { batch, runs });
            }
            WorkerCommand::CancelRun { key } => self.stop_run(worker, key),
            WorkerCommand::Forget { blob } => {
                if self.workers[worker].blobs.remove(&blob).is_none() {
                    self.violate(format!("w{worker} forgets {blob} twice"));
                }
            }
            WorkerCommand::Drained => self.workers[worker].drained = true,
        }
    }

    /// Leaves the domain on purpose, and another process takes the place later; or takes one job
    /// more, if that is all it was asked for.
    fn leave(&mut self, worker: usize) {
        let life = self.workers[worker].life;
        if !self.workers[worker].threads.is_empty() {
            self.violate(format!("w{worker} says it is drained while it runs jobs"));
        }
        let mut links = Vec::new();
        for main in 0..self.mains.len() {
            let Some(id) = self.pairs[main][worker] else { continue };
            let link = &self.links[id.0];
            if link.cut || !link.worker_up || link.worker_life != life {
                continue;
            }
            if let Some((job, number)) = link.held.first_key_value() {
                let what =
                    format!("w{worker} is drained but neither finished nor handed back {job}#{number}");
                self.violate(what);
            }
            links.push(id);
        }
        let node = &mut self.workers[worker];
        let rearms = self.plan.workers[worker].once && !node.draining && self.dice.shells.chance(1, 2);
        if let Some(core) = node.core.as_mut().filter(|_| rearms) {
            self.trace.line(self.now, format_args!("w{worker} takes one more"));
            node.drained = false;
            core.on_take_one();
            self.touch_worker(worker);
            return;
        }
        for link in links {
            self.say_goodbye(link);
        }
        self.trace.line(self.now, format_args!("w{worker} leaves"));
        self.end_worker(worker);
        let delay = self.dice.faults.millis(20..300);
        self.queue.push(self.now + delay, Event::StartWorker { worker });
    }
}
