//! Giving waiting jobs to workers with room.

use super::{MainCommand, MainCore, Phase, State, WorkerKey};
use crate::core::queue::ClassId;
use phalanx_types::{JobId, LeaseId, Outbox, Time};
use std::collections::BTreeSet;

/// Workers with room, the least loaded first.
type Ready = BTreeSet<(u64, WorkerKey)>;

impl MainCore {
    /// Leases as many waiting jobs as the workers have room for: best priority first, then the
    /// oldest; each to the worker that will get to it soonest.
    pub fn dispatch(&mut self, now: Time, out: &mut Outbox<MainCommand>) {
        self.settle_inputs(out);
        let mut open: Vec<ClassId> = self.queue.ids().filter(|c| self.queue.class(*c).waiting > 0).collect();
        if !open.is_empty() {
            let mut ready: Ready =
                self.workers.iter().filter(|(_, w)| w.has_room()).map(|(k, w)| (w.load(), *k)).collect();
            while !ready.is_empty()
                && let Some((class, job)) = self.best_waiting(&open)
            {
                match self.pick_worker(class, job, &ready) {
                    Some(worker) => self.lease(now, worker, class, job, &mut ready, out),
                    None => open.retain(|c| *c != class),
                }
            }
            self.explain_classes(out);
        }
        self.schedule_recall(now);
    }

    fn best_waiting(&mut self, open: &[ClassId]) -> Option<(ClassId, JobId)> {
        let jobs = &self.jobs;
        let waits = |job| matches!(jobs.get(job), Some(j) if j.state == State::Waiting);
        let mut best: Option<(i32, JobId, ClassId)> = None;
        for id in open {
            let Some((priority, job)) = self.queue.class_mut(*id).head(waits) else { continue };
            if best.is_none_or(|(p, j, _)| (priority, std::cmp::Reverse(job)) > (p, std::cmp::Reverse(j))) {
                best = Some((priority, job, *id));
            }
        }
        best.map(|(_, job, class)| (class, job))
    }

    /// A worker whose memory is free now is preferred; else one that will get to it later.
    fn pick_worker(&self, class: ClassId, job: JobId, ready: &Ready) -> Option<WorkerKey> {
        if self.has_inputs(job)
            && let Some(worker) = self.nearest(class, job, ready)
        {
            return Some(worker);
        }
        let class = self.queue.class(class);
        let mut later = None;
        for (_, key) in ready {
            let worker = self.workers.get(key)?;
            if !worker.can_run(&class.kind, class.needs) || !worker.fits_beside(class.needs) {
                continue;
            }
            if worker.has_memory(class.needs) {
                return Some(*key);
            }
            // One job more than fits may wait at the node, so that it starts without a round trip.
            if later.is_none() && worker.leased_memory <= worker.share.memory.0 {
                later = Some(*key);
            }
        }
        later
    }

    /// The worker with room that has most of the inputs of a job.
    fn nearest(&self, class: ClassId, job: JobId, ready: &Ready) -> Option<WorkerKey> {
        let class = self.queue.class(class);
        let can = |key: &WorkerKey| {
            let suits = |w: &super::workers::Worker| {
                w.can_run(&class.kind, class.needs)
                    && w.fits_beside(class.needs)
                    && w.has_memory(class.needs)
                    && !w.is_held_up
            };
            self.workers.get(key).is_some_and(suits)
        };
        let has = ready.iter().filter(|(_, key)| can(key)).map(|(load, key)| {
            let bytes = self.input_bytes_at(job, *key);
            (bytes, std::cmp::Reverse((*load, *key)))
        });
        let (bytes, std::cmp::Reverse((_, key))) = has.max()?;
        (bytes > 0).then_some(key)
    }

    fn lease(
        &mut self,
        now: Time,
        worker: WorkerKey,
        class: ClassId,
        job: JobId,
        ready: &mut Ready,
        out: &mut Outbox<MainCommand>,
    ) {
        let Some(number) = self.jobs.get(job).map(|j| j.leases.saturating_add(1)) else { return };
        let before = self.workers.get(&worker).map_or(0, super::workers::Worker::load);
        self.queue.class_mut(class).pop();
        let lease = LeaseId { job, number };
        self.attach(now, worker, lease, Phase::Given);
        out.push(MainCommand::Offer { worker, lease });
        ready.remove(&(before, worker));
        if let Some(w) = self.workers.get(&worker).filter(|w| w.has_room()) {
            ready.insert((w.load(), worker));
        }
    }
}
