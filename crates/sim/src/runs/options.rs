//! What is simulated: a cluster, the run that it trains, and what goes wrong.

use crate::dice::Dice;
use std::time::Duration;

/// How a run over a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// After its steps, in the middle of a pass.
    Steps,
    /// After whole passes.
    Passes,
    /// With the last sample of the stream, before its steps are done.
    Samples,
}

/// A cluster and the run that it trains.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Stages of a replica; replicas are not cut when 0.
    pub stages: usize,
    /// With fewer replicas the run waits. Runs with stages ask their planner.
    pub min: usize,
    /// Nodes that may open the run at the same time. Runs with stages take all.
    pub max: usize,
    /// How long the run waits at its beginning for more nodes than the fewest.
    pub patience: Duration,
    /// The nodes belong to the driver's process and end with it.
    pub private: bool,
    /// Operators of the model.
    pub operators: u32,
    /// Steps of the run.
    pub steps: u64,
    /// Steps of a pass.
    pub pass: u64,
    /// Passes are over a stream: each has a length of its own, which is known when it begins. `pass` is the longest.
    pub stream: Option<Stream>,
    /// The store frees samples at commits only, and some passes begin only when all steps before them are committed.
    pub frees: bool,
    /// Whether the model is validated after each pass.
    pub validates: bool,
    /// Steps from one checkpoint to the next.
    pub checkpoint_every: Option<u64>,
    /// Steps from one copy of a stage's state to the next; none with 0.
    pub copies: u64,
    /// Samples of a step.
    pub batch: usize,
    /// Steps that replicas learn alone before they average; they exchange gradients of every step when not given.
    pub average_every: Option<u64>,
    /// Steps that asynchronous stages of one replica do as one; stages are exact when not given.
    pub overlap: Option<u64>,
    /// Replicas that come later get the state while the others go on.
    pub catch_up: bool,
    /// How long a step computes, about.
    pub step: Duration,
    /// One way, at least.
    pub latency: Duration,
    /// Seconds that the whole state takes to travel.
    pub state_seconds: f64,
    /// Mean time until a node dies, freezes or loses its link; never without.
    pub mtbf: Option<Duration>,
    /// Mean time until it is back.
    pub mttr: Duration,
    /// Whether links to living nodes are cut at times.
    pub cut_links: bool,
    /// Whether nodes refuse to take part at times.
    pub refusals: bool,
    /// How long a frozen node is silent before it counts as lost.
    pub heartbeat: Duration,
    /// After this time nothing fails any more.
    pub heals_at: Duration,
    /// After this many nodes were lost nothing fails any more.
    pub most_deaths: u64,
    /// Whether the driver is slow at times.
    pub slow_driver: bool,
    /// Mean time until the driver's process dies; the run is resumed from its directory each time.
    pub driver_mtbf: Option<Duration>,
    /// When the user stops the run; it is resumed later.
    pub stop_at: Option<Duration>,
    /// After this step a rank cannot go on, once: the run fails, and is resumed.
    pub fails_after: Option<u64>,
    /// The first driver gets no plan, or all its nodes refuse: the run fails, and is resumed.
    pub fails_at_first: bool,
    /// Mean time from one query to the model to the next.
    pub queries: Option<Duration>,
    /// A run that makes no progress is given up, unless nothing fails any more.
    pub gives_up: bool,
    /// Keeps the text of the trace.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 4,
            stages: 0,
            min: 1,
            max: usize::MAX,
            patience: Duration::from_secs(10),
            private: false,
            operators: 12,
            steps: 100,
            pass: 50,
            stream: None,
            frees: false,
            validates: true,
            checkpoint_every: None,
            copies: 10,
            batch: 24,
            average_every: None,
            overlap: None,
            catch_up: false,
            step: Duration::from_millis(500),
            latency: Duration::from_millis(1),
            state_seconds: 1.0,
            mtbf: None,
            mttr: Duration::from_secs(10),
            cut_links: false,
            refusals: false,
            heartbeat: Duration::from_secs(2),
            heals_at: Duration::from_secs(600),
            most_deaths: u64::MAX,
            slow_driver: false,
            driver_mtbf: None,
            stop_at: None,
            fails_after: None,
            fails_at_first: false,
            queries: None,
            gives_up: false,
            trace: false,
        }
    }
}

