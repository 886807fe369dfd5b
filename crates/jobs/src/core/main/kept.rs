//! Solutions that stay where they were made, for other jobs to take.
//!
//! ```text
//!   Nowhere ── solved ──► Here (small: the main node has it) or At (its nodes hold it)
//!      ▲                       │ the last node that held it is lost
//!      └── made again by its job, once a job or the user needs it; or Lost, with the reason
//! ```
//! A solution is needed while the user has a handle to it or an unended job takes it; then its nodes are told to drop
//! it. Its job is remembered longer: as long as it may have to run again for a solution that was made from it.

use super::{MainCommand, MainCore, Outcome, State, WorkerKey};
use crate::core::JobSpec;
use crate::core::job::{Ending, Job};
use phalanx_types::{JobId, LeaseId, Outbox, Parcel, ParcelHead, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{KeptSolution, MissingInput};
use phalanx_wire::reason::{FailReason, LostInput};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most solved jobs that are remembered only to run again.
const MAX_RECIPES: usize = 4096;
/// The most bytes of payloads that are kept for solved jobs to run again.
const MAX_RECIPE_BYTES: u64 = 512 << 20;

/// How long nodes may take to say what they kept for a main node that was started again.
const RETURN: Duration = Duration::from_secs(5);

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
    /// Takes the inputs of a new job into the books; gives the state in which it begins.
    pub(super) fn link_inputs(&mut self, job: JobId, inputs: Vec<JobId>, keep: bool) -> State {
        if keep {
            self.kept.insert(job, Kept::new());
        }
        if inputs.is_empty() {
            return State::Waiting;
        }
        let mut ready = true;
        let mut linked = Vec::with_capacity(inputs.len());
        for input in inputs {
            let Some(kept) = self.kept.get_mut(&input).filter(|_| input != job) else {
                self.doomed.insert(job, self.why_no_input(input));
                continue;
            };
            kept.users.insert(job);
            if keep && !linked.contains(&input) {
                kept.heirs += 1;
            }
            linked.push(input);
            match &kept.place {
                Place::Here(_) | Place::At { .. } => {}
                Place::Nowhere => {
                    ready = false;
                    self.needy.insert(input);
                }
                Place::Lost(why) => {
                    let why = why.clone();
                    self.doomed.insert(job, FailReason::InputLost { job: input, why });
                }
            }
        }
        self.inputs.insert(job, linked);
        match ready && !self.doomed.contains_key(&job) {
            true => State::Waiting,
            false => State::Blocked,
        }
    }

    /// Why the solution of a job cannot be taken.
    fn why_no_input(&self, input: JobId) -> FailReason {
        let not_solved =
            |why: &str| FailReason::InputFailed { job: input, why: why.to_owned(), raised: None };
        match self.jobs.ending(input) {
            Some(Ending::Failed) => match self.failed.get(&input) {
                Some(reason) => input_failed(input, reason),
                None => not_solved("it failed"),
            },
            Some(Ending::Cancelled) => not_solved("it was cancelled"),
            Some(Ending::Expired) => not_solved("it expired"),
            Some(Ending::Solved | Ending::NotYet) | None => {
                FailReason::InputLost { job: input, why: LostInput::NotKept }
            }
        }
    }

    pub(super) fn has_inputs(&self, job: JobId) -> bool {
        self.inputs.contains_key(&job)
    }

    pub(super) fn has_all_inputs(&self, job: JobId) -> bool {
        let there = |input: &JobId| self.kept.get(input).is_some_and(Kept::is_there);
        self.inputs.get(&job).is_none_or(|inputs| inputs.iter().all(there))
    }

    /// The inputs of a job that are not there.
    pub(super) fn missing_inputs(&self, job: JobId) -> impl Iterator<Item = JobId> + '_ {
        let there = |input: &JobId| self.kept.get(input).is_some_and(Kept::is_there);
        self.inputs.get(&job).into_iter().flatten().copied().filter(move |input| !there(input))
    }

    /// Where a worker finds the inputs of a job, in order: at itself, if it has them. `None` if one is nowhere.
    pub fn inputs_of(&self, job: JobId, worker: WorkerKey) -> Option<Vec<(JobId, InputAt<'_>)>> {
        let inputs = self.inputs.get(&job).map(Vec::as_slice).unwrap_or_default();
        let places = inputs.iter().map(|input| {
            let at = match &self.kept.get(input)?.place {
                Place::Here(parcel) => InputAt::Here(parcel),
                Place::At { head, holders } => {
                    let own = holders.get_key_value(&worker);
                    let (holder, blob) = own.or_else(|| holders.first_key_value())?;
                    InputAt::Node { worker: *holder, head, blob: *blob }
                }
                Place::Nowhere | Place::Lost(_) => return None,
            };
            Some((*input, at))
        });
        places.collect()
    }

    /// Bytes of the inputs of a job that a worker has.
    pub(super) fn input_bytes_at(&self, job: JobId, worker: WorkerKey) -> u64 {
        let inputs = self.inputs.get(&job).map(Vec::as_slice).unwrap_or_default();
        let len = |input: &JobId| match &self.kept.get(input)?.place {
            Place::At { head, holders } if holders.contains_key(&worker) => head.body_len(),
            _ => None,
        };
        inputs.iter().filter_map(len).fold(0, u64::saturating_add)
    }

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

    /// A job has run, or will not: it does not take its inputs any more. Without `lineage` they may still be needed to
    /// make its solution again.
    fn let_go_of_inputs(&mut self, job: JobId, lineage: bool, out: &mut Outbox<MainCommand>) {
        let inputs = match lineage {
            true => self.inputs.remove(&job).unwrap_or_default(),
            false => self.inputs.get(&job).cloned().unwrap_or_default(),
        };
        let once: BTreeSet<JobId> = inputs.into_iter().collect();
        let is_kept = self.is_kept(job);
        for input in once {
            let Some(kept) = self.kept.get_mut(&input) else { continue };
            kept.users.remove(&job);
            if lineage && is_kept {
                kept.heirs -= 1;
            }
            self.free(input, out);
        }
    }

    /// Jobs that waited for nothing but this may go to a worker.
    fn wake_users(&mut self, job: JobId) {
        let users: Vec<JobId> =
            self.kept.get(&job).map(|kept| kept.users.iter().copied().collect()).unwrap_or_default();
        for user in users {
            self.unblock(user);
        }
    }

    fn unblock(&mut self, job: JobId) {
        let ready = self.has_all_inputs(job) && !self.doomed.contains_key(&job);
        let Some(j) = self.jobs.get_mut(job).filter(|j| ready && j.state == State::Blocked) else { return };
        j.state = State::Waiting;
        let (class, priority) = (j.class, j.priority);
        self.queue.put_back(class, priority, job);
    }

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
    fn free(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let mut freed = vec![job];
        while let Some(job) = freed.pop() {
            let Some(kept) = self.kept.get_mut(&job).filter(|kept| !kept.is_needed()) else { continue };
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

    fn drop_at(&mut self, worker: WorkerKey, job: JobId, out: &mut Outbox<MainCommand>) {
        if let Some(w) = self.workers.get_mut(&worker) {
            w.holds.remove(&job);
            out.push(MainCommand::Drop { worker, job });
        }
    }

    /// A solution that was being made again is not needed any more.
    fn stop_making(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
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
    fn note_recipe(&mut self, job: JobId) {
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
    fn forget_recipes(&mut self, out: &mut Outbox<MainCommand>) {
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

    /// A worker says that it has solutions of this session, its own or copies.
    pub(super) fn on_kept(
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
            if !fits {
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
    pub(super) fn lose_holder(&mut self, worker: WorkerKey) {
        let Some(w) = self.workers.get_mut(&worker) else { return };
        for job in std::mem::take(&mut w.holds) {
            self.lose_copy(worker, job);
        }
    }

    /// A worker does not have a solution any more.
    pub(super) fn lose_copy(&mut self, worker: WorkerKey, job: JobId) {
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

    /// Puts a job that was out back: into its queue, or to those that wait for their inputs.
    pub(super) fn wait_again(&mut self, job: JobId) {
        let ready = self.has_all_inputs(job);
        let missing: Vec<JobId> = if ready { Vec::new() } else { self.missing_inputs(job).collect() };
        for input in &missing {
            if let Some(Place::Lost(why)) = self.kept.get(input).map(|kept| &kept.place) {
                self.doomed.insert(job, FailReason::InputLost { job: *input, why: why.clone() });
            }
        }
        let Some(j) = self.jobs.get_mut(job) else { return };
        let (class, priority) = (j.class, j.priority);
        if ready {
            j.state = State::Waiting;
            self.queue.put_back(class, priority, job);
        } else {
            j.state = State::Blocked;
            self.needy.extend(missing);
        }
    }

    /// Ends what cannot be, makes again what is needed, until nothing is left to do.
    pub(super) fn settle_inputs(&mut self, out: &mut Outbox<MainCommand>) {
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
    pub(super) fn lose(&mut self, job: JobId, why: LostInput, out: &mut Outbox<MainCommand>) {
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

    /// The user wants the bytes of a kept solution.
    pub fn on_wanted(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let Some(kept) = self.kept.get_mut(&job) else {
            let result = Err(self.why_no_input(job));
            out.push(MainCommand::Delivered { job, result });
            return;
        };
        kept.wanted = true;
        if !self.is_told(job) {
            return;
        }
        let Some(kept) = self.kept.get(&job) else { return };
        match &kept.place {
            Place::Here(parcel) => {
                let parcel = parcel.clone();
                self.deliver(job, Ok(parcel), out);
            }
            Place::At { .. } => self.bring(job, out),
            Place::Nowhere => {
                self.needy.insert(job);
            }
            Place::Lost(why) => {
                let result = Err(FailReason::InputLost { job, why: why.clone() });
                self.deliver(job, result, out);
            }
        }
    }

    fn deliver(&mut self, job: JobId, result: Result<Parcel, FailReason>, out: &mut Outbox<MainCommand>) {
        if let Some(kept) = self.kept.get_mut(&job) {
            (kept.wanted, kept.bringing) = (false, false);
        }
        out.push(MainCommand::Delivered { job, result });
    }

    /// Has the shell fetch a solution that the user waits for.
    fn bring(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let Some(kept) = self.kept.get_mut(&job).filter(|kept| kept.wanted && !kept.bringing) else { return };
        let Place::At { head, holders } = &kept.place else { return };
        let Some((worker, blob)) = holders.first_key_value() else { return };
        kept.bringing = true;
        out.push(MainCommand::Bring { worker: *worker, job, head: head.clone(), blob: *blob });
    }

    /// A kept solution was fetched for the user, or could not be.
    pub fn on_brought(
        &mut self,
        worker: WorkerKey,
        job: JobId,
        result: Result<Parcel, String>,
        out: &mut Outbox<MainCommand>,
    ) {
        let Some(kept) = self.kept.get_mut(&job).filter(|kept| kept.bringing) else { return };
        kept.bringing = false;
        match result {
            Ok(parcel) if kept.wanted => self.deliver(job, Ok(parcel), out),
            Ok(_) => {}
            Err(_) => {
                // Whatever is wrong with it there, it is of no use.
                let holds = matches!(&kept.place, Place::At { holders, .. } if holders.contains_key(&worker));
                self.lose_copy(worker, job);
                if holds {
                    self.drop_at(worker, job, out);
                }
                self.bring(job, out);
                if self.is_wanted(job) {
                    self.needy.insert(job);
                }
            }
        }
    }

    /// A kept job did not come to a solution, or a job that takes others ended: it refers to nothing any more.
    pub(super) fn unlink(&mut self, job: JobId, outcome: &Outcome, out: &mut Outbox<MainCommand>) {
        self.doomed.remove(&job);
        if self.inputs.contains_key(&job) {
            self.let_go_of_inputs(job, true, out);
        }
        let Some(kept) = self.kept.remove(&job) else { return };
        let reason = match outcome {
            Outcome::Failed(reason) => input_failed(job, reason),
            _ => self.why_no_input(job),
        };
        for user in kept.users {
            self.doomed.entry(user).or_insert_with(|| reason.clone());
        }
        if kept.wanted {
            let own = match outcome {
                Outcome::Failed(reason) => reason.clone(),
                _ => reason,
            };
            out.push(MainCommand::Delivered { job, result: Err(own) });
        }
    }

    /// An input of a lease could not be had from the node that was named.
    pub(super) fn on_missing(
        &mut self,
        worker: WorkerKey,
        missing: MissingInput,
        out: &mut Outbox<MainCommand>,
    ) {
        let MissingInput { lease, input, node, is_gone } = missing;
        if !self.is_current(worker, lease) {
            return;
        }
        let holder = self.kept.get(&input).and_then(|kept| match &kept.place {
            Place::At { holders, .. } => {
                holders.keys().copied().find(|key| self.workers.get(key).is_some_and(|w| w.node == node))
            }
            _ => None,
        });
        match holder {
            Some(holder) if is_gone => {
                self.lose_copy(holder, input);
                self.requeue(lease.job);
            }
            // The two nodes do not reach each other; that is worth another try, but not for ever.
            Some(_) => {
                let why = LostInput::Unreachable { node };
                self.fail(lease.job, FailReason::InputLost { job: input, why }, true, out);
            }
            None => self.requeue(lease.job),
        }
    }

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
        // What nobody has now may still be at nodes that have not joined.
        self.needy.clear();
        if self.kept.values().any(|kept| matches!(kept.place, Place::Nowhere)) {
            self.remake_at = now + RETURN;
        }
        self.on_release(released, out);
    }

    pub(super) fn check_kept(&self) {
        let mut heirs = BTreeMap::<JobId, u32>::new();
        for (_, inputs) in self.inputs.iter().filter(|(job, _)| self.is_kept(**job)) {
            for input in inputs.iter().collect::<BTreeSet<_>>() {
                *heirs.entry(*input).or_default() += 1;
            }
        }
        for (job, kept) in &self.kept {
            let j = self.jobs.get(*job);
            assert!(j.is_some(), "{job} is kept and gone");
            if let Place::At { holders, .. } = &kept.place {
                assert!(!holders.is_empty(), "{job} is held by nobody");
                for holder in holders.keys() {
                    let holds = self.workers.get(holder).is_some_and(|w| w.holds.contains(job));
                    assert!(holds, "{holder} does not know that it holds {job}");
                }
            }
            for user in &kept.users {
                let takes = self.inputs.get(user).is_some_and(|inputs| inputs.contains(job));
                assert!(takes && self.jobs.get(*user).is_some(), "{user} does not take {job}");
            }
            assert_eq!(kept.heirs, heirs.get(job).copied().unwrap_or(0), "heirs of {job}");
        }
        for (key, worker) in &self.workers {
            for job in &worker.holds {
                let holds = self.kept.get(job).is_some_and(
                    |kept| matches!(&kept.place, Place::At { holders, .. } if holders.contains_key(key)),
                );
                assert!(holds, "{key} holds {job}, which is not known");
            }
        }
        assert_eq!(self.recipe_bytes, self.recipes.values().sum::<u64>(), "bytes of recipes");
    }
}

/// What a payload counts among the recipes; more than fit is as good as any such number.
pub(in crate::core) fn recipe_len(payload: &Parcel) -> u64 {
    payload.len().min(MAX_RECIPE_BYTES + 1)
}

/// The reason of a job that takes the solution of one that failed; names the first one that did.
fn input_failed(job: JobId, reason: &FailReason) -> FailReason {
    match reason {
        FailReason::InputFailed { .. } | FailReason::InputLost { .. } => reason.clone(),
        FailReason::Raised(raised) => {
            FailReason::InputFailed { job, why: reason.to_string(), raised: Some(raised.clone()) }
        }
        reason => FailReason::InputFailed { job, why: reason.to_string(), raised: None },
    }
}
