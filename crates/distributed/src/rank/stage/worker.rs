//! A node that holds a stage, on a thread of its own: carries out what the driver orders.

use super::super::control::{Control, Ender};
use super::super::lanes::Connector;
use super::super::report_log::ReportLog;
use super::super::session::Ended;
use super::super::worker::{Opening, Order, Report, Reports, compute_on, left_by, with_causes};
use super::copies::{Copies, Guard, Keeping};
use super::part::Part;
use super::prepare::{self, Ends};
use super::session::{Entering, Session};
use crate::error::DistributedError;
use bytes::Bytes;
use phalanx_collective::Compression;
use phalanx_protocol::pipeline::ahead_in_flow;
use phalanx_protocol::progress::Place;
use phalanx_records::state_bytes_limit;
use phalanx_train::config::RunFile;
use phalanx_train::{Compute, Task};
use phalanx_types::Epoch;
use phalanx_wire::train::{Layout, LeftWhy, Recorded, Start, StepReport};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Frames that may wait beyond those that the order of moves needs.
const SPARE_FRAMES: usize = 2;

/// A stage and all that it holds.
#[derive(Debug)]
pub(super) struct StageWorker {
    pub(super) task: Task,
    pub(super) compute: Compute,
    pub(super) part: Option<Part>,
    pub(super) copies: Copies,
    /// Of activations and their gradients.
    pub(super) compression: Compression,
    pub(super) log: ReportLog,
    pub(super) trace: bool,
    pub(super) control: Arc<Control>,
    reports: Reports,
}

/// With whom and with what a group begins.
struct Beginning {
    epoch: Epoch,
    ends: Vec<Bytes>,
    recorded: Recorded,
    connector: Box<dyn Connector>,
    start: Start,
}

/// Carries out orders until there can be no more.
pub(in super::super) fn run(file: RunFile, opening: Opening, orders: &Receiver<Order>) {
    let reports = opening.reports.clone();
    let mut worker = match StageWorker::open(file, opening) {
        Ok(worker) => worker,
        Err(error) => return reports.say(Report::Refused { reason: with_causes(&error), busy: false }),
    };
    worker.say(Report::Enlisted);
    let mut prepared: Option<Ends> = None;
    for order in orders {
        match order {
            Order::Prepare { epoch, rank, layout: Some(layout), .. } => {
                match prepare::prepare(&worker.task, epoch, rank, layout) {
                    Ok((ends, end)) => {
                        prepared = Some(ends);
                        worker.say(Report::Prepared { epoch, end });
                    }
                    Err(error) => worker.refuse(&error),
                }
            }
            Order::Cancel { epoch } => drop(prepared.take_if(|ends| ends.epoch <= epoch)),
            Order::Give { epoch, give, connector } => {
                if let Err(error) = worker.give(epoch, &give, connector) {
                    tracing::warn!(error = with_causes(&error), "could not give a part of the state");
                }
            }
            Order::Connect { epoch, ends, recorded, connector, start: Some(start) } => {
                let why = match prepared.take_if(|own| own.epoch == epoch) {
                    Some(own) => {
                        let beginning = Beginning { epoch, ends, recorded, connector, start };
                        worker.train(own, beginning)
                    }
                    // It was cancelled. The driver waits for this stage.
                    None => {
                        let reason =
                            worker.control.why_over(epoch).unwrap_or_else(|| "it is not ready".to_owned());
                        LeftWhy::Broken { reason }
                    }
                };
                worker.leave(epoch, recorded, why);
            }
            // Those of nodes that hold a whole model.
            Order::Restore(_)
            | Order::Snapshot
            | Order::Prepare { layout: None, .. }
            | Order::Connect { start: None, .. } => {}
        }
    }
}

impl StageWorker {
    fn open(file: RunFile, opening: Opening) -> Result<Self, DistributedError> {
        let Opening { enlist, compute, cores, control, reports, .. } = opening;
        let compute = compute_on(&compute, cores, &file.config);
        let mut task = Task::of_stages(file.config, &compute.threads)?;
        task.agree_on(&enlist.data)?;
        Ok(Self { trace: enlist.trace, ..Self::new(task, compute, control, reports) })
    }

