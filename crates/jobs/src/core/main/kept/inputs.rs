//! Inputs of jobs: which kept solutions a job takes, whether they are there, and when it lets go of them.

use super::{InputAt, Kept, Place};
use crate::core::job::Ending;
use crate::core::main::{MainCommand, MainCore, Outcome, State, WorkerKey};
use phalanx_types::{JobId, Outbox};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::MissingInput;
use phalanx_wire::reason::{FailReason, LostInput};
use std::collections::BTreeSet;

impl MainCore {
    /// Takes the inputs of a new job into the books; gives the state in which it begins.
    pub(in crate::core::main) fn link_inputs(&mut self, job: JobId, inputs: Vec<JobId>, keep: bool) -> State {
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
    pub(super) fn why_no_input(&self, input: JobId) -> FailReason {
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

    pub(in crate::core::main) fn has_inputs(&self, job: JobId) -> bool {
        self.inputs.contains_key(&job)
    }

    pub(in crate::core::main) fn has_all_inputs(&self, job: JobId) -> bool {
        let there = |input: &JobId| self.kept.get(input).is_some_and(Kept::is_there);
        self.inputs.get(&job).is_none_or(|inputs| inputs.iter().all(there))
    }

    /// The inputs of a job that are not there.
    pub(in crate::core::main) fn missing_inputs(&self, job: JobId) -> impl Iterator<Item = JobId> + '_ {
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
    pub(in crate::core::main) fn input_bytes_at(&self, job: JobId, worker: WorkerKey) -> u64 {
        let inputs = self.inputs.get(&job).map(Vec::as_slice).unwrap_or_default();
        let len = |input: &JobId| match &self.kept.get(input)?.place {
            Place::At { head, holders } if holders.contains_key(&worker) => head.body_len(),
            _ => None,
        };
        inputs.iter().filter_map(len).fold(0, u64::saturating_add)
    }

    /// A job has run, or will not: it does not take its inputs any more. Without `lineage` they may still be needed to
    /// make its solution again.
    pub(super) fn let_go_of_inputs(&mut self, job: JobId, lineage: bool, out: &mut Outbox<MainCommand>) {
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
    pub(super) fn wake_users(&mut self, job: JobId) {
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

    /// Puts a job that was out back: into its queue, or to those that wait for their inputs.
    pub(in crate::core::main) fn wait_again(&mut self, job: JobId) {
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

    /// A kept job did not come to a solution, or a job that takes others ended: it refers to nothing any more.
    pub(in crate::core::main) fn unlink(
        &mut self,
        job: JobId,
        outcome: &Outcome,
        out: &mut Outbox<MainCommand>,
    ) {
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
    pub(in crate::core::main) fn on_missing(
        &mut self,
        worker: WorkerKey,
        missing: MissingInput,
        out: &mut Outbox<MainCommand>,
    ) {
        let MissingInput { lease, input, node, blob, is_gone } = missing;
        if !self.is_current(worker, lease) {
            return;
        }
        let holder = self.kept.get(&input).and_then(|kept| match &kept.place {
            // Only the copy that was asked for: the node may have got another one since it was named.
            Place::At { holders, .. } => {
                let is_it = |(key, held): &(&WorkerKey, &BlobId)| {
                    let is_there = self.workers.get(key).is_some_and(|w| w.node == node);
                    is_there && **held == blob
                };
                holders.iter().find(is_it).map(|(key, _)| *key)
            }
            _ => None,
        });
        match holder {
            Some(holder) if is_gone => {
                self.lose_copy(holder, input);
                // It may be there and unreadable: what the books do not know must not stay there.
                self.drop_at(holder, input, out);
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
