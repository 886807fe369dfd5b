//! What runs: batches of one or more jobs, each on a thread of its own.

use super::{BatchId, RunKey};
use phalanx_types::{Needs, Time};
use smol_str::SmolStr;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A job that runs at least this long is reported as started.
const REPORT_AFTER: Duration = Duration::from_millis(2);
/// A batch whose current job runs at least this long gives back the rest.
const STUCK_AFTER: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Batch {
    needs: Needs,
    /// What each run was charged for, in core-microseconds.
    charge: u64,
    /// The first one runs, the others wait behind it.
    runs: VecDeque<(RunKey, SmolStr)>,
    /// When the first one began, as far as the core knows.
    since: Time,
    reported: bool,
    taking_back: bool,
    /// When the shell was last asked for what has not begun.
    looked: Time,
    /// All of them run at once, so none can be taken back.
    together: bool,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) kind: SmolStr,
    pub(super) cores: u32,
    pub(super) charge: u64,
}

/// All batches of a node.
#[derive(Debug, Default)]
pub(super) struct Batches {
    next: u64,
    live: BTreeMap<BatchId, Batch>,
    by_run: BTreeMap<RunKey, BatchId>,
}

impl Batches {
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn contains(&self, key: RunKey) -> bool {
        self.by_run.contains_key(&key)
    }

    /// Whether one of the batches is so, given the kind it began with and how many runs are left.
    pub(super) fn any(&self, is_so: impl Fn(&SmolStr, u64) -> bool) -> bool {
        self.live.values().any(|b| b.runs.front().is_some_and(|(_, kind)| is_so(kind, b.runs.len() as u64)))
    }

    pub(super) fn needs(&self) -> impl Iterator<Item = Needs> + '_ {
        self.live.values().map(|b| b.needs)
    }

    pub(super) fn start(
        &mut self,
        now: Time,
        needs: Needs,
        runs: VecDeque<(RunKey, SmolStr)>,
        charge: u64,
        reported: bool,
    ) -> BatchId {
        let id = BatchId(self.next);
        self.next += 1;
        for (key, _) in &runs {
            self.by_run.insert(*key, id);
        }
        let (taking_back, together) = (false, false);
        let batch = Batch { needs, charge, runs, since: now, reported, taking_back, looked: now, together };
        self.live.insert(id, batch);
        id
    }

    /// Says that all runs of a batch began at once.
    pub(super) fn run_together(&mut self, id: BatchId) {
        if let Some(batch) = self.live.get_mut(&id) {
            batch.together = true;
        }
    }

    /// Removes one run; a batch without runs ends and frees what it held.
    pub(super) fn end(&mut self, now: Time, key: RunKey) -> Option<Ended> {
        let id = self.by_run.remove(&key)?;
        let batch = self.live.get_mut(&id)?;
        let at = batch.runs.iter().position(|(k, _)| *k == key)?;
        let (_, kind) = batch.runs.remove(at)?;
        let ended = Ended { kind, cores: batch.needs.cores, charge: batch.charge };
        if at == 0 && !batch.together {
            batch.since = now;
            batch.reported = false;
        }
        if batch.runs.is_empty() {
            self.live.remove(&id);
        }
        Some(ended)
    }

    /// Removes runs that had not begun when the shell took them out; gives what each was charged.
    pub(super) fn take_back(&mut self, now: Time, id: BatchId, keys: &[RunKey]) -> u64 {
        let Some(batch) = self.live.get_mut(&id) else { return 0 };
        let charge = batch.charge;
        (batch.taking_back, batch.looked) = (false, now);
        batch.runs.retain(|(key, _)| !keys.contains(key));
        for key in keys {
            self.by_run.remove(key);
        }
        if batch.runs.is_empty() {
            self.live.remove(&id);
        }
        charge
    }

    /// Runs that have lasted long enough to be reported, once each.
    pub(super) fn newly_started(&mut self, now: Time) -> Vec<RunKey> {
        let due = |b: &&mut Batch| !b.reported && now.since(b.since) >= REPORT_AFTER;
        self.live
            .values_mut()
            .filter(due)
            .flat_map(|b| {
                b.reported = true;
                let begun = if b.together { b.runs.len() } else { 1 };
                b.runs.iter().take(begun).map(|(key, _)| *key)
            })
            .collect()
    }

    /// Batches whose rest should run elsewhere.
    pub(super) fn stuck(&mut self, now: Time) -> Vec<BatchId> {
        let due = |b: &Batch| b.stuck_at().is_some_and(|at| now >= at);
        let mut stuck = Vec::new();
        for (id, batch) in &mut self.live {
            if due(batch) {
                batch.taking_back = true;
                stuck.push(*id);
            }
        }
        stuck
    }

    pub(super) fn next_wake(&self) -> Time {
        let report = self.live.values().filter(|b| !b.reported).map(|b| b.since + REPORT_AFTER);
        report.chain(self.live.values().filter_map(Batch::stuck_at)).min().unwrap_or(Time::NEVER)
    }
}

impl Batch {
    /// When the runs behind the first one have waited too long. A handler may have begun several of them, so they
    /// are asked for again and again.
    fn stuck_at(&self) -> Option<Time> {
        let waiting = self.runs.len() > 1 && !self.together && !self.taking_back;
        waiting.then(|| self.since.max(self.looked) + STUCK_AFTER)
    }
}
