//! A node that asks for jobs to be solved.

use super::journal::{Journal, JournalError};
use super::main_actor::{Actor, Ask, Fetched};
use super::solution::SolutionRef;
use crate::core::{JobSpec, MainCore, MainCounts, Outcome};
use phalanx_fabric::{Fabric, FabricConfig, FrameKind, StartError};
use phalanx_recording::{Limits, Recorded};
use phalanx_types::{Epoch, JobId, NodeId, Outbox, SessionId, Time};
use phalanx_wire::jobs::{JobAnswer, JobQuery, MAX_HEAD_LEN, MAX_INPUTS, QUERY_SERVICE};
use phalanx_wire::node::NodeKind;
use phalanx_wire::reason::FailReason;
use phalanx_wire::{codec, jobs};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Submissions that may be under way before `submit` waits.
const ASK_QUEUE: usize = 256;

/// Why a main node could not be, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MainError {
    #[error("could not join the domain")]
    Start(#[from] StartError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("a payload has too many tensors ({tensors}): their names and shapes do not fit a message")]
    TooManyTensors { tensors: usize },
    #[error("a job takes {inputs} solutions, at most {MAX_INPUTS} are allowed")]
    TooManyInputs { inputs: usize },
    #[error("a job can take only solutions of its own main node")]
    OtherMain,
    #[error("{0}")]
    NoSolution(FailReason),
    #[error(
        "jobs are cancelled by their own main node, or by a member that joined as an observer; {node} is neither"
    )]
    NotOperator { node: NodeId },
    #[error("the main node has ended")]
    Ended,
}

/// How a main node is set up.
#[derive(Debug, Clone, Default)]
pub struct MainOptions {
    /// Records everything here, and goes on from what is recorded.
    pub journal: Option<PathBuf>,
    /// Records what the core of the main node is told here, for `phalanx replay`. Without it the
    /// recording stands beside the journal; without a journal there is none.
    pub recording: Option<PathBuf>,
}

impl MainOptions {
    /// Where the core's recording goes: as asked, or to `FILE.recording` beside journal `FILE`.
    fn recording_path(&self) -> Option<PathBuf> {
        let beside = |journal: &PathBuf| {
            let mut name = journal.clone().into_os_string();
            name.push(".recording");
            name.into()
        };
        self.recording.clone().or_else(|| self.journal.as_ref().map(beside))
    }
}

/// The jobs a journal held, in order, with the outcomes of those that had ended.
pub type Recovered = Vec<(JobId, Option<Outcome>)>;

/// A node that asks for jobs to be solved. Cheap to clone; all clones are the same node.
#[derive(Debug, Clone)]
pub struct MainNode {
    fabric: Fabric,
    asks: mpsc::Sender<Ask>,
    releases: mpsc::UnboundedSender<JobId>,
    recovered: Arc<Mutex<Recovered>>,
}

/// How a job ended, and which node solved it.
#[derive(Debug, Clone)]
pub struct JobEnd {
    pub job: JobId,
    pub outcome: Outcome,
    /// The node that solved it, if it was solved.
    pub solver: Option<NodeId>,
}

/// The outcomes of all jobs, as they come.
#[derive(Debug)]
pub struct Outcomes(mpsc::UnboundedReceiver<Vec<JobEnd>>, std::vec::IntoIter<JobEnd>);

impl Outcomes {
    /// The next outcome; `None` once the main node has ended.
    pub async fn next(&mut self) -> Option<(JobId, Outcome)> {
        loop {
            if let Some(end) = self.1.next() {
                return Some((end.job, end.outcome));
            }
            self.1 = self.0.recv().await?.into_iter();
        }
    }

    /// The next outcomes, at least one and as many as came together; `None` once the main node has
    /// ended. Nothing is lost when the future is dropped before it is ready.
    pub async fn next_batch(&mut self) -> Option<Vec<(JobId, Outcome)>> {
        let ends = self.next_ends().await?;
        Some(ends.into_iter().map(|end| (end.job, end.outcome)).collect())
    }

    /// Like [`Outcomes::next_batch`], with the nodes that solved the jobs.
    pub async fn next_ends(&mut self) -> Option<Vec<JobEnd>> {
        let mut batch: Vec<_> = std::mem::take(&mut self.1).collect();
        while batch.is_empty() {
            batch = self.0.recv().await?;
        }
        Some(batch)
    }
}

/// A submitted job: await it for its outcome.
#[derive(Debug)]
pub struct JobHandle {
    job: JobId,
    outcome: oneshot::Receiver<Outcome>,
}

impl JobHandle {
    pub fn id(&self) -> JobId {
        self.job
    }
}

impl Future for JobHandle {
    type Output = Result<Outcome, MainError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.outcome).poll(context).map_err(|_closed| MainError::Ended)
    }
}

