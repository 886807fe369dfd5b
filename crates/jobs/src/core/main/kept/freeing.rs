//! Solutions that nothing refers to are dropped; their jobs are forgotten when nothing can need them again.

use super::{Kept, Place};
use crate::core::bugs::{Bug, planted};
use crate::core::job::Ending;
use crate::core::main::{MainCommand, MainCore, State, WorkerKey};
use phalanx_types::{JobId, LeaseId, Outbox, Parcel};
use std::collections::BTreeSet;

/// The most solved jobs that are remembered only to run again.
const MAX_RECIPES: usize = 4096;

/// The most bytes of payloads that are kept for solved jobs to run again.
const MAX_RECIPE_BYTES: u64 = 512 << 20;

impl MainCore {
    /// The user drops handles to solutions.
    pub fn on_release(&mut self, jobs: &[JobId], out: &mut Outbox<MainCommand>) {
        for job in jobs {
            if let Some(kept) = self.kept.get_mut(job) {
                kept.handle = false;
                self.free(*job, out);
            }
        }
    }

    /// Drops a solution that nothing refers to, and forgets its job if no other solution was made from it.
    pub(super) fn free(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let mut freed = vec![job];
        while let Some(job) = freed.pop() {
            let is_free =
                |kept: &&mut Kept| !kept.is_needed() || planted(Bug::FreesTakenSolutions) && !kept.handle;
            let Some(kept) = self.kept.get_mut(&job).filter(is_free) else { continue };
            if !self.jobs.get(job).is_some_and(|j| j.told) {
                continue;
            }
            let heirs = kept.heirs;
            kept.wanted = false;
            // A small one stays with the main node for as long as something may be made from it again.
            if !matches!(kept.place, Place::Here(_))
                && let Place::At { holders, .. } = std::mem::replace(&mut kept.place, Place::Nowhere)
            {
                for worker in holders.into_keys() {
                    self.drop_at(worker, job, out);
                }
            }
            self.stop_making(job, out);
            if heirs == 0 {
                freed.extend(self.forget(job, out));
            }
        }
    }

    pub(super) fn drop_at(&mut self, worker: WorkerKey, job: JobId, out: &mut Outbox<MainCommand>) {
        if let Some(w) = self.workers.get_mut(&worker) {
            w.holds.remove(&job);
            out.push(MainCommand::Drop { worker, job });
        }
    }

    /// A solution that was being made again is not needed any more.
    pub(super) fn stop_making(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let Some(j) = self.jobs.get(job) else { return };
        match j.state {
            State::Stored => return,
            State::Leased { worker, number, .. } => {
                out.push(MainCommand::Cancel { worker, lease: LeaseId { job, number } });
            }
            State::Waiting | State::Blocked => {}
        }
        self.shelve(job);
        let inputs = self.inputs.get(&job).cloned().unwrap_or_default();
        for input in inputs {
            if let Some(kept) = self.kept.get_mut(&input) {
                kept.users.remove(&job);
            }
            // Freed when its own turn comes: not within this loop, which may hold it.
            self.idle.insert(input);
        }
    }

    /// Forgets a kept job for good; gives what it was made from.
    fn forget(&mut self, job: JobId, out: &mut Outbox<MainCommand>) -> BTreeSet<JobId> {
        self.kept.remove(&job);
        self.needy.remove(&job);
        if let Some(bytes) = self.recipes.remove(&job) {
            self.recipe_bytes -= bytes;
        }
        self.jobs.end(job, Ending::Solved);
        out.push(MainCommand::Freed { job });
        let inputs: BTreeSet<JobId> = self.inputs.remove(&job).unwrap_or_default().into_iter().collect();
        for input in &inputs {
            if let Some(kept) = self.kept.get_mut(input) {
                kept.users.remove(&job);
                kept.heirs -= 1;
            }
        }
        inputs
    }

    /// Remembers how a solution was made, unless the main node has the solution itself.
    pub(super) fn note_recipe(&mut self, job: JobId) {
        let is_here = self.kept.get(&job).is_some_and(|kept| matches!(kept.place, Place::Here(_)));
        let Some(j) = self.jobs.get_mut(job) else { return };
        if is_here {
            j.payload = Parcel::default();
        } else if !j.forgotten && !self.recipes.contains_key(&job) {
            let bytes = j.payload_len;
            self.recipes.insert(job, bytes);
            self.recipe_bytes += bytes;
        }
    }

    /// Forgets the oldest jobs that are remembered only to run again, while there are too many.
    pub(super) fn forget_recipes(&mut self, out: &mut Outbox<MainCommand>) {
        while self.recipes.len() > MAX_RECIPES || self.recipe_bytes > MAX_RECIPE_BYTES {
            let Some((job, bytes)) = self.recipes.pop_first() else { return };
            self.recipe_bytes -= bytes;
            let being_made = self.jobs.get(job).is_some_and(|j| j.state != State::Stored);
            if being_made {
                continue;
            }
            if let Some(j) = self.jobs.get_mut(job) {
                j.payload = Parcel::default();
                j.forgotten = true;
            }
            self.let_go_of_inputs(job, true, out);
        }
    }
}

/// What a payload counts among the recipes; more than fit is as good as any such number.
pub(in crate::core) fn recipe_len(payload: &Parcel) -> u64 {
    payload.len().min(MAX_RECIPE_BYTES + 1)
}
