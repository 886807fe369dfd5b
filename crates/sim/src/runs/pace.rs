//! How long things take on simulated nodes and links.

use super::Options;
use crate::dice::Dice;
use phalanx_types::Time;
use std::time::Duration;

/// One round of a group: a step, or several that are done as one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RoundTimes {
    /// Until the first rank may have heard all votes.
    pub(crate) decided: Duration,
    pub(crate) takes: Duration,
}

/// What a rank has heard of the votes of a round when its group breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It has not voted.
    Nothing,
    /// It has voted, and not heard all others.
    Voted,
    /// All votes: the round has happened.
    All,
}

/// What a model of time may want to count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Progressed {
    /// A process has come.
    NodeCame,
    /// A group computes.
    GroupBegan,
    /// A round has happened.
    RoundDone { steps: u64 },
    /// A round was lost after this time.
    RoundLost { after: Duration },
    /// No group computes any more.
    GroupOver,
    /// All ranks wait for a checkpoint.
    Saved { waited: Duration },
    /// Steps are lost with every node that held them.
    StepsLost { steps: u64 },
}

/// A round that is about to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundAhead<'a> {
    /// The nodes by rank.
    pub(crate) nodes: &'a [usize],
    /// Samples of each rank in a step.
    pub(crate) samples: &'a [usize],
    pub(crate) steps: u64,
}

/// A model of time: nodes, links and computing.
pub(crate) trait Pace: std::fmt::Debug {
    /// Until a node is there at the beginning.
    fn starting(&mut self) -> Duration;
    /// One way between a node and the driver.
    fn message(&mut self) -> Duration;
    /// A node opens the run.
    fn opening(&mut self) -> Duration;
    /// A node gets its end of a group ready.
    fn preparing(&mut self) -> Duration;
    /// A state travels to the driver or from it, or a part of it between nodes.
    fn transfer(&mut self) -> Duration;
    /// The ranks of a group connect; with `behind`, some take over the state while all wait.
    fn connecting(&mut self, ranks: usize, behind: bool) -> Duration;
    /// The next round of a group, and the seconds that each rank computes in it.
    fn round(&mut self, round: RoundAhead<'_>, computes: &mut Vec<f64>) -> RoundTimes;
    /// What each rank has heard of a round when its group breaks after some time.
    fn heard(&mut self, elapsed: Duration, round: RoundTimes, ranks: usize) -> Vec<Heard>;
    /// The model is validated.
    fn validating(&mut self) -> Duration;
    /// All ranks wait until a state is copied for a checkpoint.
    fn copying(&mut self) -> Duration;
    /// Something has happened that may be counted.
    fn on_progress(&mut self, _now: Time, _what: Progressed) {}
}

/// The part of a round after which ranks begin to vote.
const VOTES_AFTER: f64 = 0.8;

/// Times that vary much, to find what goes wrong.
#[derive(Debug)]
pub(super) struct RoughPace<'o> {
    options: &'o Options,
    network: Dice,
    compute: Dice,
    faults: Dice,
}

impl<'o> RoughPace<'o> {
    pub(super) fn new(seed: u64, options: &'o Options) -> Self {
        Self {
            options,
            network: Dice::new(seed, "network"),
            compute: Dice::new(seed, "compute"),
            faults: Dice::new(seed, "heard"),
        }
    }

    fn about_a_step(&mut self) -> Duration {
        self.options.step.mul_f64(self.compute.number(500..1500) as f64 / 1e3)
    }
}

impl Pace for RoughPace<'_> {
    fn starting(&mut self) -> Duration {
        self.network.millis(0..3000)
    }

    fn message(&mut self) -> Duration {
        let jitter = self.network.micros(0..20_000);
        // Links stall at times.
        let stall = if self.network.chance(1, 50) { self.network.millis(0..2000) } else { Duration::ZERO };
        self.options.latency + jitter + stall
    }

    fn opening(&mut self) -> Duration {
        self.compute.millis(100..3000)
    }

    fn preparing(&mut self) -> Duration {
        self.compute.millis(1..200)
    }

    fn transfer(&mut self) -> Duration {
        let part = self.network.number(200..1000) as f64 / 1e3;
        self.message() + Duration::from_secs_f64(self.options.state_seconds * part)
    }

    fn connecting(&mut self, _ranks: usize, behind: bool) -> Duration {
        if behind { self.transfer() } else { self.message() }
    }

    fn round(&mut self, round: RoundAhead<'_>, computes: &mut Vec<f64>) -> RoundTimes {
        let takes = self.about_a_step() * u32::try_from(round.steps).unwrap_or(u32::MAX);
        // Every third node is slow.
        let speed = |node: &usize| if node % 3 == 2 { 3.0 } else { 1.0 };
        let each = round.nodes.iter().zip(round.samples);
        computes.extend(each.map(|(node, samples)| speed(node) * *samples as f64 / 1e3));
        RoundTimes { decided: takes.mul_f64(VOTES_AFTER), takes }
    }

    fn heard(&mut self, elapsed: Duration, round: RoundTimes, ranks: usize) -> Vec<Heard> {
        let decided = self.faults.chance(1, 2);
        let voting = elapsed >= round.decided;
        let heard = |lucky: bool| match (decided, lucky) {
            _ if !voting => Heard::Nothing,
            (true, true) => Heard::All,
            (true, false) | (false, true) => Heard::Voted,
            (false, false) => Heard::Nothing,
        };
        (0..ranks).map(|_| heard(self.faults.chance(1, 2))).collect()
    }

    fn validating(&mut self) -> Duration {
        2 * self.about_a_step()
    }

    fn copying(&mut self) -> Duration {
        Duration::ZERO
    }
}
