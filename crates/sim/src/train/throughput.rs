//! How long a run takes: computing, exchange and votes of every round, messages, states, checkpoints.

use super::network::{Call, Network};
use super::options::Options;
use super::step::{Rhythm, Round};
use super::tally::{Done, Tally};
use super::work::Work;
use crate::dice::Dice;
use crate::runs::pace::{Heard, Pace, Progressed, RoundAhead, RoundTimes};
use phalanx_types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a node takes to open model and data.
const OPENS: Duration = Duration::from_secs(2);
/// What a node takes to get its end of a group ready.
const PREPARES: Duration = Duration::from_millis(20);
/// Round trips in which the ranks of a group connect.
const CONNECTS: u32 = 2;
/// With what the first rank copies its state for a checkpoint, while all wait.
const COPIED_BYTES_PER_SEC: f64 = 2e9;

/// A model of time that predicts how fast a cluster trains.
#[derive(Debug)]
pub(super) struct Throughput<'a> {
    pub(super) work: &'a Work,
    pub(super) options: &'a Options,
    compute: Dice,
    messages: Dice,
    network: Network,
    /// By the size of a group.
    pub(super) rhythms: BTreeMap<usize, Rhythm>,
    /// By node: how many times longer it computes than others.
    pub(super) slow: Vec<f64>,
    underway: Underway,
    pub(super) tally: Tally,
}

/// The round that is being computed.
#[derive(Debug, Default)]
struct Underway {
    parts: Round,
    /// By rank: samples and seconds.
    computes: Vec<(f64, f64)>,
}

impl<'a> Throughput<'a> {
    pub(super) fn new(work: &'a Work, options: &'a Options, seed: u64) -> Self {
        let slow = |node: usize| match options.slow {
            Some(slow) if is_slow(node, slow.part) => slow.times,
            _ => 1.0,
        };
        Self {
            work,
            options,
            compute: Dice::new(seed, "compute"),
            messages: Dice::new(seed, "network"),
            network: Network::new(options),
            rhythms: BTreeMap::new(),
            slow: (0..options.replicas).map(slow).collect(),
            underway: Underway::default(),
            tally: Tally::default(),
        }
    }

    /// Samples that are thrown away when the present round is lost after some time.
    fn computed(&self, after: Duration) -> f64 {
        let part = |(samples, seconds): &(f64, f64)| match *seconds > 0.0 {
            true => samples * (after.as_secs_f64() / seconds).min(1.0),
            false => *samples,
        };
        self.underway.computes.iter().map(part).sum()
    }
}

impl Pace for Throughput<'_> {
    fn starting(&mut self) -> Duration {
        self.messages.micros(0..100_000)
    }

    fn message(&mut self) -> Duration {
        let latency = self.network.latency();
        let most = (latency.as_micros() as u64 / 4).max(100);
        latency + self.messages.micros(0..most)
    }

    fn opening(&mut self) -> Duration {
        OPENS
    }

    fn preparing(&mut self) -> Duration {
        PREPARES
    }

    fn transfer(&mut self) -> Duration {
        let seconds = self.options.link.seconds(self.work.state_bytes() as f64);
        self.message() + Duration::from_secs_f64(seconds)
    }

    fn connecting(&mut self, ranks: usize, behind: bool) -> Duration {
        let bytes = usize::try_from(self.work.state_bytes()).unwrap_or(usize::MAX);
        let levels = if behind { self.network.cost(Call::Broadcast { bytes }, ranks).seconds } else { 0.0 };
        self.network.latency() * 2 * CONNECTS + Duration::from_secs_f64(levels)
    }

    fn round(&mut self, round: RoundAhead<'_>, computes: &mut Vec<f64>) -> RoundTimes {
        let per_sample = self.work.seconds_per_sample(self.options);
        let (jitter, ranks) = (self.options.jitter, round.nodes.len());
        self.underway.computes.clear();
        for (node, samples) in round.nodes.iter().zip(round.samples) {
            let noise = 1.0 + jitter * (self.compute.number(0..1 << 20) as f64 / f64::from(1 << 19) - 1.0);
            let samples = *samples as f64 * round.steps as f64;
            let seconds = samples * per_sample * self.slow[*node] * noise;
            self.underway.computes.push((samples, seconds));
            computes.push(seconds);
        }
        let slowest = computes.iter().copied().fold(0.0, f64::max);
        let (work, options, network) = (self.work, self.options, &mut self.network);
        let rhythm = self.rhythms.entry(ranks).or_insert_with(|| Rhythm::new(work, options, network, ranks));
        self.underway.parts = rhythm.round(slowest, round.steps);
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let parts = &self.underway.parts;
        RoundTimes { decided: time(parts.decided()), takes: time(parts.seconds()) }
    }

    fn heard(&mut self, elapsed: Duration, round: RoundTimes, ranks: usize) -> Vec<Heard> {
        let (elapsed, decided) = (elapsed.as_secs_f64(), round.decided.as_secs_f64());
        let latency = self.network.latency().as_secs_f64();
        // Votes come in one after the other; the last of them within the time of a message.
        let part = if latency > 0.0 { (elapsed - decided + latency) / latency } else { elapsed - decided };
        let mut heard = Vec::with_capacity(ranks);
        for _ in 0..ranks {
            let at = self.messages.number(0..1_000_000) as f64 / 1e6;
            heard.push(if part >= 1.0 || part > at { Heard::All } else { Heard::Nothing });
        }
        heard
    }

    fn validating(&mut self) -> Duration {
        Duration::ZERO
    }

    fn copying(&mut self) -> Duration {
        Duration::from_secs_f64(self.work.state_bytes() as f64 / COPIED_BYTES_PER_SEC)
    }

    fn on_progress(&mut self, now: Time, what: Progressed) {
        let tally = &mut self.tally;
        match what {
            Progressed::NodeCame => tally.joins += u64::from(tally.began.is_some()),
            Progressed::GroupBegan => tally.on_group(now),
            Progressed::RoundDone { steps } => {
                tally.last_round = now;
                tally.rounds.push(Done { steps, round: self.underway.parts });
            }
            Progressed::RoundLost { after } => {
                let lost = self.computed(after);
                self.tally.lost_samples += lost;
            }
            Progressed::GroupOver => drop(tally.idle_since.get_or_insert(now)),
            Progressed::Saved { waited } => tally.saving += waited.as_secs_f64(),
            Progressed::StepsLost { steps } => {
                tally.steps_lost += steps;
                tally.lost_samples += steps as f64 * self.options.batch as f64;
            }
        }
    }
}

/// Spreads a part of all nodes evenly.
fn is_slow(node: usize, part: f64) -> bool {
    ((node + 1) as f64 * part).floor() > (node as f64 * part).floor()
}
