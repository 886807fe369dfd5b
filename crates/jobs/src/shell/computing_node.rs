//! A node that solves jobs.

use super::batching::{post, split_report};
use super::executor::{Ended, Executor, Happened};
use super::handler::Handlers;
use super::intake::{Intake, IntakeError};
use super::results::{ResultMemory, Results, Spilled};
use super::wake::Wake;
use crate::core::{HandlerEnd, MainKey, Run, RunInput, RunKey, WorkerCommand, WorkerConfig, WorkerCore};
use phalanx_account::NodeAccount;
use phalanx_fabric::{Fabric, FabricConfig, FetchError, FrameKind, LinkEvent, LinkKey, Peer, StartError};
use phalanx_types::{
    ByteSize, JobId, Needs, NodeId, Outbox, Parcel, ParcelHead, SessionId, Time, with_causes,
};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec;
use phalanx_wire::jobs::{FromWorker, INLINE_LIMIT, Join, MAX_HEAD_LEN, ParcelRef, Report, ToWorker};
use phalanx_wire::node::{LostReason, NodeKind, NodeState};
use phalanx_wire::reason::FailReason;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long results and running jobs of a main node that vanished are kept for its return.
const ORPHAN_GRACE: Duration = Duration::from_secs(30);
/// Large payloads in hand for jobs that have not started.
const PREFETCH: ByteSize = ByteSize(256 << 20);
/// Events handled before messages go out, so that a burst becomes one message.
const BURST: usize = 256;
/// The status of a node is published at most this often.
const STATUS_EVERY: Duration = Duration::from_millis(100);
/// How long handlers that were told to stop may take before the node ends without them.
const WIND_DOWN: Duration = Duration::from_secs(1);
/// Payloads that have arrived and wait to be looked at.
const FETCH_QUEUE: usize = 1024;
/// Handlers give memory back when a solution of at least this many bytes is freed.
const TIDY_FROM: u64 = 1 << 20;
/// How long to wait for a link to a node that holds a solution.
const LINK_WAIT: Duration = Duration::from_secs(3);

