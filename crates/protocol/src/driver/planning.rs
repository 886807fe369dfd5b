//! Who holds which part of the model: measuring nodes, planning a group, and whether another formation is worth it.

use super::observed::Observed;
use super::remeasure::Remeasure;
use super::{
    CompareRequest, Comparison, DriverCommand, DriverCore, DriverFailure, NoPlan, NoPlanKind, NodeToMeasure,
    Notice, PlanRequest, PlannedGroup, Ticket,
};
use crate::FormationCore;
use crate::bugs::{RunBug, planted};
use crate::formation::FormationStage;
use crate::holdings::{Inventory, Resume, newest, reaches};
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use phalanx_wire::train::{Layout, StepReport};
use phalanx_wire::train_reason::BreakReason;
use std::collections::BTreeSet;

/// A new formation must promise a score that is less by this factor.
const WORTH: f64 = 0.9;
/// The same with nodes that were evaluated before: otherwise equal ones would change places by chance.
const WORTH_AGAIN: f64 = 0.75;

/// What the driver of a run with stages knows.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// Nodes that were measured, or are being measured.
    asked: BTreeSet<NodeId>,
    /// Nodes that a plan waits for.
    needed: BTreeSet<NodeId>,
    /// Unused nodes that are to be measured again, and those that are being measured again: only their evaluation
    /// waits for that.
    stale: BTreeSet<NodeId>,
    measured_again: BTreeSet<NodeId>,
    /// Candidates that are to be evaluated when they are measured.
    candidates: Option<Vec<NodeId>>,
    observed: Observed,
    /// Parts that a batch is cut into: decided once, so that the same numbers come out on any nodes.
    micro_batches: Option<usize>,
    /// A better number with the nodes there are now; used where no step has to be done again.
    wished_micro_batches: Option<usize>,
    /// The plan that is being made.
    request: Option<Request>,
    /// The candidates that are being compared with the present formation.
    comparing: Option<(Ticket, Vec<NodeId>)>,
    calibrating: Option<Ticket>,
    /// The plan of the group that forms or trains.
    planned: Option<PlannedStages>,
    /// Nodes that are not used; the user was told why.
    unused: BTreeSet<NodeId>,
    remeasure: Remeasure,
    /// The model is fetched because the run waits for nodes.
    pub(super) saving: Option<super::model::Gather>,
}

/// A plan that was asked for.
#[derive(Debug)]
struct Request {
    ticket: Ticket,
    ready: Vec<NodeId>,
    resume: Option<Resume>,
}

/// The plan of a group.
#[derive(Debug, Clone)]
pub(super) struct PlannedStages {
    pub(super) ticket: Ticket,
    pub(super) members: Vec<NodeId>,
    pub(super) layout: Layout,
    /// From what nodes hold; from disk without.
    pub(super) resume: Option<Resume>,
}

impl Staging {
    pub(super) fn new(micro_batches: Option<usize>) -> Self {
        Self { micro_batches, ..Self::default() }
    }

    pub(super) fn layout(&self) -> Option<&Layout> {
        self.planned.as_ref().map(|planned| &planned.layout)
    }

    pub(super) fn planned(&self) -> Option<&PlannedStages> {
        self.planned.as_ref()
    }

    pub(super) fn is_planning(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn remeasure_at(&self) -> Option<Time> {
        self.remeasure.at()
    }
}

impl DriverCore {
    /// Has nodes measured that were not yet; returns whether a plan must wait for one of these.
    fn measure(&mut self, nodes: &[NodeId], out: &mut Outbox<DriverCommand>) -> bool {
        if !self.config.staged.is_some_and(|staged| staged.measures) {
            return false;
        }
        let staging = &mut self.staging;
        let mut request = Vec::new();
        for node in nodes.iter().filter(|node| !staging.asked.contains(*node)) {
            let again = staging.stale.remove(node);
            let waits = if again { &mut staging.measured_again } else { &mut staging.needed };
            waits.insert(node.clone());
            request.push(NodeToMeasure { node: node.clone(), again });
        }
        if !request.is_empty() {
            staging.asked.extend(request.iter().map(|asked| asked.node.clone()));
            out.push(DriverCommand::Measure { nodes: request });
        }
        nodes.iter().any(|node| staging.needed.contains(node))
    }