impl MainNode {
    /// Joins the domain and, with a journal, takes up what is recorded there.
    ///
    /// # Errors
    /// The fabric could not start, or the journal cannot be used.
    pub async fn start(mut config: FabricConfig, options: MainOptions) -> Result<Self, MainError> {
        if config.kind != NodeKind::Edge {
            config.kind = NodeKind::Main;
        }
        // Before the fabric starts: a journal that cannot be used should trouble nobody.
        let opened =
            options.journal.as_deref().map(|path| Journal::open(path, random_session())).transpose()?;
        let fabric = Fabric::start(config).await?;
        let now = fabric.now();
        let (core, journal, recovered) = match opened {
            None => (MainCore::new(random_session(), Epoch(1)), None, Vec::new()),
            Some((journal, past)) => {
                let mut core = MainCore::new(past.session, past.epoch);
                let released: Vec<JobId> =
                    past.jobs.iter().filter(|(_, job)| job.is_released).map(|(id, _)| *id).collect();
                let recovered = past.jobs.into_values().map(|job| restore(&mut core, now, job)).collect();
                // Nobody has joined who could be told anything.
                core.on_restored(now, &released, &mut Outbox::default());
                (core, Some(journal), recovered)
            }
        };
        let events = fabric.channel(FrameKind::Jobs);
        let (asks, asked) = mpsc::channel(ASK_QUEUE);
        let core = record(core, options.recording_path().as_deref());
        let (releases, released) = mpsc::unbounded_channel();
        let actor = Actor::new(fabric.clone(), core, journal, (asked, released));
        tokio::spawn(actor.run(events));
        let node = Self { fabric, asks, releases, recovered: Arc::new(Mutex::new(recovered)) };
        node.serve_queries();
        Ok(node)
    }

    pub fn id(&self) -> &NodeId {
        self.fabric.id()
    }

    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// What the journal held at the start, by job; taken once.
    pub fn take_recovered(&self) -> Recovered {
        std::mem::take(&mut self.recovered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Submits one job; waits only while too many submissions are under way.
    ///
    /// # Errors
    /// The main node has ended, or its journal cannot be written.
    pub async fn submit(&self, spec: JobSpec) -> Result<JobHandle, MainError> {
        check(&spec)?;
        let (tell, outcome) = oneshot::channel();
        let job = self.ask(|reply| Ask::Submit { spec, tell, reply }).await?;
        Ok(JobHandle { job, outcome })
    }

    /// Submits many jobs; their outcomes come through [`MainNode::outcomes`].
    ///
    /// # Errors
    /// The main node has ended, or its journal cannot be written.
    pub async fn submit_many(&self, specs: Vec<JobSpec>) -> Result<Range<u64>, MainError> {
        specs.iter().try_for_each(check)?;
        self.ask(|reply| Ask::SubmitMany { specs, reply }).await
    }

    /// Submits a job whose solution stays at the node that makes it, if it is large, for other jobs to take.
    ///
    /// # Errors
    /// The main node has ended, or its journal cannot be written.
    pub async fn submit_kept(&self, spec: JobSpec) -> Result<(JobHandle, SolutionRef), MainError> {
        let handle = self.submit(JobSpec { keep: true, ..spec }).await?;
        let solution = SolutionRef::new(self, handle.job);
        Ok((handle, solution))
    }

    /// Has a job take kept solutions, in this order; it runs where they are, if it can.
    ///
    /// Keep the references until the job is submitted.
    ///
    /// # Errors
    /// A solution is of another main node, or there are too many.
    pub fn taking(&self, mut spec: JobSpec, solutions: &[&SolutionRef]) -> Result<JobSpec, MainError> {
        if solutions.iter().any(|solution| !solution.is_of(self)) {
            return Err(MainError::OtherMain);
        }
        spec.inputs.extend(solutions.iter().map(|solution| solution.job()));
        check(&spec)?;
        Ok(spec)
    }

    /// A reference to the solution of a job that was submitted with [`JobSpec::keep`], in this life of the main node or
    /// in an earlier one. When its last clone is dropped, the solution is freed; ask for it once.
    pub fn solution(&self, job: JobId) -> SolutionRef {
        SolutionRef::new(self, job)
    }

    /// Has kept solutions fetched as soon as they are there: the outcome then is the solution.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn want(&self, jobs: Vec<JobId>) -> Result<(), MainError> {
        self.asks.send(Ask::Want { jobs }).await.map_err(|_closed| MainError::Ended)
    }

    /// Drops the user's reference to the kept solution of a job for which there is no [`SolutionRef`].
    pub fn release(&self, job: JobId) {
        // A main node that has ended has left its nodes, which frees everything.
        let _ended = self.releases.send(job);
    }

    pub(super) async fn fetch(&self, job: JobId) -> Result<Fetched, MainError> {
        let (reply, fetched) = oneshot::channel();
        self.asks.send(Ask::Fetch { job, reply }).await.map_err(|_closed| MainError::Ended)?;
        fetched.await.map_err(|_closed| MainError::Ended)
    }

    pub(super) fn releases(&self) -> &mpsc::UnboundedSender<JobId> {
        &self.releases
    }

    /// The outcomes of jobs from now on, as they come.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn outcomes(&self) -> Result<Outcomes, MainError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.ask(|reply| Ask::Outcomes { sender, reply }).await?;
        Ok(Outcomes(receiver, Vec::new().into_iter()))
    }

