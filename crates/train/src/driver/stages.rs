//! Runs in which nodes hold parts of the model: plans of who holds what, and how each comes by its part.
//!
//! ```text
//!   Muster ──► what do those who are ready hold, and from which step can they go on (core::holdings)
//!          ──► who holds what from now on (phalanx-formation) ──► on_mustered ──► Prepare(layout)
//!   Connect ─► Give to those who hold what others need; Start to all
//! ```

mod correct;
mod last;

use super::{Driver, Fetched, gone};
use crate::book::{FormationEpoch, StageEntry};
use crate::core::holdings::{self, Inventory, Resume, newest, transfers};
use crate::core::{FormationCommand, Seat, layout};
use crate::costs;
use crate::error::TrainError;
use crate::measure;
use crate::observer::{Event, Observer};
use crate::replica::names_of;
use crate::state::ModelState;
use crate::task::{Task, needs_several};
use bytes::Bytes;
use phalanx_fabric::BlobId;
use phalanx_formation::{Held, Link, ModelCost, Options, Plan, Pool, Shortfall};
use phalanx_types::{Epoch, NodeId, Parcel};
use phalanx_wire::train::{
    Get, Give, HoldRef, Layout, Ops, ReplicaLayout, Source, Start, StateRef, ToReplica,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A new formation must promise to be faster by so much.
const WORTH: f64 = 0.9;
/// Seconds over which moving parts of the model is to pay.
const HORIZON: f64 = 60.0;
/// How long a plan may be looked for while nodes wait: then the best so far is taken.
const PLANNING: Duration = Duration::from_millis(300);

/// Links of nodes to others.
pub(super) type Links = Vec<((NodeId, NodeId), Link)>;

/// What the driver of a run in stages knows.
#[derive(Debug, Default)]
pub(super) struct Staging {
    cost: Option<ModelCost>,
    /// Of this process when the model was measured: that of nodes of which nothing else is known.
    own_speed: f64,
    /// What nodes hold that are in no group.
    pub(super) inventory: Inventory,
    /// Billions of floating-point operations per second of nodes, measured.
    speeds: BTreeMap<NodeId, f64>,
    /// Links between nodes, measured.
    links: BTreeMap<(NodeId, NodeId), Link>,
    /// Nodes that were asked, or are being asked.
    asked: BTreeSet<NodeId>,
    observed: correct::Observed,
    /// How many parts a batch is cut into: decided once, so that the same numbers come out whoever computes.
    micro_batches: Option<usize>,
    /// The group that is getting ready, or trains.
    group: Option<Planned>,
    /// Nodes of which it was said that they are not used.
    unused: BTreeSet<NodeId>,
    /// Parts of states of some step that have come, until all are there.
    parts: BTreeMap<u64, Vec<(Ops, ModelState)>>,
    /// Parts of a checkpoint, held for nodes to fetch.
    held: Vec<BlobId>,
    /// How often nodes were asked for their parts at the end of the run: what was asked for before does not count.
    asked_for_parts: u64,
}

#[derive(Debug, Clone)]
struct Planned {
    members: Vec<NodeId>,
    layout: Layout,
    resume: Option<Resume>,
    plan: Plan,
    options: Options,
}

impl Staging {
    /// Goes on after formations of drivers before this one: batches are cut as they were.
    pub(super) fn after(epochs: &[serde_json::Value]) -> Self {
        let parts = epochs.last().and_then(|epoch| epoch["micro_batches"].as_u64());
        Self { micro_batches: parts.map(|parts| parts as usize), ..Self::default() }
    }

    /// What a node holds that has left a group.
    pub(super) fn on_left(&mut self, node: &NodeId, holds: Vec<HoldRef>) {
        self.inventory.insert(node.clone(), holds);
    }

    /// Adds a part of a state; the whole, when it was the last.
    pub(super) fn on_part(
        &mut self,
        step: u64,
        ops: Ops,
        state: ModelState,
        operators: usize,
    ) -> Option<ModelState> {
        let parts = self.parts.entry(step).or_default();
        parts.retain(|(other, _)| *other != ops);
        parts.push((ops, state));
        parts.sort_by_key(|(ops, _)| *ops);
        let reach = parts.iter().fold(0, |to, (ops, _)| if ops.start <= to { to.max(ops.end) } else { to });
        if (reach as usize) < operators {
            return None;
        }
        let mut whole = ModelState { optimizer_steps: step, ..ModelState::default() };
        for (_, part) in self.parts.remove(&step)? {
            whole.weights.extend(part.weights);
            whole.optimizer.extend(part.optimizer);
        }
        // Older ones that are not complete will not be any more.
        self.parts = self.parts.split_off(&step);
        Some(whole)
    }

    pub(super) fn layout(&self) -> Option<&Layout> {
        self.group.as_ref().map(|group| &group.layout)
    }
}

impl Driver<'_> {
    /// Plans the next group of those that are ready, when their speeds are known.
    pub(super) fn muster(&mut self, ready: &[NodeId], observer: &mut dyn Observer) -> Result<(), TrainError> {
        if self.ask_speeds(ready) {
            return Ok(());
        }
        let planned = self.plan_group(ready)?;
        let plan = match planned {
            Ok(planned) => {
                let members = planned.members.clone();
                self.staging.unused.clear();
                for left in &planned.plan.left_out {
                    let Some(node) = ready.get(left.node) else { continue };
                    observer.on(&Event::Note(&format!("{node} is not used: {}", left.why)));
                    self.staging.unused.insert(node.clone());
                }
                self.staging.micro_batches = Some(planned.plan.micro_batches);
                self.staging.group = Some(planned);
                Ok(members)
            }
            Err(shortfall) => {
                let all_here = self.options.private && ready.len() >= self.task.config.formation.local;
                if all_here || !shortfall.ends_with_more_nodes() {
                    return Err(TrainError::NoFormation(shortfall));
                }
                Err(shortfall.to_string())
            }
        };
        self.core.on_mustered(self.now(), plan, &mut self.out);
        Ok(())
    }

    /// Has nodes measured of which nobody knows how fast they are, one after the other; whether there are any. Nodes
    /// that this process started are all alike.
    fn ask_speeds(&mut self, ready: &[NodeId]) -> bool {
        let local = self.task.config.formation.local > 0;
        if !self.task.config.formation.measure {
            return false;
        }
        let status = self.fabric.nodes();
        for node in &status {
            if let Some(gflops) = node.resources.speed_gflops {
                self.staging.speeds.insert(node.id.clone(), f64::from(gflops));
            }
        }
        let unknown: Vec<(NodeId, bool)> = (ready.iter())
            .filter(|node| !self.staging.asked.contains(*node))
            .map(|node| (node.clone(), self.staging.speeds.contains_key(node)))
            .collect();
        if local || unknown.is_empty() {
            return false;
        }
        self.staging.asked.extend(unknown.iter().map(|(node, _)| node.clone()));
        let (fabric, back) = (self.fabric.clone(), self.fetched.0.clone());
        tokio::spawn(async move {
            let (mut speeds, mut links) = (Vec::new(), Vec::new());
            for (node, known) in unknown {
                let speed = if known { None } else { Some(measure::ask_speed(&fabric, &node).await) };
                match speed {
                    Some(Ok(speed)) => speeds.push((node.clone(), f64::from(speed.gflops))),
                    Some(Err(error)) => tracing::debug!(%node, %error, "a node could not be measured"),
                    None => {}
                }
                // What `phalanx nodes --measure` found out.
                if let Ok(known) = measure::ask_known(&fabric, &node).await {
                    let link = |link: measure::LinkSpeed| {
                        let speed = Link::new(link.bytes_per_s, link.latency_s);
                        ((node.clone(), link.to), speed)
                    };
                    links.extend(known.links.into_iter().map(link));
                }
            }
            // A driver that has ended needs them no more.
            drop(back.send(Fetched::Speeds { speeds, links }));
        });
        true
    }

    /// Nodes were measured: the plan that waits for it can be made.
    pub(super) fn on_speeds(&mut self, speeds: Vec<(NodeId, f64)>, links: Links) {
        self.staging.speeds.extend(speeds);
        self.staging.links.extend(links);
        self.core.muster_again(&mut self.out);
    }

    fn cost(&mut self) -> Result<ModelCost, TrainError> {
        if let Some(cost) = &self.staging.cost {
            return Ok(cost.clone());
        }
        let (mut cost, speed) = costs::measured(&self.task.graph, &self.options.compute, &self.task.config)?;
        costs::keep_cuts(&mut cost, &self.task.config.formation.cuts)?;
        self.staging.own_speed = speed;
        self.staging.cost = Some(cost.clone());
        Ok(cost)
    }

    /// The nodes as the planner sees them.
    fn pool(&self, nodes: &[NodeId]) -> Pool {
        let status = self.fabric.nodes();
        let known = |id: &NodeId| measure::KnownNode {
            id: id.clone(),
            resources: status
                .iter()
                .find(|of| of.id == *id)
                .map(|of| of.resources.clone())
                .unwrap_or_default(),
            gflops: self.staging.speeds.get(id).copied(),
        };
        let nodes: Vec<_> = nodes.iter().map(known).collect();
        measure::pool_of(&nodes, &self.staging.links, Some(self.staging.own_speed))
    }

    fn plan_options(&self, nodes: &[NodeId], resume: Option<Resume>) -> Options {
        let mut options = costs::options(self.task);
        options.micro_batches = self.staging.micro_batches.or(options.micro_batches);
        if let Some(resume) = resume {
            options.move_horizon = HORIZON;
            for (node, id) in nodes.iter().enumerate() {
                let holds = self.staging.inventory.get(id).into_iter().flatten();
                let holds = holds.filter(|hold| hold.step == resume.step);
                options.held.extend(holds.map(|hold| Held { node, ops: layout::range(hold.ops) }));
            }
        }
        options
    }

    /// Who of these holds what, or what is missing.
    fn plan_group(&mut self, ready: &[NodeId]) -> Result<Result<Planned, Shortfall>, TrainError> {
        let cost = self.cost()?;
        let own: Inventory = (self.staging.inventory.iter())
            .filter(|(node, _)| ready.contains(node))
            .map(|(node, holds)| (node.clone(), holds.clone()))
            .collect();
        self.staging.inventory = own;
        let operators = self.task.graph.nodes.len();
        let resume = newest(&self.staging.inventory, operators);
        let (pool, options) = (self.pool(ready), self.plan_options(ready, resume));
        let plan = match phalanx_formation::plan(&cost, &pool, &options, &mut for_a_while()) {
            Ok(plan) => plan,
            Err(shortfall) => return Ok(Err(shortfall)),
        };
        let members: Vec<NodeId> = (plan.replicas.iter())
            .flat_map(|replica| replica.stages.iter().map(|stage| ready[stage.node].clone()))
            .collect();
        let replica = |of: &phalanx_formation::ReplicaPlan| ReplicaLayout {
            samples: of.samples as u32,
            micro: of.samples.div_ceil(of.micro_batches.max(1)) as u32,
            stages: of.stages.iter().map(|stage| ops(&stage.ops)).collect(),
        };
        let layout = Layout { replicas: plan.replicas.iter().map(replica).collect() };
        check_parts(self.task, &layout)?;
        Ok(Ok(Planned { members, layout, resume, plan, options }))
    }

    /// Whether a formation with those who wait would be faster than the present one by enough.
    pub(super) fn weigh(
        &mut self,
        waiting: &[NodeId],
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let Some(group) = self.staging.group.clone() else { return Ok(()) };
        let cost = self.cost()?;
        let present = self.pool(&group.members);
        let mut shape = group.plan.shape();
        for (number, stage) in shape.replicas.iter_mut().flatten().enumerate() {
            stage.node = number;
        }
        let mut options = group.options;
        options.held.clear();
        let Ok(now) = phalanx_formation::predict(&cost, &present, &options, &shape) else { return Ok(()) };
        let all: Vec<NodeId> = group.members.iter().chain(waiting).cloned().collect();
        let pool = self.pool(&all);
        let Ok(then) = phalanx_formation::plan(&cost, &pool, &options, &mut for_a_while()) else {
            return Ok(());
        };
        let [now, then] = [now.seconds_per_batch(), then.seconds_per_batch()];
        if then < WORTH * now {
            self.core.on_worth(&mut self.out);
        } else if !waiting.iter().all(|node| self.staging.unused.contains(node)) {
            self.staging.unused.extend(waiting.iter().cloned());
            let nodes = waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let [now, then] = [now * 1e3, then * 1e3];
            observer.on(&Event::Note(&format!(
                "{nodes} would not make the run faster: a step should take {then:.3} ms with and {now:.3} ms without"
            )));
        }
        Ok(())
    }

    pub(super) fn layout_for(&self) -> Option<Layout> {
        self.staging.layout().cloned()
    }

    /// With what every member begins: what it gets from whom, and what others are told to give.
    fn starts(
        &mut self,
        epoch: Epoch,
        group: &Planned,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Start>, TrainError> {
        let posts = layout::posts(&group.layout);
        let wanted: Vec<(NodeId, Ops)> =
            group.members.iter().cloned().zip(posts.iter().map(|post| post.ops)).collect();
        let Some(resume) = group.resume else { return self.starts_from_disk(&wanted, observer) };
        let mut gets: BTreeMap<NodeId, Vec<Get>> = BTreeMap::new();
        for transfer in transfers(&self.staging.inventory, resume, &wanted) {
            let (ops, to) = (transfer.ops, transfer.to.clone());
            let give = Give { ops, step: resume.step, norm: resume.norm, to };
            self.send(&transfer.from, &ToReplica::Give { run: self.run, epoch, give });
            gets.entry(transfer.to).or_default().push(Get { ops, from: Source::Node(transfer.from) });
        }
        let start = |(node, _): &(NodeId, Ops)| Start {
            step: resume.step,
            norm: resume.norm,
            gets: gets.remove(node).unwrap_or_default(),
        };
        Ok(wanted.iter().map(start).collect())
    }

    /// Notes what becomes of what nodes hold when a group begins.
    fn note_settled(&mut self, step: u64, group: &Planned, starts: &[Start]) {
        let giver = |get: &Get| match &get.from {
            Source::Node(node) => Some(node.clone()),
            Source::Driver(_) => None,
        };
        let givers = starts.iter().flat_map(|start| &start.gets).filter_map(giver);
        let told: BTreeSet<NodeId> = group.members.iter().cloned().chain(givers).collect();
        let norm = group.resume.and_then(|resume| resume.norm);
        holdings::settle(&mut self.staging.inventory, step, &told, norm);
    }

    /// Nobody holds all of the model: it comes from the newest checkpoint, or the run begins.
    fn starts_from_disk(
        &mut self,
        wanted: &[(NodeId, Ops)],
        observer: &mut dyn Observer,
    ) -> Result<Vec<Start>, TrainError> {
        self.rewind(observer)?;
        let Some(state) = &self.state else {
            let start = Start { step: 0, norm: None, gets: Vec::new() };
            return Ok(wanted.iter().map(|_| start.clone()).collect());
        };
        let step = state.steps();
        let mut starts = Vec::new();
        for (_, ops) in wanted {
            let names = names_of(&self.task.graph, *ops)?;
            let bytes: Bytes = state.only(&names).to_bytes()?.into();
            let len = bytes.len() as u64;
            let blob = self.fabric.hold(Parcel::from_bytes(bytes));
            self.staging.held.push(blob);
            let from = Source::Driver(StateRef { step, bytes: len, blob });
            starts.push(Start { step, norm: None, gets: vec![Get { ops: *ops, from }] });
        }
        Ok(starts)
    }

    /// Stages that have done a step together have all come for what they began with.
    pub(super) fn let_go_of_start(&mut self) {
        if self.journal.has_begun() && self.task.config.formation.is_staged() {
            self.state = None;
            self.staging.held.drain(..).for_each(|blob| self.fabric.release(blob));
        }
    }

    /// Lets a group of stages begin.
    pub(super) fn connect_stages(
        &mut self,
        epoch: Epoch,
        seats: Vec<Seat>,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let Some(group) = self.staging.group.clone() else { return Err(gone("nobody planned this group")) };
        self.staging.held.drain(..).for_each(|blob| self.fabric.release(blob));
        let starts = self.starts(epoch, &group, observer)?;
        let step = starts.first().map_or(0, |start| start.step);
        self.note_settled(step, &group, &starts);
        self.staging.parts.clear();
        self.book.set_stages(self.stage_names(&group.layout)?);
        let entry = self.epoch_entry(epoch, step, &group);
        self.begin_group(epoch, seats, Some(starts), entry, observer)
    }

    /// The names of what each stage of the first replica holds.
    fn stage_names(&self, layout: &Layout) -> Result<Vec<BTreeSet<String>>, TrainError> {
        let stages = layout.replicas.first().map_or(&[][..], |replica| &replica.stages);
        stages.iter().map(|ops| names_of(&self.task.graph, *ops)).collect()
    }

    fn epoch_entry(&self, epoch: Epoch, from_step: u64, group: &Planned) -> FormationEpoch {
        let mut members = group.members.iter();
        let mut entry = |stage: &phalanx_formation::StagePlan| {
            let own = &self.task.graph.nodes[stage.ops.clone()];
            StageEntry {
                node: members.next().map(ToString::to_string).unwrap_or_default(),
                operators: own.len(),
                first: own.first().map(|node| node.name.clone()).unwrap_or_default(),
                last: own.last().map(|node| node.name.clone()).unwrap_or_default(),
                parameters: self.parameters_of(ops(&stage.ops)),
                memory: Some(stage.memory),
                busy_ms: Some(stage.busy_s * 1e3),
            }
        };
        let replicas = (group.plan.replicas.iter())
            .map(|replica| replica.stages.iter().map(&mut entry).collect())
            .collect();
        FormationEpoch {
            epoch: epoch.0,
            replicas,
            from_step,
            predicted_ms: Some(group.plan.seconds_per_batch() * 1e3),
            micro_batches: Some(group.plan.micro_batches),
            step_ms: None,
            ended: None,
        }
    }

    fn parameters_of(&self, ops: Ops) -> usize {
        let Some(cost) = &self.staging.cost else { return 0 };
        let bytes: u64 = cost.ops[layout::range(ops)].iter().map(|op| op.parameter_bytes).sum();
        bytes as usize / 4
    }

    pub(super) fn act_staged(
        &mut self,
        command: &FormationCommand,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        match command {
            FormationCommand::Muster { ready } => self.muster(ready, observer),
            FormationCommand::Weigh { waiting } => self.weigh(waiting, observer),
            _ => Ok(()),
        }
    }

    pub(super) fn release_parts(&mut self) {
        self.staging.held.drain(..).for_each(|blob| self.fabric.release(blob));
    }
}

/// Refuses formations in which an operator would see samples one by one that cannot.
fn check_parts(task: &Task, layout: &Layout) -> Result<(), TrainError> {
    let Some(node) = needs_several(&task.graph) else { return Ok(()) };
    let batch = task.config.train.batch * task.config.train.accumulate;
    let rest = if task.config.data.drop_last { 0 } else { task.train.len() % batch };
    let shares = layout::shares(layout);
    for (number, replica) in layout.replicas.iter().enumerate() {
        for whole in [batch, rest] {
            let own = shares.range(number, whole).len();
            if own == 1 || own > 1 && replica.micro == 1 {
                return Err(TrainError::OneSample { node: node.name.clone(), whole, own });
            }
        }
    }
    Ok(())
}

/// Says yes for as long as a plan may be looked for.
fn for_a_while() -> impl FnMut() -> bool {
    let until = Instant::now() + PLANNING;
    move || Instant::now() < until
}

fn ops(range: &std::ops::Range<usize>) -> Ops {
    Ops { start: range.start as u32, end: range.end as u32 }
}
