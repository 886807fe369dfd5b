//! A replica on a thread of its own: carries out what the driver orders, one thing after the other.
//!
//! ```text
//!   orders ─► Worker:  Restore   take over a state
//!                      Prepare   make the own end of a group
//!                      Connect   train in it until it is over (Session)
//!          ◄─ reports
//! ```

use super::control::{Control, Ender};
use super::files::{self, FetchFile};
use super::lanes::{self, Connector, Lanes};
use super::report_log::ReportLog;
use super::session::{Ended, Session};
use super::together::Together;
use crate::error::DistributedError;
use bytes::Bytes;
use phalanx_protocol::progress::Place;
pub(super) use phalanx_records::with_causes;
use phalanx_records::{Blame, ModelState};
use phalanx_train::Stepper;
use phalanx_train::config::{RunConfig, RunFile};
use phalanx_train::{Compute, MakeCompute, Task, TrainError};
use phalanx_types::Epoch;
use phalanx_wire::train::{
    Enlist, Give, HoldRef, Layout, LeftWhy, Ops, Recorded, Span, Start, StepReport, ValidSums,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// What a replica is told to do.
#[derive(Debug)]
pub(super) enum Order {
    Restore(Option<Bytes>),
    Prepare {
        epoch: Epoch,
        rank: usize,
        ranks: usize,
        layout: Option<Layout>,
    },
    Connect {
        epoch: Epoch,
        ends: Vec<Bytes>,
        recorded: Recorded,
        connector: Box<dyn Connector>,
        /// With what stages begin.
        start: Option<Start>,
    },
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

/// What a replica has to say.
#[derive(Debug)]
pub(super) enum Report {
    Enlisted,
    Refused {
        reason: String,
        /// It may be able later.
        busy: bool,
    },
    Restored {
        step: u64,
    },
    Prepared {
        epoch: Epoch,
        end: Bytes,
    },
    Left {
        epoch: Epoch,
        step: Option<u64>,
        why: LeftWhy,
        holds: Vec<HoldRef>,
    },
    /// A part of the state for whoever is new to the group.
    Part {
        epoch: Epoch,
        step: u64,
        part: usize,
        parts: usize,
        bytes: Bytes,
    },
    /// Nobody is new to the group any more.
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
    /// What the model made of samples that somebody asked about.
    Computed {
        number: u64,
        step: u64,
        shape: Vec<u64>,
        bytes: Bytes,
    },
    NotComputed {
        number: u64,
        reason: String,
    },
}

/// Where reports go, with the number of the replica they come from.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    pub(super) number: u64,
    pub(super) to: tokio::sync::mpsc::UnboundedSender<(u64, Report)>,
}

impl Reports {
    pub(super) fn say(&self, report: Report) {
        // A shell that has ended wants to hear nothing.
        drop(self.to.send((self.number, report)));
    }
}

/// What a replica is told when it is opened.
pub(super) struct Opening {
    pub(super) enlist: Enlist,
    pub(super) fetch: FetchFile,
    pub(super) compute: MakeCompute,
    /// What the run may use of this node.
    pub(super) cores: usize,
    pub(super) control: Arc<Control>,
    pub(super) reports: Reports,
}

/// What a run computes with on a node where it has this many cores.
pub(super) fn compute_on(make: &MakeCompute, cores: usize, config: &RunConfig) -> Compute {
    make(Some(config.threads().map_or(cores, |threads| threads.min(cores)).max(1)))
}

/// A replica and all that it holds.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) task: Task,
    pub(super) compute: Compute,
    pub(super) stepper: Stepper,
    /// Steps that are behind its state, if it holds one.
    pub(super) step: Option<u64>,
    /// Of the optimizer over rounds, by parameter.
    pub(super) outer: phalanx_graph::Weights,
    pub(super) log: ReportLog,
    /// Microseconds of a sample, measured in the group before.
    pub(super) cost: Option<f64>,
    pub(super) trace: bool,
    pub(super) control: Arc<Control>,
    pub(super) reports: Reports,
}