/// Why a node could not be, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    #[error("could not join the domain")]
    Start(#[from] StartError),
    #[error("could not start a compute thread")]
    Thread(#[source] std::io::Error),
    #[error("the fabric of this node has ended")]
    FabricEnded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Run,
    Drain,
    StopNow,
}

/// Tells a running node to stop.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<watch::Sender<Wish>>);

impl Stopper {
    /// Finishes what runs, hands back the rest, then ends.
    pub fn drain(&self) {
        self.0.send_if_modified(|wish| {
            let runs = *wish == Wish::Run;
            if runs {
                *wish = Wish::Drain;
            }
            runs
        });
    }

    /// Ends at once; what runs is run again elsewhere.
    pub fn stop_now(&self) {
        self.0.send_replace(Wish::StopNow);
    }
}

/// A node that solves jobs of every main node in its domain.
#[derive(Debug)]
pub struct ComputingNode {
    fabric: Fabric,
    intake: Intake,
    account: NodeAccount,
    /// Says when others than jobs use more or less of the node.
    taken: watch::Receiver<u64>,
    /// The version of what others use that the core knows of.
    known_taken: u64,
    core: WorkerCore,
    executor: Executor,
    events: mpsc::Receiver<LinkEvent>,
    peers: BTreeMap<LinkKey, Peer>,
    /// Whose jobs come over each link.
    sessions: BTreeMap<LinkKey, SessionId>,
    /// The number of the last report over each link.
    reports: BTreeMap<LinkKey, u64>,
    fetched: (mpsc::Sender<Fetched>, mpsc::Receiver<Fetched>),
    arrived: (mpsc::Sender<Arrived>, mpsc::Receiver<Arrived>),
    /// The solutions that it holds, and pieces of them that were written to disk.
    results: Results,
    spilled: mpsc::Receiver<Spilled>,
    /// Counts links that came up.
    linked: watch::Sender<u64>,
    wish: (Stopper, watch::Receiver<Wish>),
    out: Outbox<WorkerCommand>,
    happened: Vec<Happened>,
    published: (u32, u64, Time),
    drained: bool,
    /// Something was started since the last wait.
    started: bool,
}

type Fetched = (RunKey, Result<Parcel, IntakeError>);
/// A solution of another job of a session: held here now, or not to be had, and then whether its node has lost it.
type Arrived = ((SessionId, JobId), Result<BlobId, bool>);

impl ComputingNode {
    /// Joins the domain. Nothing is solved before [`ComputingNode::run`] or
    /// [`ComputingNode::solve_one`].
    ///
    /// # Errors
    /// The fabric could not start.
    pub async fn start(mut config: FabricConfig, handlers: Handlers) -> Result<Self, NodeError> {
        if config.kind != NodeKind::Inference {
            config.kind = NodeKind::Computing;
        }
        config.handles = handlers.kinds().cloned().collect();
        let capacity = Needs { cores: config.resources.cores, memory: config.resources.memory };
        let worker = WorkerConfig {
            kinds: handlers.kinds().cloned().collect(),
            capacity,
            once: false,
            prefetch: PREFETCH,
            orphan_grace: ORPHAN_GRACE,
        };
        let fabric = Fabric::start(config).await?;
        let events = fabric.channel(FrameKind::Jobs);
        let (wish, wishes) = watch::channel(Wish::Run);
        let account = NodeAccount::new(capacity);
        let (spills, spilled) = mpsc::channel(1);
        let mut core = WorkerCore::new(worker);
        core.gather(handlers.gathered());
        Ok(Self {
            taken: account.taken_changes(),
            known_taken: 0,
            account,
            events,
            core,
            executor: Executor::new(handlers),
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            reports: BTreeMap::new(),
            fetched: mpsc::channel(FETCH_QUEUE),
            arrived: mpsc::channel(FETCH_QUEUE),
            results: Results::new(ResultMemory::of_node(capacity.memory), spills),
            spilled,
            linked: watch::Sender::new(0),
            wish: (Stopper(Arc::new(wish)), wishes),
            out: Outbox::default(),
            happened: Vec::new(),
            published: (0, 0, Time::ZERO),
            drained: false,
            started: false,
            intake: Intake::new(fabric.clone()),
            fabric,
        })
    }

    /// Says how much memory solutions may take while they are kept, and where the rest goes. Half of the node's memory
    /// and the directory for temporary files if not said.
    pub fn set_result_memory(&mut self, settings: ResultMemory) {
        self.results.set(settings);
    }

    pub fn id(&self) -> &NodeId {
        self.fabric.id()
    }

    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// What its jobs take cores and memory from. Whatever else computes on this node claims its part there.
    pub fn account(&self) -> &NodeAccount {
        &self.account
    }

    pub fn stopper(&self) -> Stopper {
        self.wish.0.clone()
    }

    /// Solves jobs until told to stop.
    ///
    /// # Errors
    /// The node cannot go on; its jobs run elsewhere.
    pub async fn run(mut self) -> Result<(), NodeError> {
        let result = self.turn_until_drained().await;
        self.shutdown().await;
        result
    }

    /// Takes exactly one job, solves it and returns when its main node has the result.
    ///
    /// # Errors
    /// The node cannot go on; the job runs elsewhere.
    pub async fn solve_one(&mut self) -> Result<(), NodeError> {
        self.core.on_take_one();
        self.drained = false;
        // Main nodes that know this node already hear now that it takes a job again.
        self.settle();
        self.turn_until_drained().await
    }

    /// Leaves the domain.
    pub async fn shutdown(mut self) {
        self.executor.cancel_all();
        // The last numbers that others see of this node are right.
        self.publish_now(self.fabric.now());
        self.fabric.shutdown().await;
        if tokio::time::timeout(WIND_DOWN, self.executor.stopped()).await.is_err() {
            tracing::warn!("a handler did not stop when told to");
        }
    }

    async fn turn_until_drained(&mut self) -> Result<(), NodeError> {
        let mut wake = Wake::new();
        loop {
            self.carry_out()?;
            // Waiting on the spot for what ends at once halves the round trip of a short job.
            if std::mem::take(&mut self.started) && self.core.ends_soon() && self.events.is_empty() {
                self.executor.linger();
                self.settle();
                self.carry_out()?;
            }
            if self.drained || *self.wish.1.borrow() == Wish::StopNow {
                return Ok(());
            }
            let now = self.fabric.now();
            let at = self.core.next_wake().min(self.status_due());
            tokio::select! {
                event = self.events.recv() => {
                    let Some(event) = event else { return Err(NodeError::FabricEnded) };
                    self.on_event(event);
                    for _ in 0..BURST {
                        match self.events.try_recv() {
                            Ok(event) => self.on_event(event),
                            Err(_empty) => break,
                        }
                    }
                }
                () = self.executor.happened() => {}
                Some((key, payload)) = self.fetched.1.recv() => {
                    let now = self.fabric.now();
                    self.decide(|core, out| match payload {
                        Err(error @ (IntakeError::TooLarge { .. } | IntakeError::Impossible)) => {
                            core.on_too_large(key, format!("the payload was not taken: {error}"));
                        }
                        payload => core.on_fetched(now, key, payload.ok(), out),
                    });
                }
                Some(((session, input), result)) = self.arrived.1.recv() => {
                    let now = self.fabric.now();
                    if let Some((blob, parcel)) = result.ok().and_then(|blob| Some((blob, self.fabric.held(blob)?)))
                    {
                        self.results.add(blob, &parcel);
                    }
                    self.decide(|core, out| core.on_input(now, session, input, result, out));
                }
                Some(spilled) = self.spilled.recv() => self.results.on_spilled(spilled, &self.fabric),
                Ok(()) = self.taken.changed() => {
                    self.taken.mark_unchanged();
                    self.decide(|_, _| {});
                    self.publish_now(self.fabric.now());
                }
                () = wake.until(now, at) => {}
                Ok(()) = self.wish.1.changed() => self.on_wish(),
            }
            self.settle();
        }
    }

    /// Lets the core decide while nobody can claim anything on this node, then claims what its jobs use.
    fn decide<T>(&mut self, decide: impl FnOnce(&mut WorkerCore, &mut Outbox<WorkerCommand>) -> T) -> T {
        let mut account = self.account.jobs();
        if self.known_taken != account.version() {
            self.known_taken = account.version();
            self.core.on_taken(account.taken());
        }
        let decided = decide(&mut self.core, &mut self.out);
        account.set(self.core.running(), self.core.in_use());
        decided
    }

    fn on_wish(&mut self) {
        let wish = *self.wish.1.borrow_and_update();
        match wish {
            Wish::Run => {}
            Wish::Drain => {
                self.fabric.update_status(|s| s.state = NodeState::Draining);
                self.core.on_drain(&mut self.out);
            }
            Wish::StopNow => self.executor.cancel_all(),
        }
    }

    /// Tells the core what the threads did, then what time it is, then sends what there is to say.
    fn settle(&mut self) {
        let now = self.fabric.now();
        let mut happened = std::mem::take(&mut self.happened);
        self.executor.take_happened(&mut happened);
        for event in happened.drain(..) {
            match event {
                Happened::Progress { key, permille, note } => self.core.on_progress(key, permille, note),
                Happened::Finished { key, end, run_micros } => {
                    let end = self.pack(end);
                    self.core.on_finished(now, key, end, run_micros, &mut self.out);
                }
            }
        }
        self.happened = happened;
        self.decide(|core, out| {
            core.on_tick(now, out);
            core.on_room(now, out);
            core.flush(out);
        });
        self.publish(now);
    }

    fn pack(&mut self, end: Ended) -> HandlerEnd {
        match end {
            Ended::Solved(parcel) if parcel.head().encoded_len() > MAX_HEAD_LEN => {
                let message = format!("the solution has too many tensors ({})", parcel.tensors.len());
                HandlerEnd::Failed { reason: FailReason::Unreadable { message }, retry: false }
            }
            Ended::Solved(parcel) if parcel.len() <= INLINE_LIMIT => {
                HandlerEnd::Solved(ParcelRef::inline(&parcel))
            }
            Ended::Solved(parcel) => {
                let head = parcel.head();
                let blob = self.fabric.hold(parcel.clone());
                self.results.add(blob, &parcel);
                HandlerEnd::Solved(ParcelRef::Blob { head, blob })
            }
            Ended::Failed { reason, retry } => HandlerEnd::Failed { reason, retry },
            Ended::Cancelled => HandlerEnd::Cancelled,
        }
    }

    fn on_event(&mut self, event: LinkEvent) {
        let now = self.fabric.now();
        match event {
            LinkEvent::Up(peer) => {
                self.linked.send_modify(|count| *count += 1);
                if peer.kind().asks() {
                    self.peers.insert(peer.key(), peer);
                }
            }
            LinkEvent::Down { link, node, reason, goodbye } => {
                let session = self.sessions.remove(&link);
                self.reports.remove(&link);
                if goodbye && let Some(session) = session {
                    self.executor.forget_main(session);
                }
                if self.peers.remove(&link).is_some() {
                    if goodbye {
                        tracing::info!(main = %node, "main node left");
                    } else {
                        tracing::info!(main = %node, %reason, "main node lost; what runs for it is kept a while");
                    }
                    self.decide(|core, out| core.on_main_lost(now, MainKey(link.0), goodbye, out));
                }
            }
            LinkEvent::Frame { link, body } => self.on_frame(now, link, &body),
        }
    }

    fn on_frame(&mut self, now: Time, link: LinkKey, body: &[u8]) {
        // Only main nodes hand out jobs; nothing would ever end what another began.
        let Some(peer) = self.peers.get(&link) else { return };
        let main = MainKey(link.0);
        match codec::decode(body) {
            Ok(ToWorker::Invite { session, epoch }) => {
                if *self.sessions.entry(link).or_insert(session) == session {
                    self.executor.know_main(session, peer.id().clone());
                    self.core.on_invite(main, session, epoch, &mut self.out);
                } else {
                    cut_off(peer, "a second session on one link");
                }
            }
            Ok(ToWorker::Dispatch(dispatch)) => {
                self.decide(|core, out| core.on_dispatch(now, main, dispatch, out));
            }
            Err(error) => cut_off(peer, &error.to_string()),
        }
    }

    fn carry_out(&mut self) -> Result<(), NodeError> {
        // Commands may bring new ones: taking a batch apart frees what then starts elsewhere.
        while !self.out.is_empty() {
            let commands: Vec<WorkerCommand> = self.out.drain().collect();
            for command in commands {
                self.act(command)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, command: WorkerCommand) -> Result<(), NodeError> {
        match command {
            WorkerCommand::Join { main, join } => self.send_join(main, join),
            WorkerCommand::Report { main, report } => {
                self.send_report(main, report);
            }
            WorkerCommand::Fetch { main, key, head, blob } => self.fetch(main, key, head, blob),
            WorkerCommand::FetchInput { session, input, node, head, blob } => {
                self.fetch_input((session, input), node, head, blob);
            }
            WorkerCommand::Start { batch, runs } => {
                let runs = self.put_inputs(runs);
                if runs.is_empty() {
                    return Ok(());
                }
                self.started = true;
                self.executor.start(batch, runs).map_err(NodeError::Thread)?;
            }
            WorkerCommand::TakeBack { batch } => {
                let runs = self.executor.take_back(batch);
                let now = self.fabric.now();
                self.decide(|core, out| core.on_taken_back(now, batch, runs, out));
            }
            WorkerCommand::CancelRun { key } => self.executor.cancel(key),
            WorkerCommand::Forget { blob } => {
                let is_large = self.fabric.held(blob).is_some_and(|parcel| parcel.len() >= TIDY_FROM);
                self.fabric.release(blob);
                self.results.remove(blob);
                if is_large {
                    self.executor.tidy();
                }
            }
            WorkerCommand::Drained => self.drained = true,
        }
        Ok(())
    }

    fn send_join(&mut self, main: MainKey, mut join: Join) {
        // Results from before go first, in reports of their own: a main node that has joined this
        // node might give out again what they end.
        let (done, kept) = (std::mem::take(&mut join.done), std::mem::take(&mut join.kept));
        if !(done.is_empty() && kept.is_empty()) {
            let (epoch, window, taken) = (join.epoch, join.window, join.taken.clone());
            let report = Report { epoch, window, taken, done, kept, ..Report::default() };
            self.send_report(main, report);
        }
        self.send(main, &FromWorker::Join(join));
    }

    fn send_report(&mut self, main: MainKey, report: Report) {
        let link = LinkKey(main.0);
        if !self.peers.contains_key(&link) {
            return;
        }
        for part in split_report(report) {
            let number = self.reports.entry(link).or_default();
            *number += 1;
            let part = Report { number: *number, ..part };
            self.send(main, &FromWorker::Report(part));
        }
    }

    fn send(&self, main: MainKey, message: &FromWorker) {
        if let Some(peer) = self.peers.get(&LinkKey(main.0)) {
            post(peer, message);
        }
    }

    fn fetch(&self, main: MainKey, key: RunKey, head: ParcelHead, blob: BlobId) {
        let Some(peer) = self.peers.get(&LinkKey(main.0)).cloned() else { return };
        let (intake, done) = (self.intake.clone(), self.fetched.0.clone());
        tokio::spawn(async move {
            let payload = intake.fetch(&peer, head, blob).await;
            let payload = payload.inspect_err(
                |error| tracing::warn!(main = %peer.id(), job = %key.lease, %error, "payload not fetched"),
            );
            // The node may have stopped meanwhile.
            let _stopped = done.send((key, payload)).await;
        });
    }

    /// Fetches a solution straight from the node that holds it, and holds it here, too.
    fn fetch_input(&self, of: (SessionId, JobId), node: NodeId, head: ParcelHead, blob: BlobId) {
        let (fabric, intake) = (self.fabric.clone(), self.intake.clone());
        let (arrived, linked) = (self.arrived.0.clone(), self.linked.subscribe());
        tokio::spawn(async move {
            let result = match fetch_solution(&fabric, &intake, linked, &node, head, blob).await {
                Ok(parcel) => Ok(fabric.hold(parcel)),
                Err((is_gone, error)) => {
                    tracing::warn!(job = %of.1, holder = %node, %error, "solution not fetched");
                    Err(is_gone)
                }
            };
            let held = result.as_ref().ok().copied();
            if arrived.send((of, result)).await.is_err()
                && let Some(blob) = held
            {
                fabric.release(blob);
            }
        });
    }

    /// Puts the solutions that this node holds into the runs that take them.
    fn put_inputs(&self, runs: Vec<Run>) -> Vec<Run> {
        let put = |mut run: Run| {
            for input in &mut run.inputs {
                if let RunInput::Held(blob) = input {
                    let Some(parcel) = self.fabric.held(*blob) else {
                        self.executor.refuse(run.key, "a solution that the job takes is not here any more");
                        return None;
                    };
                    *input = RunInput::Given(parcel);
                }
            }
            Some(run)
        };
        runs.into_iter().filter_map(put).collect()
    }

    fn status_due(&self) -> Time {
        let (running, done, at) = self.published;
        let changed = (running, done) != (self.core.running(), self.core.done());
        if changed { at + STATUS_EVERY } else { Time::NEVER }
    }

    fn publish(&mut self, now: Time) {
        if self.status_due() <= now {
            self.publish_now(now);
        }
    }

    fn publish_now(&mut self, now: Time) {
        let (running, done) = (self.core.running(), self.core.done());
        self.published = (running, done, now);
        // Read in here, so that of two who publish the later one has the newer uses.
        self.fabric.update_status(|s| {
            (s.jobs_running, s.jobs_done, s.uses) = (running, done, self.account.uses());
        });
    }
}

/// Why a solution was not fetched, and whether its node does not have it.
type NotFetched = (bool, String);

async fn fetch_solution(
    fabric: &Fabric,
    intake: &Intake,
    mut linked: watch::Receiver<u64>,
    node: &NodeId,
    head: ParcelHead,
    blob: BlobId,
) -> Result<Parcel, NotFetched> {
    if node == fabric.id() {
        return Err((true, "it is not here".to_owned()));
    }
    // Nodes that joined a moment ago may not be linked to each other yet.
    let peer = async {
        loop {
            linked.mark_unchanged();
            if let Some(peer) = fabric.peer(node) {
                return Some(peer);
            }
            linked.changed().await.ok()?;
        }
    };
    let peer = tokio::time::timeout(LINK_WAIT, peer).await.ok().flatten();
    let peer = peer.ok_or_else(|| (false, "there is no link to its node".to_owned()))?;
    intake.fetch(&peer, head, blob).await.map_err(|error| {
        let is_there = matches!(
            error,
            IntakeError::TooLarge { .. }
                | IntakeError::Fetch(
                    FetchError::LinkDown { .. }
                        | FetchError::BulkLost { .. }
                        | FetchError::NoBulk { .. }
                        | FetchError::OutOfMemory { .. }
                )
        );
        (!is_there, with_causes(&error))
    })
}

fn cut_off(main: &Peer, why: &str) {
    tracing::warn!(main = %main.id(), why, "main node cut off");
    main.close(LostReason::Misbehaved { detail: why.into() });
}
