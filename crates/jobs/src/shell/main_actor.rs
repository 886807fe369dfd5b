//! The task of a main node: feeds its core and carries out what it decides.
//!
//! Order matters in one place: what the core finished is written to the journal before anybody
//! hears of it, the user or the worker.

use super::batching::{DispatchBuilder, post};
use super::intake::Intake;
use super::journal::{Journal, JournalError, Record, RecordedOutcome, RecordedSpec};
use super::main_node::{JobEnd, MainError, unix_millis};
use super::wake::Wake;
use crate::core::{InputAt, JobSpec, MainCommand, MainCore, MainCounts, MainEvent, Outcome, WorkerKey};
use phalanx_fabric::{BlobId, Fabric, LinkEvent, LinkKey, NodeKind, Peer, keyed_number};
use phalanx_recording::Recorded;
use phalanx_types::{JobId, LeaseId, NodeId, Outbox, Parcel, ParcelHead, SessionId, Time, with_causes};
use phalanx_wire::codec;
use phalanx_wire::jobs::{
    Dispatch, FromWorker, INLINE_LIMIT, Input, InputPlace, JobAnswer, JobInfo, JobQuery, JobState, Join,
    Offer, ParcelRef, ToWorker,
};
use phalanx_wire::node::LostReason;
use phalanx_wire::reason::FailReason;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Events handled before messages go out, so that a burst becomes one message.
const BURST: usize = 256;
/// The journal reaches the disk, and the recording the operating system, at most this long after it was written.
const SYNC_EVERY: Duration = Duration::from_millis(100);
/// Solutions that have arrived and wait to be looked at.
const TAKE_QUEUE: usize = 1024;
/// Jobs in one answer; a list of more comes in several.
const MAX_LISTED: u32 = 1_000;

/// An answer is ended once it is this long; a message holds twice as much.
const MAX_LISTED_BYTES: usize = 512 << 10;

type Reply<T> = oneshot::Sender<Result<T, MainError>>;
type Taken = (WorkerKey, LeaseId, Result<Parcel, String>);
type OutcomeSender = mpsc::UnboundedSender<Vec<JobEnd>>;

/// What the handle of a main node asks of its task.
#[derive(Debug)]
pub(super) enum Ask {
    Submit {
        spec: JobSpec,
        tell: oneshot::Sender<Outcome>,
        reply: Reply<JobId>,
    },
    SubmitMany {
        specs: Vec<JobSpec>,
        reply: Reply<Range<u64>>,
    },
    Outcomes {
        sender: OutcomeSender,
        reply: Reply<()>,
    },
    Counts {
        reply: Reply<MainCounts>,
    },
    Query {
        query: JobQuery,
        /// The node that asks; `None` for this one.
        from: Option<NodeId>,
        reply: Reply<JobAnswer>,
    },
    Fetch {
        job: JobId,
        reply: oneshot::Sender<Fetched>,
    },
    /// Without reply: the outcome will bring it, or a fetch find it here.
    Want {
        jobs: Vec<JobId>,
    },
}

/// The bytes of a kept solution, or why there are none.
pub(super) type Fetched = Result<Parcel, FailReason>;
type Brought = (WorkerKey, JobId, Result<Parcel, String>);

