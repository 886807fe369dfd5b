//! The planner thread: it measures the model and finds the best formation. The event loop does not wait for it.

mod calibrate;
mod replan;

use super::machines::Links;
use super::states::Reply;
use crate::error::DriverError;
use phalanx_formation::{Held, ModelCost, Options, Plan, Shortfall, StagePlan};
use phalanx_graph::Graph;
use phalanx_measure::{KnownNode, costs, pool_of};
use phalanx_protocol::driver::{
    CompareRequest, Comparison, NoPlan, NoPlanKind, PlanRequest, PlannedGroup, Ticket,
};
use phalanx_protocol::layout;
use phalanx_records::with_causes;
use phalanx_train::config::RunConfig;
use phalanx_train::{Compute, Task};
use phalanx_types::NodeId;
use phalanx_wire::train::{Layout, Ops};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Moving parts of the model must pay off within this many seconds.
const HORIZON: f64 = 60.0;
/// Time limits of a search when a run begins, and later, when nodes wait for the plan. The best plan found by then is
/// used.
const FIRST_SEARCH: Duration = Duration::from_secs(5);
const NEXT_SEARCH: Duration = Duration::from_millis(300);

/// Something to plan.
#[derive(Debug)]
pub(super) enum PlanTask {
    Plan {
        request: PlanRequest,
        nodes: Vec<KnownNode>,
        links: Links,
    },
    Compare {
        request: CompareRequest,
        present: Option<Arc<PlanDetail>>,
        nodes: Vec<KnownNode>,
        links: Links,
    },
    Calibrate {
        ticket: Ticket,
        plan: Option<Arc<PlanDetail>>,
        nodes: Vec<KnownNode>,
        links: Links,
        took_s: Vec<f64>,
    },
}

impl PlanTask {
    /// The reply when the planner cannot answer at all.
    fn failed(&self, error: DriverError) -> PlanReply {
        match self {
            Self::Plan { request, .. } => {
                PlanReply::Planned { ticket: request.ticket, result: Err((no_plan(&error), Box::new(error))) }
            }
            Self::Compare { request, .. } => PlanReply::Compared { ticket: request.ticket, comparison: None },
            Self::Calibrate { ticket, .. } => PlanReply::Calibrated { ticket: *ticket, changed: false },
        }
    }
}

/// A plan and its predictions, or why there is none.
type PlanResult = Result<(PlannedGroup, Arc<PlanDetail>), (NoPlan, Box<DriverError>)>;

/// What the planner found.
#[derive(Debug)]
pub(super) enum PlanReply {
    Planned { ticket: Ticket, result: PlanResult },
    Compared { ticket: Ticket, comparison: Option<Comparison> },
    Calibrated { ticket: Ticket, changed: bool },
}

/// A plan with its predictions, which the core does not need.
#[derive(Debug)]
pub(super) struct PlanDetail {
    pub(super) plan: Plan,
    options: Options,
    layout: Layout,
    /// By operator.
    parameter_bytes: Vec<u64>,
}

impl PlanDetail {
    /// The stage of a rank.
    pub(super) fn stage(&self, rank: usize) -> Option<&StagePlan> {
        self.plan.replicas.iter().flat_map(|replica| &replica.stages).nth(rank)
    }

    /// Parameters of some operators.
    pub(super) fn parameters(&self, ops: Ops) -> usize {
        let bytes = self.parameter_bytes.get(layout::range(ops)).unwrap_or_default();
        bytes.iter().sum::<u64>() as usize / 4
    }
}

/// The driver's end of the planner.
#[derive(Debug)]
pub(super) struct Planner {
    tasks: Option<Sender<PlanTask>>,
    replies: UnboundedSender<Reply>,
}

impl Planner {
    /// Starts the thread. A run without stages needs no plans and no thread.
    pub(super) fn start(task: &Task, compute: &Compute, replies: UnboundedSender<Reply>) -> Self {
        if !task.config.formation.is_staged() {
            return Self { tasks: None, replies };
        }
        let (sender, tasks) = channel();
        let model = Model {
            graph: task.graph.clone(),
            config: task.config.clone(),
            samples: task.samples,
            compute: compute.clone(),
            known: None,
        };
        let thread = std::thread::Builder::new().name("planner".to_owned());
        let back = replies.clone();
        let spawned = thread.spawn(move || model.work(&tasks, &back));
        Self { tasks: spawned.is_ok().then_some(sender), replies }
    }

    /// Hands a task to the planner. Without a thread the task fails at once.
    pub(super) fn ask(&self, task: PlanTask) {
        let unsent = match &self.tasks {
            Some(tasks) => tasks.send(task).err().map(|unsent| unsent.0),
            None => Some(task),
        };
        if let Some(task) = unsent {
            // The driver may have ended.
            drop(self.replies.send(Reply::Plan(task.failed(DriverError::NoPlanner))));
        }
    }
}

