//! Jobs: a main node that submits them, and a computing node whose handlers are threads of Python.
//!
//! ```text
//!   submit ──► asks ──► pump (a task) ──► MainNode ──► outcomes ──► pump ──► queue ──► take_outcomes
//!   handler of a ComputingNode ──► queue ──► take_call ──► answer or fail ──► the handler returns
//! ```
//! Submissions are handed over in batches: thousands may wait for one turn of the pump. No thread of the library calls
//! into Python.

use crate::arrays;
use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::memory::Memory;
use crate::queue::{Queue, Taken};
use crate::wait::{Caller, wait};
use phalanx::jobs::{
    ComputingNode, HandlerError, Handlers, JobContext, JobId, JobSpec, MainError, MainNode, MainOptions,
    Needs, Outcome, Outcomes, Parcel,
};
use phalanx::nodes::{Background, ByteSize, NodeKind, Stopper, machine};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Submissions that may wait for the pump; a program that submits faster waits.
const ASKS: usize = 16_384;
/// Submissions that are handed over at once.
const BATCH: usize = 1024;
/// How long a submission waits for its turn before it looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);
/// How long a node that is closed may take to end.
const CLOSING: Duration = Duration::from_secs(5);

enum Ask {
    Submit { ticket: u64, spec: Box<JobSpec> },
    Cancel { ticket: u64 },
}

/// How one job ended.
#[derive(Debug)]
struct Ended {
    ticket: u64,
    outcome: Outcome,
}

/// The outcome of a job as Python has it: its ticket, how it ended, why, and the solution's bytes and tensors.
type OutcomeParts<'py> = (u64, &'static str, Option<String>, Option<Bound<'py, PyBytes>>, Bound<'py, PyDict>);

/// A main node.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct JobMain {
    id: String,
    next: AtomicU64,
    asks: Mutex<Option<mpsc::Sender<Ask>>>,
    ended: Arc<Queue<Ended>>,
    node: MainNode,
    background: Mutex<Option<Background>>,
}

#[pymethods]
impl JobMain {
    /// Joins a domain, and goes on from the journal if there is one.
    #[new]
    fn new(py: Python<'_>, domain: DomainInput, name: String, journal: Option<PathBuf>) -> PyResult<Self> {
        let work = move |_: Caller| {
            let config = domain.domain()?.fabric(&name, NodeKind::Main);
            let background = Background::start("phalanx-jobs").map_err(phalanx::Error::from)?;
            let options = MainOptions { journal, ..MainOptions::default() };
            let started = background.block_on(async {
                let node = MainNode::start(config, options).await?;
                let outcomes = node.outcomes().await?;
                Ok::<_, MainError>((node, outcomes))
            });
            let (node, outcomes) = started.map_err(|error| Failure::machine(&error))?;
            let (asks, asked) = mpsc::channel(ASKS);
            let ended = Arc::new(Queue::default());
            let pump = Pump::new(node.clone(), ended.clone());
            drop(background.handle().spawn(pump.run(asked, outcomes)));
            Ok((node, asks, ended, background))
        };
        let (node, asks, ended, background) = wait(py, work)?;
        let (asks, background) = (Mutex::new(Some(asks)), Mutex::new(Some(background)));
        Ok(Self { id: node.id().to_string(), next: AtomicU64::new(0), asks, ended, node, background })
    }

    /// What the node is called in its domain.
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// Submits a job and gives its ticket.
    #[pyo3(signature = (kind, payload, tensors, *, priority, deadline, attempts, cores, memory))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn submit(
        &self,
        py: Python<'_>,
        kind: &str,
        payload: Vec<u8>,
        tensors: Vec<(String, Bound<'_, PyAny>)>,
        priority: i32,
        deadline: Option<f64>,
        attempts: Option<u32>,
        cores: u32,
        memory: u64,
    ) -> PyResult<u64> {
        let mut spec = JobSpec::new(kind, parcel(payload, tensors)?);
        spec.priority = priority;
        spec.deadline = deadline.map(seconds).transpose()?;
        spec.max_attempts = attempts.unwrap_or(spec.max_attempts);
        spec.needs = Needs { cores, memory: ByteSize(memory) };
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.ask(py, Ask::Submit { ticket, spec: Box::new(spec) })?;
        Ok(ticket)
    }

