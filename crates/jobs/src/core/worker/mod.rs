//! What one computing node holds: leases of any number of main nodes, and what runs of them.
//!
//! A lease waits for its payload, waits for room, runs, and is kept as a result until its main
//! node has recorded it. Main nodes share the node fairly by the time their jobs take, and each
//! may have a few jobs more here than run, so that the next one starts without a round trip.
//! Short jobs start in batches that one thread works off; a batch that turns out slow is taken
//! apart again. Jobs of a gathered kind start together, whichever main nodes they come from.
//!
//! Training may take a part of the node. Jobs start only on what is left, and a lease that does not fit there goes
//! back to its main node.

mod batch;
mod dispatch;
mod finish;
mod gather;
mod inputs;
mod lease;
mod links;
mod pace;
mod share;
mod start;
#[cfg(test)]
mod tests;

use batch::Batches;
use lease::{Lease, LeaseState, Session};
use pace::Pace;
pub(in crate::core) use pace::max_window;
use phalanx_types::{ByteSize, JobId, LeaseId, Needs, NodeId, Outbox, Parcel, ParcelHead, SessionId, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{Join, ParcelRef, Report};
use phalanx_wire::reason::FailReason;
use phalanx_wire::usage::NodeUse;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What ends within this many microseconds ends soon.
const SOON_MICROS: u64 = 20;

/// One link to a main node, numbered by the shell and never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MainKey(pub u64);

/// One run of one job on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    pub session: SessionId,
    pub lease: LeaseId,
}

/// Jobs that one thread runs one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// A job on its way to a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub key: RunKey,
    pub kind: SmolStr,
    pub payload: Parcel,
    /// Solutions of other jobs that it takes, in order.
    pub inputs: Vec<RunInput>,
}

/// A solution of another job, on its way to a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunInput {
    Given(Parcel),
    /// This node holds it under this name.
    Held(BlobId),
}

/// How a handler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerEnd {
    Solved(ParcelRef),
    Failed {
        reason: FailReason,
        retry: bool,
    },
    /// It stopped because it was told to.
    Cancelled,
}

/// What the shell of a computing node does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerCommand {
    Join {
        main: MainKey,
        join: Join,
    },
    Report {
        main: MainKey,
        report: Report,
    },
    /// Fetch a large payload, then say [`WorkerCore::on_fetched`].
    Fetch {
        main: MainKey,
        key: RunKey,
        head: ParcelHead,
        blob: BlobId,
    },
    /// Fetch a solution that another node holds, hold it here, then say [`WorkerCore::on_input`].
    FetchInput {
        session: SessionId,
        input: JobId,
        node: NodeId,
        head: ParcelHead,
        blob: BlobId,
    },
    /// Run these in order on one thread, saying [`WorkerCore::on_finished`] after each.
    Start {
        batch: BatchId,
        runs: Vec<Run>,
    },
    /// Take what has not begun out of a batch, then say [`WorkerCore::on_taken_back`].
    TakeBack {
        batch: BatchId,
    },
    /// Tell the handler to stop.
    CancelRun {
        key: RunKey,
    },
    /// The solution is recorded or unwanted; the blob that holds it may go.
    Forget {
        blob: BlobId,
    },
    /// Everything is finished or handed back, and nothing new will come.
    Drained,
}

/// What a computing node can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    pub kinds: BTreeSet<SmolStr>,
    pub capacity: Needs,
    /// Take exactly one job, then drain.
    pub once: bool,
    /// How much of large payloads may be in hand for jobs that have not started.
    pub prefetch: ByteSize,
    /// How long results and running jobs of a main node that vanished are kept for its return.
    pub orphan_grace: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct WorkerCore {
    config: WorkerConfig,
    /// Kinds whose jobs are handed to the handler together, and how many at most.
    gathered: BTreeMap<SmolStr, usize>,
    /// What jobs cannot have of the capacity.
    taken: Vec<NodeUse>,
    /// What jobs may use together: the capacity without what is taken.
    share: Needs,
    sessions: BTreeMap<SessionId, Session>,
    mains: BTreeMap<MainKey, SessionId>,
    batches: Batches,
    /// Reserved by careful jobs that wait for their `go`.
    asking: BTreeMap<RunKey, Needs>,
    pace: Pace,
    /// The fair-share clock: the service of the session that was last given room.
    served_clock: u64,
    arrivals: u64,
    draining: bool,
    drained: bool,
    done: u64,
}

impl WorkerCore {
    pub fn new(config: WorkerConfig) -> Self {
        Self {
            share: config.capacity,
            taken: Vec::new(),
            gathered: BTreeMap::new(),
            config,
            sessions: BTreeMap::new(),
            mains: BTreeMap::new(),
            batches: Batches::default(),
            asking: BTreeMap::new(),
            pace: Pace::default(),
            served_clock: 0,
            arrivals: 0,
            draining: false,
            drained: false,
            done: 0,
        }
    }

