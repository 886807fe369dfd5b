//! Solutions whose holders are lost: found again, made again by their jobs, or lost for good.

use super::{Kept, Place};
use crate::core::bugs::{Bug, planted};
use crate::core::job::Job;
use crate::core::main::{MainCommand, MainCore, Outcome, State, WorkerKey};
use phalanx_types::{JobId, LeaseId, Outbox};
use phalanx_wire::jobs::KeptSolution;
use phalanx_wire::reason::{FailReason, LostInput};
use std::collections::BTreeMap;

impl MainCore {
    /// A worker says that it has solutions of this session, its own or copies.
    pub(in crate::core::main) fn on_kept(
        &mut self,
        worker: WorkerKey,
        solutions: Vec<KeptSolution>,
        out: &mut Outbox<MainCommand>,
    ) {
        for KeptSolution { job, head, blob } in solutions {
            if self.jobs.ending(job).is_none() {
                out.push(MainCommand::CutOff { worker, why: "it keeps a solution of a job that never was" });
                return;
            }
            let told = self.is_told(job);
            let kept = self.kept.get_mut(&job).filter(|kept| told && kept.is_needed());
            let fits = match kept {
                None => false,
                Some(Kept { place: Place::At { head: known, holders }, .. }) => {
                    if known.body_len() != head.body_len() {
                        let why = "its copy of a solution has another length";
                        out.push(MainCommand::CutOff { worker, why });
                        return;
                    }
                    holders.insert(worker, blob);
                    if let Some(w) = self.workers.get_mut(&worker) {
                        w.holds.insert(job);
                    }
                    true
                }
                Some(Kept { place: Place::Here(_), .. }) => false,
                Some(Kept { place: Place::Nowhere | Place::Lost(_), .. }) => {
                    // It was taken for lost, and may be in the making again.
                    self.found(job, Place::At { head, holders: BTreeMap::from([(worker, blob)]) }, out);
                    true
                }
            };
            if !fits && !planted(Bug::LeavesFreedSolutions) {
                out.push(MainCommand::Drop { worker, job });
            }
        }
    }

    /// A solution that was lost is there again.
    fn found(&mut self, job: JobId, place: Place, out: &mut Outbox<MainCommand>) {
        let Some(j) = self.jobs.get(job) else { return };
        if let State::Leased { worker, number, .. } = j.state {
            out.push(MainCommand::Cancel { worker, lease: LeaseId { job, number } });
        }
        let len = match &place {
            Place::At { head, .. } => head.body_len().unwrap_or(u64::MAX),
            _ => 0,
        };
        self.store(job, place, (Outcome::Kept { len }, None), out);
    }

    /// A link to a worker is gone, and with it what it held.
    pub(in crate::core::main) fn lose_holder(&mut self, worker: WorkerKey) {
        let Some(w) = self.workers.get_mut(&worker) else { return };
        for job in std::mem::take(&mut w.holds) {
            self.lose_copy(worker, job);
        }
    }

    /// A worker does not have a solution any more.
    pub(in crate::core::main) fn lose_copy(&mut self, worker: WorkerKey, job: JobId) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        let Place::At { holders, .. } = &mut kept.place else { return };
        holders.remove(&worker);
        if let Some(w) = self.workers.get_mut(&worker) {
            w.holds.remove(&job);
        }
        if !holders.is_empty() {
            return;
        }
        kept.place = Place::Nowhere;
        kept.bringing = false;
        let users: Vec<JobId> = kept.users.iter().copied().collect();
        if kept.wanted {
            self.needy.insert(job);
        }
        for user in users {
            let Some(j) = self.jobs.get_mut(user) else { continue };
            match j.state {
                State::Waiting => {
                    j.state = State::Blocked;
                    let class = j.class;
                    self.queue.class_mut(class).waiting -= 1;
                    self.needy.insert(job);
                }
                State::Blocked => {
                    self.needy.insert(job);
                }
                // It has what it takes, or says that it could not have it.
                State::Leased { .. } | State::Stored => {}
            }
        }
    }

    /// Ends what cannot be, makes again what is needed, until nothing is left to do.
    pub(in crate::core::main) fn settle_inputs(&mut self, out: &mut Outbox<MainCommand>) {
        loop {
            if let Some((job, reason)) = self.doomed.pop_first() {
                if self.is_told(job) {
                    let input = match &reason {
                        FailReason::InputLost { job, .. } | FailReason::InputFailed { job, .. } => *job,
                        _ => job,
                    };
                    self.lose(job, LostInput::Input { job: input }, out);
                } else {
                    self.finish(job, Outcome::Failed(reason), out);
                }
            } else if let Some(job) = self.needy.pop_first() {
                self.make_again(job, out);
            } else if let Some(job) = self.idle.pop_first() {
                self.free(job, out);
            } else {
                return;
            }
        }
    }

    /// Has a lost solution made again by its job, if it still is needed.
    fn make_again(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let Some(kept) = self.kept.get(&job) else { return };
        let needed = kept.wanted || !kept.users.is_empty();
        let Some(j) = self.jobs.get_mut(job) else { return };
        let is_lost = j.told && j.state == State::Stored && matches!(kept.place, Place::Nowhere);
        if !needed || !is_lost {
            return;
        }
        let attempts = j.attempts + 1;
        if attempts >= j.max_attempts {
            let attempts = u32::from(attempts);
            return self.lose(job, LostInput::AttemptsUsedUp { attempts }, out);
        }
        if j.forgotten {
            return self.lose(job, LostInput::NoRecipe, out);
        }
        j.attempts = attempts;
        self.counts.reruns += 1;
        out.push(MainCommand::Attempt { job, attempts: u32::from(attempts) });
        let inputs = self.inputs.get(&job).cloned().unwrap_or_default();
        for input in inputs {
            let Some(kept) = self.kept.get_mut(&input) else {
                return self.lose(job, LostInput::Input { job: input }, out);
            };
            kept.users.insert(job);
            if matches!(kept.place, Place::Lost(_)) {
                return self.lose(job, LostInput::Input { job: input }, out);
            }
        }
        self.wait_again(job);
    }

    /// A solution cannot be had any more: what takes it fails.
    pub(in crate::core::main) fn lose(&mut self, job: JobId, why: LostInput, out: &mut Outbox<MainCommand>) {
        self.stop_making(job, out);
        let Some(kept) = self.kept.get_mut(&job) else { return };
        kept.place = Place::Lost(why.clone());
        let reason = FailReason::InputLost { job, why };
        for user in kept.users.clone() {
            // One that is out has what it takes, or says that it could not have it.
            let is_out = |j: &Job| matches!(j.state, State::Leased { .. });
            if !self.jobs.get(user).is_some_and(is_out) {
                self.doomed.entry(user).or_insert_with(|| reason.clone());
            }
        }
        if self.is_wanted(job) {
            self.deliver(job, Err(reason), out);
        }
    }
}
