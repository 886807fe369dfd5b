//! `phalanx bench jobs`: a main node in this process, computing nodes in processes of their own.

use super::stats::{median, percentile, resident_bytes};
use crate::commands::job::main_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::own_program::own_program;
use anyhow::anyhow;
use clap::Args;
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{JobSpec, MainNode, MainOptions, Outcome, Outcomes};
use phalanx_nodes::{LocalNodes, LocalSpec, private_domain};
use phalanx_types::Parcel;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measurements of throughput at each length of the queue.
const ROUNDS: usize = 5;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx bench jobs --output json")]
pub(crate) struct JobsArgs {
    /// Computing nodes, with one core each.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// No-op jobs in each measurement of throughput.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1000..))]
    jobs: u64,
    /// Round trips measured.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(10..))]
    round_trips: u32,
    /// Jobs queued to measure memory; throughput is measured with 1000, 10000, … queued, up to this.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    queued: u64,
    /// Record the main node here while throughput is measured, to see what recording costs.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Measured {
    workers: u32,
    jobs_per_s: f64,
    rtt_p50_us: f64,
    rtt_p99_us: f64,
    rtt_1mib_p50_us: f64,
    bytes_per_queued_job: f64,
    /// Throughput with this many jobs queued all the time.
    jobs_per_s_by_queue: BTreeMap<u64, f64>,
}

impl Render for Measured {
    fn table(&self) -> String {
        let by_queue = self.jobs_per_s_by_queue.iter().map(|(q, r)| format!("{q}: {r:.0}"));
        summary([
            ("workers", self.workers.to_string()),
            ("no-op jobs/s", format!("{:.0}", self.jobs_per_s)),
            ("jobs/s by queue length", by_queue.collect::<Vec<_>>().join("  ")),
            ("round trip p50", format!("{:.0} µs", self.rtt_p50_us)),
            ("round trip p99", format!("{:.0} µs", self.rtt_p99_us)),
            ("round trip 1 MiB p50", format!("{:.0} µs", self.rtt_1mib_p50_us)),
            ("bytes per queued job", format!("{:.0}", self.bytes_per_queued_job)),
        ])
    }

    fn quiet(&self) -> String {
        format!("{:.0}", self.jobs_per_s)
    }
}

fn noop() -> JobSpec {
    JobSpec::new("echo", Parcel::default())
}

pub(crate) async fn run(args: JobsArgs, output: Output) -> Result<(), Failure> {
    // First, while this process has not held and given back memory for anything else.
    let bytes_per_queued_job = memory_per_job(args.queued).await?;
    let domain = private_domain().map_err(Failure::infrastructure)?;
    let options = MainOptions { recording: args.recording.clone(), ..MainOptions::default() };
    let config = FabricConfig::new(domain.clone(), "bench", NodeKind::Main);
    let main = MainNode::start(config, options).await.map_err(main_failure)?;
    let spec = LocalSpec { cores: Some(1), ..LocalSpec::new(own_program(), domain, args.workers) };
    let nodes = LocalNodes::start(&spec).map_err(Failure::infrastructure)?;
    let mut outcomes = main.outcomes().await.map_err(main_failure)?;
    // Nodes learn how short these jobs are before anything is measured.
    keep_queued(&main, &mut outcomes, 1_000, args.jobs / 4).await?;
    let lengths =
        (3..=u64::from(args.queued.ilog10())).filter_map(|n| 10_u64.checked_pow(u32::try_from(n).ok()?));
    let mut by_queue: BTreeMap<u64, Vec<f64>> = lengths.map(|queue| (queue, Vec::new())).collect();
    // Turn by turn, so that a noisy moment does not fall on one length alone.
    for _ in 0..ROUNDS {
        for (queue, rates) in &mut by_queue {
            rates.push(keep_queued(&main, &mut outcomes, *queue, args.jobs).await?);
        }
    }
    let mut rates: Vec<f64> = by_queue.values().flatten().copied().collect();
    drop(outcomes);
    let mut trips = round_trips(&main, args.round_trips, &Parcel::default()).await?;
    let large = Parcel::from_bytes(vec![7; 1 << 20]);
    let mut large_trips = round_trips(&main, args.round_trips.div_ceil(10), &large).await?;
    main.shutdown().await;
    drop(nodes);
    let micros = |d: Duration| d.as_secs_f64() * 1e6;
    output.print(&Measured {
        workers: args.workers,
        jobs_per_s: median(&mut rates),
        rtt_p50_us: micros(percentile(&mut trips, 0.5)),
        rtt_p99_us: micros(percentile(&mut trips, 0.99)),
        rtt_1mib_p50_us: micros(percentile(&mut large_trips, 0.5)),
        bytes_per_queued_job,
        jobs_per_s_by_queue: by_queue.into_iter().map(|(q, mut rates)| (q, median(&mut rates))).collect(),
    })
}

