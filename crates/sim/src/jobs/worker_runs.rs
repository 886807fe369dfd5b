//! What handlers do on the threads of a worker.

use super::event::WorkerEvent;
use super::link::LinkId;
use super::main_shell::main_of;
use super::plan::{Behaviour, JobPlan};
use super::world::World;
use phalanx_jobs::core::{BatchId, HandlerEnd, Run, RunKey};
use phalanx_types::{Needs, Parcel};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::ParcelRef;
use phalanx_wire::reason::FailReason;

impl World {
    fn plan_of(&self, key: RunKey) -> Option<&JobPlan> {
        let record = self.mains[main_of(key.session)].journal.get(key.lease.job)?;
        self.plan.jobs.get(record.plan)
    }

    pub(super) fn start_batch(&mut self, worker: usize, batch: BatchId, mut runs: Vec<Run>) {
        for run in &mut runs {
            self.put_inputs(worker, run);
        }
        let node = &mut self.workers[worker];
        let needs = |run: &Run| node.needs.get(&run.key).copied().unwrap_or(Needs::default());
        let runs: Vec<(Run, Needs)> = runs.into_iter().map(|run| (run.clone(), needs(&run))).collect();
        if runs.is_empty() || !node.threads.start(batch, runs) {
            self.violate(format!("w{worker} starts an empty batch, or {batch:?} twice"));
            return;
        }
        self.next_run(worker, batch);
    }

    /// Begins the next job of a batch and decides when it will end.
    fn next_run(&mut self, worker: usize, batch: BatchId) {
        let Some((run, stopped)) = self.workers[worker].threads.next(self.now, batch) else { return };
        let Some(plan) = self.plan_of(run.key) else {
            self.violate(format!("w{worker} runs {:?}, which nobody submitted", run.key));
            return;
        };
        if plan.spec.payload != run.payload || plan.spec.kind != run.kind {
            self.violate(format!("w{worker} runs {:?} with another payload", run.key));
            return;
        }
        let planned = plan.run.as_micros() as u64;
        if let Some(what) = self.wrong_inputs(&run) {
            self.violate(format!("w{worker} {what}"));
            return;
        }
        let micros = if stopped { 0 } else { planned * self.dice.runs.number(70..130) / 100 };
        if planned > 4_000 && self.dice.runs.chance(1, 4) {
            self.worker_soon(worker, micros / 2, WorkerEvent::Progress { key: run.key });
        }
        self.worker_soon(worker, micros, WorkerEvent::RunEnds { batch, key: run.key });
    }

    pub(super) fn on_run_ends(&mut self, worker: usize, batch: BatchId, key: RunKey) {
        let Some(current) = self.workers[worker].threads.end(batch, key) else { return };
        let Some(plan) = self.plan_of(key) else { return };
        let behaviour = plan.behaviour;
        self.trace.line(self.now, format_args!("w{worker} ran {key:?} {behaviour:?}"));
        let end = if current.stopping {
            HandlerEnd::Cancelled
        } else if behaviour == Behaviour::Poison {
            self.poison(worker, key);
            return;
        } else {
            self.handler_end(worker, key, behaviour)
        };
        let micros = self.now.since(current.since).as_micros() as u64;
        self.next_run(worker, batch);
        let node = &mut self.workers[worker];
        if let Some(core) = &mut node.core {
            core.on_finished(self.now, key, end, micros, &mut node.out);
        }
        self.touch_worker(worker);
    }

    fn handler_end(&mut self, worker: usize, key: RunKey, behaviour: Behaviour) -> HandlerEnd {
        let fails = |retry| {
            let reason = FailReason::Handler { message: "as planned".to_owned() };
            HandlerEnd::Failed { reason, retry }
        };
        let record = self.mains[main_of(key.session)].journal.get_mut(key.lease.job);
        let failures = record.map_or(0, |r| {
            r.failures += 1;
            r.failures
        });
        match behaviour {
            Behaviour::FailsForGood => fails(false),
            Behaviour::FailsAlways => fails(true),
            Behaviour::FailsTimes(times) if failures <= times => fails(true),
            Behaviour::FailsTimes(_) | Behaviour::Solves | Behaviour::Poison => {
                HandlerEnd::Solved(self.solution(worker, key))
            }
        }
    }

    fn solution(&mut self, worker: usize, key: RunKey) -> ParcelRef {
        let (solution, large) = match self.plan_of(key) {
            Some(plan) => (plan.solution.clone(), plan.large.1),
            None => (Parcel::default(), false),
        };
        if !large {
            return ParcelRef::inline(&solution);
        }
        let node = &mut self.workers[worker];
        node.next_blob += 1;
        let blob = BlobId(node.next_blob);
        let head = solution.head();
        node.blobs.insert(blob, solution);
        ParcelRef::Blob { head, blob }
    }

    fn poison(&mut self, worker: usize, key: RunKey) {
        if let Some(record) = self.mains[main_of(key.session)].journal.get_mut(key.lease.job) {
            record.crashes += 1;
        }
        let down = self.dice.faults.millis(1..100);
        self.crash_worker(worker, down);
    }

    pub(super) fn stop_run(&mut self, worker: usize, key: RunKey) {
        // Some handlers never look whether they should stop.
        let obeys = self.dice.runs.chance(2, 3);
        if let Some(batch) = self.workers[worker].threads.stop(key, obeys) {
            let micros = self.dice.runs.number(0..3_000);
            self.worker_soon(worker, micros, WorkerEvent::RunEnds { batch, key });
        }
    }

    pub(super) fn on_progress(&mut self, worker: usize, key: RunKey) {
        if let Some(core) = &mut self.workers[worker].core {
            core.on_progress(key, 500, "half".to_owned());
            self.touch_worker(worker);
        }
    }

    pub(super) fn on_taken_back(&mut self, worker: usize, batch: BatchId, runs: Vec<Run>) {
        let node = &mut self.workers[worker];
        if let Some(core) = &mut node.core {
            core.on_taken_back(self.now, batch, runs, &mut node.out);
        }
        self.touch_worker(worker);
    }

    pub(super) fn on_fetched(&mut self, worker: usize, id: LinkId, key: RunKey) {
        let link = &self.links[id.0];
        let main = &self.mains[link.main];
        let alive = !link.cut && main.life == link.main_life;
        let core = main.core.as_ref().filter(|_| alive);
        let payload = core.and_then(|c| c.offer_of(key.lease.job)).map(|view| view.payload.clone());
        let node = &mut self.workers[worker];
        if let Some(core) = &mut node.core {
            core.on_fetched(self.now, key, payload, &mut node.out);
        }
        self.touch_worker(worker);
    }
}
