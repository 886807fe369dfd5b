//! The jobs of one main node: who waits, who holds a lease, how each ended.
//!
//! A job waits, is leased to one worker at a time, and ends once. Losing a worker puts its leases
//! back into the queue, by their age. A late solution is as good as an early one: the first wins,
//! whichever lease it came from, and every other one is acknowledged and forgotten.

mod dispatch;
mod event;
mod explain;
mod kept;
mod recall;
#[cfg(test)]
mod replay_tests;
mod report;
#[cfg(test)]
mod tests;
mod workers;

pub use event::MainEvent;
pub use kept::InputAt;
pub(in crate::core) use kept::recipe_len;

use super::job::{Ending, Job, JobSpec, Outcome, Phase, State};
use super::queue::Queue;
use super::table::JobTable;
use kept::Kept;
use phalanx_types::{Epoch, JobId, LeaseId, Needs, NodeId, Outbox, Parcel, ParcelHead, SessionId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::reason::{FailReason, LostInput, WaitReason};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use workers::Worker;

/// One link to a computing node, numbered by the shell and never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerKey(pub u64);

/// What the shell of a main node does next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MainCommand {
    Invite {
        worker: WorkerKey,
    },
    Offer {
        worker: WorkerKey,
        lease: LeaseId,
    },
    Ack {
        worker: WorkerKey,
        lease: LeaseId,
    },
    /// Like [`MainCommand::Ack`], and the worker keeps the solution until it is told to drop it.
    Keep {
        worker: WorkerKey,
        lease: LeaseId,
    },
    /// The worker need not keep the solution of this job any more.
    Drop {
        worker: WorkerKey,
        job: JobId,
    },
    Go {
        worker: WorkerKey,
        lease: LeaseId,
    },
    Cancel {
        worker: WorkerKey,
        lease: LeaseId,
    },
    Recall {
        worker: WorkerKey,
        lease: LeaseId,
    },
    /// Fetch a large solution, then say [`MainCore::on_taken`].
    Take {
        worker: WorkerKey,
        lease: LeaseId,
        /// Recordings keep the length alone.
        #[serde(rename = "len", serialize_with = "super::recorded::head_len")]
        head: ParcelHead,
        blob: BlobId,
    },
    /// Fetch a kept solution, then say [`MainCore::on_brought`].
    Bring {
        worker: WorkerKey,
        job: JobId,
        #[serde(rename = "len", serialize_with = "super::recorded::head_len")]
        head: ParcelHead,
        blob: BlobId,
    },
    /// The bytes of a kept solution that the user wanted, or why there are none.
    Delivered {
        job: JobId,
        /// Recordings leave the solution out.
        #[serde(serialize_with = "super::recorded::delivered")]
        result: Result<Parcel, FailReason>,
    },
    /// Nothing refers to the kept solution of this job any more.
    Freed {
        job: JobId,
    },
    /// A run was lost or is retried; recorded so that a restart does not forget it.
    Attempt {
        job: JobId,
        attempts: u32,
    },
    /// The one outcome of a job. Comes before the acknowledgement of the solution.
    Finished {
        job: JobId,
        /// Recordings leave the solution out.
        #[serde(serialize_with = "super::recorded::outcome")]
        outcome: Outcome,
        /// The worker that solved it; recordings leave it out.
        #[serde(skip)]
        solver: Option<WorkerKey>,
    },
    /// A class of jobs waits for a reason worth telling.
    Explain {
        kind: SmolStr,
        needs: Needs,
        reason: WaitReason,
    },
    /// The worker broke the protocol; its link is to be closed.
    CutOff {
        worker: WorkerKey,
        why: &'static str,
    },
}

/// Reasons of failed jobs are kept whole up to so many bytes together; of more, the beginnings are.
const FAILED_BYTES: usize = 32 << 20;
const SHORT_REASON: usize = 200;

/// How many jobs came to which end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MainCounts {
    pub submitted: u64,
    pub solved: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub expired: u64,
    /// Leases that were lost with their node, or ended in an error worth retrying.
    pub reruns: u64,
    /// Solutions that came after their job had ended.
    pub duplicates: u64,
}

