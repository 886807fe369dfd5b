//! The commands of a main node's core, carried out: one message per worker, and the journal.

use super::event::MainEvent;
use super::link::LinkId;
use super::world::World;
use phalanx_jobs::core::{MainCommand, MainCore, Outcome, WorkerKey};
use phalanx_types::{Epoch, JobId, LeaseId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{Dispatch, Offer, OfferGroup, ParcelRef, ToWorker};
use std::collections::BTreeMap;

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

impl World {
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
            self.send_to_worker(LinkId::from(key), ToWorker::Dispatch(letter));
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
                self.send_to_worker(LinkId::from(worker), ToWorker::Invite { session, epoch });
            }
            MainCommand::Offer { worker, lease } => {
                self.check_offer(main, LinkId::from(worker), lease);
                self.write_offer(main, worker, letters.to(worker), lease);
            }
            MainCommand::Ack { worker, lease } => letters.to(worker).acks.push(lease),
            MainCommand::Keep { worker, lease } => letters.to(worker).keeps.push(lease),
            MainCommand::Drop { worker, job } => letters.to(worker).drops.push(job),
            MainCommand::Bring { worker, job, blob, .. } => {
                let delay = self.dice.shells.number(100..5_000);
                self.main_soon(main, delay, MainEvent::Brought { link: worker.into(), job, blob });
            }
            MainCommand::Delivered { job, result } => self.check_delivered(main, job, &result),
            MainCommand::Freed { .. } => {}
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
            MainCommand::Finished { job, outcome, .. } => self.record_outcome(main, job, outcome),
            MainCommand::Explain { .. } => {}
            MainCommand::CutOff { worker, why } => {
                self.violate(format!("m{main} cuts off an honest worker (l{}): {why}", worker.0));
            }
        }
    }

    fn write_offer(&mut self, main: usize, worker: WorkerKey, letter: &mut Dispatch, lease: LeaseId) {
        let Some(inputs) = self.offered_inputs(main, worker, lease.job) else {
            self.violate(format!("m{main} offers {lease}, whose inputs are not there"));
            return;
        };
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
        let offer = Offer { lease, priority: view.priority, careful: view.careful, payload, inputs };
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
        // One more, or one that was taken back because the node returned with the job.
        if attempts.abs_diff(before) != 1 {
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
