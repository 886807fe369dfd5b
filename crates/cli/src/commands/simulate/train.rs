//! `phalanx simulate train`: elastic data-parallel training on simulated nodes and links.

use super::{local, stages, units};
use crate::args::duration;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use phalanx_collective::{Algorithm, Compression};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_sim::train::{Faults, Link, Options, Report, Slow, Speed, Sync, Work, run as run_seed};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// What replicas exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Exchange {
    /// Gradients of every step.
    Gradients,
    /// Parameters, every so many steps.
    Parameters,
    /// How far parameters have moved, every so many steps.
    Outer,
}

/// Who sends what to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Ring,
    HalvingDoubling,
    Direct,
}

#[derive(Debug, Args)]
pub(super) struct TrainArgs {
    /// How many replicas there are.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    replicas: u32,
    /// Cut every replica into stages on a node each, and simulate the whole protocol: losses, records, checkpoints.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=64),
          conflicts_with_all = ["local", "host_ranks", "slow", "min", "exchange", "compress", "algorithm"])]
    stages: Option<u32>,
    /// A model of the zoo.
    #[arg(long, default_value = "resnet-18")]
    pub(super) model: String,
    /// The shape of one sample, like 3,112,112; the usual one when not given.
    #[arg(long, value_delimiter = ',')]
    pub(super) input: Option<Vec<usize>>,
    /// Samples of a step, over all replicas.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Statistics of batch norm are summed over all replicas.
    #[arg(long)]
    pub(super) shared_statistics: bool,
    /// Predict replicas on this machine, from what is measured here; nothing is simulated.
    #[arg(long, conflicts_with_all = ["link", "host_ranks", "speed", "step_time", "slow", "mtbf", "exchange", "trace"])]
    local: bool,
    /// Rate and latency (one way) of what joins two hosts.
    #[arg(long, value_name = "RATE/LATENCY", default_value = "1Gbps/100us", value_parser = units::link)]
    link: Link,
    /// Replicas that share a host, its memory and its link.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    host_ranks: u32,
    /// What a replica computes in a second.
    #[arg(long, value_name = "FLOPS", default_value = "50gflops", value_parser = units::speed)]
    speed: f64,
    /// What a replica takes for its share of the batch, in the place of its speed.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "speed")]
    step_time: Option<Duration>,
    /// A part of the nodes that is so many times slower, like 0.1x4.
    #[arg(long, value_name = "PARTxTIMES", value_parser = units::slow)]
    slow: Option<Slow>,
    /// By how much computing varies from step to step, as a part of it.
    #[arg(long, default_value_t = 0.02)]
    jitter: f64,
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    /// Steps of the run.
    steps: u64,
    /// Mean time until a node dies; never when not given.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    mtbf: Option<Duration>,
    /// Mean time until it is back.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, requires = "mtbf")]
    mttr: Duration,
    /// With fewer replicas the run waits; half of them when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    min: Option<u32>,
    /// How long a frozen node is silent before it counts as lost.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    heartbeat: Duration,
    /// What replicas exchange.
    #[arg(long, value_enum, default_value = "gradients")]
    exchange: Exchange,
    /// Steps from one exchange of parameters to the next.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    every: u32,
    /// How values are made smaller: none, f16, bf16, int8, topk or topk:0.01.
    #[arg(long, default_value = "none")]
    compress: Compression,
    /// How hosts exchange; what a group would choose when not given.
    #[arg(long, value_enum)]
    algorithm: Option<Way>,
    /// Steps from one checkpoint to the next.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_every: Option<u64>,
    /// Decides everything that is random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write everything that happens, in simulated time, to a file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Record what the driver's core is told, for `phalanx replay`.
    #[arg(long, value_name = "FILE", requires = "stages")]
    recording: Option<PathBuf>,
}

/// What is predicted. Times are in milliseconds, parts from 0 to 1.
#[derive(Debug, Serialize)]
struct Simulated {
    model: String,
    replicas: u32,
    hosts: u32,
    batch: u32,
    seed: u64,
    steps: u64,
    steps_done: u64,
    /// Faults were so frequent that the run was not followed to its end.
    gave_up: bool,
    step_ms: f64,
    step_p95_ms: f64,
    samples_per_s: f64,
    alone_samples_per_s: f64,
    efficiency: f64,
    efficiency_of_ideal: f64,
    compute_ms: f64,
    exchange_ms: f64,
    exchange_hidden: f64,
    exposed_ms: f64,
    vote_ms: f64,
    update_ms: f64,
    bytes_per_step: f64,
    algorithms: Vec<String>,
    lost_work: f64,
    reforming: f64,
    saving: f64,
    reformations: u64,
    deaths: u64,
    joins: u64,
    steps_lost: u64,
    simulated_s: f64,
    events: u64,
    violation: Option<Violated>,
}

#[derive(Debug, Serialize)]
struct Violated {
    seed: u64,
    what: String,
    replay: String,
}

impl TrainArgs {
    pub(super) fn replicas(&self) -> usize {
        self.replicas as usize
    }