    pub(super) fn on_measured(&mut self, nodes: &[NodeId], out: &mut Outbox<DriverCommand>) {
        for node in nodes {
            self.staging.needed.remove(node);
            self.staging.measured_again.remove(node);
        }
        if self.staging.request.is_none() {
            self.formation.muster_again(&mut self.formation_out);
        }
        if let Some(candidates) = self.staging.candidates.take() {
            let here: Vec<NodeId> = candidates.into_iter().filter(|node| self.nodes.contains(node)).collect();
            if !here.is_empty() {
                self.evaluate(here, out);
            }
        }
    }

    /// Has the next group planned, when its nodes are measured.
    pub(super) fn muster(&mut self, ready: Vec<NodeId>, out: &mut Outbox<DriverCommand>) {
        self.staging.request = None;
        if self.measure(&ready, out) {
            return;
        }
        // Nodes that left the run hold nothing that counts.
        self.inventory.retain(|node, _| ready.contains(node));
        let resume = self.held_by_nodes();
        // Steps that are done again come to the same numbers only when batches are cut as they were.
        let again = resume.is_none_or(|resume| resume.step < self.records.step());
        let wished = self.staging.wished_micro_batches.filter(|_| !again);
        let held = |resume: Resume| {
            let holds =
                self.inventory.iter().flat_map(|(node, holds)| holds.iter().map(move |hold| (node, hold)));
            let holds = holds.filter(|(_, hold)| reaches(hold, resume));
            holds.map(|(node, hold)| (node.clone(), hold.ops)).collect()
        };
        let held = resume.map(held);
        let ticket = self.ticket();
        out.push(DriverCommand::Plan(PlanRequest {
            ticket,
            nodes: ready.clone(),
            micro_batches: wished.or(self.staging.micro_batches),
            held,
            urgent: self.staging.planned.is_some(),
        }));
        self.staging.request = Some(Request { ticket, ready, resume });
    }

    pub(super) fn on_planned(
        &mut self,
        now: Time,
        ticket: Ticket,
        plan: Result<PlannedGroup, NoPlan>,
        out: &mut Outbox<DriverCommand>,
    ) {
        let Some(request) = self.staging.request.take_if(|request| request.ticket == ticket) else { return };
        if self.formation.stage() != FormationStage::Mustering {
            return;
        }
        if self.held_by_nodes() != request.resume && !planted(RunBug::IgnoresLostGivers) {
            // A node was lost meanwhile that held what the plan begins with.
            return self.formation.muster_again(&mut self.formation_out);
        }
        let members = match plan {
            Ok(plan) => Ok(self.take_plan(now, ticket, request.resume, plan, out)),
            Err(NoPlan { kind: NoPlanKind::NeedsOtherNodes, detail }) if self.staging.planned.is_some() => {
                Err(detail.to_string())
            }
            Err(NoPlan { kind: NoPlanKind::NeedsNodes, detail })
                if self.config.private_nodes.is_none_or(|nodes| request.ready.len() < nodes) =>
            {
                Err(detail.to_string())
            }
            Err(_) => return self.fail(DriverFailure::NoPlan { ticket }, out),
        };
        self.formation.on_mustered(now, members, &mut self.formation_out);
    }

    fn take_plan(
        &mut self,
        now: Time,
        ticket: Ticket,
        resume: Option<Resume>,
        plan: PlannedGroup,
        out: &mut Outbox<DriverCommand>,
    ) -> Vec<NodeId> {
        let PlannedGroup { members, layout, micro_batches, left_out } = plan;
        let staging = &mut self.staging;
        (staging.wished_micro_batches, staging.comparing) = (None, None);
        staging.unused.clear();
        let unused: Vec<NodeId> = left_out.iter().map(|(node, _)| node.clone()).collect();
        for (node, why) in left_out {
            out.push(DriverCommand::Tell(Notice::NodeUnused { node, why }));
        }
        if !unused.is_empty() {
            staging.remeasure.on_unused(now, &unused);
            staging.unused.extend(unused);
        }
        staging.micro_batches = Some(micro_batches);
        staging.planned = Some(PlannedStages { ticket, members: members.clone(), layout, resume });
        members
    }

    /// What nodes hold of all the model, unless the disk has it of a later step.
    pub(super) fn held_by_nodes(&self) -> Option<Resume> {
        let held = newest(&self.inventory, self.config.operators);
        held.filter(|resume| resume.step >= self.records.recorded().saved)
    }

