//! The driver of a run: finds nodes, forms groups of replicas, writes down what they report.
//!
//! ```text
//!   links ──► Driver ──► FormationCore decides ──► commands: Enlist, Restore, Prepare, Connect, Abort …
//!                  └──► Journal: what is reported, until it is sure to have happened ──► Book (the run directory)
//! ```
//! It computes nothing. Replicas go on by themselves between two changes of the group.

mod files;
mod journal;
mod trace;

use crate::book::{Book, FormationEpoch, Opened};
use crate::core::{FormationCommand, FormationCore, Left, Limits, Pause, Seat};
use crate::error::TrainError;
use crate::observer::{Event, Observer};
use crate::progress::{End, Place, Plan};
use crate::run_dir::{RunDir, read_classes};
use crate::state::ModelState;
use crate::task::Task;
use crate::trainer::Summary;
use bytes::Bytes;
use journal::Journal;
use phalanx_fabric::{BlobId, Fabric, FrameKind, LinkEvent, LinkKey, NodeKind, Peer};
use phalanx_types::{Epoch, NodeId, Outbox, Parcel, RunId, Time};
use phalanx_wire::codec;
use phalanx_wire::train::{Asked, Enlist, FileRef, FromReplica, LeftWhy, SeatRef, StateRef, ToReplica};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use trace::Trace;

/// How long other replicas may take to say more about why a step failed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long until a node that is busy with another run is asked again.
const RETRY: Duration = Duration::from_secs(2);
/// A wait that is over sooner is not worth a word.
const HUSH: Duration = Duration::from_secs(2);

/// What a driver is told besides the run.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    /// The resolved run file, for the nodes.
    pub config: String,
    /// Whether nodes may lack the files of the run.
    pub offer_files: bool,
    /// Whether to write a timeline of all replicas.
    pub trace: bool,
}

/// Trains on the nodes of a domain, to the end or until `stop` is set; then everything is saved.
///
/// # Errors
/// Something failed; the run directory says so, and its last checkpoint is still there.
pub fn drive(
    fabric: &Fabric,
    mut task: Task,
    dir: RunDir,
    options: DriverOptions,
    stop: watch::Receiver<bool>,
    observer: &mut dyn Observer,
) -> Result<Summary, TrainError> {
    if let Some(classes) = read_classes(dir.path())? {
        task.number_classes(&classes)?;
    }
    // Of its own: writing a large checkpoint must not keep this node from saying that it is alive.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| TrainError::Fabric { what: "start", source: source.into() })?;
    let opened = Book::open(dir, &task, observer)?;
    let mut driver = Driver::new(fabric.clone(), &task, opened, options);
    driver.book.begin(&task, driver.place())?;
    if driver.options.offer_files {
        driver.files = files::offer(fabric, &task.config)?;
    }
    driver.tell_start(observer);
    let result = runtime.block_on(driver.run(stop, observer));
    driver.dismiss_all();
    if let Err(error) = &result {
        driver.book.fail(&task, driver.place(), error);
    }
    result
}

/// What comes back from a task of its own.
enum Fetched {
    State { node: NodeId, step: u64, last: bool, blob: BlobId, result: Result<Bytes, String> },
}

struct Driver<'a> {
    fabric: Fabric,
    run: RunId,
    task: &'a Task,
    plan: Plan,
    options: DriverOptions,
    book: Book,
    journal: Journal,
    trace: Option<Trace>,
    core: FormationCore,
    out: Outbox<FormationCommand>,
    peers: BTreeMap<NodeId, Peer>,
    nodes: BTreeMap<LinkKey, NodeId>,
    /// Nodes that do not take part, and when to ask them again.
    refused: BTreeMap<NodeId, Option<Instant>>,
    /// By rank, those of the present group.
    seats: Vec<NodeId>,
    /// Those that get ready for the next.
    preparing: Vec<NodeId>,
    /// Those of them that came to it without the state of the run.
    joiners: Vec<NodeId>,
    /// Steps that nodes have behind them that left the group at its end.
    holders: BTreeMap<NodeId, u64>,
    epochs: Vec<FormationEpoch>,
    /// Those of drivers before this one.
    before: Vec<serde_json::Value>,
    /// What the run begins with, held for nodes to fetch.
    first: Option<StateRef>,
    state: Option<ModelState>,
    fetched: (mpsc::UnboundedSender<Fetched>, mpsc::UnboundedReceiver<Fetched>),
    /// The run is over, but for the model, which this node was asked for.
    ending: Option<NodeId>,
    over: bool,
    failing: Option<Failing>,
    /// The newest group of which it was said why it broke.
    warned: Epoch,
    /// Held for nodes to fetch.
    files: Vec<FileRef>,
    /// Why nothing moves, and when to say so.
    paused: Option<(Pause, Instant)>,
}

