//! The driver of a run: finds nodes, forms groups of replicas, writes down what they report.
//!
//! ```text
//!   links ──► hear ──► FormationCore decides ──► act: Enlist, Restore, Prepare, Connect, Abort …
//!                └──► Journal: what is reported, until it is sure to have happened ──► Book (the run directory)
//! ```
//! It computes nothing. Replicas go on by themselves between two changes of the group.

mod act;
mod files;
mod finish;
mod hear;
mod incoming;
mod journal;
mod live;
mod stages;
mod trace;

use crate::error::DistributedError;
use bytes::Bytes;
use incoming::Incoming;
use journal::Journal;
use live::Live;
use phalanx_fabric::{BlobId, Fabric, FrameKind, LinkKey, Peer};
use phalanx_protocol::progress::{Place, Plan, Progress};
use phalanx_protocol::{FormationCommand, FormationCore, FormationEvent, FormationSetup, Limits, Pause};
use phalanx_recording::{Limits as RecordingLimits, Recorded, Replay};
use phalanx_records::ModelState;
use phalanx_records::run_dir::{RunDir, read_classes};
use phalanx_records::{Book, FormationEpoch, Opened};
use phalanx_records::{Event, Events, Observer, Summary};
use phalanx_train::{Compute, Task};
use phalanx_types::{Epoch, NodeId, Outbox, RunId, Time};
use phalanx_wire::live::LiveRun;
use phalanx_wire::train::{FileRef, Ops, StateRef, ToReplica};
use stages::Staging;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use trace::Trace;

/// How long other replicas may take to say more about why a step failed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long until a node that is busy with another run is asked again.
const RETRY: Duration = Duration::from_secs(2);
/// A wait that is over sooner is not worth a word.
const HUSH: Duration = Duration::from_secs(2);

/// The recording of what the driver's core is told, in the run directory.
const RECORDING_FILE: &str = "driver.recording";

/// What a driver is told besides the run.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    /// The resolved run file, for the nodes.
    pub config: String,
    /// Whether all nodes are started by this process: they have its files, and nobody else can join.
    pub private: bool,
    /// Whether to write a timeline of all replicas.
    pub trace: bool,
    /// What models are measured with, before they are cut into stages.
    pub compute: Compute,
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
) -> Result<Summary, DistributedError> {
    let events = &mut Events::new(dir.name(), observer);
    if let Some(classes) = read_classes(dir.path())? {
        task.number_classes(&classes)?;
    }
    // Of its own: writing a large checkpoint must not keep this node from saying that it is alive.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| DistributedError::Fabric { what: "start", source: source.into() })?;
    let opened = Book::open(dir, task.about(), events)?;
    let mut driver = Driver::new(fabric.clone(), &task, opened, options);
    driver.book.begin(driver.place())?;
    if !driver.options.private {
        driver.files = files::offer(fabric, &task.config)?;
    }
    driver.tell_start(events);
    let result = runtime.block_on(driver.run(stop, events));
    driver.dismiss_all();
    if let Err(error) = &result {
        driver.book.fail(driver.place(), error);
    }
    result
}

/// What comes back from a task of its own.
enum Fetched {
    State {
        node: NodeId,
        epoch: Epoch,
        ops: Option<Ops>,
        step: u64,
        last: bool,
        blob: BlobId,
        result: Result<Bytes, String>,
    },
    /// A part of the model, when all of it was asked for.
    AskedPart {
        node: NodeId,
        ops: Ops,
        step: u64,
        asked: u64,
        result: Result<Bytes, String>,
    },
    Measured(stages::Measured),
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
    core: Recorded<FormationCore>,
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
    /// Checkpoints that nodes have made.
    incoming: Incoming,
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
    /// What was said of it last.
    told: String,
    /// For runs in which nodes hold parts of the model.
    staging: Staging,
    /// What others ask the model meanwhile.
    live: Live,
}

/// A run that fails, as soon as all have said why.
struct Failing {
    error: DistributedError,
    /// Whether that is why, and not what came of it.
    cause: bool,
    until: Instant,
}

impl<'a> Driver<'a> {
    fn new(fabric: Fabric, task: &'a Task, opened: Opened, options: DriverOptions) -> Self {
        let Opened { book, place, state } = opened;
        let before = book.read_formation();
        let formation = &task.config.formation;
        let limits = match formation.is_staged() {
            true => Limits {
                min: 1,
                wanted: formation.nodes_wanted(),
                max: usize::MAX,
                patience: formation.patience,
            },
            false => Limits {
                min: formation.min_replicas,
                wanted: formation.replicas,
                max: formation.max_replicas,
                patience: formation.patience,
            },
        };
        let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        let about = LiveRun {
            config: options.config.clone(),
            classes: task.train.classes().map(<[String]>::to_vec),
            dir: book.dir().path().display().to_string(),
        };
        let core = record(FormationSetup { limits, planned: formation.is_staged() }, &book);
        Self {
            live: Live::serve(&fabric, task, about),
            run: RunId(number),
            task,
            plan: task.plan(),
            journal: Journal::new(place.step, book.validated()),
            trace: options.trace.then(Trace::default),
            options,
            book,
            core,
            staging: Staging::after(&before),
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
            incoming: Incoming::new(task.graph.nodes.len()),
            fetched: mpsc::unbounded_channel(),
            ending: None,
            over: false,
            failing: None,
            warned: Epoch(0),
            files: Vec::new(),
            paused: None,
            told: String::new(),
            fabric,
        }
    }

    fn place(&self) -> Place {
        self.plan.place(self.journal.step())
    }

    /// Whether the model is still to be validated after these steps.
    fn owes_validation(&self, place: Place) -> bool {
        let due = Progress::new(self.plan, place, Time::ZERO).due_here();
        due.validate && self.task.valid.is_some() && self.book.validated() < place.step
    }

