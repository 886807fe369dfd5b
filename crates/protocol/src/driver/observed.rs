//! How long the ranks of a group compute: when enough steps are known, the costs of the model can be corrected.

use phalanx_types::Epoch;
use phalanx_wire::train::StepReport;

/// Steps of a group that are looked at; the first one, which allocates buffers, is not.
const STEPS: usize = 6;
/// How often costs are corrected in a run, at most.
const MOST: u32 = 3;

/// Computing times of the present group.
#[derive(Debug, Default)]
pub(super) struct Observed {
    epoch: Epoch,
    /// By step, then by rank, in seconds.
    steps: Vec<Vec<f64>>,
    corrections: u32,
}

impl Observed {
    /// Hears of steps; returns the median seconds of every rank once enough are known, once for a group.
    pub(super) fn on_steps(&mut self, epoch: Epoch, reports: &[StepReport]) -> Option<Vec<f64>> {
        if self.epoch != epoch {
            (self.epoch, self.steps) = (epoch, Vec::new());
        }
        if self.steps.len() > STEPS || self.corrections >= MOST {
            return None;
        }
        let seconds =
            |report: &StepReport| report.ranks.iter().map(|rank| f64::from(rank.compute_us) / 1e6).collect();
        self.steps.extend(reports.iter().filter(|report| report.epoch == epoch).map(seconds));
        if self.steps.len() <= STEPS {
            return None;
        }
        self.corrections += 1;
        Some(medians(&self.steps[1..]))
    }
}

fn medians(steps: &[Vec<f64>]) -> Vec<f64> {
    let ranks = steps.iter().map(Vec::len).max().unwrap_or(0);
    let median = |rank: usize| {
        let mut all: Vec<f64> = steps.iter().filter_map(|step| step.get(rank)).copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    (0..ranks).map(median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_wire::train::RankReport;

    fn reports(epoch: u64, micros: &[[u32; 2]]) -> Vec<StepReport> {
        let rank = |compute_us: u32| RankReport { compute_us, ..RankReport::default() };
        let report = |us: &[u32; 2]| StepReport {
            epoch: Epoch(epoch),
            ranks: us.iter().copied().map(rank).collect(),
            ..StepReport::default()
        };
        micros.iter().map(report).collect()
    }

    #[test]
    fn medians_leave_out_the_first_step_and_come_once_for_a_group() {
        let mut observed = Observed::default();
        let usual = [[2_000_000, 1_000_000]; 5];
        assert_eq!(observed.on_steps(Epoch(1), &reports(1, &[[9_000_000, 9_000_000]])), None);
        assert_eq!(observed.on_steps(Epoch(1), &reports(1, &usual)), None);
        assert_eq!(observed.on_steps(Epoch(1), &reports(1, &usual)), Some(vec![2.0, 1.0]));
        assert_eq!(observed.on_steps(Epoch(1), &reports(1, &usual)), None);
        assert_eq!(observed.on_steps(Epoch(2), &reports(1, &usual)), None, "steps of another group");
    }
}
