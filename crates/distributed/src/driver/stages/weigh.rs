//! Whether a formation can be, and whether another would be better than the present one.

use super::{Driver, HORIZON, ops};
use crate::error::DistributedError;
use phalanx_formation::{Held, ModelCost, Options, Plan, Pool, Shape, Shortfall};
use phalanx_protocol::{FormationEvent, layout};
use phalanx_records::{Event, Events};
use phalanx_train::{Task, needs_several};
use phalanx_types::NodeId;
use phalanx_wire::train::{Layout, ReplicaLayout};
use std::time::{Duration, Instant};

/// A new formation must promise to be faster by so much; by more with nodes that are looked at again, or chance would
/// have equal ones change places for ever.
const WORTH: f64 = 0.9;
const WORTH_AGAIN: f64 = 0.75;
/// How long a plan may be looked for when a run begins, and while nodes that trained wait for it: then the best so
/// far is taken.
const FIRST: Duration = Duration::from_secs(5);
const NEXT: Duration = Duration::from_millis(300);

impl Driver<'_> {
    /// The best plan in which no operator sees samples one by one that cannot: with fewer replicas than would be best,
    /// where it takes that.
    pub(super) fn plan_for(
        &self,
        cost: &ModelCost,
        pool: &Pool,
        options: &Options,
    ) -> Result<Result<(Plan, Layout), Shortfall>, DistributedError> {
        let mut options = options.clone();
        let given = options.replicas.is_some();
        let until = Instant::now() + if self.staging.group.is_some() { NEXT } else { FIRST };
        loop {
            let plan = phalanx_formation::plan(cost, pool, &options, &mut || Instant::now() < until);
            let plan = match plan {
                Ok(plan) => plan,
                Err(shortfall) => return Ok(Err(shortfall)),
            };
            let layout = layout_of(&plan);
            match check_parts(self.task, &layout) {
                Ok(()) => return Ok(Ok((plan, layout))),
                Err(_alone) if !given && plan.replicas.len() > 1 => {
                    options.replicas = Some(plan.replicas.len() - 1);
                }
                Err(alone) => return Err(alone),
            }
        }
    }

    /// Whether a formation with those who wait would be faster than the present one by enough, also when it counts what
    /// has to be moved for it.
    pub(super) fn weigh(
        &mut self,
        waiting: &[NodeId],
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        let Some(group) = self.staging.group.clone() else { return Ok(()) };
        // The plan of this group was made when they were there, or it was said already.
        if !waiting.is_empty() && waiting.iter().all(|node| self.staging.unused.contains(node)) {
            return Ok(());
        }
        if self.ask_speeds(waiting) || waiting.iter().any(|node| self.staging.measured_again.contains(node)) {
            self.staging.weighing = Some(waiting.to_vec());
            return Ok(());
        }
        let cost = self.cost()?;
        let all: Vec<NodeId> = group.members.iter().chain(waiting).cloned().collect();
        let pool = self.pool(&all);
        let shape = numbered(group.plan.shape());
        let stages = shape.replicas.iter().flatten();
        let held = stages.map(|stage| Held { node: stage.node, ops: stage.ops.clone() }).collect();
        // What batch norm learns depends on how batches are cut.
        let given = match group.options.least_micro {
            0 | 1 => self.task.config.formation.micro_batches,
            _ => self.staging.micro_batches,
        };
        let free = Options { held, move_horizon: HORIZON, micro_batches: given, ..group.options };
        let present = Options { micro_batches: Some(shape.micro_batches), ..free.clone() };
        let now = phalanx_formation::predict(&cost, &pool, &present, &shape);
        let (Ok(now), Ok(Ok((then, _)))) = (now, self.plan_for(&cost, &pool, &free)) else {
            // A formation that cannot be is no reason to end one that can.
            self.staging.again.postpone(Instant::now());
            return Ok(());
        };
        let again = !waiting.is_empty() && self.staging.again.knows(waiting);
        let worth = if again { WORTH_AGAIN } else { WORTH };
        if then.predicted.score < worth * now.predicted.score {
            self.staging.wished_micro_batches = Some(then.micro_batches);
            self.core.feed(self.now(), FormationEvent::FoundWorth, &mut self.out);
        } else if !waiting.is_empty() {
            self.staging.unused.extend(waiting.iter().cloned());
            if !self.staging.again.on_unused(Instant::now(), waiting) {
                return Ok(());
            }
            let nodes = waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let [now, then] = [now.seconds_per_batch() * 1e3, then.seconds_per_batch() * 1e3];
            events.on(Event::Note(format!(
                "{nodes} would not make the run faster: a step should take {then:.3} ms with and {now:.3} ms without"
            )));
        }
        Ok(())
    }
}

/// A formation whose nodes are numbered in the order of their ranks.
fn numbered(mut shape: Shape) -> Shape {
    for (number, stage) in shape.replicas.iter_mut().flatten().enumerate() {
        stage.node = number;
    }
    shape
}

fn layout_of(plan: &Plan) -> Layout {
    let replica = |of: &phalanx_formation::ReplicaPlan| ReplicaLayout {
        samples: of.samples as u32,
        micro: of.samples.div_ceil(of.micro_batches.max(1)) as u32,
        stages: of.stages.iter().map(|stage| ops(&stage.ops)).collect(),
    };
    Layout { replicas: plan.replicas.iter().map(replica).collect() }
}

/// Refuses formations in which an operator would see samples one by one that cannot.
fn check_parts(task: &Task, layout: &Layout) -> Result<(), DistributedError> {
    let Some(node) = needs_several(&task.graph) else { return Ok(()) };
    let batch = task.config.train.batch * task.config.train.accumulate;
    let rest = if task.config.data.drop_last { 0 } else { task.samples % batch };
    let shares = layout::shares(layout);
    for (number, replica) in layout.replicas.iter().enumerate() {
        for whole in [batch, rest] {
            let own = shares.range(number, whole).len();
            if own == 1 || own > 1 && replica.micro == 1 {
                return Err(DistributedError::OneSample { node: node.name.clone(), whole, own });
            }
        }
    }
    Ok(())
}
