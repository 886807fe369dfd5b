//! What came of a simulated run.

use super::throughput::Throughput;
use crate::runs;
pub use crate::runs::Violation;
use phalanx_collective::Algorithm;

/// Predictions for one run. Times are in seconds; those of parts of a step are means over steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub seed: u64,
    pub steps_done: u64,
    /// Faults were so frequent that the run was not followed to its end.
    pub gave_up: bool,
    pub step_median: f64,
    pub step_p95: f64,
    pub compute: f64,
    /// Of all collectives of gradients or parameters.
    pub exchange: f64,
    /// What of it is left when everybody has computed.
    pub exposed: f64,
    pub vote: f64,
    pub update: f64,
    /// The most that a rank sends to other hosts in a step.
    pub bytes_per_step: f64,
    /// What the whole group exchanges with, the largest it was.
    pub algorithms: Vec<Algorithm>,
    /// Of steps that count, over all time since the first group began.
    pub samples_per_s: f64,
    /// Of one replica that is not slow, with its share of the batch and nobody to exchange with.
    pub alone_samples_per_s: f64,
    /// Against as many such replicas.
    pub efficiency: f64,
    /// Against the replicas there are, slow ones taken as slow, none ever failing.
    pub efficiency_of_ideal: f64,
    /// The part of all computed samples that was thrown away.
    pub lost_work: f64,
    /// The part of all time in which no group computed.
    pub reforming: f64,
    /// The part of all time in which everybody waited for a checkpoint.
    pub saving: f64,
    pub reformations: u64,
    pub deaths: u64,
    pub joins: u64,
    /// Steps that were lost with everybody who held them.
    pub steps_lost: u64,
    /// Seconds from the first group to the end.
    pub seconds: f64,
    pub events: u64,
    /// Equal for equal runs, whether or not the text was kept.
    pub trace_hash: u64,
    pub trace: Option<String>,
    pub violation: Option<Violation>,
}

impl Report {
    /// The part of the exchange that computing hides.
    pub fn hidden(&self) -> f64 {
        if self.exchange > 0.0 { 1.0 - self.exposed / self.exchange } else { 1.0 }
    }
}

impl Throughput<'_> {
    /// What a run came to that was simulated at this pace.
    pub(super) fn into_report(self, run: runs::Report) -> Report {
        let ended = if run.gave_up { run.ended_at } else { self.tally.last_round };
        let seconds = self.tally.began.map_or(0.0, |began| ended.since(began).as_secs_f64());
        let part = |of: f64| if seconds > 0.0 { of / seconds } else { 0.0 };
        let samples = run.held as f64 * self.options.batch as f64;
        let per_sample = self.work.seconds_per_sample(self.options);
        let share = self.options.share();
        let alone = share / (share * per_sample + self.work.update_seconds());
        let samples_per_s = part(samples);
        let speeds: f64 = self.slow.iter().map(|slow| 1.0 / slow).sum();
        let against = |replicas: f64| samples_per_s / (alone * replicas);
        let tally = &self.tally;
        let largest = self.rhythms.last_key_value().map(|(_, rhythm)| rhythm.algorithms.clone());
        Report {
            seed: run.seed,
            steps_done: run.held,
            gave_up: run.gave_up,
            step_median: tally.percentile(0.5),
            step_p95: tally.percentile(0.95),
            compute: tally.mean(|round| round.compute),
            exchange: tally.mean(|round| round.exchange),
            exposed: tally.mean(|round| round.exposed),
            vote: tally.mean(|round| round.vote),
            update: tally.mean(|round| round.update),
            bytes_per_step: tally.mean(|round| round.bytes),
            algorithms: largest.unwrap_or_default(),
            samples_per_s,
            alone_samples_per_s: alone,
            efficiency: against(self.slow.len() as f64),
            efficiency_of_ideal: against(speeds),
            lost_work: tally.lost_samples / (tally.lost_samples + samples).max(1.0),
            reforming: part(tally.reforming_until(ended)),
            saving: part(tally.saving),
            reformations: run.groups.saturating_sub(1),
            deaths: run.deaths,
            joins: tally.joins,
            steps_lost: tally.steps_lost,
            seconds,
            events: run.events,
            trace_hash: run.trace_hash,
            trace: run.trace,
            violation: run.violation,
        }
    }
}
