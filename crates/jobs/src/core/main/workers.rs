//! Workers coming, joining and going.

use super::{MainCommand, MainCore, Outcome, Phase, State, WorkerKey};
use crate::core::bugs::{Bug, planted};
use crate::core::queue::ClassId;
use crate::core::worker::max_window;
use phalanx_types::{ByteSize, JobId, LeaseId, Needs, NodeId, Outbox, Time};
use phalanx_wire::jobs::{Held, Join};
use phalanx_wire::reason::FailReason;
use phalanx_wire::usage::{self, NodeUse};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::collections::BTreeSet;

/// The most kinds of job that one node is believed to solve.
const MAX_KINDS: usize = 4096;
/// The most cores and memory that one node is believed to have: sums over many leases do not overflow.
const MAX_CORES: u32 = 1 << 16;
const MAX_MEMORY: u64 = 1 << 50;
/// Leases that were lost with their nodes, remembered for each job.
const MAX_PAST_LEASES: usize = 16;

/// What is known of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Worker {
    pub(super) node: NodeId,
    /// Whether it answered the invitation; before that it gets nothing.
    pub(super) joined: bool,
    pub(super) draining: bool,
    pub(super) kinds: BTreeSet<SmolStr>,
    pub(super) capacity: Needs,
    /// What jobs cannot have of the capacity, and what they may use together.
    pub(super) taken: Vec<NodeUse>,
    pub(super) share: Needs,
    pub(super) window: u32,
    /// The number of its newest report.
    pub(super) heard: u64,
    pub(super) leases: BTreeSet<JobId>,
    pub(super) leased_cores: u64,
    pub(super) leased_memory: u64,
    /// It handed back what it could not start, and has started nothing since: jobs of other main nodes hold it.
    pub(super) is_held_up: bool,
    /// Jobs whose solutions it keeps.
    pub(super) holds: BTreeSet<JobId>,
}

impl Worker {
    fn new(node: NodeId) -> Self {
        Self {
            node,
            joined: false,
            draining: false,
            kinds: BTreeSet::new(),
            capacity: Needs { cores: 0, memory: ByteSize(0) },
            taken: Vec::new(),
            share: Needs { cores: 0, memory: ByteSize(0) },
            window: 0,
            heard: 0,
            leases: BTreeSet::new(),
            leased_cores: 0,
            leased_memory: 0,
            is_held_up: false,
            holds: BTreeSet::new(),
        }
    }

    pub(super) fn takes_jobs(&self) -> bool {
        self.joined && !self.draining
    }

    pub(super) fn has_room(&self) -> bool {
        self.takes_jobs() && self.leases.len() < self.window as usize
    }

    /// Whether some of its cores have nothing to do, as far as this main node knows.
    pub(super) fn is_idle(&self) -> bool {
        self.has_room() && !self.is_held_up && self.leased_cores < u64::from(self.share.cores)
    }

    /// Leased cores in thousandths of what jobs may use: the smaller, the sooner a job starts there. What others hold
    /// counts as leased: else a job that was asked back would be given to the same worker again, for ever.
    pub(super) fn load(&self) -> u64 {
        let held_up = if self.is_held_up { 1000 } else { 0 };
        held_up + self.leased_cores * 1000 / u64::from(self.share.cores.max(1))
    }

    /// Notes how many leases it wants; no more than any node of its size has a use for.
    pub(super) fn set_window(&mut self, window: u32) {
        let most = u32::try_from(max_window(self.capacity.cores)).unwrap_or(u32::MAX);
        self.window = window.min(most);
    }

    /// Notes what others than jobs use of it.
    pub(super) fn set_taken(&mut self, taken: Vec<NodeUse>) {
        let taken = usage::shorten(taken);
        self.share = usage::free(self.capacity, &taken);
        self.taken = taken;
    }

