//! Kept solutions: users that want and drop them, jobs that take them, and what must hold of both.

use super::event::{Event, MainEvent, WorkerEvent};
use super::link::LinkId;
use super::main_shell::main_of;
use super::world::World;
use phalanx_jobs::core::{InputAt, Run, RunInput, WorkerKey};
use phalanx_types::{JobId, NodeId, Parcel, SessionId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{Input, InputPlace};
use phalanx_wire::reason::FailReason;
use std::time::Duration;

/// A user waits this long for other submissions before dropping what they take.
const POLITE: Duration = Duration::from_millis(20);

impl World {
    pub(super) fn on_user_wants(&mut self, job: usize) {
        let main = self.plan.jobs[job].main;
        let node = &mut self.mains[main];
        let (Some(core), Some(id)) = (&mut node.core, node.journal.find(job)) else { return };
        let Some(record) = node.journal.get_mut(id).filter(|record| !record.released) else { return };
        record.wanted = true;
        self.trace.line(self.now, format_args!("m{main} user wants {id}"));
        core.on_wanted(id, &mut node.out);
        self.touch_main(main);
    }

    pub(super) fn on_user_releases(&mut self, job: usize) {
        let main = self.plan.jobs[job].main;
        let node = &mut self.mains[main];
        let unsubmitted = |(at, plan): (usize, &super::plan::JobPlan)| {
            (at == job || plan.takes.contains(&job)) && node.journal.find(at).is_none()
        };
        if self.plan.jobs.iter().enumerate().any(unsubmitted) {
            self.queue.push(self.now + POLITE, Event::UserReleases { job });
            return;
        }
        let Some(id) = node.journal.find(job) else { return };
        let Some(record) = node.journal.get_mut(id) else { return };
        // Whoever waits for a solution has a reference to it.
        if record.wanted {
            self.queue.push(self.now + POLITE, Event::UserReleases { job });
            return;
        }
        record.released = true;
        if let Some(core) = &mut node.core {
            self.trace.line(self.now, format_args!("m{main} user drops {id}"));
            core.on_release(&[id], &mut node.out);
            self.touch_main(main);
        }
    }

    pub(super) fn check_delivered(&mut self, main: usize, job: JobId, result: &Result<Parcel, FailReason>) {
        let unsolved = self.is_unsolved(main, job);
        let Some(record) = self.mains[main].journal.get_mut(job) else {
            self.violate(format!("m{main} delivers job {job}, which never was"));
            return;
        };
        record.wanted = false;
        let right = match result {
            Ok(parcel) => *parcel == self.plan.jobs[record.plan].solution,
            // The outcome may be among the commands of this turn that come later.
            Err(_) => unsolved || record.outcome.is_none(),
        };
        if !right {
            self.violate(format!("m{main} delivers {result:?} of job {job}"));
        }
    }

    pub(super) fn on_brought(&mut self, main: usize, id: LinkId, job: JobId, blob: BlobId) {
        let link = &self.links[id.0];
        let worker = &self.workers[link.worker];
        let alive = !link.cut && worker.life == link.worker_life && worker.core.is_some();
        if alive && worker.frozen {
            self.main_soon(main, 5_000, MainEvent::Brought { link: id, job, blob });
            return;
        }
        let parcel = worker.blobs.get(&blob).filter(|_| alive).cloned();
        let node = &mut self.mains[main];
        let Some(core) = &mut node.core else { return };
        let result = parcel.ok_or_else(|| "the node is gone".to_owned());
        core.on_brought(id.worker_key(), job, result, &mut node.out);
        self.touch_main(main);
    }

    /// The inputs of an offer, as the shell of a main node writes them.
    pub(super) fn offered_inputs(&self, main: usize, worker: WorkerKey, job: JobId) -> Option<Vec<Input>> {
        let inputs = self.mains[main].core.as_ref()?.inputs_of(job, worker)?;
        let written = inputs.into_iter().map(|(job, at)| {
            let place = match at {
                InputAt::Here(parcel) => InputPlace::Inline { head: parcel.head(), body: parcel.body() },
                InputAt::Node { worker, head, blob } => {
                    let holder = &self.links[LinkId::from(worker).0];
                    let name = format!("w{}", holder.worker);
                    let node = NodeId::with_suffix(&name, holder.worker_life as u16).ok()?;
                    InputPlace::At { node, head: head.clone(), blob }
                }
            };
            Some(Input { job, place })
        });
        written.collect()
    }

    /// A worker asks another for a solution; a node that cannot be reached is found to be so after a while.
    pub(super) fn on_input_fetched(
        &mut self,
        worker: usize,
        (session, input): (SessionId, JobId),
        node: &NodeId,
        blob: BlobId,
    ) {
        let holder = (0..self.workers.len()).find(|at| self.workers[*at].node_id(*at) == *node);
        let holder = holder.filter(|at| self.workers[*at].core.is_some() && !self.workers_apart(worker, *at));
        let result = match holder {
            Some(at) if self.workers[at].frozen => {
                let event = WorkerEvent::InputFetched { session, input, node: node.clone(), blob };
                self.worker_soon(worker, 20_000, event);
                return;
            }
            Some(at) => self.workers[at].blobs.get(&blob).cloned().ok_or(true),
            None if self.dice.shells.chance(3, 4) => {
                let event = WorkerEvent::InputFetched { session, input, node: node.clone(), blob };
                self.worker_soon(worker, 10_000, event);
                return;
            }
            None => Err(false),
        };
        let node = &mut self.workers[worker];
        let held = result.map(|parcel| {
            node.next_blob += 1;
            node.blobs.insert(BlobId(node.next_blob), parcel);
            BlobId(node.next_blob)
        });
        self.trace.line(self.now, format_args!("w{worker} fetched {input}: {held:?}"));
        if let Some(core) = &mut node.core {
            core.on_input(self.now, session, input, held, &mut node.out);
        }
        self.touch_worker(worker);
    }

    /// Puts what a worker holds into a run, as its shell does.
    pub(super) fn put_inputs(&mut self, worker: usize, run: &mut Run) {
        let mut lost = None;
        for input in &mut run.inputs {
            if let RunInput::Held(blob) = input {
                match self.workers[worker].blobs.get(blob) {
                    Some(parcel) => *input = RunInput::Given(parcel.clone()),
                    None => lost = Some(*blob),
                }
            }
        }
        if let Some(blob) = lost {
            self.violate(format!("w{worker} starts {:?} without its input {blob}", run.key));
        }
    }

    /// Why a run has other inputs than its plan says.
    pub(super) fn wrong_inputs(&self, run: &Run) -> Option<String> {
        let journal = &self.mains[main_of(run.key.session)].journal;
        let wanted = &journal.get(run.key.lease.job)?.inputs;
        let solution = |job: &JobId| Some(&self.plan.jobs[journal.get(*job)?.plan].solution);
        let is_right = |(job, given): (&JobId, &RunInput)| match given {
            RunInput::Given(parcel) => solution(job) == Some(parcel),
            RunInput::Held(_) => false,
        };
        let right = wanted.len() == run.inputs.len() && wanted.iter().zip(&run.inputs).all(is_right);
        (!right).then(|| format!("runs {:?} with {:?}, not the solutions of {wanted:?}", run.key, run.inputs))
    }

    /// A user who still waits for a solution.
    pub(super) fn still_wanted(&self) -> Option<String> {
        for (main, node) in self.mains.iter().enumerate() {
            if let Some(at) = node.journal.records().iter().position(|record| record.wanted) {
                return Some(format!("m{main}: the solution of job {} never comes", at + 1));
            }
        }
        None
    }
}
