//! Jobs of an earlier life of the main node.

use super::Place;
use crate::core::JobSpec;
use crate::core::main::{MainCommand, MainCore, Outcome};
use phalanx_types::{JobId, Outbox, Time};
use std::time::Duration;

/// How long nodes may take to say what they kept for a main node that was started again.
const RETURN: Duration = Duration::from_secs(5);

impl MainCore {
    /// Takes in a job of an earlier life whose solution is kept at a node.
    pub fn on_restore_kept(&mut self, now: Time, spec: JobSpec, attempts: u32, outcome: Outcome) -> JobId {
        let job = self.insert(now, JobSpec { keep: true, deadline: None, ..spec }, attempts);
        self.doomed.remove(&job);
        self.shelve(job);
        self.count(job, &outcome);
        if let Some(j) = self.jobs.get_mut(job) {
            j.told = true;
        }
        if let Outcome::Solved(parcel) = outcome
            && let Some(kept) = self.kept.get_mut(&job)
        {
            kept.place = Place::Here(parcel);
        }
        self.note_recipe(job);
        self.first_own = self.jobs.next_id();
        let inputs = self.inputs.get(&job).cloned().unwrap_or_default();
        for input in inputs {
            if let Some(kept) = self.kept.get_mut(&input) {
                kept.users.remove(&job);
            }
        }
        job
    }

    /// All jobs of an earlier life are in; these the user had dropped.
    pub fn on_restored(&mut self, now: Time, released: &[JobId], out: &mut Outbox<MainCommand>) {
        // A solution that no node has now may still be at nodes that have not joined.
        self.needy.clear();
        if self.kept.values().any(|kept| matches!(kept.place, Place::Nowhere)) {
            self.remake_at = now + RETURN;
        }
        self.on_release(released, out);
    }
}
