//! A main node for a Python program: jobs go to it in batches, and outcomes come back with the futures of their jobs.
//!
//! ```text
//!   submit ──► asks ──► Pump (a task) ──► MainNode ──► outcomes ──► Pump ──► queue ──► take
//! ```
//! Thousands of submissions may wait for one turn of the pump.

use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::queue::{Queue, Taken};
use crate::wait::{Caller, check_fork, wait};
use phalanx::jobs::{
    INLINE_LIMIT, JobAnswer, JobEnd, JobId, JobInfo, JobQuery, JobSpec, MainError, MainNode, MainOptions,
    Outcome, Outcomes, Parcel, SolutionRef,
};
use phalanx::nodes::{Background, NodeId, NodeKind};
use pyo3::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Submissions that may wait for the pump; a program that submits faster waits.
const ASKS: usize = 16_384;
/// Submissions and outcomes that are handed over at once.
const BATCH: usize = 1024;
/// How long a submission waits for its turn before it looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);
/// How long the last outcomes may take when the node is closed.
const CLOSING: Duration = Duration::from_secs(5);

/// The object of Python that stands for a job until its outcome is there.
type JobFuture = Py<PyAny>;

#[derive(Debug)]
enum Ask {
    Submit {
        ticket: u64,
        future: JobFuture,
        spec: Box<JobSpec>,
        takes: Vec<Takes>,
    },
    /// This many outcomes of kept jobs have reached their futures.
    Settled {
        count: usize,
    },
    /// The caller waits for the solution of a job.
    Want {
        ticket: u64,
    },
    Cancel {
        ticket: u64,
    },
    CancelAll,
    Which {
        ticket: u64,
        reply: oneshot::Sender<Option<JobId>>,
    },
}

/// A kept solution that a job takes.
#[derive(Debug)]
pub(crate) enum Takes {
    /// Of a job whose outcome has not reached its future.
    Ticket(u64),
    Solution(SolutionRef),
}

/// How one job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// A solution that stays at its node.
    pub(crate) kept: Option<SolutionRef>,
    pub(crate) future: JobFuture,
    pub(crate) outcome: Outcome,
    pub(crate) solver: Option<NodeId>,
}

/// A main node whose jobs have tickets.
#[derive(Debug)]
pub(crate) struct Submitter {
    id: String,
    next: AtomicU64,
    asks: Mutex<Option<mpsc::Sender<Ask>>>,
    ended: Arc<Queue<Ended>>,
    node: MainNode,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    background: Background,
    pump: JoinHandle<()>,
}