impl MainCounts {
    /// The jobs that have their outcome.
    pub fn ended(&self) -> u64 {
        self.solved + self.failed + self.cancelled + self.expired
    }
}

/// See the module. What is serialised is a snapshot without payloads, for recordings.
#[derive(Debug, Serialize, Deserialize)]
pub struct MainCore {
    session: SessionId,
    epoch: Epoch,
    jobs: JobTable,
    queue: Queue,
    workers: BTreeMap<WorkerKey, Worker>,
    deadlines: BTreeSet<(Time, JobId)>,
    progress: BTreeMap<JobId, (u16, String)>,
    /// On which nodes a job's attempts were lost.
    lost_on: BTreeMap<JobId, Vec<NodeId>>,
    failed: BTreeMap<JobId, FailReason>,
    /// About how many bytes the reasons take.
    failed_bytes: usize,
    /// Leases that ended with the link to their nodes, which may come back with them.
    past_leases: BTreeMap<JobId, Vec<(u32, NodeId)>>,
    /// The first job of this life.
    first_own: JobId,
    /// Solutions that are kept or will be, and the jobs whose solutions each job takes.
    kept: BTreeMap<JobId, Kept>,
    inputs: BTreeMap<JobId, Vec<JobId>>,
    /// Solved jobs that could run again, with the bytes of their payloads.
    recipes: BTreeMap<JobId, u64>,
    recipe_bytes: u64,
    /// Jobs that end at the end of the turn because an input cannot be had.
    doomed: BTreeMap<JobId, FailReason>,
    /// Solutions to make again, and to free, at the end of the turn.
    needy: BTreeSet<JobId>,
    idle: BTreeSet<JobId>,
    /// When solutions of an earlier life that no node has said to hold are made again.
    #[serde(with = "super::recorded::short_never")]
    remake_at: Time,
    counts: MainCounts,
    recall_at: Time,
}

impl MainCore {
    pub fn new(session: SessionId, epoch: Epoch) -> Self {
        Self {
            session,
            epoch,
            jobs: JobTable::default(),
            queue: Queue::default(),
            workers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            progress: BTreeMap::new(),
            lost_on: BTreeMap::new(),
            failed: BTreeMap::new(),
            failed_bytes: 0,
            past_leases: BTreeMap::new(),
            first_own: JobId(0),
            kept: BTreeMap::new(),
            inputs: BTreeMap::new(),
            recipes: BTreeMap::new(),
            recipe_bytes: 0,
            doomed: BTreeMap::new(),
            needy: BTreeSet::new(),
            idle: BTreeSet::new(),
            remake_at: Time::NEVER,
            counts: MainCounts::default(),
            recall_at: Time::NEVER,
        }
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn counts(&self) -> MainCounts {
        self.counts
    }

    /// The id the next submitted job gets.
    pub fn next_id(&self) -> JobId {
        self.jobs.next_id()
    }

    /// Whether a job has its outcome; `None` for an id that was never given.
    pub fn is_ended(&self, job: JobId) -> Option<bool> {
        let ending = self.jobs.ending(job)?;
        Some(ending != Ending::NotYet || self.is_told(job))
    }

    /// What an unfinished job carries, and what a worker must know to run it.
    pub fn offer_of(&self, job: JobId) -> Option<OfferView<'_>> {
        let j = self.jobs.get(job).filter(|j| j.state != State::Stored)?;
        let class = self.queue.class(j.class);
        Some(OfferView {
            payload: &j.payload,
            kind: &class.kind,
            needs: class.needs,
            priority: j.priority,
            careful: j.careful,
        })
    }

    /// Takes a job in. The caller dispatches when it has submitted all it has.
    pub fn on_submit(&mut self, now: Time, spec: JobSpec) -> JobId {
        self.insert(now, spec, 0)
    }

