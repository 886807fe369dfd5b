//! A rank on a thread of its own: carries out what the driver orders, one order after the other.
//!
//! ```text
//!   orders ─► Worker:  Restore   take over the state of the run (a rank that holds the whole model)
//!                      Give      send a part of the state to another node
//!                      Prepare   make the own ends of a group
//!                      Connect   train in it until it is over (Session)
//!          ◄─ reports
//! ```

use super::budget::Charge;
use super::connector::{Connector, broken};
use super::copies::{Copies, Guard, Keeping};
use super::files::{FileCache, WantedFile};
use super::group_setup::{self, Ends};
use super::mailbox::{Ender, Mailbox};
use super::outlet::{Outlet, Reports};
use super::part::Part;
use super::refusal::{refusal_of, wrong_input};
use super::run_files::{at_key, bring_all, parse_of_peer};
use super::session::{Ended, Entering, Session};
use crate::data_roots::DataRoots;
use crate::error::{FileProblem, RankError};
use bytes::Bytes;
use phalanx_collective::Compression;
use phalanx_protocol::layout;
use phalanx_protocol::pipeline::ahead_in_flow;
use phalanx_protocol::progress::Place;
use phalanx_protocol::{PassStart, Passes, ReportLog, Unheard};
pub(super) use phalanx_records::with_causes;
use phalanx_records::{Blame, ModelState, state_bytes_limit};
use phalanx_train::config::{Override, RunConfig, RunFile};
use phalanx_train::stream::check_host;
use phalanx_train::{Compute, Losses, MakeCompute, Task, TrainError};
use phalanx_types::Epoch;
use phalanx_wire::detail::Detail;
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::train::{
    Enlist, FileRef, Give, HoldRef, Layout, LeftWhy, Ops, Recorded, SealedPass, Span, Start, StepReport,
    ValidSums,
};
use phalanx_wire::train_reason::{BreakReason, QueryRefusal, RankFailure, RunRefusal};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// With whom and with what a group begins.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) epoch: Epoch,
    /// The ends of all ranks, in their order.
    pub(super) ends: Vec<RankEnds>,
    pub(super) recorded: Recorded,
    pub(super) connector: Box<dyn Connector>,
    /// With what stages begin; replicas agree among themselves.
    pub(super) start: Option<Start>,
    /// A pass that begins no later than the step that the group begins with.
    pub(super) pass: PassStart,
}

/// What a rank is told to do.
#[derive(Debug)]
pub(super) enum Order {
    Restore(Option<(Bytes, Charge)>),
    Prepare {
        epoch: Epoch,
        rank: usize,
        ranks: usize,
        layout: Option<Layout>,
    },
    Connect(Beginning),
    /// Send a part of the state to another node.
    Give {
        epoch: Epoch,
        give: Give,
        connector: Box<dyn Connector>,
    },
    /// Forget the group that was prepared.
    Cancel {
        epoch: Epoch,
    },
    /// Say all that the model is.
    Snapshot,
}

/// What a rank has to say.
#[derive(Debug)]
pub(crate) enum Report {
    Enlisted,
    /// Its thread has ended.
    Over,
    Refused(RunRefusal),
    Restored {
        step: u64,
    },
    Prepared {
        epoch: Epoch,
        ends: RankEnds,
    },
    Left {
        epoch: Epoch,
        step: Option<u64>,
        why: LeftWhy,
        holds: Vec<HoldRef>,
    },
    /// A part of the state for ranks that are new to the group.
    Part {
        epoch: Epoch,
        step: u64,
        part: usize,
        parts: usize,
        bytes: Bytes,
    },
    /// No rank is new to the group any more.
    AllLevel,
    Steps {
        epoch: Epoch,
        steps: Vec<StepReport>,
    },
    Validated {
        epoch: Epoch,
        step: u64,
        sums: ValidSums,
    },
    Snapshot {
        epoch: Epoch,
        step: u64,
        /// The part of the model that it is of, unless it is all of it.
        ops: Option<Ops>,
        bytes: Bytes,
    },
    Spans {
        epoch: Epoch,
        rank: usize,
        spans: Vec<Span>,
    },
    Waits {
        epoch: Epoch,
        on: usize,
        millis: u64,
    },
    /// What the model made of samples of a live query.
    Computed {
        number: u64,
        step: u64,
        shape: Vec<u64>,
        bytes: Bytes,
    },
    NotComputed {
        number: u64,
        refusal: QueryRefusal,
    },
    /// The next pass over the stream cannot begin yet.
    StreamWaits {
        epoch: Epoch,
        step: u64,
        wait: Detail,
        ended: Option<SealedPass>,
    },
    /// The stream has no more samples.
    StreamEnded {
        epoch: Epoch,
        step: u64,
        ended: Option<SealedPass>,
    },
}