    /// A node is lost: a group that forms cannot begin when it held what nobody else does.
    pub(super) fn abandon_unreachable(&mut self, now: Time, lost: &NodeId) {
        let Some(planned) = &self.staging.planned else { return };
        if self.formation.stage() == FormationStage::Preparing
            && !planted(RunBug::IgnoresLostGivers)
            && !is_reachable(&self.inventory, planned.resume, self.config.operators)
        {
            let reason = BreakReason::StateLost { node: lost.clone() };
            self.formation.abandon(now, reason, &mut self.formation_out);
        }
    }

    /// Asks whether a formation with these candidates would be faster than the present one.
    pub(super) fn evaluate(&mut self, candidates: Vec<NodeId>, out: &mut Outbox<DriverCommand>) {
        let Some(planned) = self.staging.planned.clone() else { return };
        // The plan of this group was made with them, or they were evaluated already.
        if !candidates.is_empty() && candidates.iter().all(|node| self.staging.unused.contains(node)) {
            return;
        }
        let waits = self.measure(&candidates, out);
        if waits || candidates.iter().any(|node| self.staging.measured_again.contains(node)) {
            self.staging.candidates = Some(candidates);
            return;
        }
        let ticket = self.ticket();
        out.push(DriverCommand::Compare(CompareRequest {
            ticket,
            plan: planned.ticket,
            members: planned.members,
            candidates: candidates.clone(),
            micro_batches: self.staging.micro_batches,
        }));
        self.staging.comparing = Some((ticket, candidates));
    }

    pub(super) fn on_compared(
        &mut self,
        now: Time,
        ticket: Ticket,
        comparison: Option<Comparison>,
        out: &mut Outbox<DriverCommand>,
    ) {
        let staging = &mut self.staging;
        let Some((_, candidates)) = staging.comparing.take_if(|(asked, _)| *asked == ticket) else { return };
        let Some(comparison) = comparison else {
            // A formation that cannot be is no reason to end one that can.
            return staging.remeasure.postpone(now);
        };
        let again = !candidates.is_empty() && staging.remeasure.knows(&candidates);
        let worth = if again { WORTH_AGAIN } else { WORTH };
        if comparison.other_score < worth * comparison.present_score {
            staging.wished_micro_batches = Some(comparison.micro_batches);
            return self.formation.on_worth(&mut self.formation_out);
        }
        if candidates.is_empty() {
            return;
        }
        staging.unused.extend(candidates.iter().cloned());
        if staging.remeasure.on_unused(now, &candidates) {
            let (with_s, without_s) = (comparison.other_s, comparison.present_s);
            out.push(DriverCommand::Tell(Notice::NotFaster { nodes: candidates, with_s, without_s }));
        }
    }

    /// Hears how long ranks computed; when enough is known, the costs of the model are corrected.
    pub(super) fn observe(&mut self, epoch: Epoch, reports: &[StepReport], out: &mut Outbox<DriverCommand>) {
        if !self.config.staged.is_some_and(|staged| staged.calibrates) {
            return;
        }
        let Some(took_s) = self.staging.observed.on_steps(epoch, reports) else { return };
        let Some(planned) = self.staging.planned.clone() else { return };
        let ticket = self.ticket();
        self.staging.calibrating = Some(ticket);
        let PlannedStages { ticket: plan, members, .. } = planned;
        out.push(DriverCommand::Calibrate { ticket, plan, members, took_s });
    }

    pub(super) fn on_calibrated(&mut self, ticket: Ticket, changed: bool, out: &mut Outbox<DriverCommand>) {
        if self.staging.calibrating.take_if(|asked| *asked == ticket).is_some() && changed {
            self.evaluate(Vec::new(), out);
        }
    }

    /// Has unused nodes measured and evaluated again, when it is time for that.
    pub(super) fn remeasure_unused(&mut self, now: Time) {
        let measures = self.config.staged.is_some_and(|staged| staged.measures);
        if !self.staging.remeasure.take_due(now) || !measures {
            return;
        }
        for node in std::mem::take(&mut self.staging.unused) {
            self.staging.asked.remove(&node);
            self.staging.stale.insert(node);
        }
        FormationCore::weigh_again(&mut self.formation, now, &mut self.formation_out);
    }
}

fn is_reachable(inventory: &Inventory, resume: Option<Resume>, operators: usize) -> bool {
    let Some(resume) = resume else { return true };
    crate::holdings::is_covered(inventory, resume, operators)
}