    pub(super) fn batch(&self) -> usize {
        self.batch as usize
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn trace(&self) -> Option<&std::path::Path> {
        self.trace.as_deref()
    }

    pub(super) fn recording(&self) -> Option<&std::path::Path> {
        self.recording.as_deref()
    }

    pub(super) fn options(&self) -> Options {
        let every = self.every;
        Options {
            replicas: self.replicas(),
            host_ranks: self.host_ranks as usize,
            min: self.min.map_or(self.replicas().div_ceil(2), |min| min as usize),
            batch: self.batch(),
            steps: self.steps,
            link: self.link,
            speed: self.step_time.map_or(Speed::Flops(self.speed), Speed::Step),
            slow: self.slow,
            jitter: self.jitter.clamp(0.0, 1.0),
            faults: self.mtbf.map(|mtbf| Faults { mtbf, mttr: self.mttr, most: u64::MAX }),
            heartbeat: self.heartbeat,
            sync: match self.exchange {
                Exchange::Gradients => Sync::Gradients,
                Exchange::Parameters => Sync::Parameters { every },
                Exchange::Outer => Sync::Outer { every },
            },
            compression: self.compress,
            algorithm: self.algorithm.map(|way| match way {
                Way::Ring => Algorithm::Ring,
                Way::HalvingDoubling => Algorithm::HalvingDoubling,
                Way::Direct => Algorithm::Direct,
            }),
            statistics: self.shared_statistics,
            checkpoint_every: self.checkpoint_every,
            trace: self.trace.is_some(),
            ..Options::default()
        }
    }
}

impl Simulated {
    fn new(args: &TrainArgs, report: &Report) -> Self {
        let ms = |seconds: f64| seconds * 1e3;
        let violated = |violation: &phalanx_sim::train::Violation| Violated {
            seed: report.seed,
            what: format!("at {}: {}", violation.at, violation.what),
            replay: format!("the same command with --seed {} --trace FILE", report.seed),
        };
        Self {
            model: args.model.clone(),
            replicas: args.replicas,
            hosts: args.replicas.div_ceil(args.host_ranks),
            batch: args.batch,
            seed: report.seed,
            steps: args.steps,
            steps_done: report.steps_done,
            gave_up: report.gave_up,
            step_ms: ms(report.step_median),
            step_p95_ms: ms(report.step_p95),
            samples_per_s: report.samples_per_s,
            alone_samples_per_s: report.alone_samples_per_s,
            efficiency: report.efficiency,
            efficiency_of_ideal: report.efficiency_of_ideal,
            compute_ms: ms(report.compute),
            exchange_ms: ms(report.exchange),
            exchange_hidden: report.hidden(),
            exposed_ms: ms(report.exposed),
            vote_ms: ms(report.vote),
            update_ms: ms(report.update),
            bytes_per_step: report.bytes_per_step,
            algorithms: report.algorithms.iter().map(|way| format!("{way:?}").to_lowercase()).collect(),
            lost_work: report.lost_work,
            reforming: report.reforming,
            saving: report.saving,
            reformations: report.reformations,
            deaths: report.deaths,
            joins: report.joins,
            steps_lost: report.steps_lost,
            simulated_s: report.seconds,
            events: report.events,
            violation: report.violation.as_ref().map(violated),
        }
    }
}

impl Render for Simulated {
    fn table(&self) -> String {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let exchange = format!(
            "{:.1} ms, {} of it hidden ({})",
            self.exchange_ms,
            percent(self.exchange_hidden),
            self.algorithms.join(", ")
        );
        let ended = if self.gave_up { ", then given up: faults are too frequent" } else { "" };
        let mut rows = vec![
            ("replicas", format!("{} on {} hosts", self.replicas, self.hosts)),
            ("steps", format!("{} of {}{ended}", self.steps_done, self.steps)),
            ("step time", format!("{:.1} ms (median), {:.1} ms (p95)", self.step_ms, self.step_p95_ms)),
            ("samples/s", format!("{:.1}", self.samples_per_s)),
            ("one alone", format!("{:.1} samples/s", self.alone_samples_per_s)),
            ("efficiency", percent(self.efficiency)),
            ("of the ideal", percent(self.efficiency_of_ideal)),
            ("compute", format!("{:.1} ms", self.compute_ms)),
            ("exchange", exchange),
            ("exposed", format!("{:.1} ms", self.exposed_ms)),
            ("vote", format!("{:.1} ms", self.vote_ms)),
            ("update", format!("{:.1} ms", self.update_ms)),
            ("sent per rank", format!("{:.2} MB a step", self.bytes_per_step / 1e6)),
            ("work lost", percent(self.lost_work)),
            ("re-forming", format!("{} of the time, {} times", percent(self.reforming), self.reformations)),
            ("nodes", format!("{} died, {} came", self.deaths, self.joins)),
            ("simulated", format!("{:.1} s in {} events", self.simulated_s, self.events)),
        ];
        if let Some(violated) = &self.violation {
            rows.push(("violated", format!("seed {}: {}", violated.seed, violated.what)));
            rows.push(("replay", violated.replay.clone()));
        }
        summary(rows)
    }

    fn quiet(&self) -> String {
        format!("{:.3}", self.step_ms)
    }
}

pub(super) fn run(args: &TrainArgs, output: Output) -> Result<(), Failure> {
    if args.batch < args.replicas {
        let error = anyhow!("--batch {} is less than one sample for each of {}", args.batch, args.replicas);
        return Err(Failure::usage(error).hint("give a larger --batch or fewer --replicas"));
    }
    if args.local {
        return local::run(args, output);
    }
    let zoo_options = ZooOptions { input: args.input.clone(), classes: None };
    let graph = zoo::build(&args.model, &zoo_options).map_err(Failure::usage)?;
    if let Some(stages) = args.stages {
        return stages::run(args, stages as usize, &graph, output);
    }
    let report = run_seed(&Work::new(&args.model, &graph), &args.options(), args.seed);
    if let (Some(path), Some(trace)) = (&args.trace, &report.trace) {
        std::fs::write(path, trace)
            .with_context(|| format!("could not write the trace to {}", path.display()))
            .map_err(Failure::infrastructure)?;
    }
    output.print(&Simulated::new(args, &report))?;
    match report.violation {
        None => Ok(()),
        Some(_) => Err(Failure::work(anyhow!("seed {} violates an invariant", args.seed))),
    }
}
