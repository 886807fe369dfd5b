//! Solutions that stay where they were made, for other jobs to take.
//!
//! ```text
//!   Nowhere ── solved ──► Here (small: the main node has it) or At (its nodes hold it)
//!      ▲                       │ the last node that held it is lost
//!      └── made again by its job, once a job or the user needs it; or Lost, with the reason
//! ```
//! A solution is needed while the user has a handle to it or an unended job takes it; then its nodes are told to drop
//! it. Its job is remembered longer: as long as it may have to run again for a solution that was made from it.

mod fetching;
mod freeing;
mod inputs;
mod invariants;
mod remaking;
mod restoring;

pub(in crate::core) use freeing::recipe_len;

use super::{MainCommand, MainCore, Outcome, State, WorkerKey};
use phalanx_types::{JobId, Outbox, Parcel, ParcelHead, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::reason::LostInput;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The solution of a job that is kept, and all that refers to it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) place: Place,
    /// The user refers to it.
    handle: bool,
    /// The user waits for its bytes.
    pub(super) wanted: bool,
    /// It is on its way to the main node for the user.
    bringing: bool,
    /// A solution that the main node fetches before it tells the outcome.
    #[serde(with = "crate::core::recorded::place")]
    pub(super) taking: Option<(ParcelHead, BlobId)>,
    /// Jobs that take it and are still to run.
    users: BTreeSet<JobId>,
    /// Kept solutions that were made from it.
    heirs: u32,
}

/// Where a kept solution is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Place {
    Nowhere,
    Here(#[serde(skip)] Parcel),
    At {
        #[serde(with = "crate::core::recorded::head")]
        head: ParcelHead,
        holders: BTreeMap<WorkerKey, BlobId>,
    },
    Lost(LostInput),
}

/// Where a job finds one of its inputs.
#[derive(Debug)]
pub enum InputAt<'a> {
    Here(&'a Parcel),
    Node { worker: WorkerKey, head: &'a ParcelHead, blob: BlobId },
}

impl Kept {
    fn new() -> Self {
        Self {
            place: Place::Nowhere,
            handle: true,
            wanted: false,
            bringing: false,
            taking: None,
            users: BTreeSet::new(),
            heirs: 0,
        }
    }

    fn is_needed(&self) -> bool {
        self.handle || !self.users.is_empty()
    }

    fn is_there(&self) -> bool {
        matches!(self.place, Place::Here(_) | Place::At { .. })
    }
}

impl MainCore {
    /// Whether a solution of this job is kept, and is worth having when it comes.
    pub(super) fn is_kept(&self, job: JobId) -> bool {
        self.kept.contains_key(&job)
    }

    /// Whether a kept solution is there, or nothing needs it.
    pub(super) fn has_enough_of(&self, job: JobId) -> bool {
        self.is_told(job) && self.kept.get(&job).is_some_and(|kept| kept.is_there() || !kept.is_needed())
    }

    pub(super) fn is_wanted(&self, job: JobId) -> bool {
        self.kept.get(&job).is_some_and(|kept| kept.wanted)
    }

    pub(super) fn is_told(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|j| j.told)
    }

    /// The solution of a kept job is there, for the first time or again.
    pub(super) fn store(
        &mut self,
        job: JobId,
        place: Place,
        (outcome, solver): (Outcome, Option<WorkerKey>),
        out: &mut Outbox<MainCommand>,
    ) {
        let Some(j) = self.jobs.get_mut(job) else { return };
        let was_told = std::mem::replace(&mut j.told, true);
        let deadline = std::mem::replace(&mut j.deadline, Time::NEVER);
        self.shelve(job);
        self.deadlines.remove(&(deadline, job));
        self.progress.remove(&job);
        self.lost_on.remove(&job);
        self.doomed.remove(&job);
        let is_here = matches!(place, Place::Here(_));
        let Some(kept) = self.kept.get_mut(&job) else { return };
        kept.taking = None;
        if let Place::At { holders, .. } = &place {
            for holder in holders.keys() {
                if let Some(worker) = self.workers.get_mut(holder) {
                    worker.holds.insert(job);
                }
            }
        }
        kept.place = place;
        let fetched = match &outcome {
            Outcome::Solved(parcel) if kept.wanted => Some(parcel.clone()),
            _ => None,
        };
        if !was_told {
            self.count(job, &outcome);
            out.push(MainCommand::Finished { job, outcome, solver });
        }
        if let Some(parcel) = fetched {
            self.deliver(job, Ok(parcel), out);
        }
        self.note_recipe(job);
        self.let_go_of_inputs(job, is_here, out);
        self.bring(job, out);
        self.wake_users(job);
        self.free(job, out);
        self.forget_recipes(out);
    }

    /// Takes a job off its queue or worker: nothing runs it, or waits to.
    fn shelve(&mut self, job: JobId) {
        let Some(j) = self.jobs.get_mut(job) else { return };
        let (was, class) = (std::mem::replace(&mut j.state, State::Stored), j.class);
        match was {
            State::Waiting => self.queue.class_mut(class).waiting -= 1,
            State::Leased { worker, .. } => self.detach(worker, job, class),
            State::Blocked | State::Stored => {}
        }
    }
}
