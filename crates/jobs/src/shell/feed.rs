//! The jobs of one batch, as the handler that solves them takes and ends them.

use super::executor::{Batch, Ended, Happened, RunControl, Shared, WAKE_EVERY, lock, shortened};
use super::handler::{HandlerError, HandlerErrorKind, JobContext};
use crate::core::{Run, RunInput};
use phalanx_types::Parcel;
use phalanx_wire::reason::FailReason;
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The jobs of one batch. A handler takes them in order, as many at once as it likes, and ends each.
///
/// Jobs that have not been taken may go to another thread or node when one that was taken lasts long.
#[derive(Debug)]
pub struct JobFeed<'a> {
    shared: &'a Arc<Shared>,
    batch: &'a Batch,
    /// When the last job ended, or else the batch began.
    since: Cell<Instant>,
    woken: Cell<Instant>,
    ended: Cell<u32>,
}

impl<'a> JobFeed<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, batch: &'a Batch) -> Self {
        let now = Instant::now();
        Self { shared, batch, since: Cell::new(now), woken: Cell::new(now), ended: Cell::new(0) }
    }

    /// Takes the next job; from now on it runs.
    pub fn take(&self) -> Option<JobContext> {
        // Both locks at once, so that `cancel` never misses a run between the two.
        let mut waiting = lock(&self.batch.waiting);
        let mut current = lock(&self.batch.current);
        let Run { key, kind, payload, inputs } = waiting.pop_front()?;
        // The node has put in all that it held.
        let inputs = inputs.into_iter().map(|input| match input {
            RunInput::Given(parcel) => parcel,
            RunInput::Held(_) => Parcel::default(),
        });
        let inputs = inputs.collect();
        let control = Arc::new(RunControl::new(key, self.shared.clone()));
        current.push(control.clone());
        Some(JobContext::new(kind, payload, inputs, control))
    }

    /// Ends a job that was taken.
    pub fn finish(&self, job: JobContext, result: Result<Parcel, HandlerError>) {
        let now = Instant::now();
        let time = now.saturating_duration_since(self.since.replace(now));
        self.end(&job.into_control(), now, time, result);
    }

    /// Ends jobs that were solved together: each is taken to have lasted its part of the time.
    pub fn finish_all(&self, solved: Vec<(JobContext, Result<Parcel, HandlerError>)>) {
        let now = Instant::now();
        let time = now.saturating_duration_since(self.since.replace(now));
        let part = time / u32::try_from(solved.len().max(1)).unwrap_or(u32::MAX);
        for (job, result) in solved {
            self.end(&job.into_control(), now, part, result);
        }
    }

    /// Gives back a job that was taken and has not begun; it is the next one again.
    pub fn put_back(&self, job: JobContext) {
        let (run, control) = job.into_run();
        let mut waiting = lock(&self.batch.waiting);
        self.leave(&control);
        if control.is_cancelled() {
            self.ended.set(self.ended.get() + 1);
            self.push(Happened::Finished { key: run.key, end: Ended::Cancelled, run_micros: 0 });
            self.shared.wake.notify_one();
        } else {
            waiting.push_front(run);
        }
    }

    /// Ends what the handler took and did not end, with the reason if it panicked.
    pub(super) fn close(&self, panic: Option<Box<dyn Any + Send>>) {
        let reason = match &panic {
            None => FailReason::Handler { message: "the handler ended without a solution".to_owned() },
            Some(panic) => FailReason::Panicked { message: shortened(panic_text(panic.as_ref())) },
        };
        let left = std::mem::take(&mut *lock(&self.batch.current));
        for control in left {
            let end = Ended::Failed { reason: reason.clone(), retry: false };
            self.ended.set(self.ended.get() + 1);
            self.push(Happened::Finished { key: control.key, end, run_micros: self.micros() });
        }
        // A handler that takes nothing would be asked for ever.
        if panic.is_none() && self.ended.get() == 0 {
            self.end_first(&reason, false);
        }
    }

    /// Hands on a batch that no handler of this node solves.
    pub(super) fn refuse(&self, kind: &str) {
        let reason = FailReason::Handler { message: format!("this node does not handle {kind:?}") };
        self.end_first(&reason, true);
    }

    /// How many jobs ended.
    pub(super) fn ended(&self) -> u32 {
        self.ended.get()
    }

    fn end_first(&self, reason: &FailReason, retry: bool) {
        if let Some(run) = lock(&self.batch.waiting).pop_front() {
            let end = Ended::Failed { reason: reason.clone(), retry };
            self.ended.set(self.ended.get() + 1);
            self.push(Happened::Finished { key: run.key, end, run_micros: 0 });
        }
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.since.get().elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn leave(&self, control: &Arc<RunControl>) {
        let mut current = lock(&self.batch.current);
        if let Some(at) = current.iter().position(|c| Arc::ptr_eq(c, control)) {
            current.swap_remove(at);
        }
    }

    fn end(
        &self,
        control: &Arc<RunControl>,
        now: Instant,
        time: Duration,
        result: Result<Parcel, HandlerError>,
    ) {
        let end = match result {
            Ok(parcel) => Ended::Solved(parcel),
            // A handler that stops by itself is not cancelled, whatever it says: it would run for ever.
            Err(HandlerError { kind: HandlerErrorKind::Cancelled, .. }) if control.is_cancelled() => {
                Ended::Cancelled
            }
            Err(HandlerError { reason, kind }) => {
                Ended::Failed { reason, retry: kind == HandlerErrorKind::Retry }
            }
        };
        self.leave(control);
        self.ended.set(self.ended.get() + 1);
        let run_micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.push(Happened::Finished { key: control.key, end, run_micros });
        if now.saturating_duration_since(self.woken.get()) >= WAKE_EVERY {
            self.shared.wake.notify_one();
            self.woken.set(now);
        }
    }

    fn push(&self, happened: Happened) {
        lock(&self.shared.happened).push(happened);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