    /// Takes in a job of an earlier life that had not ended.
    pub fn on_restore(&mut self, now: Time, spec: JobSpec, attempts: u32) -> JobId {
        let job = self.insert(now, spec, attempts);
        self.first_own = self.jobs.next_id();
        job
    }

    /// Takes in a job of an earlier life that had ended.
    pub fn on_restore_ended(&mut self, kind: &SmolStr, needs: Needs, outcome: &Outcome) -> JobId {
        self.counts.submitted += 1;
        let class = self.queue.class_of(kind, needs);
        let job = self.jobs.push_ended(outcome.ending(), class);
        self.count(job, outcome);
        job
    }

    fn insert(&mut self, now: Time, spec: JobSpec, attempts: u32) -> JobId {
        // A job without cores would start without end.
        let needs = Needs { cores: spec.needs.cores.max(1), ..spec.needs };
        let class = self.queue.class_of(&spec.kind, needs);
        let deadline = spec.deadline.map_or(Time::NEVER, |d| now + d);
        let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let state = self.link_inputs(self.jobs.next_id(), spec.inputs, spec.keep);
        let job = self.jobs.push(Job {
            payload_len: if spec.keep { kept::recipe_len(&spec.payload) } else { 0 },
            payload: spec.payload,
            state,
            submitted: now,
            deadline,
            class,
            priority: spec.priority,
            leases: 0,
            attempts: clamp(attempts),
            max_attempts: clamp(spec.max_attempts.max(1)),
            careful: attempts > 0,
            told: false,
            forgotten: false,
        });
        if deadline != Time::NEVER {
            self.deadlines.insert((deadline, job));
        }
        self.counts.submitted += 1;
        if state == State::Waiting {
            self.queue.push_back(class, spec.priority, job);
        }
        job
    }

    /// Ends a job on the user's wish; `false` when it had ended already or never was.
    pub fn on_cancel(&mut self, job: JobId, out: &mut Outbox<MainCommand>) -> bool {
        self.stop(job, Outcome::Cancelled, out)
    }

    /// Ends every unfinished job on the user's wish.
    pub fn on_cancel_all(&mut self, out: &mut Outbox<MainCommand>) -> u64 {
        let live: Vec<JobId> = self.jobs.ids_after(JobId(0), false).collect();
        live.into_iter().map(|job| u64::from(self.on_cancel(job, out))).sum()
    }

    fn stop(&mut self, job: JobId, outcome: Outcome, out: &mut Outbox<MainCommand>) -> bool {
        let Some(j) = self.jobs.get(job).filter(|j| !j.told) else { return false };
        if let State::Leased { worker, number, .. } = j.state {
            out.push(MainCommand::Cancel { worker, lease: LeaseId { job, number } });
        }
        self.finish(job, outcome, out);
        true
    }

    /// Looks at what time alone brings: deadlines, and leases worth asking back.
    pub fn on_tick(&mut self, now: Time, out: &mut Outbox<MainCommand>) {
        while let Some((deadline, job)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            self.stop(job, Outcome::Expired, out);
        }
        if self.recall_at <= now {
            self.recall(now, out);
        }
        if self.remake_at <= now {
            self.remake_at = Time::NEVER;
            self.needy.extend(self.kept.keys().copied());
        }
    }

    /// When [`MainCore::on_tick`] is next worth calling.
    pub fn next_wake(&self) -> Time {
        let deadline = self.deadlines.first().map_or(Time::NEVER, |(at, _)| *at);
        deadline.min(self.recall_at).min(self.remake_at)
    }

    fn finish(&mut self, job: JobId, outcome: Outcome, out: &mut Outbox<MainCommand>) {
        self.finish_by(job, outcome, None, out);
    }