/// Brings the bytes of a file from the driver.
pub(super) type FetchFile = Box<dyn Fn(&FileRef) -> Result<Bytes, FileProblem> + Send>;

/// What a rank is told when it is opened.
pub(super) struct Opening {
    pub(super) enlist: Enlist,
    pub(super) fetch: FetchFile,
    /// The longest file that is fetched.
    pub(super) most_file: u64,
    /// What the node may open besides the files of the driver.
    pub(super) roots: DataRoots,
    pub(super) compute: MakeCompute,
    /// The custom losses that this node has.
    pub(super) losses: Losses,
    /// What the run may use of this node.
    pub(super) cores: usize,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) reports: Reports,
}

/// What a run computes with on a node where it has this many cores.
fn compute_on(make: &MakeCompute, cores: usize, config: &RunConfig) -> Compute {
    make(Some(config.threads().map_or(cores, |threads| threads.min(cores)).max(1)))
}

/// Ranks of a group, at most. A driver that asks for more is no driver.
const MOST_RANKS: usize = 16 << 10;

/// Whether a layout has no more ranks than a group can have.
fn is_countable(layout: &Layout) -> bool {
    layout.replicas.iter().map(|replica| replica.stages.len().max(1)).sum::<usize>() <= MOST_RANKS
}

/// Frames that may wait beyond those that the order of moves needs.
const SPARE_FRAMES: usize = 2;

/// A rank and all that it holds.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    pub(crate) task: Task,
    pub(super) compute: Compute,
    /// What it holds of the model; a rank without stages always has all of it, perhaps still without a state.
    pub(crate) part: Option<Part>,
    /// What it keeps of its neighbours.
    pub(super) copies: Copies,
    /// Of activations and their gradients.
    pub(super) compression: Compression,
    pub(super) log: ReportLog,
    /// The passes over the data, as far as this rank knows them.
    pub(crate) passes: Passes,
    /// Microseconds of a sample, measured in the group before.
    pub(super) cost: Option<f64>,
    pub(super) trace: bool,
    /// Counts the parts of the state that are being sent, by its clones.
    pub(super) gives: Arc<()>,
    /// Says whether errors may quote the data.
    pub(super) roots: DataRoots,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) outlet: Outlet<'a>,
}

/// Opens a run and carries out orders until there can be no more.
pub(super) fn run(opening: Opening, orders: &Receiver<Order>) {
    match read_run_file(&opening) {
        Ok(file) => carry_out_all(file, opening, orders),
        Err(error) => opening.reports.say(unable(&error, &opening.roots)),
    }
}

/// The same for a run file that was read.
pub(super) fn carry_out_all(file: RunFile, opening: Opening, orders: &Receiver<Order>) {
    let (reports, roots) = (opening.reports.clone(), opening.roots.clone());
    let mut worker = match Worker::open(file, opening) {
        Ok(worker) => worker,
        Err(error) => return reports.say(unable(&error, &roots)),
    };
    worker.say(Report::Enlisted);
    let mut prepared: Option<Ends> = None;
    for order in orders {
        if let Err(error) = worker.carry_out(order, &mut prepared) {
            worker.say(unable(&error, &roots));
        }
    }
}

fn unable(error: &RankError, roots: &DataRoots) -> Report {
    Report::Refused(refusal_of(error, roots))
}

/// Brings the files of a run, and reads its run file. Before, nothing that it names is opened.
fn read_run_file(opening: &Opening) -> Result<RunFile, RankError> {
    let Enlist { config, files, .. } = &opening.enlist;
    let listed: Vec<WantedFile<'_>> = files.iter().map(wanted).collect();
    let mut cache = FileCache::usual().with_roots(opening.roots.clone()).with_limit(opening.most_file);
    let fetch = |index: usize| files.get(index).map_or(Err(FileProblem::NoWay), |file| (opening.fetch)(file));
    let told = parse_of_peer(config, &[])?;
    let here = bring_all(&told.config, &listed, None, &mut cache, fetch)?;
    let said: Vec<Override> = here.iter().map(|(key, path)| at_key(key, path)).collect();
    parse_of_peer(config, &said)
}