impl Submitter {
    /// Joins a domain, and goes on from the journal if there is one.
    pub(crate) fn start(
        py: Python<'_>,
        domain: DomainInput,
        name: String,
        kind: NodeKind,
        journal: Option<PathBuf>,
    ) -> PyResult<Self> {
        let work = move |_: Caller| {
            let config = domain.domain()?.fabric(&name, kind);
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
            let pump = Pump::new(node.clone(), ended.clone(), asked);
            let pump = background.handle().spawn(pump.run(outcomes));
            Ok((node, asks, ended, Running { background, pump }))
        };
        let (node, asks, ended, running) = wait(py, work)?;
        let (asks, running) = (Mutex::new(Some(asks)), Mutex::new(Some(running)));
        Ok(Self { id: node.id().to_string(), next: AtomicU64::new(0), asks, ended, node, running })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Submits a job and gives its ticket.
    pub(crate) fn submit(&self, py: Python<'_>, spec: JobSpec, future: JobFuture) -> PyResult<u64> {
        let mut ticket = 0;
        self.ask(py, || {
            // Only here, so that every ticket has an outcome.
            ticket = self.next.fetch_add(1, Ordering::Relaxed);
            Ask::Submit { ticket, future, spec: Box::new(spec), takes: Vec::new() }
        })?;
        Ok(ticket)
    }

    /// Submits a job whose solution is kept, and which takes others.
    pub(crate) fn submit_kept(
        &self,
        py: Python<'_>,
        spec: JobSpec,
        takes: Vec<Takes>,
        future: JobFuture,
    ) -> PyResult<u64> {
        let mut ticket = 0;
        self.ask(py, || {
            ticket = self.next.fetch_add(1, Ordering::Relaxed);
            Ask::Submit { ticket, future, spec: Box::new(spec), takes }
        })?;
        Ok(ticket)
    }

    /// This many of the kept jobs that were taken have reached their futures: these are asked from now on.
    pub(crate) fn settled(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        self.ask(py, || Ask::Settled { count })
    }

    /// The caller waits for the solution of a job, which is fetched as soon as it is there.
    pub(crate) fn want(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.ask(py, || Ask::Want { ticket })
    }

    /// Fetches a kept solution; `None` if it does not come in time.
    pub(crate) fn fetch(
        &self,
        py: Python<'_>,
        solution: SolutionRef,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Result<Parcel, MainError>>> {
        check_fork()?;
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let running = lock(&self.running);
        let handle = running.as_ref().map(|running| running.background.handle().clone());
        drop(running);
        let handle = handle.ok_or_else(|| Failure::input("the main node is closed"))?;
        let mut fetched = handle.spawn(async move { solution.fetch().await });
        loop {
            let left = until.map_or(TICK, |until| until.saturating_duration_since(Instant::now()).min(TICK));
            let waited =
                py.detach(|| handle.block_on(async { tokio::time::timeout(left, &mut fetched).await }));
            match waited {
                Ok(Ok(result)) => return Ok(Some(result)),
                Ok(Err(_ended)) => return Ok(Some(Err(MainError::Ended))),
                Err(_late) if until.is_some_and(|until| Instant::now() >= until) => return Ok(None),
                Err(_late) => py.check_signals()?,
            }
        }
    }

    /// How many jobs were submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Asks that all jobs without outcome are given up.
    pub(crate) fn cancel_all(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, || Ask::CancelAll)
    }

    /// Asks that a job is not solved any more; its outcome tells whether it was in time.
    pub(crate) fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.ask(py, || Ask::Cancel { ticket })
    }

