//! Finds a valid formation, and compares the present one with the best one that other nodes allow.

use super::{HORIZON, Model, NEXT_SEARCH, PlanDetail, ops};
use crate::error::DriverError;
use crate::machines::Links;
use phalanx_formation::{Held, ModelCost, Options, Plan, Pool, Shape};
use phalanx_measure::{KnownNode, pool_of};
use phalanx_protocol::driver::{CompareRequest, Comparison};
use phalanx_protocol::layout;
use phalanx_train::needs_several;
use phalanx_wire::train::{Layout, ReplicaLayout};
use std::time::{Duration, Instant};

impl Model {
    /// The best plan that is valid for batch norm, which cannot compute single samples. Uses fewer replicas where that is
    /// needed.
    pub(super) fn search(
        &self,
        cost: &ModelCost,
        pool: &Pool,
        options: &Options,
        time: Duration,
    ) -> Result<(Plan, Layout), DriverError> {
        let mut options = options.clone();
        let given = options.replicas.is_some();
        let until = Instant::now() + time;
        loop {
            let plan = phalanx_formation::plan(cost, pool, &options, &mut || Instant::now() < until)
                .map_err(DriverError::NoFormation)?;
            let layout = layout_of(&plan);
            match self.check_parts(&layout) {
                Ok(()) => return Ok((plan, layout)),
                Err(_single) if !given && plan.replicas.len() > 1 => {
                    options.replicas = Some(plan.replicas.len() - 1);
                }
                Err(single) => return Err(single),
            }
        }
    }

    /// Compares the present formation with the best one on all these nodes, including the cost of moving state. `None`
    /// when one of them is not possible.
    pub(super) fn compare(
        &mut self,
        request: &CompareRequest,
        present: &PlanDetail,
        nodes: &[KnownNode],
        links: &Links,
    ) -> Result<Option<Comparison>, DriverError> {
        let (cost, here) = self.cost()?;
        let pool = pool_of(nodes, links, &here);
        let shape = numbered(present.plan.shape());
        let stages = shape.replicas.iter().flatten();
        let held = stages.map(|stage| Held { node: stage.node, ops: stage.ops.clone() }).collect();
        // Statistics of batch norm depend on the micro-batches, so their number stays.
        let given = match present.options.least_micro {
            0 | 1 => self.config.formation.micro_batches,
            _ => request.micro_batches,
        };
        let free = Options { held, move_horizon: HORIZON, micro_batches: given, ..present.options.clone() };
        let same = Options { micro_batches: Some(shape.micro_batches), ..free.clone() };
        let Ok(now) = phalanx_formation::predict(&cost, &pool, &same, &shape) else { return Ok(None) };
        let (then, _) = self.search(&cost, &pool, &free, NEXT_SEARCH)?;
        Ok(Some(Comparison {
            present_score: now.predicted.score,
            other_score: then.predicted.score,
            present_s: now.seconds_per_batch(),
            other_s: then.seconds_per_batch(),
            micro_batches: then.micro_batches,
        }))
    }

    /// Refuses layouts in which batch norm would compute a single sample.
    fn check_parts(&self, layout: &Layout) -> Result<(), DriverError> {
        let Some(node) = needs_several(&self.graph) else { return Ok(()) };
        let batch = self.config.train.batch * self.config.train.accumulate;
        let rest = if self.config.data.drop_last { 0 } else { self.samples % batch };
        let shares = layout::shares(layout);
        for (number, replica) in layout.replicas.iter().enumerate() {
            for whole in [batch, rest] {
                let own = shares.range(number, whole).len();
                if own == 1 || own > 1 && replica.micro == 1 {
                    return Err(DriverError::OneSample { node: node.name.clone(), whole, own });
                }
            }
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