    /// Whether such a job fits beside what others use. If not, it would wait there for as long as they use it.
    pub(super) fn fits_beside(&self, needs: Needs) -> bool {
        needs.fit(self.share.cores, self.share.memory)
    }

    pub(super) fn can_run(&self, kind: &SmolStr, needs: Needs) -> bool {
        needs.fit(self.capacity.cores, self.capacity.memory) && self.kinds.contains(kind)
    }

    /// Whether the memory it has not leased out already would hold one more.
    pub(super) fn has_memory(&self, needs: Needs) -> bool {
        self.leased_memory.saturating_add(needs.memory.0) <= self.share.memory.0
    }

    /// Compares the sums with what the leases need.
    pub(super) fn check(&self, needs: impl Iterator<Item = Needs>) {
        let (mut cores, mut memory) = (0, 0);
        for n in needs {
            cores += u64::from(n.cores);
            memory += n.memory.0;
        }
        assert_eq!((cores, memory), (self.leased_cores, self.leased_memory), "sums of {}", self.node);
    }
}

impl MainCore {
    /// A link to a computing node is up.
    pub fn on_worker_up(&mut self, worker: WorkerKey, node: NodeId, out: &mut Outbox<MainCommand>) {
        self.workers.insert(worker, Worker::new(node));
        out.push(MainCommand::Invite { worker });
    }

    /// The worker says what it can do and what it still holds of ours.
    pub fn on_join(&mut self, now: Time, worker: WorkerKey, join: Join, out: &mut Outbox<MainCommand>) {
        if join.session != self.session || join.epoch != self.epoch {
            return;
        }
        let Some(w) = self.workers.get(&worker).filter(|w| !w.joined) else { return };
        // The end of the node's link before this one may be heard of only later.
        let node = w.node.clone();
        let before = self.workers.iter().find(|(key, w)| **key != worker && w.node == node);
        if let Some(key) = before.map(|(key, _)| *key) {
            self.on_worker_lost(key, true, out);
        }
        let Some(w) = self.workers.get_mut(&worker) else { return };
        w.joined = true;
        w.kinds = join.kinds.into_iter().take(MAX_KINDS).collect();
        w.capacity = Needs {
            cores: join.capacity.cores.min(MAX_CORES),
            memory: ByteSize(join.capacity.memory.0.min(MAX_MEMORY)),
        };
        w.set_taken(join.taken);
        w.set_window(join.window);
        for done in join.done {
            self.on_done(now, worker, done, out);
        }
        self.on_kept(worker, join.kept, out);
        for held in join.held {
            self.adopt(now, worker, held, out);
        }
    }

    /// Keeps a lease that outlived its link, unless the job moved on meanwhile.
    fn adopt(&mut self, now: Time, worker: WorkerKey, held: Held, out: &mut Outbox<MainCommand>) {
        let Held { lease, running } = held;
        let free = match self.jobs.get(lease.job).map(|j| j.state) {
            Some(State::Waiting | State::Blocked) => self.may_solve(worker, lease),
            Some(State::Leased { worker: other, .. }) if other == worker => return,
            Some(State::Leased { .. }) => planted(Bug::AdoptsTwice),
            Some(State::Stored) | None => false,
        };
        if free {
            self.forgive(worker, lease.job, out);
            let phase = if running { Phase::Running } else { Phase::Given };
            self.attach(now, worker, lease, phase);
        } else {
            out.push(MainCommand::Cancel { worker, lease });
        }
    }

    /// The node a job was lost with is back and still has it: nothing was lost.
    fn forgive(&mut self, worker: WorkerKey, job: JobId, out: &mut Outbox<MainCommand>) {
        let node = self.workers.get(&worker).map(|w| &w.node);
        let blamed = self.lost_on.get_mut(&job);
        let (Some(blamed), Some(j)) = (blamed, self.jobs.get_mut(job)) else { return };
        if blamed.last() == node && node.is_some() {
            blamed.pop();
            j.attempts = j.attempts.saturating_sub(1);
            self.counts.reruns = self.counts.reruns.saturating_sub(1);
            out.push(MainCommand::Attempt { job, attempts: u32::from(j.attempts) });
        }
    }