    /// Asks that a job is not solved any more; its outcome tells whether it was in time.
    fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.ask(py, Ask::Cancel { ticket })
    }

    /// The jobs that have ended, once at least one has; `None` when the node is closed.
    #[pyo3(signature = (timeout = None))]
    fn take_outcomes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Vec<OutcomeParts<'py>>>> {
        match self.ended.take(py, BATCH, timeout.map(seconds).transpose()?)? {
            Taken::Items(items) => {
                items.into_iter().map(|ended| ended.parts(py)).collect::<PyResult<Vec<_>>>().map(Some)
            }
            Taken::Late => Ok(Some(Vec::new())),
            Taken::Closed => Ok(None),
        }
    }

    /// How many jobs were solved, and how many failed.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let node = self.node.clone();
        let counts = self.on_runtime(py, async move { node.counts().await })?;
        let counts = counts.map_err(|error| Failure::machine(&error))?;
        Ok((counts.solved, counts.failed))
    }

    /// Leaves the domain. Jobs without outcome are cancelled.
    fn close(&self, py: Python<'_>) {
        drop(lock(&self.asks).take());
        let background = lock(&self.background).take();
        if let Some(background) = background {
            py.detach(|| {
                background.block_on(self.node.shutdown());
                drop(background);
            });
        }
        self.ended.close();
    }
}