/// A run that fails, as soon as all have said why.
struct Failing {
    reason: String,
    cause: bool,
    until: Instant,
}

impl<'a> Driver<'a> {
    fn new(fabric: Fabric, task: &'a Task, opened: Opened, options: DriverOptions) -> Self {
        let Opened { book, place, state } = opened;
        let before = book.read_formation();
        let formation = &task.config.formation;
        let limits = Limits {
            min: formation.min_replicas,
            wanted: formation.replicas,
            max: formation.max_replicas,
            patience: formation.patience,
        };
        let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        Self {
            run: RunId(number),
            task,
            plan: task.plan(),
            journal: Journal::new(place.step),
            trace: options.trace.then(Trace::default),
            options,
            book,
            core: FormationCore::new(limits),
            out: Outbox::default(),
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            refused: BTreeMap::new(),
            seats: Vec::new(),
            preparing: Vec::new(),
            joiners: Vec::new(),
            holders: BTreeMap::new(),
            epochs: Vec::new(),
            before,
            first: None,
            state,
            fetched: mpsc::unbounded_channel(),
            ending: None,
            over: false,
            failing: None,
            warned: Epoch(0),
            files: Vec::new(),
            paused: None,
            fabric,
        }
    }

    fn place(&self) -> Place {
        place(self.plan, self.journal.step())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.book.elapsed()
    }

    fn tell_start(&self, observer: &mut dyn Observer) {
        observer.on(&Event::Started {
            run_dir: self.book.dir().path(),
            model: &self.task.graph.name,
            parameters: self.task.graph.cost().parameters as usize,
            samples: self.task.train.len(),
            batches_per_pass: self.plan.batches_per_pass,
            total_steps: self.plan.steps(),
            done: self.journal.step(),
        });
        for note in &self.task.notes {
            observer.on(&Event::Warning(note));
        }
    }