    /// A link to a worker is gone; `goodbye` when the node left on purpose.
    pub fn on_worker_lost(&mut self, worker: WorkerKey, goodbye: bool, out: &mut Outbox<MainCommand>) {
        let Some(w) = self.workers.get(&worker) else { return };
        let node = w.node.clone();
        let leases: Vec<JobId> = w.leases.iter().copied().collect();
        self.lose_holder(worker);
        for job in leases {
            let Some(j) = self.jobs.get_mut(job) else { continue };
            let State::Leased { phase, number, .. } = j.state else { continue };
            if planted(Bug::ForgetsUnstarted) && phase == Phase::Given {
                continue;
            }
            self.counts.reruns += 1;
            j.careful |= !goodbye;
            let past = self.past_leases.entry(job).or_default();
            if past.len() >= MAX_PAST_LEASES {
                past.remove(0);
            }
            past.push((number, node.clone()));
            if phase == Phase::Running && !goodbye && !planted(Bug::NeverSetsAside) {
                self.count_attempt(job, &node, out);
            }
            self.requeue(job);
        }
        self.workers.remove(&worker);
    }

    /// Whether a worker has, or had before its link went, this very lease. Nothing is known of leases of an earlier
    /// life of the main node: its jobs may be solved by any worker that knows the session.
    pub(super) fn may_solve(&self, worker: WorkerKey, lease: LeaseId) -> bool {
        let had = || {
            let node = self.workers.get(&worker).map(|w| &w.node);
            let past = self.past_leases.get(&lease.job).into_iter().flatten();
            past.into_iter().any(|(number, holder)| *number == lease.number && Some(holder) == node)
        };
        lease.job < self.first_own || self.is_current(worker, lease) || had()
    }

    /// Counts a run that took its node down, and sets the job aside when it was one too many.
    fn count_attempt(&mut self, job: JobId, node: &NodeId, out: &mut Outbox<MainCommand>) {
        let nodes = self.lost_on.entry(job).or_default();
        nodes.push(node.clone());
        let Some(j) = self.jobs.get_mut(job) else { return };
        j.attempts += 1;
        let (attempts, max) = (u32::from(j.attempts), u32::from(j.max_attempts));
        if attempts >= max {
            let nodes = self.lost_on.remove(&job).unwrap_or_default();
            self.finish(job, Outcome::Failed(FailReason::NodesLost { attempts, nodes }), out);
        } else {
            out.push(MainCommand::Attempt { job, attempts });
        }
    }

    /// Gives a waiting job to a worker.
    pub(super) fn attach(&mut self, now: Time, worker: WorkerKey, lease: LeaseId, phase: Phase) {
        let (Some(j), Some(w)) = (self.jobs.get_mut(lease.job), self.workers.get_mut(&worker)) else {
            return;
        };
        j.leases = j.leases.max(lease.number);
        let was = std::mem::replace(
            &mut j.state,
            State::Leased { worker, number: lease.number, since: now, phase },
        );
        let class = self.queue.class_mut(j.class);
        class.waiting -= u64::from(was == State::Waiting);
        w.leases.insert(lease.job);
        w.leased_cores += u64::from(class.needs.cores);
        w.leased_memory += class.needs.memory.0;
    }

    /// Takes a lease off its worker's books.
    pub(super) fn detach(&mut self, worker: WorkerKey, job: JobId, class: ClassId) {
        let needs = self.queue.class(class).needs;
        let Some(w) = self.workers.get_mut(&worker) else { return };
        if w.leases.remove(&job) {
            w.leased_cores -= u64::from(needs.cores);
            w.leased_memory -= needs.memory.0;
        }
    }
}