    /// Where a job stands and why; `None` when it has ended.
    pub(crate) fn explain(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<String>> {
        let (reply, which) = oneshot::channel();
        self.ask(py, || Ask::Which { ticket, reply })?;
        let node = self.node.clone();
        let answer = self.on_runtime(py, async move {
            let job = which.await.ok().flatten()?;
            node.query(JobQuery::Show { job }).await.ok()
        })?;
        Ok(match answer {
            Some(JobAnswer::Jobs { jobs, .. }) => jobs.first().map(explained),
            Some(JobAnswer::Cancelled { .. } | JobAnswer::NoSuchJob { .. }) | None => None,
        })
    }

    /// The jobs that have ended, once at least one has, or none in time; `None` when the node is closed.
    pub(crate) fn take(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Vec<Ended>>> {
        Ok(match self.ended.take(py, BATCH, timeout)? {
            Taken::Items(items) => Some(items),
            Taken::Late => Some(Vec::new()),
            Taken::Closed => None,
        })
    }

    /// How many jobs were solved, and how many failed.
    pub(crate) fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let node = self.node.clone();
        let counts = self.on_runtime(py, async move { node.counts().await })?;
        let counts = counts.map_err(|error| Failure::machine(&error))?;
        Ok((counts.solved, counts.failed))
    }

    /// Leaves the domain. Jobs without outcome are cancelled.
    pub(crate) fn close(&self, py: Python<'_>) {
        drop(lock(&self.asks).take());
        let running = lock(&self.running).take();
        if let Some(Running { background, pump }) = running {
            if check_fork().is_err() {
                // The threads of the runtime are in the parent: waiting for them would never end.
                std::mem::forget((background, pump));
                return;
            }
            py.detach(|| {
                background.block_on(async {
                    self.node.shutdown().await;
                    // The pump says of all jobs how they ended; what it cannot say in time, its end does.
                    let _late = tokio::time::timeout(CLOSING, pump).await;
                });
                drop(background);
            });
        }
        self.ended.close();
    }

    fn ask(&self, py: Python<'_>, ask: impl FnOnce() -> Ask) -> PyResult<()> {
        check_fork()?;
        let asks = lock(&self.asks).clone();
        let asks = asks.ok_or_else(|| Failure::input("the main node is closed"))?;
        let ended = || PyErr::from(Failure::input("the main node has ended"));
        let permit = match asks.try_reserve() {
            Ok(permit) => permit,
            Err(mpsc::error::TrySendError::Full(())) => loop {
                let room = async { tokio::time::timeout(TICK, asks.reserve()).await };
                if let Ok(permit) = self.on_runtime(py, room)? {
                    break permit.map_err(|_closed| ended())?;
                }
                py.check_signals()?;
            },
            Err(mpsc::error::TrySendError::Closed(())) => return Err(ended()),
        };
        permit.send(ask());
        Ok(())
    }

    fn on_runtime<T: Send>(&self, py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
        let running = lock(&self.running);
        let handle = running.as_ref().map(|running| running.background.handle().clone());
        drop(running);
        let handle = handle.ok_or_else(|| Failure::input("the main node is closed"))?;
        Ok(py.detach(|| handle.block_on(future)))
    }
}

/// Carries submissions to the main node, and outcomes back with their futures.
struct Pump {
    node: MainNode,
    ended: Arc<Queue<Ended>>,
    asked: mpsc::Receiver<Ask>,
    /// Jobs without outcome, and whether they are kept.
    open: BTreeMap<JobId, (u64, JobFuture, bool)>,
    /// Jobs by ticket, until their futures have their outcomes.
    jobs: BTreeMap<u64, JobId>,
    /// Outcomes of kept jobs on their way to their futures, and which of them bring their small solutions along.
    settling: VecDeque<(u64, Option<JobId>)>,
}

impl Pump {
    fn new(node: MainNode, ended: Arc<Queue<Ended>>, asked: mpsc::Receiver<Ask>) -> Self {
        Self { node, ended, asked, open: BTreeMap::new(), jobs: BTreeMap::new(), settling: VecDeque::new() }
    }

    async fn run(mut self, mut outcomes: Outcomes) {
        let mut asks = Vec::new();
        loop {
            tokio::select! {
                count = self.asked.recv_many(&mut asks, BATCH) => {
                    if count == 0 || self.hand_over(&mut asks).await.is_err() {
                        return;
                    }
                }
                batch = outcomes.next_ends() => {
                    let Some(batch) = batch else { return };
                    self.on_outcomes(batch);
                }
            }
        }
    }

    fn on_outcomes(&mut self, batch: Vec<JobEnd>) {
        let ended = batch.into_iter().filter_map(|JobEnd { job, outcome, solver }| {
            let (ticket, future, keep) = self.open.remove(&job)?;
            let (is_small, is_large) = match &outcome {
                Outcome::Solved(parcel) => (parcel.len() <= INLINE_LIMIT, parcel.len() > INLINE_LIMIT),
                Outcome::Kept { .. } => (false, true),
                Outcome::Failed(_) | Outcome::Cancelled | Outcome::Expired => (false, false),
            };
            match keep {
                true => self.settling.push_back((ticket, is_small.then_some(job))),
                false => drop(self.jobs.remove(&ticket)),
            }
            let kept = (keep && is_large).then(|| self.node.solution(job));
            Some(Ended { kept, future, outcome, solver })
        });
        let ended: Vec<_> = ended.collect();
        self.ended.push(ended);
    }

