//! Runs in which nodes hold parts of the model: plans of who holds what, and how each comes by its part.
//!
//! ```text
//!   Muster ──► what do those who are ready hold, and from which step can they go on (core::holdings)
//!          ──► who holds what from now on (phalanx-formation) ──► on_mustered ──► Prepare(layout)
//!   Connect ─► Give to those who hold what others need; Start to all
//! ```

mod again;
mod correct;
mod gather;
mod speeds;
mod weigh;

pub(super) use speeds::Measured;

use super::incoming::Parts;
use super::{Driver, gone};
use crate::error::DistributedError;
use crate::rank::names_of;
use bytes::Bytes;
use phalanx_fabric::BlobId;
use phalanx_formation::{Held, Link, ModelCost, Options, Plan, Shortfall};
use phalanx_measure::costs;
use phalanx_protocol::holdings::{self, Inventory, Resume, newest, transfers};
use phalanx_protocol::{FormationCommand, FormationEvent, Seat, layout};
use phalanx_records::{Event, Events};
use phalanx_records::{FormationEpoch, StageEntry};
use phalanx_types::{Epoch, NodeId, Parcel};
use phalanx_wire::train::{Get, Give, HoldRef, Layout, Ops, Source, Start, StateRef, ToReplica};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Seconds over which moving parts of the model is to pay.
const HORIZON: f64 = 60.0;
/// What the driver of a run in stages knows.
#[derive(Debug, Default)]
pub(super) struct Staging {
    cost: Option<ModelCost>,
    /// What this machine does: nodes of which nothing else is known do the same.
    here: costs::Here,
    /// What nodes hold that are in no group.
    pub(super) inventory: Inventory,
    /// Billions of floating-point operations per second of nodes, measured.
    speeds: BTreeMap<NodeId, f64>,
    /// Links between nodes, measured.
    links: BTreeMap<(NodeId, NodeId), Link>,
    /// Nodes that were asked, and those whose answer is waited for.
    asked: BTreeSet<NodeId>,
    awaited: BTreeSet<NodeId>,
    /// Nodes that are to be weighed when their speeds are known.
    weighing: Option<Vec<NodeId>>,
    observed: correct::Observed,
    /// How many parts a batch is cut into: decided once, so that the same numbers come out whoever computes.
    micro_batches: Option<usize>,
    /// How many would be better now that nodes have come; heeded where nothing has to be done again.
    wished_micro_batches: Option<usize>,
    /// The group that is getting ready, or trains.
    group: Option<Planned>,
    /// Nodes that are not used; the user was told why.
    unused: BTreeSet<NodeId>,
    again: again::Again,
    /// Nodes of which it is to be measured again how fast they are, and those of which it is: only whoever weighs them
    /// waits for that.
    stale: BTreeSet<NodeId>,
    measured_again: BTreeSet<NodeId>,
    /// Parts of a checkpoint, held for nodes to fetch.
    held: Vec<BlobId>,
    /// Parts of the model that nodes were asked for.
    parts: Parts,
    /// How often nodes were asked for all parts of the model: what was asked for before does not count.
    asked_for_parts: u64,
    /// Those are asked for because the run waits, in this epoch; else because it is over.
    pub(super) saving: Option<Epoch>,
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

    pub(super) fn layout(&self) -> Option<&Layout> {
        self.group.as_ref().map(|group| &group.layout)
    }
}