/// Jobs solved per second while `queued` jobs are kept in the queue; the queue is empty after.
async fn keep_queued(
    main: &MainNode,
    outcomes: &mut Outcomes,
    queued: u64,
    jobs: u64,
) -> Result<f64, Failure> {
    // Jobs are put in and taken out in lots, to keep the queue at its length.
    let lot = (queued / 10).clamp(1, 1_000);
    let before = solved(main).await?;
    submit(main, queued).await?;
    let mut seen = 0;
    // While a long queue was being filled much of it was solved: catch up before the clock starts.
    while before + seen + 2 * lot < solved(main).await? {
        seen += exchange(main, outcomes, lot).await?;
    }
    let started = Instant::now();
    let mut measured = 0;
    while measured < jobs {
        measured += exchange(main, outcomes, lot).await?;
    }
    let rate = measured as f64 / started.elapsed().as_secs_f64();
    take(outcomes, queued).await?;
    Ok(rate)
}

async fn solved(main: &MainNode) -> Result<u64, Failure> {
    Ok(main.counts().await.map_err(main_failure)?.solved)
}

/// Takes out a lot that was solved, or more, and puts in as many; tells how many.
async fn exchange(main: &MainNode, outcomes: &mut Outcomes, lot: u64) -> Result<u64, Failure> {
    let taken = take(outcomes, lot).await?;
    submit(main, taken).await?;
    Ok(taken)
}

/// Takes at least so many outcomes; tells how many.
async fn take(outcomes: &mut Outcomes, at_least: u64) -> Result<u64, Failure> {
    let mut taken = 0;
    while taken < at_least {
        let batch = outcomes
            .next_batch()
            .await
            .ok_or_else(|| Failure::infrastructure(anyhow!("the main node of this benchmark ended")))?;
        if let Some((_, other)) = batch.iter().find(|(_, outcome)| !matches!(outcome, Outcome::Solved(_))) {
            return Err(Failure::infrastructure(anyhow!("a no-op job was not solved: {other:?}")));
        }
        taken += batch.len() as u64;
    }
    Ok(taken)
}

async fn submit(main: &MainNode, jobs: u64) -> Result<(), Failure> {
    for start in (0..jobs).step_by(10_000) {
        let chunk = (jobs - start).min(10_000);
        main.submit_many((0..chunk).map(|_| noop()).collect()).await.map_err(main_failure)?;
    }
    Ok(())
}

/// The times from submission to outcome of jobs submitted one after the other.
async fn round_trips(main: &MainNode, count: u32, payload: &Parcel) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    // The first few open connections and touch memory.
    for i in 0..count + 20 {
        let started = Instant::now();
        let job = main.submit(JobSpec::new("echo", payload.clone())).await.map_err(main_failure)?;
        let outcome = job.await.map_err(main_failure)?;
        let time = started.elapsed();
        match outcome {
            Outcome::Solved(parcel) if parcel.len() == payload.len() => {}
            other => return Err(Failure::infrastructure(anyhow!("echo came back as {other:?}"))),
        }
        if i >= 20 {
            times.push(time);
        }
    }
    Ok(times)
}

/// What a queued job takes in memory beyond its payload, which here is empty.
async fn memory_per_job(jobs: u64) -> Result<f64, Failure> {
    let config =
        FabricConfig::new(private_domain().map_err(Failure::infrastructure)?, "bench", NodeKind::Main);
    let main = MainNode::start(config, MainOptions::default()).await.map_err(main_failure)?;
    let before = resident_bytes();
    submit(&main, jobs).await?;
    let after = resident_bytes();
    main.shutdown().await;
    match (before, after) {
        (Some(before), Some(after)) => Ok(after.saturating_sub(before) as f64 / jobs as f64),
        _ => {
            Err(Failure::infrastructure(anyhow!("this system does not tell how much memory a process holds")))
        }
    }
}
