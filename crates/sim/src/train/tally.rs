//! What is counted while a run is simulated.

use super::step::Round;
use phalanx_types::Time;

/// One round that has happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) steps: u64,
    pub(super) round: Round,
}

/// Sums over a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rounds: Vec<Done>,
    /// When the first group began.
    pub(super) began: Option<Time>,
    /// When the last round was done.
    pub(super) last_round: Time,
    /// Since when no group computes.
    pub(super) idle_since: Option<Time>,
    /// Samples that were computed and thrown away.
    pub(super) lost_samples: f64,
    /// Seconds without a group that computes, after the first began.
    reforming: f64,
    /// Seconds that a checkpoint held everybody up.
    pub(super) saving: f64,
    pub(super) joins: u64,
    /// Steps that were done and lost with everybody who held them.
    pub(super) steps_lost: u64,
}

impl Tally {
    /// A group computes.
    pub(super) fn on_group(&mut self, now: Time) {
        self.reforming = self.reforming_until(now);
        self.idle_since = None;
        self.began.get_or_insert(now);
    }

    /// Seconds without a group that computes, from the first group to a moment.
    pub(super) fn reforming_until(&self, end: Time) -> f64 {
        let idle = self.idle_since.zip(self.began);
        self.reforming + idle.map_or(0.0, |(since, began)| end.since(since.max(began)).as_secs_f64())
    }

    /// The mean of a part of a round, for one step.
    pub(super) fn mean(&self, part: impl Fn(&Round) -> f64) -> f64 {
        let steps: u64 = self.rounds.iter().map(|done| done.steps).sum();
        self.rounds.iter().map(|done| part(&done.round)).fold(0.0, |sum, part| sum + part)
            / steps.max(1) as f64
    }

    /// The time of a step below which this share of the steps lies.
    pub(super) fn percentile(&self, share: f64) -> f64 {
        let each = |done: &Done| done.round.seconds() / done.steps.max(1) as f64;
        let mut times: Vec<f64> = self.rounds.iter().map(each).collect();
        times.sort_by(f64::total_cmp);
        let last = times.len().saturating_sub(1);
        times.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }
}