fn wanted(file: &FileRef) -> WantedFile<'_> {
    let FileRef { key, path, bytes, sha256, .. } = file;
    WantedFile { key, path, bytes: *bytes, sha256 }
}

impl Worker<'static> {
    fn open(file: RunFile, opening: Opening) -> Result<Self, RankError> {
        let Opening { enlist, compute, losses, cores, mailbox, reports, roots, .. } = opening;
        let compute = compute_on(&compute, cores, &file.config);
        let staged = file.config.formation.is_staged();
        let open = if staged { Task::of_stages } else { Task::new };
        check_host(&file.config, enlist.data.stream.as_ref())?;
        let mut task = open(file.config, &compute.threads)?;
        task.take_loss(&losses)?;
        task.agree_on(&enlist.data)?;
        let mut worker =
            Self { trace: enlist.trace, roots, ..Self::new(task, compute, mailbox, Outlet::Driver(reports)) };
        if !staged {
            worker.part = Some(Part::compile(&worker.task, &worker.compute, worker.whole_model())?);
        }
        Ok(worker)
    }
}

impl<'a> Worker<'a> {
    pub(crate) fn new(task: Task, compute: Compute, mailbox: Arc<Mailbox>, outlet: Outlet<'a>) -> Self {
        Self {
            part: None,
            copies: Copies::default(),
            compression: task.config.formation.compress,
            log: ReportLog::default(),
            passes: Passes::new(task.plan(), Place::default()),
            cost: None,
            trace: false,
            gives: Arc::default(),
            roots: DataRoots::default(),
            task,
            compute,
            mailbox,
            outlet,
        }
    }

    fn carry_out(&mut self, order: Order, prepared: &mut Option<Ends>) -> Result<(), RankError> {
        match order {
            Order::Restore(state) => {
                let step = self.restore(state.map(|(bytes, _charge)| bytes))?;
                self.say(Report::Restored { step });
            }
            Order::Prepare { epoch, rank, ranks, layout } => {
                if ranks > MOST_RANKS || layout.as_ref().is_some_and(|layout| !is_countable(layout)) {
                    return Err(broken(format!("a group has {MOST_RANKS} ranks at most")));
                }
                let layout = layout.unwrap_or_else(|| self.replicas(ranks));
                let (own, ends) = group_setup::prepare(&self.task, self.part.as_ref(), epoch, rank, layout)?;
                *prepared = Some(own);
                self.say(Report::Prepared { epoch, ends });
            }
            Order::Cancel { epoch } => drop(prepared.take_if(|ends| ends.epoch <= epoch)),
            Order::Give { epoch, give, connector } => {
                if let Err(error) = self.give(epoch, &give, connector) {
                    tracing::warn!(error = with_causes(&error), "could not give a part of the state");
                }
            }
            Order::Connect(beginning) => {
                let Beginning { epoch, recorded, .. } = beginning;
                let why = match prepared.take_if(|own| own.epoch == epoch) {
                    Some(own) => self.train(own, beginning),
                    // It was cancelled. The driver waits for this rank.
                    None => {
                        let over = self.mailbox.why_over(epoch);
                        LeftWhy::Broken { reason: over.unwrap_or(BreakReason::NotPrepared) }
                    }
                };
                self.leave(epoch, recorded, why)?;
            }
            Order::Snapshot => self.tell_state(Epoch(0))?,
        }
        Ok(())
    }

    pub(super) fn say(&self, report: Report) {
        self.outlet.say(report);
    }

    fn is_staged(&self) -> bool {
        self.task.config.formation.is_staged()
    }

    /// All operators.
    pub(crate) fn whole_model(&self) -> Ops {
        Ops { start: 0, end: self.task.graph.nodes.len() as u32 }
    }

    /// A formation of ranks that each hold the whole model, with equal shares of a batch to begin with.
    fn replicas(&self, ranks: usize) -> Layout {
        let batch = self.task.config.train.batch * self.task.config.train.accumulate;
        layout::replicas(self.whole_model(), batch, ranks)
    }