impl Options {
    /// A cluster as the seed decides: everything that can go wrong does in some of them.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "options");
        let stages = if dice.chance(1, 3) { 0 } else { 2 + dice.index(3) };
        let nodes = stages.max(2) + dice.index(4);
        let steps = 40 + dice.number(0..40);
        let heals_at = dice.millis(20_000..120_000);
        let exchange = Options { stages, ..Options::default() }.with_exchange(&mut dice);
        let fails_at_first = dice.chance(1, 40);
        let random = Self {
            nodes,
            min: 1 + nodes / 3,
            max: if dice.chance(1, 2) { nodes } else { 2 * nodes },
            private: if fails_at_first { dice.chance(1, 2) } else { dice.chance(1, 8) },
            steps,
            pass: 5 + dice.number(0..12),
            checkpoint_every: (!dice.chance(1, 20)).then(|| 3 + dice.number(0..12)),
            copies: [0, 2, 5][dice.index(3)],
            catch_up: dice.chance(3, 4),
            step: dice.millis(50..1500),
            latency: dice.micros(100..80_000),
            state_seconds: dice.number(1..4000) as f64 / 1e3,
            mtbf: (!dice.chance(1, 20)).then(|| dice.millis(5_000..60_000) * nodes as u32),
            mttr: dice.millis(500..20_000),
            cut_links: dice.chance(1, 2),
            refusals: dice.chance(9, 10),
            heals_at,
            slow_driver: dice.chance(1, 2),
            driver_mtbf: dice.chance(1, 3).then(|| dice.millis(10_000..90_000)),
            stop_at: dice.chance(1, 3).then(|| dice.millis(0..heals_at.as_millis() as u64)),
            fails_after: dice.chance(1, 20).then(|| dice.number(0..steps)),
            fails_at_first,
            queries: dice.chance(1, 3).then(|| dice.millis(500..10_000)),
            ..exchange
        };
        let random = if dice.chance(1, 20) { random.with_many_steps(&mut dice) } else { random };
        let mut dice = Dice::new(seed, "stream");
        let ends = [Stream::Steps, Stream::Passes, Stream::Samples];
        let stream = dice.chance(1, 3).then(|| ends[dice.index(ends.len())]);
        Self { stream, frees: stream.is_some() && dice.chance(1, 2), ..random }
    }

    /// A run over a stream that frees samples at commits, with few nodes that die often, passes of few steps, and a
    /// driver that is slow: at times all ranks are lost that know the steps that the store waits for.
    pub fn random_freeing(seed: u64) -> Self {
        let random = Self::random(seed);
        let mut dice = Dice::new(seed, "freeing");
        let nodes = random.stages.max(2) + dice.index(2);
        let ends = [Stream::Steps, Stream::Passes, Stream::Samples];
        Self {
            nodes,
            min: 1,
            pass: 1 + dice.number(0..4),
            stream: Some(ends[dice.index(ends.len())]),
            frees: true,
            checkpoint_every: None,
            steps: 20 + dice.number(0..20),
            step: dice.millis(20..400),
            mtbf: Some(dice.millis(1_000..10_000) * nodes as u32),
            mttr: dice.millis(100..3_000),
            slow_driver: dice.chance(3, 4),
            driver_mtbf: None,
            stop_at: None,
            fails_after: None,
            ..random
        }
    }

    /// Steps that take so little time that a slow driver is many of them behind: ranks do not remember all.
    fn with_many_steps(self, dice: &mut Dice) -> Self {
        Self {
            steps: 600 + dice.number(0..900),
            pass: 40 + dice.number(0..100),
            checkpoint_every: Some(100 + dice.number(0..200)),
            step: dice.millis(1..6),
            latency: dice.micros(100..2000),
            mtbf: Some(dice.millis(1_000..6_000) * self.nodes as u32),
            mttr: dice.millis(500..3000),
            slow_driver: true,
            ..self
        }
    }

    /// Replicas that average, and stages that overlap, in some runs.
    fn with_exchange(self, dice: &mut Dice) -> Self {
        let overlap = (self.stages > 0 && dice.chance(1, 3)).then(|| 2 + dice.number(0..7));
        // Gradients of every step cannot be exchanged while steps overlap.
        let averages = overlap.is_some() || dice.chance(1, 3);
        Self { average_every: averages.then(|| 1 + dice.number(0..9)), overlap, ..self }
    }
}
