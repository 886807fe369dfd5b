//! The driver of a run: the shell around [`DriverCore`].
//!
//! ```text
//!   links, replies, stop, time ──► inbound ──► DriverCore decides ──► execute: messages, records, files
//!                                                                 └─► planner thread, fetches ──► replies
//! ```
//! It decides nothing: it stamps events with the time, carries commands out in their order, and keeps the bytes that
//! the core knows by their tickets. Planning and measuring run elsewhere, so that the event loop never blocks on them.

mod error;
mod execute;
mod files;
mod groups;
mod inbound;
pub mod live;
mod live_queries;
mod machines;
mod planner;
mod states;
mod trace;

pub use error::{DriverError, shortfall_hint};

use groups::Groups;
use live_queries::Live;
use machines::Machines;
use phalanx_fabric::{Fabric, FrameKind, LinkKey, Peer};
use phalanx_protocol::Limits;
use phalanx_protocol::driver::{DriverCommand, DriverConfig, DriverCore, DriverEvent, StagedConfig, Ticket};
use phalanx_protocol::progress::Place;
use phalanx_recording::{Limits as RecordingLimits, Recorded};
use phalanx_records::ModelState;
use phalanx_records::run_dir::read_classes;
use phalanx_records::run_dir::{Manifest, RunDir};
use phalanx_records::{Book, Opened};
use phalanx_records::{Event, Events, Observer, Summary};
use phalanx_train::{Compute, Task};
use phalanx_types::{NodeId, Outbox, RunId, Time};
use phalanx_wire::live::LiveRun;
use phalanx_wire::train::{FileRef, ToReplica};
use planner::{PlanDetail, Planner};
use states::Reply;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use trace::Trace;

/// The recording of what the driver's core is told, in the run directory.
const RECORDING_FILE: &str = "driver.recording";
/// How often the recording is handed to the operating system: a step of a small model takes less than a write.
const FLUSH: Duration = Duration::from_millis(100);

/// What a driver is told besides the run.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    /// The resolved run file, for the nodes.
    pub config: String,
    /// Whether all nodes are started by this process: they have its files, and no other node can join.
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
) -> Result<Summary, DriverError> {
    let events = &mut Events::of_run(&dir, observer)?;
    if let Some(classes) = read_classes(dir.path())? {
        task.number_classes(&classes)?;
    }
    // Of its own: writing a large checkpoint must not keep this node from saying that it is alive.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| DriverError::Fabric { what: "start", source: source.into() })?;
    let opened = Book::open(dir, task.about(), events)?;
    if let Some(stream) = &task.stream {
        stream.open_run(opened.book.dir(), opened.book.name(), opened.place)?;
    }
    let mut driver = Driver::new(fabric.clone(), &task, opened, options);
    driver.book.begin(driver.place())?;
    if !driver.options.private {
        let (files, notes) = files::offer(fabric, &task.config)?;
        driver.files = files;
        notes.into_iter().for_each(|note| events.on(Event::Warning(note)));
    }
    driver.tell_start(events);
    let result = runtime.block_on(driver.run(stop, events));
    driver.dismiss_all();
    // A state that is being read is of no use any more.
    runtime.shutdown_background();
    if let Err(error) = &result {
        driver.book.fail(driver.place(), error, events);
    }
    result
}

/// The shell of a run's driver.
struct Driver<'a> {
    fabric: Fabric,
    run: RunId,
    task: &'a Task,
    options: DriverOptions,
    book: Book,
    core: Recorded<DriverCore>,
    trace: Option<Trace>,
    peers: BTreeMap<NodeId, Peer>,
    nodes: BTreeMap<LinkKey, NodeId>,
    groups: Groups,
    /// Of the newest checkpoint, when the run was taken up or has gone back to it.
    state: Option<ModelState>,
    /// States that were fetched.
    fetched: BTreeMap<Ticket, ModelState>,
    /// What checkpoints say of the run as it stood after their step.
    drafts: BTreeMap<u64, Manifest>,
    planner: Planner,
    plans: BTreeMap<Ticket, Arc<PlanDetail>>,
    plan_errors: BTreeMap<Ticket, DriverError>,
    machines: Machines,
    replies: (mpsc::UnboundedSender<Reply>, mpsc::UnboundedReceiver<Reply>),
    /// Held for nodes to fetch.
    files: Vec<FileRef>,
    live: Live,
    summary: Option<Summary>,
}

impl<'a> Driver<'a> {
    fn new(fabric: Fabric, task: &'a Task, opened: Opened, options: DriverOptions) -> Self {
        let Opened { book, place, state } = opened;
        let before = book.read_formation();
        let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        let run = RunId(number);
        let about = LiveRun {
            config: options.config.clone(),
            classes: task.train.classes().map(<[String]>::to_vec),
            dir: book.dir().map(|dir| dir.path().display().to_string()).unwrap_or_default(),
        };
        let config = core_config(&fabric, run, task, &options, place, book.validated(), &before);
        let replies = mpsc::unbounded_channel();
        Self {
            live: Live::serve(&fabric, task, about),
            run,
            task,
            core: record(config, &book),
            trace: options.trace.then(Trace::default),
            planner: Planner::start(task, &options.compute, replies.0.clone()),
            options,
            book,
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            groups: Groups::after(before),
            state,
            fetched: BTreeMap::new(),
            drafts: BTreeMap::new(),
            plans: BTreeMap::new(),
            plan_errors: BTreeMap::new(),
            machines: Machines::default(),
            replies,
            files: Vec::new(),
            summary: None,
            fabric,
        }
    }