    async fn run(
        &mut self,
        mut stop: watch::Receiver<bool>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, TrainError> {
        if self.journal.step() >= self.plan.steps() {
            // Nothing is left to do, except perhaps to write the model.
            return self.finish(None, observer);
        }
        let mut events = self.fabric.channel(FrameKind::Train);
        let mut stopping = false;
        loop {
            self.act(observer)?;
            if self.over && self.ending.is_none() && !self.ask_for_the_model() {
                return self.finish(None, observer);
            }
            let tick = self.next_tick();
            let mut state = None;
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.on_event(event, observer)?,
                    None => return Err(gone("the fabric of this node has ended")),
                },
                fetched = self.fetched.1.recv() => state = fetched,
                () = asked(&mut stop), if !stopping => {
                    stopping = true;
                    self.core.on_stop(self.now(), &mut self.out);
                }
                () = tokio::time::sleep(tick) => self.on_tick(observer)?,
            }
            if let Some(fetched) = state
                && let Some(last) = self.on_fetched(fetched, observer)?
            {
                return self.finish(Some(last), observer);
            }
        }
    }

    fn next_tick(&self) -> Duration {
        let core = self.core.next_tick().map(|due| due.since(self.now()));
        let failing = self.failing.as_ref().map(|f| f.until.saturating_duration_since(Instant::now()));
        let paused = self.paused.as_ref().map(|(_, at)| at.saturating_duration_since(Instant::now()));
        let busy = self.refused.values().flatten().min();
        let busy = busy.map(|at| at.saturating_duration_since(Instant::now()).max(RETRY / 10));
        core.into_iter().chain(failing).chain(paused).chain(busy).min().unwrap_or(Duration::from_secs(3600))
    }

    fn on_tick(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        if let Some((pause, _)) = self.paused.take_if(|(_, at)| *at <= Instant::now()) {
            observer.on(&Event::Waiting(&pause.to_string()));
        }
        if let Some(failing) = self.failing.take_if(|failing| failing.until <= Instant::now()) {
            return Err(TrainError::Replica { reason: failing.reason });
        }
        self.offer_again();
        self.core.on_tick(self.now(), &mut self.out);
        Ok(())
    }

    fn on_event(&mut self, event: LinkEvent, observer: &mut dyn Observer) -> Result<(), TrainError> {
        match event {
            LinkEvent::Up(peer) if peer.kind() == NodeKind::Computing => {
                let node = peer.id().clone();
                self.nodes.insert(peer.key(), node.clone());
                self.peers.insert(node.clone(), peer);
                self.refused.remove(&node);
                self.core.on_node(self.now(), node, &mut self.out);
            }
            LinkEvent::Up(_) => {}
            LinkEvent::Down { link, node, reason, .. } => {
                self.nodes.remove(&link);
                if self.peers.get(&node).is_some_and(|peer| peer.key() == link) {
                    self.peers.remove(&node);
                    self.lost(&node, &reason.to_string(), observer);
                }
            }
            LinkEvent::Frame { link, body } => {
                let Some(node) = self.nodes.get(&link).cloned() else { return Ok(()) };
                match codec::decode::<FromReplica>(&body) {
                    Ok(message) => self.on_message(&node, message, observer)?,
                    Err(error) => tracing::debug!(from = %node, %error, "no report of a replica"),
                }
            }
        }
        Ok(())
    }

    fn lost(&mut self, node: &NodeId, reason: &str, observer: &mut dyn Observer) {
        if self.core.active().any(|active| active == node) {
            observer.on(&Event::Warning(&format!("{node} is lost: {reason}")));
        }
        self.holders.remove(node);
        self.ending.take_if(|asked| asked == node);
        self.core.on_lost(self.now(), node, reason, &mut self.out);
        self.offer_again();
    }

    /// Names every node that could take part: there may be room for one that there was none for before.
    fn offer_again(&mut self) {
        let (now, time) = (Instant::now(), self.now());
        for node in self.peers.keys() {
            let refuses = self.refused.get(node).is_some_and(|retry| retry.is_none_or(|at| at > now));
            if !refuses {
                self.core.on_node(time, node.clone(), &mut self.out);
            }
        }
    }

    fn on_message(
        &mut self,
        node: &NodeId,
        message: FromReplica,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let now = self.now();
        match message {
            FromReplica::Enlisted { run, step } if run == self.run => {
                self.refused.remove(node);
                self.core.on_enlisted(now, node, step, &mut self.out);
            }
            FromReplica::Refused { run, reason, busy } if run == self.run => {
                self.on_refused(node, reason, busy, observer)?
            }
            FromReplica::Restored { run, step } if run == self.run => {
                self.core.on_restored(now, node, step, &mut self.out);
            }
            FromReplica::Prepared { run, epoch, end } if run == self.run => {
                self.core.on_prepared(node, epoch, end.to_vec(), &mut self.out);
            }
            FromReplica::Left { run, epoch, step, why } if run == self.run => {
                self.on_left(node, epoch, step, why, observer)?;
            }
            FromReplica::Steps { run, epoch, steps } if run == self.run && epoch == self.core.epoch() => {
                if let Some(first) = steps.first() {
                    self.commit(first.step.saturating_sub(1), observer)?;
                }
                steps.into_iter().for_each(|step| self.journal.on_step(step));
            }
            FromReplica::Validated { run, epoch, step, sums }
                if run == self.run && epoch == self.core.epoch() =>
            {
                self.journal.on_valid(step, sums);
            }
            FromReplica::Snapshot { run, epoch, state } if run == self.run => {
                let last = self.ending.as_ref() == Some(node) && epoch == Epoch(0);
                if last || epoch == self.core.epoch() {
                    if !last {
                        self.journal.on_snapshot(state.step);
                    }
                    self.fetch(node, state, last);
                }
            }
            FromReplica::Part { run, epoch, part } if run == self.run && epoch == self.core.epoch() => {
                for new in &self.joiners {
                    let (run, holder, part) = (self.run, node.clone(), part.clone());
                    self.send(new, &ToReplica::Part { run, epoch, holder, part });
                }
            }
            FromReplica::Spans { run, epoch, rank, spans } if run == self.run => {
                if let Some(trace) = &mut self.trace {
                    trace.on_spans(epoch, rank as usize, spans);
                }
            }
            FromReplica::Waits { run, epoch, on, millis }
                if run == self.run && epoch == self.core.epoch() =>
            {
                if let Some(other) = self.seats.get(on as usize) {
                    let since = humantime::format_duration(Duration::from_millis(millis / 1000 * 1000));
                    observer.on(&Event::Waiting(&format!("{node} waits for {other}, since {since}")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A node cannot take part; when none is left that can, neither can the run.
    fn on_refused(
        &mut self,
        node: &NodeId,
        reason: String,
        busy: bool,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let retry = busy.then(|| Instant::now() + RETRY);
        if self.refused.insert(node.clone(), retry).is_none() {
            observer.on(&Event::Warning(&format!("{node} does not take part: {reason}")));
        }
        self.holders.remove(node);
        self.ending.take_if(|asked| asked == node);
        self.core.on_lost(self.now(), node, &reason, &mut self.out);
        self.offer_again();
        let local = self.task.config.formation.local;
        if local > 0 && self.refused.len() >= local {
            return Err(TrainError::Replica { reason: format!("no node can train this: {reason}") });
        }
        Ok(())
    }

    fn on_left(
        &mut self,
        node: &NodeId,
        epoch: Epoch,
        step: Option<u64>,
        why: LeftWhy,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        if let Some(step) = step {
            self.holders.insert(node.clone(), step);
        }
        let left = match (why, step) {
            (LeftWhy::Broken { reason }, Some(step)) => {
                // A loss is told of anyway.
                if !reason.contains("lost") && self.warned < epoch {
                    self.warned = epoch;
                    observer.on(&Event::Warning(&format!("{node} left the group: {reason}")));
                }
                Left::Broken { step, reason }
            }
            (LeftWhy::Broken { reason }, None) => Left::Empty { reason: Some(reason) },
            (LeftWhy::Reformed, Some(step)) => Left::Reformed { step },
            (LeftWhy::Reformed | LeftWhy::Ended, None) => Left::Empty { reason: None },
            (LeftWhy::Ended, Some(step)) => Left::Ended { step },
            (LeftWhy::Failed { reason, cause }, _) => {
                let reason = format!("{node}: {reason}");
                // All had done that step when they tried the next.
                self.commit(step.unwrap_or(0), observer)?;
                let until = Instant::now() + if cause { Duration::ZERO } else { LAST_WORDS };
                match &mut self.failing {
                    Some(failing) if failing.cause || !cause => {}
                    failing => *failing = Some(Failing { reason: reason.clone(), cause, until }),
                }
                observer.on(&Event::Warning(&reason));
                return Ok(());
            }
        };
        if self.failing.is_none() {
            self.core.on_left(self.now(), node, epoch, left, &mut self.out);
        }
        Ok(())
    }

    /// Carries out what the core decided.
    fn act(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let commands: Vec<FormationCommand> = self.out.drain().collect();
        for command in commands {
            match command {
                FormationCommand::Enlist { node } => {
                    let enlist = Enlist {
                        config: self.options.config.clone(),
                        files: self.files.clone(),
                        trace: self.options.trace,
                    };
                    self.send(&node, &ToReplica::Enlist { run: self.run, enlist });
                }
                FormationCommand::Restore { node } => self.restore(&node, observer)?,
                FormationCommand::Prepare { epoch, members } => {
                    let (run, ranks) = (self.run, members.len() as u32);
                    for (rank, node) in members.iter().enumerate() {
                        self.send(node, &ToReplica::Prepare { run, epoch, rank: rank as u32, ranks });
                    }
                    self.preparing = members;
                }
                FormationCommand::Connect { epoch, seats } => self.connect(epoch, seats, observer)?,
                FormationCommand::Abort { epoch, reason } => {
                    if let Some(last) = self.epochs.last_mut() {
                        last.ended = Some(reason.clone());
                    }
                    let members: BTreeSet<NodeId> =
                        self.seats.iter().chain(&self.preparing).cloned().collect();
                    for node in members {
                        let reason = reason.clone();
                        self.send(&node, &ToReplica::Abort { run: self.run, epoch, reason });
                    }
                }
                FormationCommand::AskReform { node } => self.ask(&node, Asked::Reform),
                FormationCommand::AskStop { node } => self.ask(&node, Asked::Stop),
                // All of them, when the model is here.
                FormationCommand::Dismiss { .. } => {}
                FormationCommand::Paused(pause) => self.paused = Some((pause, Instant::now() + HUSH)),
                FormationCommand::Ended => self.over = true,
            }
        }
        Ok(())
    }

    fn ask(&self, node: &NodeId, wish: Asked) {
        self.send(node, &ToReplica::Ask { run: self.run, epoch: self.core.epoch(), wish });
    }

    fn send(&self, node: &NodeId, message: &ToReplica) {
        let Some(peer) = self.peers.get(node) else { return };
        if let Err(error) = peer.send(FrameKind::Train, message) {
            tracing::debug!(to = %node, %error, "could not tell a replica");
        }
    }

    /// Gives a node the state of the newest checkpoint, or tells it to begin.
    fn restore(&mut self, node: &NodeId, observer: &mut dyn Observer) -> Result<(), TrainError> {
        if self.journal.has_begun() {
            let lost = self.journal.step();
            let (place, state) = self.book.rewind(observer)?;
            let back = place.step;
            observer.on(&Event::Warning(&format!(
                "all replicas are lost; the run goes back from step {lost} to its last checkpoint, step {back}"
            )));
            self.journal = Journal::new(back);
            self.state = state;
            if let Some(first) = self.first.take() {
                self.fabric.release(first.blob);
            }
        }
        if self.first.is_none()
            && let Some(state) = self.state.take()
        {
            let bytes: Bytes = state.to_bytes()?.into();
            let len = bytes.len() as u64;
            let blob = self.fabric.hold(Parcel::from_bytes(bytes));
            self.first = Some(StateRef { step: state.steps(), bytes: len, blob });
        }
        self.send(node, &ToReplica::Restore { run: self.run, state: self.first.clone() });
        Ok(())
    }

    fn connect(
        &mut self,
        epoch: Epoch,
        seats: Vec<Seat>,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let committed = seats.iter().filter_map(|seat| seat.step).max().unwrap_or(0);
        self.commit(committed, observer)?;
        self.journal.forget_the_rest();
        self.paused = None;
        self.holders.clear();
        let (run, recorded) = (self.run, self.journal.recorded());
        self.seats = seats.iter().map(|seat| seat.node.clone()).collect();
        let new = seats.iter().filter(|seat| seat.step.is_none());
        self.joiners = new.map(|seat| seat.node.clone()).collect();
        let seats: Vec<SeatRef> = seats
            .into_iter()
            .map(|seat| SeatRef { node: seat.node, end: seat.end.into(), step: seat.step })
            .collect();
        for node in &self.seats {
            let seats = seats.clone();
            self.send(node, &ToReplica::Connect { run, epoch, seats, recorded });
        }
        let nodes: Vec<String> = self.seats.iter().map(ToString::to_string).collect();
        if let Some(trace) = &mut self.trace {
            trace.on_group(epoch, self.book.elapsed(), &nodes);
        }
        observer.on(&Event::Formed { epoch: epoch.0, nodes: &nodes, step: committed });
        self.note_step_time();
        self.epochs.push(FormationEpoch {
            epoch: epoch.0,
            nodes,
            operators: self.task.graph.nodes.len(),
            parameters: self.task.graph.cost().parameters as usize,
            from_step: committed,
            step_ms: None,
            ended: None,
        });
        self.journal.begin_epoch(epoch, &self.seats);
        self.book.write_formation(&self.before, &self.epochs)
    }

    /// Writes how long steps took beside the epoch that they were done in.
    fn note_step_time(&mut self) {
        if let Some(last) = self.epochs.last_mut() {
            last.step_ms = self.journal.step_ms();
        }
    }

    /// Writes down what is sure to have happened: everything up to a step.
    fn commit(&mut self, step: u64, observer: &mut dyn Observer) -> Result<(), TrainError> {
        self.journal.commit(step, self.plan, self.task, &mut self.book, observer)
    }

    /// Fetches a state that a node holds for this run.
    fn fetch(&self, node: &NodeId, state: StateRef, last: bool) {
        let Some(peer) = self.peers.get(node).cloned() else { return };
        let (fabric, node, back) = (self.fabric.clone(), node.clone(), self.fetched.0.clone());
        let StateRef { step, bytes, blob } = state;
        tokio::spawn(async move {
            let result = fabric.fetch(&peer, blob, bytes).await.map_err(|error| error.to_string());
            // A driver that has ended needs it no more.
            drop(back.send(Fetched::State { node, step, last, blob, result }));
        });
    }

    /// Takes a state that was fetched; gives back the last one.
    fn on_fetched(
        &mut self,
        fetched: Fetched,
        observer: &mut dyn Observer,
    ) -> Result<Option<ModelState>, TrainError> {
        let Fetched::State { node, step, last, blob, result } = fetched;
        self.send(&node, &ToReplica::Taken { run: self.run, blob });
        match result.map_err(|reason| TrainError::Replica { reason }).and_then(ModelState::from_bytes) {
            Ok(state) if last => return Ok(Some(state)),
            Ok(state) => self.journal.on_state(step, state, &mut self.book, observer)?,
            Err(error) if last => {
                observer.on(&Event::Warning(&format!("could not fetch the model from {node}: {error}")));
                self.holders.remove(&node);
                self.ending = None;
            }
            Err(error) => {
                observer.on(&Event::Warning(&format!("no checkpoint of step {step}: {node}: {error}")));
                self.journal.forget_draft(step);
            }
        }
        Ok(None)
    }

    /// Asks a node that has done the last step for the model; whether there is one.
    fn ask_for_the_model(&mut self) -> bool {
        let most = self.holders.iter().max_by_key(|(_, step)| **step).map(|(node, _)| node.clone());
        if let Some(node) = most {
            self.send(&node, &ToReplica::Snapshot { run: self.run });
            self.ending = Some(node);
        }
        self.ending.is_some()
    }

    /// Writes the result.
    fn finish(
        &mut self,
        last: Option<ModelState>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, TrainError> {
        self.note_step_time();
        if !self.epochs.is_empty() {
            self.book.write_formation(&self.before, &self.epochs)?;
        }
        if let Some(trace) = &self.trace {
            self.book.dir().write("trace.json", &trace.to_json())?;
        }
        let Some(state) = last else {
            if self.over && self.journal.has_begun() {
                return Err(gone("all nodes that held the model are lost"));
            }
            // As it was before: nothing was done.
            let place = self.place();
            let weights = match &self.state {
                Some(state) => state.weights.clone(),
                None => self.task.weights.clone(),
            };
            let done = place.step >= self.plan.steps();
            let end = if done { End::Finished } else { End::Interrupted };
            return self.book.finish(self.task, place, end, &weights, observer);
        };
        let step = state.steps();
        self.commit(step, observer)?;
        self.journal.close_gaps();
        self.commit(step, observer)?;
        let place = place(self.plan, step);
        let weights = state.weights.clone();
        let manifest = self.book.draft(place)?;
        self.book.save(manifest, state, observer)?;
        let end = if step >= self.plan.steps() { End::Finished } else { End::Interrupted };
        self.book.finish(self.task, place, end, &weights, observer)
    }

    fn dismiss_all(&mut self) {
        for node in self.peers.keys() {
            self.send(node, &ToReplica::Dismiss { run: self.run });
        }
        if let Some(first) = self.first.take() {
            self.fabric.release(first.blob);
        }
        self.files.drain(..).for_each(|file| self.fabric.release(file.blob));
    }
}

/// Returns when the run is to stop; never, when nobody is left who could say so.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn place(plan: Plan, step: u64) -> Place {
    let batches = plan.batches_per_pass.max(1);
    Place { step, pass: step / batches, batch: step % batches }
}

fn gone(what: &str) -> TrainError {
    TrainError::Fabric { what: "go on with", source: what.into() }
}