    fn finish_by(
        &mut self,
        job: JobId,
        outcome: Outcome,
        solver: Option<WorkerKey>,
        out: &mut Outbox<MainCommand>,
    ) {
        self.past_leases.remove(&job);
        if self.is_told(job) {
            // It was being made again.
            if let Outcome::Failed(reason) = outcome {
                self.lose(job, LostInput::FailedAgain { why: reason.to_string() }, out);
            }
            return;
        }
        let Some(ended) = self.jobs.end(job, outcome.ending()) else { return };
        match ended.state {
            State::Waiting => self.queue.class_mut(ended.class).waiting -= 1,
            State::Leased { worker, .. } => self.detach(worker, job, ended.class),
            State::Blocked | State::Stored => {}
        }
        if ended.deadline != Time::NEVER {
            self.deadlines.remove(&(ended.deadline, job));
        }
        // Both maps are empty in the ordinary case; looking costs nothing then.
        self.progress.remove(&job);
        self.lost_on.remove(&job);
        self.count(job, &outcome);
        if !(self.kept.is_empty() && self.inputs.is_empty() && self.doomed.is_empty()) {
            self.unlink(job, &outcome, out);
        }
        out.push(MainCommand::Finished { job, outcome, solver });
    }

    fn count(&mut self, job: JobId, outcome: &Outcome) {
        match outcome {
            Outcome::Solved(_) | Outcome::Kept { .. } => self.counts.solved += 1,
            Outcome::Failed(reason) => {
                self.counts.failed += 1;
                let is_full = self.failed_bytes >= FAILED_BYTES;
                let kept = if is_full { reason.shortened(SHORT_REASON) } else { reason.clone() };
                self.failed_bytes += kept.text_len();
                self.failed.insert(job, kept);
            }
            Outcome::Cancelled => self.counts.cancelled += 1,
            Outcome::Expired => self.counts.expired += 1,
        }
    }

    /// Puts a leased job back into its queue, where its age belongs.
    fn requeue(&mut self, job: JobId) {
        let Some(j) = self.jobs.get_mut(job) else { return };
        let State::Leased { worker, .. } = j.state else { return };
        let class = j.class;
        self.detach(worker, job, class);
        self.wait_again(job);
    }

    /// Panics when the books do not balance; for tests and the simulator.
    ///
    /// # Panics
    /// A lease and a worker disagree, or a count is off.
    pub fn check_invariants(&self) {
        let mut waiting = 0;
        let mut leased = BTreeMap::<WorkerKey, BTreeSet<JobId>>::new();
        for job in self.jobs.ids_after(JobId(0), false) {
            let Some(j) = self.jobs.get(job) else { continue };
            match j.state {
                State::Waiting => waiting += 1,
                State::Blocked => {
                    let doomed = self.doomed.contains_key(&job);
                    assert!(doomed || !self.has_all_inputs(job), "{job} waits for inputs that are there");
                }
                State::Stored => assert!(j.told && self.is_kept(job), "{job} is stored and not kept"),
                State::Leased { worker, .. } => {
                    assert!(leased.entry(worker).or_default().insert(job), "{job} leased twice");
                }
            }
            assert!(j.told || j.attempts < j.max_attempts, "{job} lives on after its attempts");
            assert_eq!(self.jobs.ending(job), Some(Ending::NotYet));
        }
        assert_eq!(waiting, self.queue.waiting(), "waiting jobs");
        for (key, worker) in &self.workers {
            let held = leased.remove(key).unwrap_or_default();
            assert_eq!(held, worker.leases, "leases of {}", worker.node);
            worker.check(
                held.iter().filter_map(|j| self.jobs.get(*j)).map(|j| self.queue.class(j.class).needs),
            );
        }
        assert!(leased.is_empty(), "leases of workers that are gone: {leased:?}");
        self.check_kept();
        let untold = |job: &JobId| !self.is_told(*job);
        let live = self.jobs.ids_after(JobId(0), false).filter(untold).count() as u64;
        assert_eq!(self.counts.submitted, self.counts.ended() + live, "every job lives or has ended");
    }
}

/// What an offer says about its job.
#[derive(Debug)]
pub struct OfferView<'a> {
    pub payload: &'a Parcel,
    pub kind: &'a SmolStr,
    pub needs: Needs,
    pub priority: i32,
    pub careful: bool,
}
