//! Jobs: a main node that submits them, and a computing node whose handlers are threads of Python.
//!
//! ```text
//!   submit ──► Submitter ──► MainNode ──► outcomes ──► take_outcomes
//!   handler of a ComputingNode ──► queue ──► take_call ──► answer or fail ──► the handler returns
//! ```
//! No thread of the library calls into Python.

use crate::arrays;
use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::memory::Memory;
use crate::queue::{Queue, Taken};
use crate::submitter::{Ended, Submitter, lock, seconds};
use crate::wait::{Caller, wait};
use phalanx::jobs::{ComputingNode, HandlerError, Handlers, JobContext, JobSpec, Needs, Outcome, Parcel};
use phalanx::nodes::{Background, ByteSize, NodeId, NodeKind, Stopper, machine};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a wait lasts before it looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);
/// How long a node that is closed may take to end.
const CLOSING: Duration = Duration::from_secs(5);

/// The outcome of a job as Python has it: its future, how it ended, why or by which node, and the solution's bytes and
/// tensors.
type OutcomeParts<'py> =
    (Py<PyAny>, &'static str, Option<String>, Option<Bound<'py, PyBytes>>, Bound<'py, PyDict>);

/// A main node.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct JobMain(Submitter);

#[pymethods]
impl JobMain {
    /// Joins a domain as a main or edge node, and goes on from the journal if there is one.
    #[new]
    fn new(
        py: Python<'_>,
        domain: DomainInput,
        name: String,
        journal: Option<PathBuf>,
        is_edge: bool,
    ) -> PyResult<Self> {
        let kind = if is_edge { NodeKind::Edge } else { NodeKind::Main };
        Submitter::start(py, domain, name, kind, journal).map(Self)
    }

    /// What the node is called in its domain.
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    /// Submits a job and gives its ticket; `future` comes back with its outcome.
    #[pyo3(signature = (kind, payload, tensors, future, *, priority, deadline, attempts, cores, memory))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn submit(
        &self,
        py: Python<'_>,
        kind: &str,
        payload: Vec<u8>,
        tensors: Vec<(String, Bound<'_, PyAny>)>,
        future: Py<PyAny>,
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
        self.0.submit(py, spec, future)
    }

    /// Asks that a job is not solved any more; its outcome tells whether it was in time.
    fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.0.cancel(py, ticket)
    }

    /// Where a job stands and why; `None` when it has ended.
    fn explain(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<String>> {
        self.0.explain(py, ticket)
    }

    /// The jobs that have ended, once at least one has; `None` when the node is closed.
    #[pyo3(signature = (timeout = None))]
    fn take_outcomes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Vec<OutcomeParts<'py>>>> {
        let ended = self.0.take(py, timeout.map(seconds).transpose()?)?;
        ended.map(|ended| ended.into_iter().map(|ended| parts(py, ended)).collect()).transpose()
    }

    /// How many jobs were solved, and how many failed.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.0.counts(py)
    }

    /// Leaves the domain. Jobs without outcome are cancelled.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }
}

fn parts(py: Python<'_>, ended: Ended) -> PyResult<OutcomeParts<'_>> {
    let (future, nothing) = (ended.future, PyDict::new(py));
    Ok(match ended.outcome {
        Outcome::Solved(parcel) => {
            let bytes = PyBytes::new(py, &parcel.bytes);
            let solver = ended.solver.map(|node| node.to_string());
            (future, "solved", solver, Some(bytes), tensors(py, parcel)?)
        }
        Outcome::Failed(reason) => (future, "failed", Some(reason.to_string()), None, nothing),
        // No job of this kind of main node is kept.
        Outcome::Kept { .. } | Outcome::Cancelled => (future, "cancelled", None, None, nothing),
        Outcome::Expired => (future, "expired", None, None, nothing),
    })
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

type Answer = Result<Parcel, HandlerError>;

/// A job that waits for a thread of Python.
#[derive(Debug)]
struct Call {
    kind: String,
    job: u64,
    main: Option<NodeId>,
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
    /// Joins a domain as a computing or inference node that solves jobs of these kinds, at most `cores` at once. It
    /// takes none before [`JobNode::run`] or [`JobNode::solve_one`].
    #[new]
    fn new(
        py: Python<'_>,
        domain: DomainInput,
        name: String,
        kinds: Vec<String>,
        cores: u32,
        infers: bool,
    ) -> PyResult<Self> {
        let calls: Arc<Queue<Call>> = Arc::default();
        let queue = calls.clone();
        let work = move |_: Caller| {
            let kind = if infers { NodeKind::Inference } else { NodeKind::Computing };
            let mut config = domain.domain()?.fabric(&name, kind);
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
        main: job.main(),
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

    /// What the main node is called that submitted the job.
    #[getter]
    fn main(&self) -> Option<String> {
        self.call.main.as_ref().map(ToString::to_string)
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