/// See the module.
pub(super) struct Actor {
    fabric: Fabric,
    intake: Intake,
    core: Recorded<MainCore>,
    /// The core was fed since its last turn ended.
    turn_open: bool,
    journal: Option<Journal>,
    asked: mpsc::Receiver<Ask>,
    /// Kept solutions whose last handle was dropped.
    released: mpsc::UnboundedReceiver<JobId>,
    peers: BTreeMap<WorkerKey, Peer>,
    /// Who solves jobs; a worker that is gone is known until all that it reported is settled.
    solvers: BTreeMap<WorkerKey, NodeId>,
    gone: Vec<WorkerKey>,
    outgoing: BTreeMap<WorkerKey, DispatchBuilder>,
    /// Messages that are full, and wait for the journal.
    full: Vec<(WorkerKey, Dispatch)>,
    taken: (mpsc::Sender<Taken>, mpsc::Receiver<Taken>),
    /// Payloads too large for a message, held for fetching until their job ends.
    blobs: BTreeMap<JobId, BlobId>,
    /// Small solutions that are together too large for a message, held for fetching while they are kept.
    input_blobs: BTreeMap<JobId, BlobId>,
    brought: (mpsc::Sender<Brought>, mpsc::Receiver<Brought>),
    fetchers: BTreeMap<JobId, Vec<oneshot::Sender<Fetched>>>,
    waiters: HashMap<JobId, oneshot::Sender<Outcome>>,
    listeners: Vec<OutcomeSender>,
    out: Outbox<MainCommand>,
    /// Answers that wait for the journal: nobody is told what is not recorded yet.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    sync_at: Time,
}

impl Actor {
    pub(super) fn new(
        fabric: Fabric,
        core: Recorded<MainCore>,
        journal: Option<Journal>,
        (asked, released): (mpsc::Receiver<Ask>, mpsc::UnboundedReceiver<JobId>),
    ) -> Self {
        Self {
            intake: Intake::new(fabric.clone()),
            fabric,
            core,
            turn_open: false,
            journal,
            asked,
            released,
            peers: BTreeMap::new(),
            solvers: BTreeMap::new(),
            gone: Vec::new(),
            outgoing: BTreeMap::new(),
            full: Vec::new(),
            taken: mpsc::channel(TAKE_QUEUE),
            blobs: BTreeMap::new(),
            input_blobs: BTreeMap::new(),
            brought: mpsc::channel(TAKE_QUEUE),
            fetchers: BTreeMap::new(),
            waiters: HashMap::new(),
            listeners: Vec::new(),
            out: Outbox::default(),
            answers: Vec::new(),
            sync_at: Time::NEVER,
        }
    }

    pub(super) async fn run(mut self, mut events: mpsc::Receiver<LinkEvent>) {
        let mut wake = Wake::new();
        if let Some(journal) = &mut self.journal {
            journal.add(&Record::MainNode { node: self.fabric.id().clone() });
        }
        loop {
            let now = self.fabric.now();
            let at = self.core.next_wake().min(self.sync_at);
            tokio::select! {
                event = events.recv() => {
                    let Some(event) = event else { break };
                    self.on_event(event);
                    for _ in 0..BURST {
                        match events.try_recv() {
                            Ok(event) => self.on_event(event),
                            Err(_empty) => break,
                        }
                    }
                }
                ask = self.asked.recv() => {
                    let Some(ask) = ask else { break };
                    self.on_ask(ask);
                    for _ in 0..BURST {
                        match self.asked.try_recv() {
                            Ok(ask) => self.on_ask(ask),
                            Err(_empty) => break,
                        }
                    }
                }
                Some((worker, lease, result)) = self.taken.1.recv() => {
                    self.feed(MainEvent::Taken { worker, lease, result });
                }
                Some((worker, job, result)) = self.brought.1.recv() => {
                    self.feed(MainEvent::Brought { worker, job, result });
                }
                Some(job) = self.released.recv() => self.on_released(job),
                () = wake.until(now, at) => {}
            }
            if let Err(error) = self.settle() {
                let error = with_causes(&error);
                tracing::error!(%error, "the main node stops: its journal cannot be written");
                break;
            }
        }
        self.sync_now();
        self.core.flush();
        self.fabric.shutdown().await;
    }

    fn on_released(&mut self, first: JobId) {
        let mut jobs = vec![first];
        while jobs.len() < BURST
            && let Ok(job) = self.released.try_recv()
        {
            jobs.push(job);
        }
        if let Some(journal) = &mut self.journal {
            jobs.iter().for_each(|job| journal.add(&Record::Released { job: *job }));
        }
        self.feed(MainEvent::Released { jobs });
    }