/// Carries out orders until there can be no more.
pub(super) fn run(opening: Opening, orders: &Receiver<Order>) {
    let reports = opening.reports.clone();
    let refuse =
        |error: DistributedError| reports.say(Report::Refused { reason: with_causes(&error), busy: false });
    let file = match open(&opening) {
        Ok(file) => file,
        Err(error) => return refuse(error),
    };
    if file.config.formation.is_staged() {
        return super::stage::run(file, opening, orders);
    }
    let mut worker = match Worker::open(file, opening) {
        Ok(worker) => worker,
        Err(error) => return refuse(error),
    };
    worker.say(Report::Enlisted);
    let mut prepared: Option<(Epoch, Lanes)> = None;
    for order in orders {
        match order {
            Order::Restore(state) => match worker.restore(state) {
                Ok(step) => worker.say(Report::Restored { step }),
                Err(error) => worker.refuse(&error),
            },
            Order::Prepare { epoch, rank, ranks, .. } => match lanes::prepare(&worker, epoch, rank, ranks) {
                Ok((lanes, end)) => {
                    prepared = Some((epoch, lanes));
                    worker.say(Report::Prepared { epoch, end });
                }
                Err(error) => worker.refuse(&error),
            },
            Order::Cancel { epoch } => {
                prepared.take_if(|(of, _)| *of <= epoch);
            }
            Order::Connect { epoch, ends, recorded, connector, .. } => {
                let Some((_, lanes)) = prepared.take_if(|(of, _)| *of == epoch) else { continue };
                let stalls = worker.reports.clone();
                let on_wait = move |on: usize, waited: Duration| {
                    let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                    stalls.say(Report::Waits { epoch, on, millis });
                };
                let connect = || lanes.connect(&ends, &*connector, on_wait);
                let ended = worker.train(epoch, connect, recorded);
                worker.control.leave();
                worker.say(Report::AllLevel);
                worker.leave(epoch, recorded, ended);
            }
            Order::Snapshot => {
                if let Err(error) = worker.snapshot(Epoch(0)) {
                    worker.refuse(&error);
                }
            }
            // Those of nodes that hold a part of a model.
            Order::Give { .. } => {}
        }
    }
}

/// Brings the files of a run, and reads its own.
fn open(opening: &Opening) -> Result<RunFile, DistributedError> {
    let said = files::bring(&opening.enlist.files, &opening.fetch, &files::kept())?;
    Ok(RunFile::parse(Path::new("run.toml"), &opening.enlist.config, &said)?)
}

impl Worker {
    fn open(file: RunFile, opening: Opening) -> Result<Self, DistributedError> {
        let Opening { enlist, compute, cores, control, reports, .. } = opening;
        let trace = enlist.trace;
        let compute = compute_on(&compute, cores, &file.config);
        let mut task = Task::new(file.config, &compute.threads)?;
        task.agree_on(&enlist.data)?;
        let stepper = task.stepper(&compute)?;
        Ok(Self {
            task,
            compute,
            stepper,
            step: None,
            outer: phalanx_graph::Weights::new(),
            log: ReportLog::default(),
            cost: None,
            trace,
            control,
            reports,
        })
    }

    pub(super) fn say(&self, report: Report) {
        self.reports.say(report);
    }

    /// Says that it is not in a group any more, and what it knows of steps that the driver may not have heard of:
    /// there may be no other group to say it in.
    fn leave(&self, epoch: Epoch, recorded: Recorded, why: LeftWhy) {
        if let (LeftWhy::Broken { .. } | LeftWhy::Reformed | LeftWhy::Ended, Some(done)) = (&why, self.step) {
            self.log.unheard(epoch, recorded, done).into_iter().for_each(|report| self.say(report));
        }
        self.say(Report::Left { epoch, step: self.step, why, holds: Vec::new() });
    }