    pub(super) fn new(task: Task, compute: Compute, control: Arc<Control>, reports: Reports) -> Self {
        Self {
            part: None,
            copies: Copies::default(),
            compression: task.config.formation.compress,
            log: ReportLog::default(),
            trace: false,
            task,
            compute,
            control,
            reports,
        }
    }

    pub(super) fn say(&self, report: Report) {
        self.reports.say(report);
    }

    /// Says that it is not in a group any more, what it holds, and what it knows of steps that the driver may not have
    /// heard of: nobody else may be left who does.
    fn leave(&self, epoch: Epoch, recorded: Recorded, why: LeftWhy) {
        self.control.leave();
        let done = self.part.as_ref().map(|part| part.step);
        if let (LeftWhy::Broken { .. } | LeftWhy::Reformed | LeftWhy::Ended, Some(done)) = (&why, done) {
            self.log.unheard(epoch, recorded, done).into_iter().for_each(|report| self.say(report));
        }
        self.say(Report::Left { epoch, step: done, why, holds: self.holds() });
    }

    fn refuse(&self, error: &DistributedError) {
        self.say(Report::Refused { reason: with_causes(error), busy: false });
    }

    /// Where the run stands after so many steps.
    pub(super) fn place(&self, step: u64) -> Place {
        self.task.plan().place(step)
    }

    pub(super) fn remember(&mut self, report: StepReport) {
        // Those of a whole round are reported together; units of asynchronous stages are shorter than what is
        // remembered anyway.
        let round = usize::try_from(self.task.config.sync.every).unwrap_or(0);
        self.log.on_step(report, round);
    }

    /// No part of the state has more.
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

    /// Tells the driver a part of the model.
    pub(super) fn tell_state(&self, epoch: Epoch, part: &Part) -> Result<(), DistributedError> {
        self.control.on_snapshot(epoch);
        let bytes = part.packed()?;
        self.say(Report::Snapshot { epoch, step: part.step, ops: Some(part.ops), bytes });
        Ok(())
    }

    /// Trains in a group until it is over.
    fn train(&mut self, own: Ends, beginning: Beginning) -> LeftWhy {
        let epoch = beginning.epoch;
        let recorded = beginning.recorded;
        let session = match self.enter(own, beginning) {
            Ok(session) => session,
            Err(error) => return left_by(&error),
        };
        let control = session.worker.control.clone();
        let over = match session.enders() {
            Ok(enders) => control.enter(epoch, enders),
            Err(error) => Some(with_causes(&error)),
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
            "trains a stage"
        );
        match session.run(recorded) {
            Ok(Ended::Reformed) => LeftWhy::Reformed,
            Ok(Ended::Done) => LeftWhy::Ended,
            Err(error) => left_by(&error),
        }
    }

    /// Comes by its part of the state, and joins the others.
    fn enter(&mut self, own: Ends, beginning: Beginning) -> Result<Session<'_>, DistributedError> {
        let Beginning { epoch, ends, connector, start, .. } = beginning;
        let (post, rank, layout) = (own.post(), own.rank, own.layout.clone());
        let stalls = self.reports.clone();
        let on_wait = move |on: usize, waited: Duration| {
            let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            stalls.say(Report::Waits { epoch, on, millis });
        };
        let joined = own.connect(&self.task, &ends, &*connector, on_wait)?;
        let every = match layout.replicas.len() {
            1 => self.task.config.formation.copies,
            // Other replicas hold the same.
            _ => 0,
        };
        let keeping = Keeping { every, most: self.most_bytes() };
        let guard = Guard::new(keeping, post, rank, &self.copies, epoch, &*connector)?;
        // When all are connected: nobody has the patience to wait with that for whoever gets the most.
        let part = self.settle(epoch, post.ops, &start, &*connector)?;
        Session::new(self, part, Entering { epoch, rank, layout, joined, guard })
    }
}

impl Session<'_> {
    /// All that has to end so that nobody waits here any more.
    fn enders(&self) -> Result<Vec<Ender>, DistributedError> {
        let mut enders: Vec<Ender> =
            self.rings.aborters().chain([self.control.aborter()]).map(Ender::Group).collect();
        for pipe in self.prev.iter().chain(&self.next) {
            enders.push(Ender::Socket(pipe.socket()?));
        }
        enders.extend(self.guard.sockets().map(Ender::Socket));
        Ok(enders)
    }
}