    async fn hand_over(&mut self, asks: &mut Vec<Ask>) -> Result<(), MainError> {
        let mut batch = Batch::default();
        let mut later = Vec::new();
        for ask in asks.drain(..) {
            match ask {
                Ask::Submit { ticket, future, mut spec, takes } => {
                    // What it takes may be in this batch, and has a number only when that is handed over.
                    let is_known = |taken: &Takes| match taken {
                        Takes::Ticket(ticket) => self.jobs.contains_key(ticket),
                        Takes::Solution(_) => true,
                    };
                    if !takes.iter().all(is_known) {
                        self.submit(std::mem::take(&mut batch)).await?;
                    }
                    spec.inputs = takes.iter().map(|taken| self.job_of(taken)).collect();
                    batch.submitted.push((ticket, future, spec.keep));
                    batch.specs.push(*spec);
                    // References live until the job is handed over.
                    batch.taken.extend(takes);
                }
                // In its place: jobs before it may take what it lets go of.
                Ask::Settled { count } => {
                    self.submit(std::mem::take(&mut batch)).await?;
                    self.settled(count);
                }
                ask => later.push(ask),
            }
        }
        self.submit(batch).await?;
        let mut wanted = Vec::new();
        let mut cancelled = Vec::new();
        for ask in later {
            match ask {
                Ask::Want { ticket } => wanted.extend(self.jobs.get(&ticket)),
                Ask::Cancel { ticket } => cancelled.extend(self.jobs.get(&ticket)),
                Ask::CancelAll => cancelled.extend(self.open.keys()),
                Ask::Which { ticket, reply } => {
                    // A caller that was interrupted does not wait.
                    let _gone = reply.send(self.jobs.get(&ticket).copied());
                }
                Ask::Submit { .. } | Ask::Settled { .. } => {}
            }
        }
        if !wanted.is_empty() {
            self.node.want(wanted).await?;
        }
        if !cancelled.is_empty() {
            self.node.query(JobQuery::Cancel { jobs: cancelled }).await?;
        }
        Ok(())
    }

    /// The number of a job whose solution is taken; one that no job has if it is not known.
    fn job_of(&self, taken: &Takes) -> JobId {
        match taken {
            Takes::Ticket(ticket) => self.jobs.get(ticket).copied().unwrap_or(JobId(0)),
            Takes::Solution(solution) => solution.job(),
        }
    }

    async fn submit(&mut self, batch: Batch) -> Result<(), MainError> {
        let Batch { specs, submitted, taken } = batch;
        if specs.is_empty() {
            return Ok(());
        }
        // Outcomes are looked at after this, so their futures are known by then.
        let jobs = match self.node.submit_many(specs).await {
            Ok(jobs) => jobs,
            Err(error) => {
                self.cancelled(submitted);
                return Err(error);
            }
        };
        drop(taken);
        for (job, (ticket, future, keep)) in jobs.map(JobId).zip(submitted) {
            self.open.insert(job, (ticket, future, keep));
            self.jobs.insert(ticket, job);
        }
        Ok(())
    }

    /// Futures have these outcomes: jobs that take them from now on are given the values.
    fn settled(&mut self, count: usize) {
        for (ticket, small) in self.settling.drain(..count.min(self.settling.len())) {
            self.jobs.remove(&ticket);
            if let Some(job) = small {
                self.node.release(job);
            }
        }
    }

    fn cancelled(&self, jobs: impl IntoIterator<Item = (u64, JobFuture, bool)>) {
        let ended = |(_, future, _)| Ended { kept: None, future, outcome: Outcome::Cancelled, solver: None };
        self.ended.push(jobs.into_iter().map(ended));
    }
}

/// Jobs that are handed over together.
#[derive(Default)]
struct Batch {
    specs: Vec<JobSpec>,
    submitted: Vec<(u64, JobFuture, bool)>,
    taken: Vec<Takes>,
}

/// Threads that wait for jobs must not wait for ever, however the pump ends.
impl Drop for Pump {
    fn drop(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.cancelled(open.into_values());
        self.asked.close();
        while let Ok(ask) = self.asked.try_recv() {
            if let Ask::Submit { ticket, future, .. } = ask {
                self.cancelled([(ticket, future, false)]);
            }
        }
        self.ended.close();
    }
}

/// Where a job stands, in the words of `phalanx job explain`.
fn explained(info: &JobInfo) -> String {
    let (name, why) = (info.state.name(), info.state.why());
    if why.is_empty() { name.to_owned() } else { format!("{name}: {why}") }
}

pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_bad| Failure::input(format!("{seconds} is no number of seconds")).into())
}

pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