    fn refuse(&self, error: &DistributedError) {
        self.say(Report::Refused { reason: with_causes(error), busy: false });
    }

    /// Takes over a state, or that which every run begins with; says how many steps are behind it.
    fn restore(&mut self, state: Option<Bytes>) -> Result<u64, DistributedError> {
        let Some(bytes) = state else {
            self.stepper = self.task.stepper(&self.compute)?;
            self.stepper.load(&self.task.weights)?;
            self.outer.clear();
            self.step = Some(0);
            return Ok(0);
        };
        let step = self.take_over(bytes)?;
        Ok(step)
    }

    /// Becomes what another replica was.
    pub(super) fn take_over(&mut self, bytes: Bytes) -> Result<u64, DistributedError> {
        self.become_state(&ModelState::from_bytes(bytes)?)
    }

    pub(super) fn become_state(&mut self, state: &ModelState) -> Result<u64, DistributedError> {
        self.stepper.set_state(state)?;
        self.outer = super::round::outer_of(&state.optimizer);
        self.step = Some(state.steps());
        Ok(state.steps())
    }

    /// All that it is.
    pub(super) fn state(&self) -> Result<ModelState, DistributedError> {
        let mut state = self.stepper.state(&self.task.graph)?;
        super::round::add_outer(&self.outer, &mut state.optimizer);
        Ok(state)
    }

    /// Tells the driver all that it is.
    pub(super) fn snapshot(&self, epoch: Epoch) -> Result<(), DistributedError> {
        let Some(step) = self.step else { return Ok(()) };
        self.control.on_snapshot(epoch);
        let bytes = self.state()?.to_bytes()?.into();
        self.say(Report::Snapshot { epoch, step, ops: None, bytes });
        Ok(())
    }

    /// Where the run stands after so many steps.
    pub(super) fn place(&self, step: u64) -> Place {
        self.task.plan().place(step)
    }

    pub(super) fn remember(&mut self, report: StepReport) {
        // Those of a whole round are reported together.
        let round = usize::try_from(self.task.config.sync.every).unwrap_or(usize::MAX);
        self.log.on_step(report, round);
    }

    /// Trains in a group until it is over.
    fn train(
        &mut self,
        epoch: Epoch,
        connect: impl FnOnce() -> Result<Together, DistributedError>,
        recorded: Recorded,
    ) -> LeftWhy {
        let together = match connect() {
            Ok(together) => together,
            Err(error) => return left_by(&error),
        };
        let enders = together.aborters().into_iter().map(Ender::Group).collect();
        if let Some(reason) = self.control.enter(epoch, enders) {
            return LeftWhy::Broken { reason };
        }
        tracing::info!(rank = together.rank(), of = together.ranks(), "trains a replica");
        let session = Session::new(self, epoch, together);
        match session.run(recorded) {
            Ok(Ended::Reformed) => LeftWhy::Reformed,
            Ok(Ended::Done) => LeftWhy::Ended,
            Err(error) => left_by(&error),
        }
    }
}

/// How an error ends a group: another one may do better, unless it would meet the same.
pub(super) fn left_by(error: &DistributedError) -> LeftWhy {
    let reason = with_causes(error);
    match error {
        error if is_broken(error) => LeftWhy::Broken { reason },
        DistributedError::Replica { .. } => LeftWhy::Failed { reason, cause: false },
        DistributedError::Train(train)
            if matches!(**train, TrainError::Data(_)) && train.blame() == Blame::Input =>
        {
            LeftWhy::WrongInput { reason, hint: train.hint() }
        }
        _ => LeftWhy::Failed { reason, cause: true },
    }
}

/// Whether an error says only that the group is over.
fn is_broken(error: &DistributedError) -> bool {
    use phalanx_engine::RunError;
    match error {
        DistributedError::Together(_) => true,
        DistributedError::Train(error) => matches!(**error, TrainError::Run(RunError::Together { .. })),
        _ => false,
    }
}
