//! The driver of a run as one state machine: `(now, event) → commands`.
//!
//! ```text
//!   NodeUp/Down, Message ─► inbound ─► FormationCore: who is in the group ─► group: Prepare, Begin, Abort
//!   Measured, Planned …  ─► planning: who holds what                  ──► Measure, Plan, Compare, Calibrate
//!   Steps, Validated     ─► PendingRecords: what is sure, in order    ──► RecordStep, RecordValidation, Draft
//!   Snapshot, Fetched    ─► CheckpointOrder, model                    ──► Fetch, Save, Finish
//! ```
//! The core owns every decision. Its shell owns links, files, threads and bytes: it carries commands out in their
//! order and feeds replies back as events. A ticket ties a reply to its request; late replies change nothing.

mod checkpoints;
mod command;
mod config;
mod event;
mod group;
mod inbound;
mod model;
mod notice;
mod observed;
mod planning;
mod queries;
mod receipt;
mod records;
mod remeasure;
mod replay;
#[cfg(test)]
mod tests;

pub use command::{CompareRequest, DriverCommand, GroupStart, NodeToMeasure, PlanRequest, StageStart};
pub use config::{DriverConfig, StagedConfig};
pub use event::{Comparison, DriverEvent, FetchFailure, NoPlan, NoPlanKind, PlannedGroup, Ticket};
pub use notice::{DriverFailure, Notice, NoticeLevel};
pub use receipt::{ImpossibleNumber, check_numbers};

use crate::formation::FormationStage;
use crate::holdings::Inventory;
use crate::progress::Place;
use crate::{FormationCommand, FormationCore, NotSealed, Passes, Pause, SealedPass};
use checkpoints::{CheckpointKey, CheckpointOrder};
use group::{AfterRewind, Group};
use model::ModelRequest;
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::detail::Detail;
use phalanx_wire::train::{Ops, Recorded, ToReplica};
use planning::Staging;
use queries::Queries;
use records::PendingRecords;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pauses shorter than this are not reported.
const SHORT_PAUSE: Duration = Duration::from_secs(2);

/// Where a run stands.
#[derive(Debug)]
enum Phase {
    /// Groups form and train.
    Working,
    /// All ranks have done the last step, or were asked to stop: the model is fetched.
    Ending(ModelRequest),
    /// A rank cannot go on; others may still say why.
    Failing { failure: DriverFailure, cause: bool, until: Time },
    /// The result is written, or the run failed.
    Over,
}

/// What the driver does now, for users and for tests that nobody waits without a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverPhase {
    /// Nodes are missing, or open the run.
    Gathering,
    /// The run waits for nodes, and has said so.
    Paused(Pause),
    /// Nodes are being measured before a plan is made.
    Measuring,
    /// A planner decides who holds what.
    Planning,
    /// Members get ready for a group.
    Forming,
    /// A group trains.
    Running,
    /// A group is over; its members have not all said where they stand.
    Leaving,
    /// The model is fetched.
    Ending,
    /// The run is about to fail.
    Failing,
    /// There is nothing left to do.
    Over,
}

/// When a node that refused is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskAgain {
    Never,
    At(Time),
    AskedAgain,
}

/// A state that is being fetched for a checkpoint.
#[derive(Debug)]
struct CheckpointFetch {
    node: NodeId,
    key: CheckpointKey,
    ops: Option<Ops>,
    blob: BlobId,
}

/// The driver's decisions.
#[derive(Debug)]
pub struct DriverCore {
    config: DriverConfig,
    phase: Phase,
    formation: FormationCore,
    formation_out: Outbox<FormationCommand>,
    records: PendingRecords,
    checkpoints: CheckpointOrder,
    fetches: BTreeMap<Ticket, CheckpointFetch>,
    /// Nodes that there is a link to.
    nodes: BTreeSet<NodeId>,
    refused: BTreeMap<NodeId, AskAgain>,
    /// The group that began last.
    group: Option<Group>,
    /// Members of the next group.
    preparing: Vec<NodeId>,
    /// Steps that nodes hold that left the group at its end.
    holders: BTreeMap<NodeId, u64>,
    /// Parts of the model that nodes hold that are in no group.
    inventory: Inventory,
    staging: Staging,
    queries: Queries,
    /// Why nothing moves, and when to say so.
    pause: Option<(Pause, Time)>,
    /// What was said of it last.
    paused_told: Option<Notice>,
    /// Why the stream's next pass could not begin, as it was said last.
    stream_wait_told: Option<Detail>,
    /// The group that waits for samples, the steps that it has done, and since when.
    stream_waits: Option<(Epoch, u64, Time)>,
    /// The newest group of which it was said why it broke.
    break_told: Epoch,
    /// What goes on when the records were rewound.
    after_rewind: Option<AfterRewind>,
    tickets: u64,
}

