//! What solves jobs: handlers by kind, and what a handler may ask for while it runs.

use super::executor::{RunControl, shortened};
use super::feed::JobFeed;
use crate::core::{Run, RunInput};
use phalanx_types::{JobId, LeaseId, NodeId, Parcel};
use phalanx_wire::reason::FailReason;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Messages and notes are for people; what is longer is cut, so that every report fits a frame.
pub(super) const MAX_TEXT: usize = 1 << 10;

/// Solves jobs of one kind. Runs on a compute thread and may block.
pub trait Handler: Send + Sync {
    /// Solves one job.
    ///
    /// # Errors
    /// The job failed; [`HandlerError::retry`] asks for another try on some node.
    fn solve(&self, job: &JobContext) -> Result<Parcel, HandlerError>;

    /// Solves the jobs of a batch on one thread; one after the other, unless the handler has a better way.
    fn solve_batch(&self, jobs: &JobFeed<'_>) {
        while let Some(job) = jobs.take() {
            let result = self.solve(&job);
            jobs.finish(job, result);
        }
    }

    /// A large solution was freed: gives back what refers to its memory. Called on the node's task, so it must not
    /// wait.
    fn tidy(&self) {}

    /// How many jobs of any main nodes make a batch, if jobs that wait together should be solved together.
    fn gathers(&self) -> Option<usize> {
        None
    }
}

impl<F> Handler for F
where
    F: Fn(&JobContext) -> Result<Parcel, HandlerError> + Send + Sync,
{
    fn solve(&self, job: &JobContext) -> Result<Parcel, HandlerError> {
        self(job)
    }
}

/// A job as its handler sees it.
#[derive(Debug)]
pub struct JobContext {
    kind: SmolStr,
    payload: Parcel,
    inputs: Vec<Parcel>,
    control: Arc<RunControl>,
}

impl JobContext {
    pub(super) fn new(kind: SmolStr, payload: Parcel, inputs: Vec<Parcel>, control: Arc<RunControl>) -> Self {
        Self { kind, payload, inputs, control }
    }

    pub(super) fn into_control(self) -> Arc<RunControl> {
        self.control
    }

    pub(super) fn into_run(self) -> (Run, Arc<RunControl>) {
        let Self { kind, payload, inputs, control } = self;
        let inputs = inputs.into_iter().map(RunInput::Given).collect();
        (Run { key: control.key, kind, payload, inputs }, control)
    }

    /// The job's id in the session of its main node.
    pub fn job(&self) -> JobId {
        self.control.lease().job
    }

    /// The main node that submitted the job.
    pub fn main(&self) -> Option<NodeId> {
        self.control.main()
    }

    /// The number of this run's lease; above 1 when the job was given out before.
    pub fn lease(&self) -> LeaseId {
        self.control.lease()
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn payload(&self) -> &Parcel {
        &self.payload
    }

    /// The solutions of other jobs that it takes, in order.
    pub fn inputs(&self) -> &[Parcel] {
        &self.inputs
    }

    /// Tells the main node how far the job is, from 0 to 1.
    pub fn progress(&self, fraction: f32, note: impl Into<String>) {
        // Clamped, so the cast cannot wrap; NaN becomes 0.
        self.control.progress((fraction.clamp(0.0, 1.0) * 1000.0) as u16, note.into());
    }

    /// Whether nobody wants the solution any more. Long handlers look now and then.
    pub fn is_cancelled(&self) -> bool {
        self.control.is_cancelled()
    }

    /// Has `act` done, on another thread, when the job is cancelled while `work` lasts.
    pub fn cancelling<T>(&self, act: impl FnOnce() + Send + 'static, work: impl FnOnce() -> T) -> T {
        self.control.on_cancel(Box::new(act));
        let done = work();
        self.control.clear_on_cancel();
        done
    }

    /// Has `act` done, on another thread, when the job is cancelled before it ends.
    pub(crate) fn on_cancel(&self, act: Box<dyn FnOnce() + Send>) {
        self.control.on_cancel(act);
    }

    /// Waits, but no longer than until the job is cancelled.
    ///
    /// # Errors
    /// The job was cancelled.
    pub fn sleep(&self, duration: Duration) -> Result<(), HandlerError> {
        if self.control.wait_cancelled(duration) { Err(HandlerError::cancelled()) } else { Ok(()) }
    }
}

/// Why a handler has no solution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    pub(super) reason: FailReason,
    pub(super) kind: HandlerErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandlerErrorKind {
    Failed,
    Retry,
    Cancelled,
}

impl HandlerError {
    fn new(message: String, kind: HandlerErrorKind) -> Self {
        Self { reason: FailReason::Handler { message: shortened(message) }, kind }
    }

    /// The job cannot be solved.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(message.into(), HandlerErrorKind::Failed)
    }

    pub(crate) fn because(reason: FailReason) -> Self {
        Self { reason, kind: HandlerErrorKind::Failed }
    }

    /// The job may be solved on another try.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::new(message.into(), HandlerErrorKind::Retry)
    }

    /// The handler stopped because the job was cancelled.
    pub fn cancelled() -> Self {
        Self::new("cancelled".to_owned(), HandlerErrorKind::Cancelled)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            FailReason::Handler { message } => f.write_str(message),
            reason => reason.fmt(f),
        }
    }
}

impl std::error::Error for HandlerError {}

/// Handlers by the kind of job they solve.
#[derive(Clone, Default)]
pub struct Handlers {
    by_kind: BTreeMap<SmolStr, Arc<dyn Handler>>,
}

impl Handlers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler; a second one of the same kind replaces the first.
    #[must_use]
    pub fn with(mut self, kind: impl Into<SmolStr>, handler: impl Handler + 'static) -> Self {
        self.by_kind.insert(kind.into(), Arc::new(handler));
        self
    }

    pub fn kinds(&self) -> impl Iterator<Item = &SmolStr> {
        self.by_kind.keys()
    }

    /// The kinds whose jobs are solved together, and how many at once.
    pub(super) fn gathered(&self) -> impl Iterator<Item = (SmolStr, usize)> + '_ {
        self.by_kind.iter().filter_map(|(kind, handler)| Some((kind.clone(), handler.gathers()?)))
    }

    pub(super) fn tidy(&self) {
        self.by_kind.values().for_each(|handler| handler.tidy());
    }

    pub(super) fn get(&self, kind: &str) -> Option<&Arc<dyn Handler>> {
        self.by_kind.get(kind)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_kind.keys()).finish()
    }
}