/// The model that is planned, and what it costs.
#[derive(Debug)]
struct Model {
    graph: Graph,
    config: RunConfig,
    /// Samples of the training data.
    samples: usize,
    compute: Compute,
    known: Option<(ModelCost, costs::Here)>,
}

impl Model {
    fn work(mut self, tasks: &Receiver<PlanTask>, replies: &UnboundedSender<Reply>) {
        for task in tasks {
            let failed = task.failed(DriverError::PlannerPanicked);
            // The panic is on standard error. The run gets a reply, so that it does not wait for ever.
            let reply = catch_unwind(AssertUnwindSafe(|| self.answer(task))).unwrap_or(failed);
            if replies.send(Reply::Plan(reply)).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, task: PlanTask) -> PlanReply {
        match task {
            PlanTask::Plan { request, nodes, links } => {
                let ticket = request.ticket;
                let result = self
                    .plan_group(&request, &nodes, &links)
                    .map_err(|error| (no_plan(&error), Box::new(error)));
                PlanReply::Planned { ticket, result }
            }
            PlanTask::Compare { request, present, nodes, links } => {
                let ticket = request.ticket;
                let comparison = present
                    .and_then(|present| self.compare(&request, &present, &nodes, &links).ok().flatten());
                PlanReply::Compared { ticket, comparison }
            }
            PlanTask::Calibrate { ticket, plan, nodes, links, took_s } => {
                let changed = plan.is_some_and(|plan| self.calibrate(&plan, &nodes, &links, &took_s));
                PlanReply::Calibrated { ticket, changed }
            }
        }
    }

    /// The costs of the model and the speed of this machine, measured at first use.
    fn cost(&mut self) -> Result<(ModelCost, costs::Here), DriverError> {
        if let Some(known) = &self.known {
            return Ok(known.clone());
        }
        let (mut cost, here) = costs::measured(&self.graph, &self.compute, &self.config)?;
        costs::keep_cuts(&mut cost, &self.config.formation.cuts)?;
        self.known = Some((cost.clone(), here));
        Ok((cost, here))
    }

    fn plan_group(
        &mut self,
        request: &PlanRequest,
        nodes: &[KnownNode],
        links: &Links,
    ) -> Result<(PlannedGroup, Arc<PlanDetail>), DriverError> {
        let (cost, here) = self.cost()?;
        let pool = pool_of(nodes, links, &here);
        let mut options = costs::options(&self.config, &self.graph, &here);
        options.micro_batches = request.micro_batches.or(options.micro_batches);
        if let Some(held) = &request.held {
            options.move_horizon = HORIZON;
            let number = |node: &NodeId| nodes.iter().position(|known| known.id == *node);
            let held = held.iter().filter_map(|(node, ops)| Some((number(node)?, *ops)));
            options.held.extend(held.map(|(node, ops)| Held { node, ops: layout::range(ops) }));
        }
        let search = if request.urgent { NEXT_SEARCH } else { FIRST_SEARCH };
        let (plan, layout) = self.search(&cost, &pool, &options, search)?;
        let id = |number: usize| nodes.get(number).map(|known| known.id.clone());
        let stages = plan.replicas.iter().flat_map(|replica| &replica.stages);
        let left_out = plan.left_out.iter().filter_map(|left| Some((id(left.node)?, left.why.to_string())));
        let group = PlannedGroup {
            members: stages.filter_map(|stage| id(stage.node)).collect(),
            layout: layout.clone(),
            micro_batches: plan.micro_batches,
            left_out: left_out.collect(),
        };
        let parameter_bytes = cost.ops.iter().map(|op| op.parameter_bytes).collect();
        Ok((group, Arc::new(PlanDetail { plan, options, layout, parameter_bytes })))
    }
}

/// Why there is no plan, and what could make one possible.
fn no_plan(error: &DriverError) -> NoPlan {
    let ends_with_more = |shortfall: &Shortfall| shortfall.ends_with_more_nodes();
    let (detail, kind) = match error {
        DriverError::NoFormation(shortfall) if ends_with_more(shortfall) => {
            (shortfall.to_string(), NoPlanKind::NeedsNodes)
        }
        DriverError::OneSample { .. } => (error.to_string(), NoPlanKind::NeedsOtherNodes),
        _ => (with_causes(error), NoPlanKind::Hopeless),
    };
    NoPlan { detail: detail.into(), kind }
}

fn ops(range: &std::ops::Range<usize>) -> Ops {
    Ops { start: range.start as u32, end: range.end as u32 }
}
