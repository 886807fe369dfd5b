//! Corrects the costs of operators by measured times of stages.

use super::{Model, PlanDetail};
use crate::machines::Links;
use phalanx_formation::{ModelCost, Pool, Work};
use phalanx_measure::{KnownNode, pool_of};
use phalanx_protocol::layout;
use std::ops::Range;

/// The largest factor by which a cost is corrected.
const FAR_OFF: f64 = 4.0;
/// Costs are corrected only if the factors of two stages differ by more than this. Smaller differences are normal: a
/// node's time is not quite proportional to its work.
const WORTH_CORRECTING: f64 = 1.6;

impl Model {
    /// Corrects the costs by the seconds that each rank computed in a step; returns whether they are different now.
    pub(super) fn calibrate(
        &mut self,
        plan: &PlanDetail,
        nodes: &[KnownNode],
        links: &Links,
        took_s: &[f64],
    ) -> bool {
        let Some((cost, here)) = &mut self.known else { return false };
        // When nodes compete for cores, their times say nothing about the operators.
        if is_crowded(&pool_of(nodes, links, here)) {
            return false;
        }
        let stages = plan.plan.replicas.iter().flat_map(|replica| &replica.stages);
        let expected = stages.map(|stage| stage.busy_s - stage.update_s);
        let off: Vec<(Range<usize>, f64)> = layout::posts(&plan.layout)
            .iter()
            .zip(expected.zip(took_s))
            .map(|(post, (expected, took))| (layout::range(post.ops), factor(expected, *took)))
            .collect();
        let least = off.iter().fold(f64::INFINITY, |least, (_, off)| least.min(*off));
        let most = off.iter().fold(0.0, |most: f64, (_, off)| most.max(*off));
        if most <= WORTH_CORRECTING * least {
            return false;
        }
        correct(cost, &off);
        true
    }
}

fn is_crowded(pool: &Pool) -> bool {
    let threads = |host: &str| pool.nodes.iter().filter(|n| n.host == host).map(|n| n.threads).sum::<f64>();
    pool.nodes.iter().any(|node| threads(&node.host) > node.cores)
}

/// The ratio of measured and expected time, within limits.
fn factor(expected: f64, took: f64) -> f64 {
    let off = took / expected;
    if off.is_finite() && off > 0.0 { off.clamp(1.0 / FAR_OFF, FAR_OFF) } else { 1.0 }
}

/// Multiplies the cost of every operator by its factor: the geometric mean over the replicas that computed it.
fn correct(cost: &mut ModelCost, off: &[(Range<usize>, f64)]) {
    for (index, op) in cost.ops.iter_mut().enumerate() {
        let own: Vec<f64> =
            off.iter().filter(|(ops, _)| ops.contains(&index)).map(|(_, off)| off.ln()).collect();
        let factor = if own.is_empty() { 1.0 } else { (own.iter().sum::<f64>() / own.len() as f64).exp() };
        let times =
            |work: Work| Work { per_sample: work.per_sample * factor, per_batch: work.per_batch * factor };
        (op.forward, op.backward) = (times(op.forward), times(op.backward));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_formation::OpCost;

    #[test]
    fn what_took_longer_costs_more_from_then_on() {
        let work = Work { per_sample: 1.0, per_batch: 0.5 };
        let op = OpCost { forward: work, backward: work, ..OpCost::default() };
        let mut cost = ModelCost { ops: vec![op; 4], cuts: Vec::new() };
        let off = [(0..2, factor(1.0, 2.0)), (2..4, factor(1.0, 1.0)), (0..4, factor(1.0, 8.0))];
        correct(&mut cost, &off);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(cost.ops[0].forward.per_sample, 8.0f64.sqrt()), "{:?}", cost.ops[0]);
        assert!(close(cost.ops[3].backward.per_batch, 1.0), "{:?}", cost.ops[3]);
        assert_eq!((factor(0.0, 1.0), factor(1.0, f64::NAN)), (1.0, 1.0));
    }
}