impl DriverCore {
    /// A run that begins, or goes on after the steps that are recorded.
    pub fn new(config: DriverConfig) -> Self {
        let formation = match config.staged {
            Some(_) => FormationCore::planned(config.limits),
            None => FormationCore::new(config.limits),
        };
        Self {
            phase: Phase::Working,
            formation,
            formation_out: Outbox::default(),
            records: PendingRecords::new(
                Passes::new(config.plan, config.place),
                config.validates,
                config.place.step,
                config.validated,
            ),
            checkpoints: CheckpointOrder::new(config.operators),
            fetches: BTreeMap::new(),
            nodes: BTreeSet::new(),
            refused: BTreeMap::new(),
            group: None,
            preparing: Vec::new(),
            holders: BTreeMap::new(),
            inventory: Inventory::new(),
            staging: Staging::new(config.staged.and_then(|staged| staged.micro_batches)),
            queries: Queries::default(),
            pause: None,
            paused_told: None,
            stream_wait_told: None,
            stream_waits: None,
            break_told: Epoch(0),
            after_rewind: None,
            tickets: 0,
            config,
        }
    }

    /// What is recorded.
    pub fn recorded(&self) -> Recorded {
        self.records.recorded()
    }

    /// The place of the run after some steps.
    ///
    /// # Errors
    /// No report has said which pass they are of.
    pub fn place(&self, step: u64) -> Result<Place, NotSealed> {
        self.records.passes().place(step)
    }

    /// The sealed pass that ends after a step, if a report has told of it.
    pub fn pass_before(&self, step: u64) -> Option<SealedPass> {
        self.records.passes().pass_before(step)
    }

    /// The newest group.
    pub fn epoch(&self) -> Epoch {
        self.formation.epoch()
    }

    /// The nodes that are in the group, in no order.
    pub fn active(&self) -> impl Iterator<Item = &NodeId> {
        self.formation.active()
    }

    /// What the driver does now.
    pub fn phase(&self) -> DriverPhase {
        match (&self.phase, self.formation.stage()) {
            (Phase::Ending(_), _) | (Phase::Working, FormationStage::Ended) => DriverPhase::Ending,
            (Phase::Failing { .. }, _) => DriverPhase::Failing,
            (Phase::Over, _) => DriverPhase::Over,
            (Phase::Working, FormationStage::Gathering) => match self.formation.pause() {
                Some(pause) => DriverPhase::Paused(pause.clone()),
                None => DriverPhase::Gathering,
            },
            (Phase::Working, FormationStage::Mustering) if self.staging.is_planning() => {
                DriverPhase::Planning
            }
            (Phase::Working, FormationStage::Mustering) => DriverPhase::Measuring,
            (Phase::Working, FormationStage::Preparing) => DriverPhase::Forming,
            (Phase::Working, FormationStage::Running) => DriverPhase::Running,
            (Phase::Working, FormationStage::Leaving) => DriverPhase::Leaving,
        }
    }

