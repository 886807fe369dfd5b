//! Asking back leases that wait at a busy worker while another worker is idle.
//!
//! Every worker has its next jobs in hand. When the queue runs dry that would leave some workers
//! idle while jobs wait behind others, so leases that did not start soon after they were given
//! are recalled; a worker hands back what it has not started.

use super::{MainCommand, MainCore, Phase, State, WorkerKey};
use phalanx_types::{JobId, LeaseId, Outbox, Time};
use std::time::Duration;

/// A lease that has not started after this long waits behind something.
const PATIENCE: Duration = Duration::from_millis(20);

impl MainCore {
    /// Arms the timer while somebody is idle and something given out may be waiting.
    pub(super) fn schedule_recall(&mut self, now: Time) {
        if self.recall_at == Time::NEVER && self.workers.len() > 1 && self.worth_recalling() {
            self.recall_at = now + PATIENCE;
        }
    }

    fn worth_recalling(&self) -> bool {
        self.workers.values().any(super::workers::Worker::is_idle)
            && self.workers.values().any(|w| !w.leases.is_empty() && !w.is_idle())
    }

    pub(super) fn recall(&mut self, now: Time, out: &mut Outbox<MainCommand>) {
        self.recall_at = Time::NEVER;
        let (mut stuck, young) = self.stuck_leases(now);
        let idle: Vec<WorkerKey> =
            self.workers.iter().filter(|(_, w)| w.is_idle()).map(|(key, _)| *key).collect();
        for key in idle {
            let Some(worker) = self.workers.get(&key) else { continue };
            let mut free = u64::from(worker.share.cores).saturating_sub(worker.leased_cores);
            while free > 0
                && let Some(at) = stuck.iter().rposition(|(holder, job)| self.could_move(key, *holder, *job))
            {
                let (holder, job) = stuck.remove(at);
                let Some(j) = self.jobs.get_mut(job) else { break };
                let State::Leased { number, phase, .. } = &mut j.state else { break };
                *phase = Phase::Recalled;
                let lease = LeaseId { job, number: *number };
                free = free.saturating_sub(u64::from(self.queue.class(j.class).needs.cores));
                out.push(MainCommand::Recall { worker: holder, lease });
            }
        }
        // Once everything given out runs or is recalled there is nothing to look at again.
        if young {
            self.schedule_recall(now);
        }
    }

    /// Leases that have not started in time, those that will run last at the end; and whether
    /// others may become so.
    fn stuck_leases(&self, now: Time) -> (Vec<(WorkerKey, JobId)>, bool) {
        let (mut stuck, mut young) = (Vec::new(), false);
        for (key, worker) in &self.workers {
            for job in &worker.leases {
                match self.jobs.get(*job).map(|j| j.state) {
                    Some(State::Leased { since, phase: Phase::Given, .. })
                        if now.since(since) >= PATIENCE =>
                    {
                        stuck.push((*key, *job));
                    }
                    Some(State::Leased { phase: Phase::Given, .. }) => young = true,
                    _ => {}
                }
            }
        }
        (stuck, young)
    }

    fn could_move(&self, to: WorkerKey, from: WorkerKey, job: JobId) -> bool {
        let (Some(worker), Some(j)) = (self.workers.get(&to), self.jobs.get(job)) else { return false };
        let class = self.queue.class(j.class);
        to != from && worker.can_run(&class.kind, class.needs) && worker.fits_beside(class.needs)
    }
}