impl Driver<'_> {
    /// Plans the next group of those that are ready, when their speeds are known.
    pub(super) fn muster(
        &mut self,
        ready: &[NodeId],
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        if self.ask_speeds(ready) {
            return Ok(());
        }
        let planned = match self.plan_group(ready) {
            // The run could go on when it began, and can again with other nodes.
            Err(alone @ DistributedError::OneSample { .. }) if self.staging.group.is_some() => {
                let plan = Err(alone.to_string());
                self.core.feed(self.now(), FormationEvent::Mustered { plan }, &mut self.out);
                return Ok(());
            }
            planned => planned?,
        };
        let plan = match planned {
            Ok(planned) => {
                let members = planned.members.clone();
                self.staging.wished_micro_batches = None;
                self.staging.unused.clear();
                let mut unused = Vec::new();
                for left in &planned.plan.left_out {
                    let Some(node) = ready.get(left.node) else { continue };
                    events.on(Event::Note(format!("{node} is not used: {}", left.why)));
                    unused.push(node.clone());
                }
                if !unused.is_empty() {
                    self.staging.again.on_unused(Instant::now(), &unused);
                    self.staging.unused.extend(unused);
                }
                self.staging.micro_batches = Some(planned.plan.micro_batches);
                self.staging.group = Some(planned);
                Ok(members)
            }
            Err(shortfall) => {
                let all_here = self.options.private && ready.len() >= self.task.config.formation.local;
                if all_here || !shortfall.ends_with_more_nodes() {
                    return Err(DistributedError::NoFormation(shortfall));
                }
                Err(shortfall.to_string())
            }
        };
        self.core.feed(self.now(), FormationEvent::Mustered { plan }, &mut self.out);
        Ok(())
    }

    fn plan_options(&self, nodes: &[NodeId], resume: Option<Resume>) -> Options {
        let mut options = costs::options(&self.task.config, &self.task.graph, &self.staging.here);
        // Steps that are done again come to the same numbers only when they are cut as they were.
        let again = resume.is_none_or(|resume| resume.step < self.journal.step());
        let wished = self.staging.wished_micro_batches.filter(|_| !again);
        options.micro_batches = wished.or(self.staging.micro_batches).or(options.micro_batches);
        if let Some(resume) = resume {
            options.move_horizon = HORIZON;
            for (node, id) in nodes.iter().enumerate() {
                let holds = self.staging.inventory.get(id).into_iter().flatten();
                let holds = holds.filter(|hold| holdings::reaches(hold, resume));
                options.held.extend(holds.map(|hold| Held { node, ops: layout::range(hold.ops) }));
            }
        }
        options
    }

    /// Who of these holds what, or what is missing.
    fn plan_group(&mut self, ready: &[NodeId]) -> Result<Result<Planned, Shortfall>, DistributedError> {
        let cost = self.cost()?;
        let own: Inventory = (self.staging.inventory.iter())
            .filter(|(node, _)| ready.contains(node))
            .map(|(node, holds)| (node.clone(), holds.clone()))
            .collect();
        self.staging.inventory = own;
        let resume = self.held_by_nodes();
        let (pool, options) = (self.pool(ready), self.plan_options(ready, resume));
        let (plan, layout) = match self.plan_for(&cost, &pool, &options)? {
            Ok(planned) => planned,
            Err(shortfall) => return Ok(Err(shortfall)),
        };
        let members: Vec<NodeId> = (plan.replicas.iter())
            .flat_map(|replica| replica.stages.iter().map(|stage| ready[stage.node].clone()))
            .collect();
        Ok(Ok(Planned { members, layout, resume, plan, options }))
    }

    /// Whether nodes hold all of the model, of whatever step.
    pub(super) fn is_held_somewhere(&self) -> bool {
        newest(&self.staging.inventory, self.task.graph.nodes.len()).is_some()
    }

    /// What nodes hold of all the model, unless the disk has it of a later step.
    fn held_by_nodes(&self) -> Option<Resume> {
        let held = newest(&self.staging.inventory, self.task.graph.nodes.len());
        held.filter(|resume| resume.step >= self.journal.recorded().saved)
    }

    pub(super) fn layout_for(&self) -> Option<Layout> {
        self.staging.layout().cloned()
    }

    /// With what every member begins: what it gets from whom, and what others are told to give.
    fn starts(
        &mut self,
        epoch: Epoch,
        group: &Planned,
        events: &mut Events<'_>,
    ) -> Result<Vec<Start>, DistributedError> {
        let posts = layout::posts(&group.layout);
        let wanted: Vec<(NodeId, Ops)> =
            group.members.iter().cloned().zip(posts.iter().map(|post| post.ops)).collect();
        let Some(resume) = group.resume else { return self.starts_from_disk(&wanted, events) };
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
        events: &mut Events<'_>,
    ) -> Result<Vec<Start>, DistributedError> {
        self.rewind(events)?;
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
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        let Some(group) = self.staging.group.clone() else { return Err(gone("nobody planned this group")) };
        self.staging.held.drain(..).for_each(|blob| self.fabric.release(blob));
        let starts = self.starts(epoch, &group, events)?;
        let step = starts.first().map_or(0, |start| start.step);
        self.note_settled(step, &group, &starts);
        self.book.set_stages(self.stage_names(&group.layout)?);
        let entry = self.epoch_entry(epoch, step, &group);
        self.begin_group(epoch, seats, Some(starts), entry, events)
    }

    /// The names of what each stage of the first replica holds.
    fn stage_names(&self, layout: &Layout) -> Result<Vec<BTreeSet<String>>, DistributedError> {
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
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        match command {
            FormationCommand::Muster { ready } => self.muster(ready, events),
            FormationCommand::Weigh { waiting } => self.weigh(waiting, events),
            _ => Ok(()),
        }
    }

    pub(super) fn release_parts(&mut self) {
        self.staging.held.drain(..).for_each(|blob| self.fabric.release(blob));
    }
}

fn ops(range: &std::ops::Range<usize>) -> Ops {
    Ops { start: range.start as u32, end: range.end as u32 }
}