    /// Steps that the state of the run has behind it, if this rank holds it.
    fn steps_held(&self) -> Option<u64> {
        self.part.as_ref().filter(|part| part.is_level).map(|part| part.step)
    }

    /// Says that it is not in a group any more, what it holds, and what it knows of steps that the driver may not have
    /// heard of: there may be no other rank left that does, and no other group to say it in.
    fn leave(&mut self, epoch: Epoch, recorded: Recorded, why: LeftWhy) -> Result<(), RankError> {
        self.mailbox.leave();
        self.say(Report::AllLevel);
        let step = self.steps_held();
        if let (LeftWhy::Broken { .. } | LeftWhy::Reformed | LeftWhy::Ended, Some(done)) = (&why, step) {
            self.say_unheard(epoch, recorded, done);
        }
        let holds = if self.is_staged() { self.holds() } else { Vec::new() };
        self.say(Report::Left { epoch, step, why, holds });
        match &mut self.part {
            // A step that other replicas have done comes with their state.
            Some(part) if !self.task.config.formation.is_staged() => part.undo(),
            _ => Ok(()),
        }
    }

    /// Takes over a state, or that which every run begins with; says how many steps are behind it.
    fn restore(&mut self, state: Option<Bytes>) -> Result<u64, RankError> {
        let ops = self.whole_model();
        let state = match state {
            Some(bytes) => ModelState::from_bytes(bytes)?,
            None => ModelState { weights: self.task.weights.clone(), ..ModelState::default() },
        };
        match &mut self.part {
            Some(part) if state.steps() > 0 => part.take_over(&state)?,
            part => *part = Some(Part::new(&self.task, &self.compute, ops, &state)?),
        }
        Ok(state.steps())
    }

    pub(super) fn remember(&mut self, report: StepReport) {
        // Steps of a round are reported together; units of asynchronous stages are shorter than what is remembered
        // anyway.
        let together = usize::try_from(self.task.config.sync.every).unwrap_or(0);
        self.log.on_step(report, together);
    }

    /// Tells the driver what it has not recorded, of the steps up to `done`.
    pub(super) fn say_unheard(&self, epoch: Epoch, recorded: Recorded, done: u64) {
        let Unheard { steps, validations } = self.log.unheard(recorded, done);
        if !steps.is_empty() {
            self.say(Report::Steps { epoch, steps });
        }
        for (step, sums) in validations {
            self.say(Report::Validated { epoch, step, sums });
        }
    }

    /// Reports of the steps after one. Only a driver may have to hear them again.
    pub(super) fn reports_since(&mut self, step: u64) -> Vec<StepReport> {
        match self.outlet.is_driver() {
            true => self.log.since(step),
            false => self.log.take_steps(),
        }
    }

    /// An upper limit for the bytes of any part of the state.
    pub(super) fn most_bytes(&self) -> u64 {
        state_bytes_limit(&self.task.graph, &self.task.config.train.optimizer)
    }

    /// Frames that may be on their way to a stage.
    pub(super) fn queue(&self, layout: &Layout) -> usize {
        let stages = layout.replicas.iter().map(|replica| replica.stages.len()).max().unwrap_or(1);
        let in_flight = self.task.config.formation.in_flight_of(stages);
        let ahead = self.task.config.formation.ahead;
        ahead_in_flow(0, stages, in_flight).max(stages + ahead) + SPARE_FRAMES
    }

    /// Tells the driver what this rank holds of the model, if that is the state of the run.
    fn tell_state(&self, epoch: Epoch) -> Result<(), RankError> {
        match self.part.as_ref().filter(|part| part.is_level) {
            Some(part) => self.tell_part(epoch, part),
            None => Ok(()),
        }
    }

    /// Tells the driver a part of the model.
    pub(super) fn tell_part(&self, epoch: Epoch, part: &Part) -> Result<(), RankError> {
        if self.outlet.is_driver() {
            self.mailbox.on_snapshot(epoch);
        }
        let ops = (part.ops != self.whole_model() || self.is_staged()).then_some(part.ops);
        self.say(Report::Snapshot { epoch, step: part.step, ops, bytes: part.packed()? });
        Ok(())
    }

