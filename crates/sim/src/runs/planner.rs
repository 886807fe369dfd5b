//! A planner that is right, if not clever: it cuts the model into as many stages as were asked for.

use super::event::Event;
use super::pace::Pace;
use super::reasons;
use super::world::World;
use phalanx_protocol::driver::{
    CompareRequest, Comparison, DriverEvent, NoPlan, NoPlanKind, PlanRequest, PlannedGroup,
};
use phalanx_wire::train::{Layout, Ops, ReplicaLayout};

impl<P: Pace> World<'_, P> {
    pub(super) fn plan(&mut self, request: &PlanRequest) {
        let takes = if request.urgent {
            self.dice.planner.millis(1..400)
        } else {
            self.dice.planner.millis(10..5000)
        };
        let plan = self.plan_group(request);
        let event = DriverEvent::Planned { ticket: request.ticket, plan };
        self.schedule(self.now + takes, Event::ToDriver(Box::new(event)));
    }

    fn plan_group(&mut self, request: &PlanRequest) -> Result<PlannedGroup, NoPlan> {
        let stages = self.options.stages;
        let most = request.nodes.len() / stages;
        if self.fails_at_first() {
            return Err(reasons::no_plan(NoPlanKind::Hopeless));
        }
        if most == 0 {
            return Err(reasons::no_plan(NoPlanKind::NeedsNodes));
        }
        // A group that has trained cannot go on with just any nodes; with all of them it can.
        let some = request.nodes.len() < self.options.nodes;
        if request.urgent && some && !self.has_healed() && self.dice.planner.chance(1, 30) {
            return Err(reasons::no_plan(NoPlanKind::NeedsOtherNodes));
        }
        let replicas = 1 + self.dice.planner.index(most.min(2));
        let mut nodes = request.nodes.clone();
        // Any order will do: nodes then hold other parts than before.
        for last in (1..nodes.len()).rev() {
            let other = self.dice.planner.index(last + 1);
            nodes.swap(last, other);
        }
        let left = nodes.split_off(replicas * stages);
        let samples = (self.options.batch / replicas) as u32;
        let rest = self.options.batch as u32 - samples * replicas as u32;
        let replica = |number: usize, cuts: Vec<Ops>| ReplicaLayout {
            samples: samples + if number == 0 { rest } else { 0 },
            micro: 4,
            stages: cuts,
        };
        let layout =
            Layout { replicas: (0..replicas).map(|number| replica(number, self.cuts(stages))).collect() };
        let left_out = left.into_iter().map(reasons::left_out).collect();
        let micro_batches = request.micro_batches.unwrap_or(4);
        self.driver.planned_micro_batches = Some(micro_batches);
        Ok(PlannedGroup { members: nodes, layout, micro_batches, left_out })
    }

    /// Stages of at least one operator each.
    fn cuts(&mut self, stages: usize) -> Vec<Ops> {
        let (mut cuts, mut start) = (Vec::new(), 0);
        for stage in 0..stages {
            let left = (stages - stage - 1) as u32;
            let room = self.options.operators - start - left;
            let end = match left {
                0 => self.options.operators,
                _ => start + 1 + self.dice.planner.number(0..u64::from(room.min(5))) as u32,
            };
            cuts.push(Ops { start, end });
            start = end;
        }
        cuts
    }

    pub(super) fn compare(&mut self, request: &CompareRequest) {
        let takes = self.dice.planner.millis(1..400);
        let worth = self.dice.planner.chance(1, 2);
        let impossible = self.dice.planner.chance(1, 8);
        let comparison = Comparison {
            present_score: 1.0,
            other_score: if worth { 0.5 } else { 1.0 },
            present_s: 1.0,
            other_s: 1.0,
            micro_batches: [2, 4, 8][self.dice.planner.index(3)],
        };
        let event =
            DriverEvent::Compared { ticket: request.ticket, comparison: (!impossible).then_some(comparison) };
        self.schedule(self.now + takes, Event::ToDriver(Box::new(event)));
    }
}