impl JobMain {
    fn ask(&self, py: Python<'_>, ask: Ask) -> PyResult<()> {
        let asks = lock(&self.asks).clone();
        let asks = asks.ok_or_else(|| Failure::input("the main node is closed"))?;
        let ended = || PyErr::from(Failure::input("the main node has ended"));
        let ask = match asks.try_send(ask) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(ask)) => ask,
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(ended()),
        };
        loop {
            let room = async { tokio::time::timeout(TICK, asks.reserve()).await };
            if let Ok(permit) = self.on_runtime(py, room)? {
                permit.map_err(|_closed| ended())?.send(ask);
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    fn on_runtime<T: Send>(&self, py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
        let background = lock(&self.background);
        let handle = background.as_ref().map(|background| background.handle().clone());
        drop(background);
        let handle = handle.ok_or_else(|| Failure::input("the main node is closed"))?;
        Ok(py.detach(|| handle.block_on(future)))
    }
}

/// Carries submissions to the main node, and outcomes back under their tickets.
struct Pump {
    node: MainNode,
    ended: Arc<Queue<Ended>>,
    /// Tickets by job, and jobs by ticket, of jobs without outcome.
    tickets: BTreeMap<JobId, u64>,
    jobs: BTreeMap<u64, JobId>,
}

impl Pump {
    fn new(node: MainNode, ended: Arc<Queue<Ended>>) -> Self {
        Self { node, ended, tickets: BTreeMap::new(), jobs: BTreeMap::new() }
    }

    async fn run(mut self, mut asked: mpsc::Receiver<Ask>, mut outcomes: Outcomes) {
        let mut asks = Vec::new();
        loop {
            tokio::select! {
                count = asked.recv_many(&mut asks, BATCH) => {
                    if count == 0 || self.hand_over(&mut asks).await.is_err() {
                        break;
                    }
                }
                batch = outcomes.next_batch() => {
                    let Some(batch) = batch else { break };
                    let ended = batch.into_iter().filter_map(|(job, outcome)| {
                        let ticket = self.tickets.remove(&job)?;
                        self.jobs.remove(&ticket);
                        Some(Ended { ticket, outcome })
                    });
                    let ended: Vec<_> = ended.collect();
                    self.ended.push(ended);
                }
            }
        }
        // Those who wait for these jobs must not wait for ever.
        let left = std::mem::take(&mut self.tickets);
        self.ended.push(left.into_values().map(|ticket| Ended { ticket, outcome: Outcome::Cancelled }));
        self.ended.close();
    }

    async fn hand_over(&mut self, asks: &mut Vec<Ask>) -> Result<(), MainError> {
        let mut specs = Vec::new();
        let mut tickets = Vec::new();
        let mut cancelled = Vec::new();
        for ask in asks.drain(..) {
            match ask {
                Ask::Submit { ticket, spec } => {
                    tickets.push(ticket);
                    specs.push(*spec);
                }
                Ask::Cancel { ticket } => cancelled.push(ticket),
            }
        }
        if !specs.is_empty() {
            // Outcomes are looked at after this, so their tickets are known by then.
            let jobs = self.node.submit_many(specs).await?;
            for (job, ticket) in jobs.map(JobId).zip(tickets) {
                self.tickets.insert(job, ticket);
                self.jobs.insert(ticket, job);
            }
        }
        for ticket in cancelled {
            if let Some(job) = self.jobs.get(&ticket) {
                self.node.cancel(*job).await?;
            }
        }
        Ok(())
    }
}

impl Ended {
    fn parts(self, py: Python<'_>) -> PyResult<OutcomeParts<'_>> {
        let nothing = PyDict::new(py);
        Ok(match self.outcome {
            Outcome::Solved(parcel) => {
                let bytes = PyBytes::new(py, &parcel.bytes);
                (self.ticket, "solved", None, Some(bytes), tensors(py, parcel)?)
            }
            Outcome::Failed(reason) => (self.ticket, "failed", Some(reason.to_string()), None, nothing),
            Outcome::Cancelled => (self.ticket, "cancelled", None, None, nothing),
            Outcome::Expired => (self.ticket, "expired", None, None, nothing),
        })
    }
}

fn parcel(bytes: Vec<u8>, tensors: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Parcel> {
    let borrowed = tensors.into_iter().map(|(name, array)| Ok((name, arrays::borrow(&array)?)));
    Ok(Parcel { bytes: bytes.into(), tensors: borrowed.collect::<PyResult<_>>()? })
}

/// Tensors by name, as memory that NumPy makes arrays of without a copy.
fn tensors(py: Python<'_>, parcel: Parcel) -> PyResult<Bound<'_, PyDict>> {
    let by_name = PyDict::new(py);
    for (name, tensor) in parcel.tensors {
        by_name.set_item(name, Py::new(py, Memory::new(tensor))?)?;
    }
    Ok(by_name)
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_bad| Failure::input(format!("{seconds} is no number of seconds")).into())
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

type Answer = Result<Parcel, HandlerError>;

/// A job that waits for a thread of Python.
#[derive(Debug)]
struct Call {
    kind: String,
    job: u64,
    payload: Parcel,
    reply: SyncSender<Answer>,
    cancelled: Arc<AtomicBool>,
}

/// A computing node whose jobs are solved by the threads that call [`JobNode::take_call`].
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct JobNode {
    id: String,
    calls: Arc<Queue<Call>>,
    stopper: Stopper,
    /// The node while it solves no jobs.
    idle: Arc<Mutex<Option<ComputingNode>>>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    background: Background,
    task: Option<JoinHandle<()>>,
}

#[pymethods]
impl JobNode {
    /// Joins a domain as a node that solves jobs of these kinds, at most `cores` at once. It takes none before
    /// [`JobNode::run`] or [`JobNode::solve_one`].
    #[new]
    fn new(
        py: Python<'_>,
        domain: DomainInput,
        name: String,
        kinds: Vec<String>,
        cores: u32,
    ) -> PyResult<Self> {
        let calls: Arc<Queue<Call>> = Arc::default();
        let queue = calls.clone();
        let work = move |_: Caller| {
            let mut config = domain.domain()?.fabric(&name, NodeKind::Computing);
            config.resources = machine();
            config.resources.cores = cores.max(1);
            let background = Background::start("phalanx-node").map_err(phalanx::Error::from)?;
            let handlers = kinds.into_iter().fold(Handlers::new(), |handlers, kind| {
                let queue = queue.clone();
                handlers.with(kind, move |job: &JobContext| solve(&queue, job))
            });
            let node = background
                .block_on(ComputingNode::start(config, handlers))
                .map_err(|error| Failure::machine(&error))?;
            Ok((node, background))
        };
        let (node, background) = wait(py, work)?;
        let (id, stopper) = (node.id().to_string(), node.stopper());
        let (idle, running) = (Arc::new(Mutex::new(Some(node))), Running { background, task: None });
        Ok(Self { id, calls, stopper, idle, running: Mutex::new(Some(running)) })
    }

    /// Solves jobs from now on, until it is drained or closed.
    fn run(&self) -> PyResult<()> {
        let calls = self.calls.clone();
        self.start(|node| async move {
            if let Err(error) = node.run().await {
                tracing::error!(target: "phalanx_jobs", "the computing node ended: {error}");
            }
            calls.close();
        })
    }

    /// Takes exactly one job from now on.
    fn solve_one(&self) -> PyResult<()> {
        let (calls, idle) = (self.calls.clone(), self.idle.clone());
        self.start(|mut node| async move {
            match node.solve_one().await {
                Ok(()) => *lock(&idle) = Some(node),
                Err(error) => {
                    tracing::error!(target: "phalanx_jobs", "the computing node ended: {error}");
                    calls.close();
                }
            }
        })
    }

    /// Waits until the job that [`JobNode::solve_one`] took is handed over.
    fn join(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let task = lock(&self.running).as_mut().and_then(|running| running.task.take());
            let Some(mut task) = task else { return Ok(()) };
            let handle = lock(&self.running).as_ref().map(|running| running.background.handle().clone());
            let Some(handle) = handle else { return Ok(()) };
            let ended =
                py.detach(|| handle.block_on(async { tokio::time::timeout(TICK, &mut task).await.is_ok() }));
            if ended {
                return Ok(());
            }
            if let Some(running) = lock(&self.running).as_mut() {
                running.task = Some(task);
            }
            py.check_signals()?;
        }
    }

    /// What the node is called in its domain.
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// The next job to solve: `(call, open)`. No call when none came in time; not open when the node has ended.
    #[pyo3(signature = (timeout = None))]
    fn take_call(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(Option<JobCall>, bool)> {
        Ok(match self.calls.take(py, 1, timeout.map(seconds).transpose()?)? {
            Taken::Items(mut items) => (items.pop().map(JobCall::new), true),
            Taken::Late => (None, true),
            Taken::Closed => (None, false),
        })
    }

    /// Takes no new jobs, and leaves the domain when those that it has are solved.
    fn drain(&self) {
        self.stopper.drain();
    }

    /// Leaves the domain at once; its jobs go to other nodes.
    fn close(&self, py: Python<'_>) {
        self.stopper.stop_now();
        self.calls.close();
        let (running, idle) = (lock(&self.running).take(), lock(&self.idle).take());
        let Some(Running { background, task }) = running else { return };
        py.detach(|| {
            background.block_on(async {
                if let Some(node) = idle {
                    node.shutdown().await;
                }
                if let Some(task) = task {
                    // What went wrong was told where it did.
                    let _ended = tokio::time::timeout(CLOSING, task).await;
                }
            });
            drop(background);
        });
    }
}

impl JobNode {
    fn start<F>(&self, work: impl FnOnce(ComputingNode) -> F) -> PyResult<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = lock(&self.running);
        let running = running.as_mut().ok_or_else(|| Failure::input("the node is closed"))?;
        let node = lock(&self.idle).take().ok_or_else(|| Failure::input("the node solves jobs already"))?;
        running.task = Some(running.background.handle().spawn(work(node)));
        Ok(())
    }
}

/// Has a thread of Python solve a job.
fn solve(queue: &Queue<Call>, job: &JobContext) -> Answer {
    let (reply, answer): (SyncSender<Answer>, Receiver<Answer>) = sync_channel(1);
    let cancelled = Arc::new(AtomicBool::new(false));
    let (told, stop) = (cancelled.clone(), reply.clone());
    let call = Call {
        kind: job.kind().to_owned(),
        job: job.job().0,
        payload: job.payload().clone(),
        reply,
        cancelled,
    };
    if !queue.push([call]) {
        return Err(HandlerError::retry("the node is being closed"));
    }
    let cancel = move || {
        told.store(true, Ordering::Relaxed);
        // The answer may have come already.
        let _answered = stop.try_send(Err(HandlerError::cancelled()));
    };
    let lost = || HandlerError::failed("the handler gave no answer");
    job.cancelling(cancel, || answer.recv().unwrap_or_else(|_dropped| Err(lost())))
}

/// A job that is to be answered once.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct JobCall {
    call: Call,
    is_answered: AtomicBool,
}

impl JobCall {
    fn new(call: Call) -> Self {
        Self { call, is_answered: AtomicBool::new(false) }
    }

    fn reply(&self, answer: Answer) {
        if !self.is_answered.swap(true, Ordering::Relaxed) {
            // A cancelled job has been answered.
            let _cancelled = self.call.reply.try_send(answer);
        }
    }
}

#[pymethods]
impl JobCall {
    #[getter]
    fn kind(&self) -> &str {
        &self.call.kind
    }

    /// The number of the job at its main node.
    #[getter]
    fn job(&self) -> u64 {
        self.call.job
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.call.payload.bytes)
    }

    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        tensors(py, self.call.payload.clone())
    }

    /// Whether the solution is wanted no more.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.call.cancelled.load(Ordering::Relaxed)
    }

    fn answer(&self, payload: Vec<u8>, tensors: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
        self.reply(Ok(parcel(payload, tensors)?));
        Ok(())
    }

    /// Fails the job, or has it tried again.
    fn fail(&self, message: String, retry: bool) {
        self.reply(Err(if retry { HandlerError::retry(message) } else { HandlerError::failed(message) }));
    }
}

impl Drop for JobCall {
    fn drop(&mut self) {
        self.reply(Err(HandlerError::failed("the handler gave no answer")));
    }
}