    fn place(&self) -> Place {
        let step = self.core.recorded().step;
        self.core.place(step).unwrap_or(Place { step, ..Place::default() })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.book.elapsed()
    }

    fn tell_start(&self, events: &mut Events<'_>) {
        let plan = self.task.plan();
        events.on(Event::Started {
            run_dir: self.book.dir().map(|dir| dir.path().to_owned()),
            model: self.task.graph.name.clone(),
            parameters: self.task.graph.cost().parameters as usize,
            samples: self.task.stream.is_none().then_some(self.task.samples),
            batches_per_pass: plan.batches_per_pass(),
            total_steps: plan.steps(),
            done: self.core.recorded().step,
        });
        for note in &self.task.notes {
            events.on(Event::Warning(note.clone()));
        }
        if let Some(note) = self.task.config.formation.timing_note() {
            events.on(Event::Note(note.to_owned()));
        }
    }

    async fn run(
        &mut self,
        mut stop: watch::Receiver<bool>,
        events: &mut Events<'_>,
    ) -> Result<Summary, DriverError> {
        let mut links = self.fabric.channel(FrameKind::Train);
        let mut stopping = false;
        let mut next = Some(DriverEvent::Started);
        let mut flush_at = tokio::time::Instant::now();
        loop {
            if let Some(event) = next.take() {
                self.feed(event, events)?;
            }
            if let Some(summary) = self.summary.take() {
                return Ok(summary);
            }
            let now = tokio::time::Instant::now();
            if now >= flush_at {
                self.core.flush();
                flush_at = now + FLUSH;
            }
            let unflushed = self.core.has_unflushed();
            let tick = self.core.next_tick().map(|due| due.since(self.now()));
            tokio::select! {
                event = links.recv() => match event {
                    Some(event) => next = self.on_link(event),
                    None => return Err(gone("the fabric of this node has ended")),
                },
                Some(reply) = self.replies.1.recv() => next = Some(self.on_reply(reply)),
                Some(query) = self.live.hear() => next = Some(DriverEvent::QueryAsked { query }),
                () = asked(&mut stop), if !stopping => {
                    stopping = true;
                    next = Some(DriverEvent::StopAsked);
                }
                () = tokio::time::sleep(tick.unwrap_or(FOREVER)) => next = Some(DriverEvent::Tick),
                // The next turn flushes.
                () = tokio::time::sleep_until(flush_at), if unflushed => {}
            }
        }
    }

    /// Gives an event to the core and carries out what follows. The reply to a command is taken in before the commands
    /// after it are carried out.
    fn feed(&mut self, event: DriverEvent, events: &mut Events<'_>) -> Result<(), DriverError> {
        let mut out = Outbox::default();
        self.core.feed(self.now(), event, &mut out);
        let mut commands: VecDeque<DriverCommand> = out.drain().collect();
        while let Some(command) = commands.pop_front() {
            if let Some(reply) = self.execute(command, events)? {
                self.core.feed(self.now(), reply, &mut out);
                out.drain().rev().for_each(|command| commands.push_front(command));
            }
        }
        Ok(())
    }

    fn dismiss_all(&mut self) {
        self.live.close();
        for node in self.peers.keys() {
            self.send(node, &ToReplica::Dismiss { run: self.run });
        }
        self.release_start();
        self.files.drain(..).for_each(|file| self.fabric.release(file.blob));
    }
}

/// Longer than any run sleeps without an event.
const FOREVER: Duration = Duration::from_secs(3600);

fn core_config(
    fabric: &Fabric,
    run: RunId,
    task: &Task,
    options: &DriverOptions,
    place: Place,
    validated: u64,
    before: &[serde_json::Value],
) -> DriverConfig {
    let formation = &task.config.formation;
    let limits = match formation.is_staged() {
        true => {
            Limits { min: 1, wanted: formation.nodes_wanted(), max: usize::MAX, patience: formation.patience }
        }
        false => Limits {
            min: formation.min_replicas,
            wanted: formation.replicas,
            max: formation.max_replicas,
            patience: formation.patience,
        },
    };
    // Batches are cut as drivers before this one did.
    let parts = before.last().and_then(|epoch| epoch["micro_batches"].as_u64());
    let staged = StagedConfig {
        measures: formation.measure && formation.local == 0,
        calibrates: !formation.is_asynchronous(),
        micro_batches: parts.map(|parts| parts as usize),
    };
    DriverConfig {
        driver: fabric.id().clone(),
        run,
        plan: task.plan(),
        validates: task.valid.is_some(),
        limits,
        operators: task.graph.nodes.len(),
        staged: formation.is_staged().then_some(staged),
        private_nodes: options.private.then_some(formation.local),
        place,
        validated,
    }
}

/// Makes the core, recorded in the run directory. A recording that cannot be made does not stop the run.
fn record(config: DriverConfig, book: &Book) -> Recorded<DriverCore> {
    let Some(dir) = book.dir() else { return Recorded::off(DriverCore::new(config)) };
    let path = dir.file(RECORDING_FILE);
    Recorded::begin(config.clone(), &path, RecordingLimits::default()).unwrap_or_else(|error| {
        tracing::warn!(%error, "this driver is not recorded");
        Recorded::off(DriverCore::new(config))
    })
}

/// Returns when the run is to stop; never, if the sender is gone.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn gone(what: &str) -> DriverError {
    DriverError::Fabric { what: "go on with", source: what.into() }
}