    /// Trains in a group until it is over.
    fn train(&mut self, own: Ends, beginning: Beginning) -> LeftWhy {
        let Beginning { epoch, recorded, .. } = beginning;
        let session = match self.enter(own, beginning) {
            Ok(session) => session,
            Err(error) => return left_by(&error, self.mailbox.why_over(epoch), &self.roots),
        };
        let mailbox = session.worker.mailbox.clone();
        let roots = session.worker.roots.clone();
        let over = match session.enders() {
            Ok(enders) => mailbox.enter(epoch, enders),
            Err(error) => Some(BreakReason::Failed { detail: with_causes(&error).into() }),
        };
        if let Some(reason) = over {
            session.worker.part = Some(session.part);
            return LeftWhy::Broken { reason };
        }
        let (post, nodes) = (&session.post, &session.part.graph.nodes);
        tracing::info!(
            replica = post.replica,
            stage = post.stage + 1,
            of = post.stages,
            first = nodes.first().map(|node| node.name.as_str()),
            last = nodes.last().map(|node| node.name.as_str()),
            step = session.part.step,
            "trains"
        );
        match session.run(recorded) {
            Ok(Ended::Reformed) => LeftWhy::Reformed,
            Ok(Ended::Done) => LeftWhy::Ended,
            Err(error) => left_by(&error, mailbox.why_over(epoch), &roots),
        }
    }

    /// Joins the others, and acquires its part of the state where the driver has said from whom.
    fn enter(&mut self, own: Ends, beginning: Beginning) -> Result<Session<'_, 'a>, RankError> {
        let Beginning { epoch, ends, connector, start, pass, .. } = beginning;
        self.passes.restart(Place { step: pass.step, pass: pass.pass, ..Place::default() });
        let (post, rank, layout) = (own.post(), own.rank, own.layout.clone());
        let stalls = self.outlet.driver();
        let on_wait = move |on: usize, waited: Duration| {
            let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            stalls.iter().for_each(|stalls| stalls.say(Report::Waits { epoch, on, millis }));
        };
        let joined = own.connect(&self.task, &ends, &*connector, on_wait)?;
        let every = match layout.replicas.len() {
            1 => self.task.config.formation.copies,
            // Other replicas hold the same.
            _ => 0,
        };
        let keeping = Keeping { every, most: self.most_bytes() };
        let guard = Guard::new(keeping, post, rank, &self.copies, epoch, &*connector)?;
        let is_planned = start.is_some();
        // When all are connected: a rank that gets much would keep the others waiting beyond their patience.
        let part = match &start {
            Some(start) => self.acquire_state(epoch, post.ops, start, &*connector)?,
            None => match self.part.take() {
                Some(part) => part,
                None => Part::compile(&self.task, &self.compute, post.ops)?,
            },
        };
        Session::new(self, part, Entering { epoch, rank, layout, joined, guard, is_planned })
    }
}

impl Session<'_, '_> {
    /// All that has to end so that nothing is waited for here any more.
    fn enders(&self) -> Result<Vec<Ender>, RankError> {
        let mut enders: Vec<Ender> =
            self.rings.aborters().chain(self.lane.aborter()).map(Ender::Group).collect();
        for pipe in self.prev.iter().chain(&self.next) {
            enders.push(Ender::Socket(pipe.socket()?));
        }
        enders.extend(self.guard.sockets().map(Ender::Socket));
        Ok(enders)
    }
}

/// How an error ends a group: another one may do better, unless it would meet the same. `over` is why the shell has
/// ended the group, if it has.
pub(super) fn left_by(error: &RankError, over: Option<BreakReason>, roots: &DataRoots) -> LeftWhy {
    if is_broken(error) {
        let seen = || BreakReason::Failed { detail: with_causes(error).into() };
        return LeftWhy::Broken { reason: over.unwrap_or_else(seen) };
    }
    let detail = || with_causes(error).into();
    LeftWhy::Failed(match error {
        RankError::Step(failure) => RankFailure::Step(*failure),
        RankError::Train(train)
            if matches!(**train, TrainError::Data(_)) && train.blame() == Blame::Input =>
        {
            wrong_input(error, train, roots)
        }
        _ => RankFailure::Error { detail: detail() },
    })
}

/// Whether an error says only that the group is over.
fn is_broken(error: &RankError) -> bool {
    use phalanx_engine::RunError;
    match error {
        RankError::Together(_) => true,
        RankError::Train(error) => matches!(**error, TrainError::Run(RunError::Together { .. })),
        _ => false,
    }
}
