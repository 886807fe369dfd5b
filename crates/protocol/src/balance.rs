//! Gives faster ranks more samples.

use super::shares::Shares;
use phalanx_wire::vote::Vote;

/// Steps that are looked at before shares are changed: one slow step is no slow node.
const WINDOW: usize = 8;
/// How much of what is known of a rank's speed is of the last window. A node whose speed seems to follow its share
/// (one that is stopped now and then, say) would else go from one extreme to the other.
const FRESH: f64 = 0.3;
/// By how much a step must become shorter for a change to be worth it. Below it, shares stay as they are, and with
/// them the bits of the result.
const WORTH: f64 = 0.1;

/// Watches how long ranks compute, and says when other shares would be faster. Every rank sees the same votes, so
/// every rank changes at the same step.
#[derive(Debug, Clone)]
pub struct Balance {
    batch: usize,
    /// By rank: microseconds per sample of the last steps.
    costs: Vec<Vec<f64>>,
    /// By rank: what they were over the windows before; none before the first.
    known: Vec<f64>,
}

impl Balance {
    pub fn new(batch: usize, ranks: usize) -> Self {
        Self { batch, costs: vec![Vec::with_capacity(WINDOW); ranks], known: Vec::new() }
    }

    /// Takes the votes of a step; says the shares from the next step on, when they change.
    pub fn on_votes(&mut self, votes: &[Vote], shares: &Shares) -> Option<Shares> {
        for (costs, vote) in self.costs.iter_mut().zip(votes) {
            if vote.samples > 0 {
                costs.push(f64::from(vote.compute_us.max(1)) / f64::from(vote.samples));
            }
        }
        if self.costs.iter().any(|costs| costs.len() < WINDOW) {
            return None;
        }
        let costs: Vec<f64> = self.costs.iter_mut().map(|costs| median(costs)).collect();
        self.costs.iter_mut().for_each(Vec::clear);
        if self.known.is_empty() {
            self.known = costs;
        } else {
            let blend = |(known, new): (&mut f64, f64)| *known = known.powf(1.0 - FRESH) * new.powf(FRESH);
            self.known.iter_mut().zip(costs).for_each(blend);
        }
        better(self.batch, &self.known, shares)
    }
}

/// Better shares for ranks whose samples cost this many microseconds, if the gain is worth a change.
pub fn better(batch: usize, costs: &[f64], shares: &Shares) -> Option<Shares> {
    let speeds: Vec<f64> = costs.iter().map(|cost| 1.0 / cost).collect();
    let better = Shares::by_speed(batch, &speeds);
    let time = |shares: &Shares| {
        let each = costs.iter().enumerate().map(|(rank, cost)| cost * shares.count(rank) as f64);
        each.fold(0.0, f64::max)
    };
    (time(&better) < time(shares) * (1.0 - WORTH)).then_some(better)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Votes of ranks whose samples cost this many microseconds.
    fn votes(costs: &[u32], shares: &Shares) -> Vec<Vote> {
        let vote = |(rank, cost): (usize, &u32)| {
            let samples = shares.count(rank) as u32;
            let compute_us = samples * cost;
            Vote { samples, finite: true, compute_us, ..Vote::default() }
        };
        costs.iter().enumerate().map(vote).collect()
    }

    fn settle(costs: &[u32], batch: usize, steps: usize) -> (Shares, usize) {
        let mut shares = Shares::equal(batch, costs.len());
        let (mut balance, mut changes) = (Balance::new(batch, costs.len()), 0);
        for _ in 0..steps {
            if let Some(new) = balance.on_votes(&votes(costs, &shares), &shares) {
                (shares, changes) = (new, changes + 1);
            }
        }
        (shares, changes)
    }

    #[test]
    fn a_slow_rank_gets_less_and_then_nothing_changes_any_more() {
        let (shares, changes) = settle(&[100, 100, 100, 400], 130, 100);
        assert_eq!((0..4).map(|r| shares.count(r)).collect::<Vec<_>>(), [40, 40, 40, 10]);
        assert_eq!(changes, 1);
    }

    #[test]
    fn equals_stay_equal_whatever_the_noise() {
        let (shares, changes) = settle(&[100, 104, 97, 101], 64, 200);
        assert_eq!((shares, changes), (Shares::equal(64, 4), 0));
    }

    #[test]
    fn a_rank_that_is_fast_with_few_samples_and_slow_with_many_settles() {
        let mut shares = Shares::equal(400, 2);
        let mut balance = Balance::new(400, 2);
        let mut taken = Vec::new();
        for _ in 0..400 {
            let cost = if shares.count(1) > 100 { 600 } else { 100 };
            if let Some(new) = balance.on_votes(&votes(&[100, cost], &shares), &shares) {
                shares = new;
            }
            taken.push(shares.count(1));
        }
        let last = &taken[200..];
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
        assert!(*least > 50 && *most < 160, "between {least} and {most}");
    }

    #[test]
    fn one_slow_step_changes_nothing() {
        let shares = Shares::equal(64, 2);
        let mut balance = Balance::new(64, 2);
        for step in 0..WINDOW {
            let cost = if step == 3 { 5000 } else { 100 };
            assert_eq!(balance.on_votes(&votes(&[100, cost], &shares), &shares), None);
        }
    }
}