    /// Starts jobs of these kinds together, up to a limit for each batch.
    pub fn gather(&mut self, kinds: impl IntoIterator<Item = (SmolStr, usize)>) {
        self.gathered = kinds.into_iter().map(|(kind, most)| (kind, most.max(1))).collect();
    }

    /// Jobs that run now.
    pub fn running(&self) -> u32 {
        u32::try_from(self.batches.len() + self.asking.len()).unwrap_or(u32::MAX)
    }

    /// Jobs that ended here since the start.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Whether something that runs is expected to end sooner than a thread could sleep and wake.
    pub fn ends_soon(&self) -> bool {
        self.batches.any(|kind, runs| self.pace.expected(kind).saturating_mul(runs) <= SOON_MICROS)
    }

    /// How many leases each main node may have here at once.
    fn window(&self) -> u32 {
        match (self.draining || self.share.cores == 0, self.config.once) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => self.pace.window(self.share.cores).max(self.gathering_window()),
        }
    }

    /// What is in use by running jobs and by careful ones about to run.
    pub fn in_use(&self) -> Needs {
        let asking = self.asking.values().copied();
        let mut sum = Needs { cores: 0, memory: ByteSize(0) };
        for needs in self.batches.needs().chain(asking) {
            sum.cores += needs.cores;
            sum.memory.0 += needs.memory.0;
        }
        sum
    }

    /// From now on takes exactly one job and drains after it; may be said again after that.
    pub fn on_take_one(&mut self) {
        self.config.once = true;
        self.draining = false;
        self.drained = false;
        for session in self.sessions.values_mut() {
            session.dirty = true;
        }
    }

    /// Finishes what runs, hands back what does not, takes nothing new.
    pub fn on_drain(&mut self, out: &mut Outbox<WorkerCommand>) {
        self.draining = true;
        for session in self.sessions.values_mut() {
            for lease in session.take_unstarted() {
                session.hand_back(lease);
            }
            session.dirty = true;
        }
        self.asking.clear();
        self.check_drained(out);
    }

    fn check_drained(&mut self, out: &mut Outbox<WorkerCommand>) {
        let owes = |s: &Session| s.main.is_some() && (s.dirty || !s.leases.is_empty());
        if self.draining && !self.drained && self.batches.len() == 0 && !self.sessions.values().any(owes) {
            self.drained = true;
            out.push(WorkerCommand::Drained);
        }
    }

    /// Looks at what time alone brings.
    pub fn on_tick(&mut self, now: Time, out: &mut Outbox<WorkerCommand>) {
        self.report_started(now);
        for batch in self.batches.stuck(now) {
            out.push(WorkerCommand::TakeBack { batch });
        }
        self.drop_orphans(now, out);
    }

    /// When [`WorkerCore::on_tick`] is next worth calling.
    pub fn next_wake(&self) -> Time {
        let orphan = self.sessions.values().filter_map(|s| s.orphaned).min();
        let orphan = orphan.map_or(Time::NEVER, |at| at + self.config.orphan_grace);
        self.batches.next_wake().min(orphan)
    }

    /// Sends what came up since the last flush: at most one report for each main node.
    pub fn flush(&mut self, out: &mut Outbox<WorkerCommand>) {
        let window = self.window();
        for session in self.sessions.values_mut() {
            let Some(main) = session.main.filter(|_| session.dirty) else { continue };
            session.dirty = false;
            let mut report = std::mem::take(&mut session.report);
            report.epoch = session.epoch;
            report.window = window;
            report.draining = self.draining;
            report.taken.clone_from(&self.taken);
            out.push(WorkerCommand::Report { main, report });
        }
        self.check_drained(out);
    }

    fn session_of(&mut self, main: MainKey) -> Option<(SessionId, &mut Session)> {
        let id = *self.mains.get(&main)?;
        Some((id, self.sessions.get_mut(&id)?))
    }

    /// Panics when the books do not balance; for tests and the simulator.
    ///
    /// # Panics
    /// More is in use than the node has, or leases and runs disagree.
    pub fn check_invariants(&self) {
        let used = self.in_use();
        let capacity = self.config.capacity;
        assert!(used.cores <= capacity.cores, "{} of {} cores in use", used.cores, capacity.cores);
        assert!(used.memory <= capacity.memory, "{} of {} in use", used.memory, capacity.memory);
        for (id, session) in &self.sessions {
            for (job, lease) in &session.leases {
                let key = RunKey { session: *id, lease: LeaseId { job: *job, number: lease.number } };
                match &lease.state {
                    LeaseState::Running => assert!(self.batches.contains(key), "{key:?} runs nowhere"),
                    LeaseState::Asking { .. } => assert!(self.asking.contains_key(&key), "{key:?}"),
                    LeaseState::Unfetched { .. }
                    | LeaseState::Ready { .. }
                    | LeaseState::Fetching { .. }
                    | LeaseState::Done(_) => {}
                }
            }
            session.check();
        }
    }
}