    fn feed(&mut self, event: MainEvent) {
        self.turn_open = true;
        self.core.feed(self.fabric.now(), event, &mut self.out);
    }

    fn settle(&mut self) -> Result<(), JournalError> {
        let now = self.fabric.now();
        // A turn in which nothing came and nothing was due would change nothing.
        if self.turn_open || now >= self.core.next_wake() {
            self.core.feed(now, MainEvent::TurnEnded, &mut self.out);
            self.turn_open = false;
        }
        let mut out = std::mem::take(&mut self.out);
        let mut finished = Vec::new();
        for command in out.drain() {
            self.act(command, &mut finished);
        }
        self.out = out;
        for worker in self.gone.drain(..) {
            self.solvers.remove(&worker);
        }
        if let Some(journal) = &mut self.journal {
            journal.write()?;
        }
        self.tell(finished);
        self.send_all();
        self.sync(now);
        Ok(())
    }

    /// Has the journal reach the disk, off this task, now and then.
    fn sync(&mut self, now: Time) {
        if now >= self.sync_at {
            self.sync_at = Time::NEVER;
            self.sync_now();
            self.core.flush();
        } else if (self.journal.is_some() || self.core.has_unflushed()) && self.sync_at == Time::NEVER {
            self.sync_at = now + SYNC_EVERY;
        }
    }

    fn sync_now(&mut self) {
        if let Some(file) = self.journal.as_mut().and_then(Journal::take_unsynced) {
            tokio::task::spawn_blocking(move || {
                if let Err(error) = file.sync_data() {
                    tracing::warn!(error = %with_causes(&error), "the journal may not survive a power failure");
                }
            });
        }
    }