    /// Takes one event in; what has to be done about it goes to `out`, in order.
    pub fn on(&mut self, now: Time, event: DriverEvent, out: &mut Outbox<DriverCommand>) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        self.take_in(now, event, out);
        self.carry_out(now, out);
        self.forward_queries(out);
        self.discard_dropped(out);
        if self.advance_end(now, out) {
            // The run is not over after all.
            self.carry_out(now, out);
        }
        self.discard_dropped(out);
    }

    fn discard_dropped(&mut self, out: &mut Outbox<DriverCommand>) {
        for ticket in self.checkpoints.take_dropped() {
            out.push(DriverCommand::Discard { ticket });
        }
    }

    fn take_in(&mut self, now: Time, event: DriverEvent, out: &mut Outbox<DriverCommand>) {
        match event {
            DriverEvent::Started => self.on_started(now, out),
            DriverEvent::NodeUp { node } => self.on_node_up(now, node),
            DriverEvent::NodeDown { node, loss } => self.on_node_down(now, &node, loss, out),
            DriverEvent::Message { node, message } => self.on_message(now, &node, message, out),
            DriverEvent::Measured { nodes } => self.on_measured(&nodes, out),
            DriverEvent::Planned { ticket, plan } => self.on_planned(now, ticket, plan, out),
            DriverEvent::Compared { ticket, comparison } => self.on_compared(now, ticket, comparison, out),
            DriverEvent::Calibrated { ticket, changed } => self.on_calibrated(ticket, changed, out),
            DriverEvent::Fetched { ticket, result } => self.on_fetched(now, ticket, result, out),
            DriverEvent::Rewound { place, validated } => self.on_rewound(now, place, validated, out),
            DriverEvent::QueryAsked { query } => self.queries.on_asked(query),
            DriverEvent::QueryDropped { query } => self.queries.on_dropped(query),
            DriverEvent::StopAsked => self.formation.on_stop(now, &mut self.formation_out),
            DriverEvent::Tick => self.on_tick(now, out),
        }
    }

    fn on_started(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        let step = self.records.step();
        if self.records.passes().is_done(step) && !self.records.owes_validation(step) {
            // Nothing is left to do, except perhaps to write the model.
            self.finish_from_disk(now, out);
        }
    }

    /// When [`DriverEvent::Tick`] is due, if ever.
    pub fn next_tick(&self) -> Option<Time> {
        let failing = match &self.phase {
            Phase::Failing { until, .. } => Some(*until),
            Phase::Over => return None,
            Phase::Working | Phase::Ending(_) => None,
        };
        let busy = self.refused.values().filter_map(|refusal| match refusal {
            AskAgain::At(at) => Some(*at),
            AskAgain::Never | AskAgain::AskedAgain => None,
        });
        let paused = self.pause.as_ref().map(|(_, at)| *at);
        let records = self.records.next_tick().filter(|_| self.is_running());
        let (measures, reports) = (self.staging.remeasure_at(), self.gives_up_reports_at());
        let due = [self.formation.next_tick(), failing, paused, measures, records, reports];
        due.into_iter().flatten().chain(busy).min()
    }

    fn on_tick(&mut self, now: Time, out: &mut Outbox<DriverCommand>) {
        if let Phase::Failing { failure, until, .. } = &self.phase
            && *until <= now
        {
            return self.fail(failure.clone(), out);
        }
        if let Some((pause, _)) = self.pause.take_if(|(_, at)| *at <= now) {
            let waits_for_nodes = matches!(pause, Pause::Shortfall { .. });
            self.tell_pause(pause, out);
            if waits_for_nodes {
                self.save_while_waiting(out);
            }
        }
        if self.is_running() && self.records.on_tick(now, out) {
            self.records.commit_more(now, out);
        }
        self.give_up_reports(now, out);
        self.offer_nodes(now);
        self.remeasure_unused(now);
        self.formation.on_tick(now, &mut self.formation_out);
    }

    /// Says why nothing moves, once.
    fn tell_pause(&mut self, pause: Pause, out: &mut Outbox<DriverCommand>) {
        let busy = self.refused.values().filter(|ask| **ask != AskAgain::Never).count();
        let notice = Notice::Paused { pause, busy };
        if self.paused_told.as_ref() != Some(&notice) {
            out.push(DriverCommand::Tell(notice.clone()));
            self.paused_told = Some(notice);
        }
    }

    fn is_running(&self) -> bool {
        self.formation.stage() == FormationStage::Running
    }

    fn is_staged(&self) -> bool {
        self.config.staged.is_some()
    }

    fn fail(&mut self, failure: DriverFailure, out: &mut Outbox<DriverCommand>) {
        self.phase = Phase::Over;
        out.push(DriverCommand::Fail(failure));
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn taken(&self, node: &NodeId, blob: BlobId) -> DriverCommand {
        DriverCommand::Send { node: node.clone(), message: ToReplica::Taken { run: self.config.run, blob } }
    }
}
