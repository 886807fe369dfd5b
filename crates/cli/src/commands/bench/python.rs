//! `phalanx bench python`: calls of Python functions, by default with a worker that is no Python.

use super::stats::{median, percentile};
use crate::commands::job::main_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::own_program::own_program;
use anyhow::anyhow;
use bytes::Bytes;
use clap::Args;
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{JobSpec, MainNode, MainOptions, Outcome, Outcomes};
use phalanx_nodes::{LocalNodes, LocalSpec, private_domain};
use phalanx_types::Parcel;
use phalanx_wire::python::{KIND, PythonCall, PythonResult};
use serde::Serialize;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Calls that wait while throughput is measured.
const QUEUED: u64 = 5_000;
const LARGE: usize = 16 << 20;

#[derive(Debug, Args)]
#[command(
    after_help = "The function is `echo`, which only a stand-in for Python knows: what is measured is Phalanx.

Example: phalanx bench python --output json"
)]
pub(crate) struct PythonArgs {
    /// Computing nodes, with one core and one worker each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Calls in each measurement of throughput.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1000..))]
    calls: u64,
    /// Round trips measured.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(10..))]
    round_trips: u32,
}

#[derive(Debug, Serialize)]
struct Measured {
    nodes: u32,
    calls_per_s: f64,
    rtt_p50_us: f64,
    rtt_p99_us: f64,
    /// An array of 16 MiB to a function and back.
    array_16mib_p50_us: f64,
    /// Copying as much within memory, once.
    copy_16mib_p50_us: f64,
}

impl Render for Measured {
    fn table(&self) -> String {
        summary([
            ("nodes", self.nodes.to_string()),
            ("no-op calls/s", format!("{:.0}", self.calls_per_s)),
            ("round trip p50", format!("{:.0} µs", self.rtt_p50_us)),
            ("round trip p99", format!("{:.0} µs", self.rtt_p99_us)),
            ("16 MiB there and back p50", format!("{:.0} µs", self.array_16mib_p50_us)),
            ("16 MiB copied p50", format!("{:.0} µs", self.copy_16mib_p50_us)),
        ])
    }

    fn quiet(&self) -> String {
        format!("{:.0}", self.calls_per_s)
    }
}

fn call(buffers: Vec<Bytes>) -> Result<JobSpec, Failure> {
    let (function, arguments) = (Bytes::from_static(b"echo"), Bytes::from_static(b"()"));
    let call = PythonCall { hash: [1; 32], function, arguments, buffers, inputs: 0 };
    Ok(JobSpec::new(KIND, call.into_parcel().map_err(Failure::infrastructure)?))
}

pub(crate) async fn run(args: PythonArgs, output: Output) -> Result<(), Failure> {
    let domain = private_domain().map_err(Failure::infrastructure)?;
    let config = FabricConfig::new(domain.clone(), "bench", NodeKind::Main);
    let main = MainNode::start(config, MainOptions::default()).await.map_err(main_failure)?;
    let program = own_program();
    // The stand-in worker is this binary; an interpreter has workers of its own.
    let file = program.words().next().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = vec![format!("--allow-python={file}")];
    let spec = LocalSpec { cores: Some(1), arguments, ..LocalSpec::new(program, domain, args.nodes) };
    let nodes = LocalNodes::start(&spec).map_err(Failure::infrastructure)?;
    let mut outcomes = main.outcomes().await.map_err(main_failure)?;
    throughput(&main, &mut outcomes, args.calls / 4).await?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        rates.push(throughput(&main, &mut outcomes, args.calls).await?);
    }
    drop(outcomes);
    let mut trips = round_trips(&main, args.round_trips, &[]).await?;
    let large = [Bytes::from(vec![7; LARGE])];
    let mut arrays = round_trips(&main, 40, &large).await?;
    let mut copies = copies(&large[0]);
    main.shutdown().await;
    drop(nodes);
    let micros = |d: Duration| d.as_secs_f64() * 1e6;
    output.print(&Measured {
        nodes: args.nodes,
        calls_per_s: median(&mut rates),
        rtt_p50_us: micros(percentile(&mut trips, 0.5)),
        rtt_p99_us: micros(percentile(&mut trips, 0.99)),
        array_16mib_p50_us: micros(percentile(&mut arrays, 0.5)),
        copy_16mib_p50_us: micros(percentile(&mut copies, 0.5)),
    })
}

/// Calls answered per second while some wait all the time.
async fn throughput(main: &MainNode, outcomes: &mut Outcomes, calls: u64) -> Result<f64, Failure> {
    let started = Instant::now();
    let (mut submitted, mut answered) = (0, 0);
    while answered < calls {
        let room = (QUEUED - (submitted - answered)).min(calls - submitted);
        if room >= QUEUED / 10 || (room > 0 && submitted == answered) {
            let specs: Result<Vec<JobSpec>, Failure> = (0..room).map(|_| call(Vec::new())).collect();
            main.submit_many(specs?).await.map_err(main_failure)?;
            submitted += room;
        }
        let batch = outcomes.next_batch().await;
        let batch = batch.ok_or_else(|| Failure::infrastructure(anyhow!("the main node ended")))?;
        if let Some((_, other)) = batch.iter().find(|(_, outcome)| !matches!(outcome, Outcome::Solved(_))) {
            return Err(Failure::infrastructure(anyhow!("a call was not answered: {other:?}")));
        }
        answered += batch.len() as u64;
    }
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}

/// The times of calls that were made one after the other.
async fn round_trips(main: &MainNode, count: u32, buffers: &[Bytes]) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    // The first few share memory and touch it.
    for i in 0..count + 20 {
        let started = Instant::now();
        let job = main.submit(call(buffers.to_vec())?).await.map_err(main_failure)?;
        let outcome = job.await.map_err(main_failure)?;
        let time = started.elapsed();
        let Outcome::Solved(parcel) = &outcome else {
            return Err(Failure::infrastructure(anyhow!("a call was not answered: {outcome:?}")));
        };
        check(parcel, buffers)?;
        if i >= 20 {
            times.push(time);
        }
    }
    Ok(times)
}

fn check(parcel: &Parcel, buffers: &[Bytes]) -> Result<(), Failure> {
    let result = PythonResult::from_parcel(parcel).map_err(Failure::infrastructure)?;
    if result.buffers.iter().map(Bytes::len).eq(buffers.iter().map(Bytes::len)) {
        return Ok(());
    }
    Err(Failure::infrastructure(anyhow!("other buffers came back")))
}

fn copies(from: &[u8]) -> Vec<Duration> {
    let mut to = vec![1; from.len()];
    (0..20)
        .map(|_| {
            let started = Instant::now();
            to.copy_from_slice(std::hint::black_box(from));
            std::hint::black_box(&mut to);
            started.elapsed()
        })
        .collect()
}
