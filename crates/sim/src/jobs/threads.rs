//! The threads of a worker: each works off one batch, job by job.

use phalanx_jobs::core::{BatchId, Run, RunKey};
use phalanx_types::{Needs, Time};
use std::collections::{BTreeMap, VecDeque};

/// A thread with its batch.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) current: Option<Current>,
    waiting: VecDeque<(Run, Needs)>,
    /// Runs that were told to stop before they began.
    stopped: Vec<RunKey>,
}

/// The job a thread is at.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) key: RunKey,
    pub(super) since: Time,
    pub(super) needs: Needs,
    /// It was told to stop and will.
    pub(super) stopping: bool,
}

/// All threads of a worker.
#[derive(Debug, Default)]
pub(super) struct Threads {
    live: BTreeMap<BatchId, Thread>,
}

impl Threads {
    pub(super) fn start(&mut self, batch: BatchId, runs: Vec<(Run, Needs)>) -> bool {
        let thread = Thread { current: None, waiting: runs.into(), stopped: Vec::new() };
        self.live.insert(batch, thread).is_none()
    }

    /// Moves a thread on to its next job; one without is gone.
    pub(super) fn next(&mut self, now: Time, batch: BatchId) -> Option<(Run, bool)> {
        let thread = self.live.get_mut(&batch)?;
        let Some((run, needs)) = thread.waiting.pop_front() else {
            self.live.remove(&batch);
            return None;
        };
        let stopping = thread.stopped.contains(&run.key);
        thread.current = Some(Current { key: run.key, since: now, needs, stopping });
        Some((run, stopping))
    }

    /// Ends the job a thread is at.
    pub(super) fn end(&mut self, batch: BatchId, key: RunKey) -> Option<Current> {
        let thread = self.live.get_mut(&batch)?;
        thread.current.take_if(|c| c.key == key)
    }

    /// Takes out what has not begun.
    pub(super) fn take_rest(&mut self, batch: BatchId) -> Vec<Run> {
        let Some(thread) = self.live.get_mut(&batch) else { return Vec::new() };
        thread.waiting.drain(..).map(|(run, _)| run).collect()
    }

    /// Tells a job to stop; gives the batch when it runs now and `obeys`.
    pub(super) fn stop(&mut self, key: RunKey, obeys: bool) -> Option<BatchId> {
        for (batch, thread) in &mut self.live {
            if thread.waiting.iter().any(|(run, _)| run.key == key) {
                thread.stopped.push(key);
            }
            if let Some(current) = thread.current.as_mut().filter(|c| c.key == key && obeys) {
                current.stopping = true;
                return Some(*batch);
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The cores and bytes that running jobs hold.
    pub(super) fn in_use(&self) -> (u32, u64) {
        let running = self.live.values().filter_map(|t| t.current.as_ref());
        running.fold((0, 0), |(cores, memory), c| (cores + c.needs.cores, memory + c.needs.memory.0))
    }
}