    fn now(&self) -> Time {
        Time::ZERO + self.book.elapsed()
    }

    fn tell_start(&self, events: &mut Events<'_>) {
        events.on(Event::Started {
            run_dir: Some(self.book.dir().path().to_owned()),
            model: self.task.graph.name.clone(),
            parameters: self.task.graph.cost().parameters as usize,
            samples: self.task.samples,
            batches_per_pass: self.plan.batches_per_pass,
            total_steps: self.plan.steps(),
            done: self.journal.step(),
        });
        for note in &self.task.notes {
            events.on(Event::Warning(note.clone()));
        }
    }

    async fn run(
        &mut self,
        mut stop: watch::Receiver<bool>,
        events: &mut Events<'_>,
    ) -> Result<Summary, DistributedError> {
        if self.journal.step() >= self.plan.steps() && !self.owes_validation(self.place()) {
            // Nothing is left to do, except perhaps to write the model.
            return self.finish(None, events);
        }
        let mut links = self.fabric.channel(FrameKind::Train);
        let mut stopping = false;
        loop {
            self.act(events)?;
            self.core.flush();
            self.pass_on_asks();
            // Checkpoints that were made before the end are written before it.
            let ended = self.over && self.ending.is_none() && self.incoming.is_quiet();
            if ended && !self.ask_for_the_end() {
                return self.finish(None, events);
            }
            // It may turn out not to be over.
            self.act(events)?;
            let tick = self.next_tick();
            let mut state = None;
            tokio::select! {
                event = links.recv() => match event {
                    Some(event) => self.on_event(event, events)?,
                    None => return Err(gone("the fabric of this node has ended")),
                },
                fetched = self.fetched.1.recv() => state = fetched,
                Some(ask) = self.live.hear() => self.live.add(ask),
                () = asked(&mut stop), if !stopping => {
                    stopping = true;
                    self.core.feed(self.now(), FormationEvent::StopAsked, &mut self.out);
                }
                () = tokio::time::sleep(tick) => self.on_tick(events)?,
            }
            if let Some(fetched) = state
                && let Some(last) = self.on_fetched(fetched, events)?
            {
                return self.finish(Some(last), events);
            }
        }
    }

    fn next_tick(&self) -> Duration {
        let core = self.core.next_tick().map(|due| due.since(self.now()));
        let failing = self.failing.as_ref().map(|f| f.until.saturating_duration_since(Instant::now()));
        let paused = self.paused.as_ref().map(|(_, at)| at.saturating_duration_since(Instant::now()));
        let look = self.next_look().map(|at| at.saturating_duration_since(Instant::now()));
        let busy = self.refused.values().flatten().min();
        let busy = busy.map(|at| at.saturating_duration_since(Instant::now()).max(RETRY / 10));
        core.into_iter()
            .chain(failing)
            .chain(paused)
            .chain(look)
            .chain(busy)
            .min()
            .unwrap_or(Duration::from_secs(3600))
    }

    fn on_tick(&mut self, events: &mut Events<'_>) -> Result<(), DistributedError> {
        if let Some((pause, _)) = self.paused.take_if(|(_, at)| *at <= Instant::now()) {
            self.tell_pause(&pause, events);
            if matches!(pause, Pause::Shortfall { .. }) {
                self.save_while_waiting();
            }
        }
        if let Some(failing) = self.failing.take_if(|failing| failing.until <= Instant::now()) {
            return Err(failing.error);
        }
        self.offer_again();
        self.look_again();
        self.core.feed(self.now(), FormationEvent::Ticked, &mut self.out);
        Ok(())
    }

    /// Says why nothing moves, once.
    fn tell_pause(&mut self, pause: &Pause, events: &mut Events<'_>) {
        let busy = self.refused.values().filter(|retry| retry.is_some()).count();
        let pause = match busy {
            0 => pause.to_string(),
            1 => format!("{pause}; 1 node is busy"),
            _ => format!("{pause}; {busy} nodes are busy"),
        };
        if self.told != pause {
            events.on(Event::Waiting(pause.clone()));
            self.told = pause;
        }
    }

    /// Writes how long steps took beside the epoch that they were done in.
    fn note_step_time(&mut self) {
        if let Some(last) = self.epochs.last_mut() {
            last.step_ms = self.journal.step_ms();
        }
    }

    /// Writes down what is sure to have happened: everything up to a step.
    fn commit(&mut self, step: u64, events: &mut Events<'_>) -> Result<(), DistributedError> {
        self.journal.commit(step, self.plan, self.task, &mut self.book, events)?;
        self.let_go_of_start();
        Ok(())
    }

    fn dismiss_all(&mut self) {
        self.live.close();
        for node in self.peers.keys() {
            self.send(node, &ToReplica::Dismiss { run: self.run });
        }
        if let Some(first) = self.first.take() {
            self.fabric.release(first.blob);
        }
        self.release_parts();
        self.files.drain(..).for_each(|file| self.fabric.release(file.blob));
    }
}

/// Makes the core, recorded in the run directory. A recording that cannot be made stops nobody.
fn record(setup: FormationSetup, book: &Book) -> Recorded<FormationCore> {
    let path = book.dir().path().join(RECORDING_FILE);
    Recorded::begin(setup, &path, RecordingLimits::default()).unwrap_or_else(|error| {
        tracing::warn!(%error, "this driver is not recorded");
        Recorded::off(<FormationCore as Replay>::new(setup))
    })
}

/// Returns when the run is to stop; never, when nobody is left who could say so.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn gone(what: &str) -> DistributedError {
    DistributedError::Fabric { what: "go on with", source: what.into() }
}