    /// Ends a job, also when it runs; `false` when it had ended already or never was.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn cancel(&self, job: JobId) -> Result<bool, MainError> {
        let answer = self.query(JobQuery::Cancel { jobs: vec![job] }).await?;
        Ok(matches!(answer, JobAnswer::Cancelled { jobs: 1 }))
    }

    /// Ends every unfinished job and tells how many there were.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn cancel_all(&self) -> Result<u64, MainError> {
        match self.query(JobQuery::CancelAll).await? {
            JobAnswer::Cancelled { jobs } => Ok(jobs),
            JobAnswer::Jobs { .. } | JobAnswer::NoSuchJob { .. } => Ok(0),
        }
    }

    /// How many jobs came to which end so far.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn counts(&self) -> Result<MainCounts, MainError> {
        self.ask(|reply| Ask::Counts { reply }).await
    }

    /// Asks about jobs; the same questions other nodes may ask over the wire.
    ///
    /// # Errors
    /// The main node has ended.
    pub async fn query(&self, query: JobQuery) -> Result<JobAnswer, MainError> {
        self.ask(|reply| Ask::Query { query, from: None, reply }).await
    }

    /// Leaves the domain; what computing nodes still run for it is cancelled there.
    pub async fn shutdown(&self) {
        self.fabric.shutdown().await;
    }

    async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, MainError>>) -> Ask,
    ) -> Result<T, MainError> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(make(reply)).await.map_err(|_closed| MainError::Ended)?;
        answer.await.map_err(|_closed| MainError::Ended)?
    }

    fn serve_queries(&self) {
        // Weak, so that the service does not keep a node alive that everybody dropped.
        let asks = self.asks.downgrade();
        self.fabric.serve(QUERY_SERVICE, move |from, body| {
            let asks = asks.clone();
            async move {
                let query: jobs::JobQuery = codec::decode(&body).map_err(|e| e.to_string())?;
                let asks = asks.upgrade().ok_or_else(|| MainError::Ended.to_string())?;
                let (reply, answer) = oneshot::channel();
                let ended = |()| MainError::Ended.to_string();
                asks.send(Ask::Query { query, from: Some(from), reply })
                    .await
                    .map_err(|_closed| ended(()))?;
                let answer = answer.await.map_err(|_closed| ended(()))?.map_err(|e| e.to_string())?;
                let mut bytes = bytes::BytesMut::new();
                codec::encode_into(&answer, &mut bytes).map_err(|e| e.to_string())?;
                Ok(bytes.freeze())
            }
        });
    }
}

/// Records a core, if there is a place for it. A recording that cannot be made stops nobody.
fn record(core: MainCore, path: Option<&Path>) -> Recorded<MainCore> {
    let Some(path) = path else { return Recorded::off(core) };
    Recorded::resume(core, path, Limits::default()).unwrap_or_else(|(core, error)| {
        tracing::warn!(%error, "this main node is not recorded");
        Recorded::off(core)
    })
}

/// Refuses what could never be sent.
fn check(spec: &JobSpec) -> Result<(), MainError> {
    // The usual payload has none, and needs no look at its head.
    if spec.inputs.len() > MAX_INPUTS {
        return Err(MainError::TooManyInputs { inputs: spec.inputs.len() });
    }
    let tensors = spec.payload.tensors.len();
    if tensors > 0 && spec.payload.head().encoded_len() > MAX_HEAD_LEN {
        return Err(MainError::TooManyTensors { tensors });
    }
    Ok(())
}

/// Puts a recorded job into the core of the next life.
fn restore(core: &mut MainCore, now: Time, job: super::journal::JournaledJob) -> (JobId, Option<Outcome>) {
    let super::journal::JournaledJob { mut spec, deadline_unix_ms, attempts, outcome, .. } = job;
    match outcome {
        Some(outcome @ (Outcome::Solved(_) | Outcome::Kept { .. })) if spec.keep => {
            (core.on_restore_kept(now, spec, attempts, outcome.clone()), Some(outcome))
        }
        Some(outcome) => (core.on_restore_ended(&spec.kind, spec.needs, &outcome), Some(outcome)),
        None => {
            spec.deadline =
                deadline_unix_ms.map(|at| Duration::from_millis(at.saturating_sub(unix_millis())));
            (core.on_restore(now, spec, attempts), None)
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn random_session() -> SessionId {
    // The standard library seeds this hasher from the operating system.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), unix_millis());
    SessionId(random)
}