    fn on_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(peer) => {
                if peer.kind().solves() {
                    let worker = WorkerKey(peer.key().0);
                    self.feed(MainEvent::WorkerUp { worker, node: peer.id().clone() });
                    self.solvers.insert(worker, peer.id().clone());
                    self.peers.insert(worker, peer);
                }
            }
            LinkEvent::Down { link, node, reason, goodbye } => {
                let worker = WorkerKey(link.0);
                if self.peers.remove(&worker).is_some() {
                    if goodbye {
                        tracing::info!(%node, "computing node left");
                    } else {
                        tracing::info!(%node, %reason, "computing node lost; its jobs run again elsewhere");
                    }
                    self.outgoing.remove(&worker);
                    self.gone.push(worker);
                    self.feed(MainEvent::WorkerLost { worker, goodbye });
                }
            }
            LinkEvent::Frame { link, body } => self.on_frame(link, &body),
        }
    }

    fn on_frame(&mut self, link: LinkKey, body: &[u8]) {
        let worker = WorkerKey(link.0);
        match codec::decode(body) {
            Ok(FromWorker::Join(join)) => {
                if self.session_of(worker) == Some(join.session) {
                    let join = Join { session: self.core.session(), ..join };
                    self.feed(MainEvent::Joined { worker, join });
                }
            }
            Ok(FromWorker::Report(report)) => self.feed(MainEvent::Reported { worker, report }),
            Err(error) => self.cut_off(worker, error.to_string()),
        }
    }

    /// The name of this main node's session for a worker. Every worker is told another one, so that none can take over
    /// at another worker what it runs and keeps for this main node.
    fn session_of(&self, worker: WorkerKey) -> Option<SessionId> {
        let node = self.peers.get(&worker)?.id();
        Some(SessionId(keyed_number(self.core.session().0, node.as_str())))
    }

    fn cut_off(&self, worker: WorkerKey, detail: String) {
        if let Some(peer) = self.peers.get(&worker) {
            tracing::warn!(node = %peer.id(), detail, "computing node cut off");
            peer.close(LostReason::Misbehaved { detail: detail.into() });
        }
    }

    fn on_ask(&mut self, ask: Ask) {
        match ask {
            Ask::Submit { spec, tell, reply } => {
                let job = JobId(self.submit(vec![spec]).start);
                self.waiters.insert(job, tell);
                self.answer_later(reply, job);
            }
            Ask::SubmitMany { specs, reply } => {
                let jobs = self.submit(specs);
                self.answer_later(reply, jobs);
            }
            Ask::Outcomes { sender, reply } => {
                self.listeners.push(sender);
                answer(reply, ());
            }
            Ask::Counts { reply } => answer(reply, self.core.counts()),
            Ask::Fetch { job, reply } => {
                self.fetchers.entry(job).or_default().push(reply);
                self.feed(MainEvent::Wanted { job });
            }
            Ask::Want { jobs } => {
                // One that has ended is fetched when it is asked for.
                for job in jobs {
                    if matches!(self.core.is_ended(job), Some(false)) {
                        self.feed(MainEvent::Wanted { job });
                    }
                }
            }
            Ask::Query { query, from, reply } => {
                if let Err(error) = self.may_ask(&query, from.as_ref()) {
                    // The node that asked may be gone.
                    let _gone = reply.send(Err(error));
                    return;
                }
                let result = self.on_query(query);
                self.answer_later(reply, result);
            }
        }
    }

    fn answer_later<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        self.answers.push(Box::new(move || answer(reply, value)));
    }

    fn submit(&mut self, specs: Vec<JobSpec>) -> Range<u64> {
        let first = self.core.next_id();
        if let Some(journal) = &mut self.journal {
            for (job, spec) in (first.0..).map(JobId).zip(&specs) {
                let (keep, inputs) = (spec.keep, spec.inputs.clone());
                let spec = RecordedSpec::new(spec, unix_millis());
                journal.add(&match keep || !inputs.is_empty() {
                    true => Record::SubmittedWith { job, spec, keep, inputs },
                    false => Record::Submitted { job, spec },
                });
            }
        }
        self.feed(MainEvent::Submitted { specs });
        first.0..self.core.next_id().0
    }

    /// Every member may look. Jobs are ended by their own main node, or by an operator: a member that only looks at the
    /// domain, as commands like `phalanx job cancel` do. Other main nodes and computing nodes have no business with it.
    fn may_ask(&self, query: &JobQuery, from: Option<&NodeId>) -> Result<(), MainError> {
        let Some(from) = from else { return Ok(()) };
        match query {
            JobQuery::List { .. } | JobQuery::Show { .. } => Ok(()),
            JobQuery::Cancel { .. } | JobQuery::CancelAll => {
                match self.fabric.peer(from).map(|peer| peer.kind()) {
                    Some(NodeKind::Observer) => Ok(()),
                    _ => {
                        tracing::warn!(node = %from, "it asked to cancel jobs, and is no operator");
                        Err(MainError::NotOperator { node: from.clone() })
                    }
                }
            }
        }
    }

    fn on_query(&mut self, query: JobQuery) -> JobAnswer {
        let now = self.fabric.now();
        match query {
            JobQuery::List { after, limit, all } => {
                let limit = limit.min(MAX_LISTED) as usize;
                let mut listed = self.core.list(now, after, all);
                let (mut jobs, mut bytes) = (Vec::new(), 0);
                let mut more = false;
                for info in &mut listed {
                    more = jobs.len() >= limit || bytes > MAX_LISTED_BYTES;
                    if more {
                        break;
                    }
                    bytes += listed_len(&info);
                    jobs.push(info);
                }
                JobAnswer::Jobs { jobs, more }
            }
            JobQuery::Show { job } => match self.core.info(now, job) {
                Some(info) => JobAnswer::Jobs { jobs: vec![info], more: false },
                None => JobAnswer::NoSuchJob { job },
            },
            JobQuery::Cancel { jobs } => self.cancel(MainEvent::Cancelled { jobs }),
            JobQuery::CancelAll => self.cancel(MainEvent::AllCancelled),
        }
    }

    fn cancel(&mut self, event: MainEvent) -> JobAnswer {
        let before = self.core.counts().cancelled;
        self.feed(event);
        JobAnswer::Cancelled { jobs: self.core.counts().cancelled - before }
    }

    fn act(&mut self, command: MainCommand, finished: &mut Vec<JobEnd>) {
        match command {
            MainCommand::Invite { worker } => {
                if let Some(session) = self.session_of(worker) {
                    self.send(worker, &ToWorker::Invite { session, epoch: self.core.epoch() });
                }
            }
            MainCommand::Offer { worker, lease } => self.offer(worker, lease),
            MainCommand::Ack { worker, lease } => self.to(worker).acks.push(lease),
            MainCommand::Keep { worker, lease } => self.to(worker).keeps.push(lease),
            MainCommand::Drop { worker, job } => self.to(worker).drops.push(job),
            MainCommand::Bring { worker, job, head, blob } => self.bring(worker, job, head, blob),
            MainCommand::Delivered { job, result } => {
                for fetcher in self.fetchers.remove(&job).into_iter().flatten() {
                    // A caller may have given up.
                    let _gone = fetcher.send(result.clone());
                }
            }
            MainCommand::Freed { job } => {
                for blob in [self.input_blobs.remove(&job), self.blobs.remove(&job)].into_iter().flatten() {
                    self.fabric.release(blob);
                }
            }
            MainCommand::Go { worker, lease } => self.to(worker).go.push(lease),
            MainCommand::Cancel { worker, lease } => self.to(worker).cancels.push(lease),
            MainCommand::Recall { worker, lease } => self.to(worker).recalls.push(lease),
            MainCommand::Take { worker, lease, head, blob } => self.take(worker, lease, head, blob),
            MainCommand::Attempt { job, attempts } => {
                if let Some(journal) = &mut self.journal {
                    journal.add(&Record::Attempt { job, attempts });
                }
            }
            MainCommand::Finished { job, outcome, solver } => {
                let solver = solver.and_then(|worker| self.solvers.get(&worker).cloned());
                if let Some(journal) = &mut self.journal {
                    let recorded = RecordedOutcome::new(&outcome);
                    journal.add(&match &solver {
                        Some(node) => Record::EndedAt { job, outcome: recorded, node: node.clone() },
                        None => Record::Ended { job, outcome: recorded },
                    });
                }
                // A job whose solution stays at a node may run again.
                if !matches!(outcome, Outcome::Kept { .. })
                    && let Some(blob) = self.blobs.remove(&job)
                {
                    self.fabric.release(blob);
                }
                finished.push(JobEnd { job, outcome, solver });
            }
            MainCommand::Explain { kind, reason, .. } => {
                tracing::info!(%kind, "jobs wait: {reason}");
            }
            MainCommand::CutOff { worker, why } => self.cut_off(worker, why.to_owned()),
        }
    }

    fn to(&mut self, worker: WorkerKey) -> &mut Dispatch {
        &mut self.outgoing.entry(worker).or_default().dispatch
    }

    /// Where a worker finds what a job takes. Small solutions ride in the message while they are few.
    fn inputs(&mut self, worker: WorkerKey, job: JobId) -> Vec<Input> {
        let Some(inputs) = self.core.inputs_of(job, worker) else { return Vec::new() };
        let (mut inline, mut listed) = (0, Vec::with_capacity(inputs.len()));
        for (job, at) in inputs {
            let place = match at {
                InputAt::Here(parcel) if inline + parcel.len() <= INLINE_LIMIT => {
                    inline += parcel.len();
                    InputPlace::Inline { head: parcel.head(), body: parcel.body() }
                }
                InputAt::Here(parcel) => {
                    let hold = || self.fabric.hold(parcel.clone());
                    let blob = *self.input_blobs.entry(job).or_insert_with(hold);
                    InputPlace::At { node: self.fabric.id().clone(), head: parcel.head(), blob }
                }
                InputAt::Node { worker, head, blob } => {
                    let Some(node) = self.solvers.get(&worker) else { continue };
                    InputPlace::At { node: node.clone(), head: head.clone(), blob }
                }
            };
            listed.push(Input { job, place });
        }
        listed
    }

    fn bring(&self, worker: WorkerKey, job: JobId, head: ParcelHead, blob: BlobId) {
        let Some(peer) = self.peers.get(&worker).cloned() else { return };
        let (intake, done) = (self.intake.clone(), self.brought.0.clone());
        tokio::spawn(async move {
            let result = intake.fetch(&peer, head, blob).await.map_err(|error| with_causes(&error));
            // The main node may have ended meanwhile.
            let _ended = done.send((worker, job, result)).await;
        });
    }

    fn offer(&mut self, worker: WorkerKey, lease: LeaseId) {
        let inputs = self.inputs(worker, lease.job);
        let Some(job) = self.core.offer_of(lease.job) else { return };
        let payload = if job.payload.len() <= INLINE_LIMIT {
            ParcelRef::inline(job.payload)
        } else {
            let blob = *self.blobs.entry(lease.job).or_insert_with(|| self.fabric.hold(job.payload.clone()));
            ParcelRef::Blob { head: job.payload.head(), blob }
        };
        let offer = Offer { lease, priority: job.priority, careful: job.careful, payload, inputs };
        let epoch = self.core.epoch();
        let builder = self.outgoing.entry(worker).or_default();
        if builder.offer(job.kind, job.needs, offer)
            && let Some(dispatch) = builder.take(epoch)
        {
            self.full.push((worker, dispatch));
        }
    }

    fn take(&self, worker: WorkerKey, lease: LeaseId, head: ParcelHead, blob: BlobId) {
        let Some(peer) = self.peers.get(&worker).cloned() else { return };
        let (intake, done) = (self.intake.clone(), self.taken.0.clone());
        tokio::spawn(async move {
            let result = intake.fetch(&peer, head, blob).await.map_err(|error| with_causes(&error));
            // The main node may have ended meanwhile.
            let _ended = done.send((worker, lease, result)).await;
        });
    }

    /// Tells the user what is recorded by now.
    fn tell(&mut self, finished: Vec<JobEnd>) {
        for answer in self.answers.drain(..) {
            answer();
        }
        if finished.is_empty() {
            return;
        }
        if !self.waiters.is_empty() {
            for JobEnd { job, outcome, .. } in &finished {
                if let Some(waiter) = self.waiters.remove(job) {
                    // A dropped handle does not want to know.
                    let _dropped = waiter.send(outcome.clone());
                }
            }
        }
        if let Some((last, others)) = self.listeners.split_last() {
            let mut gone = others.iter().map(|l| l.send(finished.clone()).is_err()).collect::<Vec<_>>();
            gone.push(last.send(finished).is_err());
            let mut gone = gone.into_iter();
            self.listeners.retain(|_| !gone.next().unwrap_or(false));
        }
    }

    fn send_all(&mut self) {
        let epoch = self.core.epoch();
        for (worker, dispatch) in std::mem::take(&mut self.full) {
            self.send(worker, &ToWorker::Dispatch(dispatch));
        }
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.retain(|worker, _| self.peers.contains_key(worker));
        for (worker, builder) in &mut outgoing {
            if let Some(dispatch) = builder.take(epoch) {
                self.send(*worker, &ToWorker::Dispatch(dispatch));
            }
        }
        self.outgoing = outgoing;
    }

    fn send(&self, worker: WorkerKey, message: &ToWorker) {
        if let Some(peer) = self.peers.get(&worker) {
            post(peer, message);
        }
    }
}

/// About how many bytes a listed job takes in an answer.
fn listed_len(info: &JobInfo) -> usize {
    let text = match &info.state {
        JobState::Failed(reason) => reason.to_string().len(),
        JobState::Running { progress: Some((_, note)), .. } => note.len(),
        _ => 0,
    };
    info.kind.len() + text + 256
}

fn answer<T>(reply: Reply<T>, value: T) {
    // Whoever asked may have given up.
    let _gone = reply.send(Ok(value));
}
