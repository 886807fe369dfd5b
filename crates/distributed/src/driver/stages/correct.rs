//! What a model costs turns out when it is trained: then a formation may be worth changing.

use super::Driver;
use crate::error::DistributedError;
use phalanx_formation::{ModelCost, Pool, Work};
use phalanx_protocol::layout;
use phalanx_records::Events;
use phalanx_types::Epoch;
use phalanx_wire::train::StepReport;

/// Steps of a group that are looked at; the first one, which makes its buffers, is not.
const STEPS: usize = 6;
/// How often costs are corrected, at most.
const MOST: u32 = 3;
/// No operator is believed to be off by more.
const FAR_OFF: f64 = 4.0;
/// Stages must be off by factors that differ so much: a node's time does not grow evenly with its work.
const WORTH_CORRECTING: f64 = 1.6;

/// How long the stages of a group computed.
#[derive(Debug, Default)]
pub(super) struct Observed {
    epoch: Epoch,
    /// By step, then by rank, in seconds.
    steps: Vec<Vec<f64>>,
    corrections: u32,
}

impl Driver<'_> {
    /// Hears how long stages computed; when enough was heard, costs are corrected, and the formation is weighed against
    /// what is possible now. Exact stages only: their numbers do not depend on who computes what.
    pub(in super::super) fn observe(
        &mut self,
        epoch: Epoch,
        reports: &[StepReport],
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        let formation = &self.task.config.formation;
        if !formation.is_staged() || formation.is_asynchronous() {
            return Ok(());
        }
        let observed = &mut self.staging.observed;
        if observed.epoch != epoch {
            (observed.epoch, observed.steps) = (epoch, Vec::new());
        }
        if observed.steps.len() > STEPS || observed.corrections >= MOST {
            return Ok(());
        }
        let seconds =
            |report: &StepReport| report.ranks.iter().map(|rank| f64::from(rank.compute_us) / 1e6).collect();
        observed.steps.extend(reports.iter().filter(|report| report.epoch == epoch).map(seconds));
        if observed.steps.len() <= STEPS {
            return Ok(());
        }
        observed.corrections += 1;
        let Some(group) = &self.staging.group else { return Ok(()) };
        // There nodes take each other's time, and nothing is learned of the operators.
        if is_crowded(&self.pool(&group.members)) {
            return Ok(());
        }
        let busy: Vec<f64> = group
            .plan
            .replicas
            .iter()
            .flat_map(|replica| &replica.stages)
            .map(|stage| stage.busy_s - stage.update_s)
            .collect();
        let took = medians(&self.staging.observed.steps[1..], busy.len());
        let posts = layout::posts(&group.layout);
        let off: Vec<(std::ops::Range<usize>, f64)> = (posts.iter().zip(busy.iter().zip(took)))
            .map(|(post, (busy, took))| (layout::range(post.ops), factor(*busy, took)))
            .collect();
        let (least, most) = off
            .iter()
            .fold((f64::INFINITY, 0.0f64), |(least, most), (_, off)| (least.min(*off), most.max(*off)));
        let Some(cost) = self.staging.cost.as_mut().filter(|_| most > WORTH_CORRECTING * least) else {
            return Ok(());
        };
        correct(cost, &off);
        self.weigh(&[], events)
    }
}

fn is_crowded(pool: &Pool) -> bool {
    let threads = |host: &str| pool.nodes.iter().filter(|n| n.host == host).map(|n| n.threads).sum::<f64>();
    pool.nodes.iter().any(|node| threads(&node.host) > node.cores)
}

/// How many times longer than expected something took.
fn factor(expected: f64, took: f64) -> f64 {
    let off = took / expected;
    if off.is_finite() && off > 0.0 { off.clamp(1.0 / FAR_OFF, FAR_OFF) } else { 1.0 }
}

/// By rank.
fn medians(steps: &[Vec<f64>], ranks: usize) -> Vec<f64> {
    let median = |rank: usize| {
        let mut all: Vec<f64> = steps.iter().filter_map(|step| step.get(rank)).copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    (0..ranks).map(median).collect()
}

/// Multiplies what operators cost by how far they were off: on average, where several replicas had them.
fn correct(cost: &mut ModelCost, off: &[(std::ops::Range<usize>, f64)]) {
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
        let steps = [vec![2.0, 1.0], vec![9.0, 1.0], vec![2.0, 1.0]];
        let took = medians(&steps, 2);
        assert_eq!(took, [2.0, 1.0]);
        let off = [(0..2, factor(1.0, took[0])), (2..4, factor(1.0, took[1])), (0..4, factor(1.0, 8.0))];
        correct(&mut cost, &off);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(cost.ops[0].forward.per_sample, 8.0f64.sqrt()), "{:?}", cost.ops[0]);
        assert!(close(cost.ops[3].backward.per_batch, 1.0), "{:?}", cost.ops[3]);
        assert_eq!((factor(0.0, 1.0), factor(1.0, f64::NAN)), (1.0, 1.0));
    }
}
