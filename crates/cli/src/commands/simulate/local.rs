//! `phalanx simulate train --local`: replicas on this machine, predicted from what is measured here.
//!
//! ```text
//!   step = compute of a share of the batch, longer when replicas outnumber cores
//!        + what of the exchange no idle core hides
//!        + sums of statistics + vote
//! ```

use super::train::TrainArgs;
use crate::commands::bench::train::{Bench, case};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use phalanx_collective::{BucketLimits, Buckets, CollectiveError, Reduction, SharedBuffer, SharedGroup};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_protocol::Vote;
use phalanx_sim::train::Work;
use phalanx_types::DType;
use serde::Serialize;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Steps before anything is measured, and those that are.
const WARM_UP: u64 = 3;
const STEPS: u64 = 20;
/// Exchanges that are measured.
const EXCHANGES: usize = 20;
/// Small collectives that are measured.
const VOTES: usize = 200;

/// What is predicted. Times are in milliseconds.
#[derive(Debug, Serialize)]
struct Predicted {
    model: String,
    replicas: usize,
    cores: usize,
    /// Of each replica.
    threads: usize,
    batch: usize,
    compute_ms: f64,
    exchange_ms: f64,
    exposed_ms: f64,
    statistics_ms: f64,
    vote_ms: f64,
    step_ms: f64,
    samples_per_s: f64,
}

impl Render for Predicted {
    fn table(&self) -> String {
        let ms = |time: f64| format!("{time:.2} ms");
        let threads = format!("{} on {} cores, {} threads each", self.replicas, self.cores, self.threads);
        summary([
            ("replicas", threads),
            ("compute", ms(self.compute_ms)),
            ("exchange", format!("{}, {} of it exposed", ms(self.exchange_ms), ms(self.exposed_ms))),
            ("statistics", ms(self.statistics_ms)),
            ("vote", ms(self.vote_ms)),
            ("step time", ms(self.step_ms)),
            ("samples/s", format!("{:.1}", self.samples_per_s)),
        ])
    }

    fn quiet(&self) -> String {
        format!("{:.3}", self.step_ms)
    }
}

/// What collectives in shared memory take, in seconds.
#[derive(Debug, Clone, Copy)]
struct Collectives {
    exchange: f64,
    vote: f64,
    statistics: f64,
}

pub(super) fn run(args: &TrainArgs, output: Output) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let replicas = args.replicas();
    let threads = (cores / replicas).max(1);
    let options = ZooOptions { input: args.input.clone(), classes: None };
    let graph = zoo::build(&args.model, &options).map_err(Failure::usage)?;
    let work = Work::new(&args.model, &graph);
    let (compute, sizes) = compute(args, cores, threads)?;
    // Replicas that wait for a core take turns.
    let compute = compute * (replicas * threads).max(cores) as f64 / cores as f64;
    let norms: &[usize] = if args.shared_statistics { &work.norms } else { &[] };
    let measured = collectives(replicas, &sizes, norms).map_err(Failure::infrastructure)?;
    let idle = cores.saturating_sub(replicas * threads);
    let exposed = if idle >= replicas { tail(&work, compute, measured.exchange) } else { measured.exchange };
    let step = compute + exposed + measured.statistics + measured.vote;
    output.print(&Predicted {
        model: args.model.clone(),
        replicas,
        cores,
        threads,
        batch: args.batch(),
        compute_ms: compute * 1e3,
        exchange_ms: measured.exchange * 1e3,
        exposed_ms: exposed * 1e3,
        statistics_ms: measured.statistics * 1e3,
        vote_ms: measured.vote * 1e3,
        step_ms: step * 1e3,
        samples_per_s: args.batch() as f64 / step,
    })
}

/// What of the exchange is left when a replica has computed, if each has a core to exchange with.
fn tail(work: &Work, compute: f64, exchange: f64) -> f64 {
    let all: usize = work.buckets.iter().map(|bucket| bucket.elements).sum();
    let mut end = 0.0_f64;
    for bucket in &work.buckets {
        end = end.max(compute * bucket.ready) + exchange * bucket.elements as f64 / all.max(1) as f64;
    }
    (end - compute).max(0.0)
}

/// Seconds that a step of one replica takes, measured on as many at once as have cores of their own, and the elements
/// of its parameters.
fn compute(args: &TrainArgs, cores: usize, threads: usize) -> Result<(f64, Vec<usize>), Failure> {
    let share = args.batch().div_ceil(args.replicas());
    let at_once = args.replicas().min(cores / threads).max(1);
    let case = case(&args.model)?;
    let barrier = &Barrier::new(at_once);
    let measure = || -> Result<(Vec<Duration>, Vec<usize>), Failure> {
        let made = Bench::new(case, Some(threads), Some(share), args.input.as_deref());
        let warm = made.and_then(|mut bench| bench.steps(WARM_UP).map(|_warm| bench));
        // Also when there is none: nobody is to wait for ever.
        barrier.wait();
        let mut bench = warm?;
        Ok((bench.steps(STEPS)?, bench.parameter_sizes()))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..at_once).map(|_| scope.spawn(measure)).collect();
        started.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    // All wait for the slowest of them.
    let mut slowest: Vec<Duration> = Vec::new();
    let mut sizes = Vec::new();
    for result in results {
        let ended = result.map_err(|_panic| Failure::infrastructure(anyhow!("a measurement panicked")))?;
        let (times, of) = ended?;
        slowest.resize(times.len(), Duration::ZERO);
        slowest.iter_mut().zip(times).for_each(|(slowest, time)| *slowest = time.max(*slowest));
        sizes = of;
    }
    Ok((median(&mut slowest), sizes))
}

/// Measures the collectives of a step with as many threads as there are replicas.
fn collectives(replicas: usize, sizes: &[usize], norms: &[usize]) -> Result<Collectives, anyhow::Error> {
    if replicas == 1 {
        return Ok(Collectives { exchange: 0.0, vote: 0.0, statistics: 0.0 });
    }
    let buckets = Buckets::plan(sizes, BucketLimits::default());
    let lengths: Vec<usize> = (0..buckets.count()).map(|bucket| buckets.length(bucket)).collect();
    // Buckets begin at pages; the rest is for what is small.
    let room = lengths.iter().map(|length| length * 4 + 8192).sum::<usize>() + (4 << 20);
    let (mut prepared, mut addresses) = (Vec::new(), Vec::new());
    for rank in 0..replicas {
        let (group, address) = SharedGroup::prepare(rank, replicas, 1, room)?;
        prepared.push(group);
        addresses.push(address);
    }
    let (addresses, lengths) = (&addresses, &lengths);
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = |group: phalanx_collective::Prepared| {
            scope.spawn(move || measure(group.connect(addresses)?, lengths, norms))
        };
        let started: Vec<_> = prepared.into_iter().map(run).collect();
        started.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut first = None;
    for result in results {
        let measured = result.map_err(|_panic| anyhow!("a measurement panicked"))?;
        let measured = measured.context("could not exchange in shared memory")?;
        first.get_or_insert(measured);
    }
    first.context("nobody measured")
}

/// One rank's part: gradients are copied into buckets, summed, and copied back, as a step does.
fn measure(
    mut group: SharedGroup,
    lengths: &[usize],
    norms: &[usize],
) -> Result<Collectives, CollectiveError> {
    let buffer = |length: &usize| group.buffer(length * 4);
    let mut buffers: Vec<SharedBuffer> = lengths.iter().map(buffer).collect::<Result<_, _>>()?;
    let mut gradients: Vec<Vec<f32>> = lengths.iter().map(|length| vec![1.0; *length]).collect();
    let exchange = timed(EXCHANGES, || {
        for (buffer, gradients) in buffers.iter_mut().zip(&mut gradients) {
            buffer.slice_mut::<f32>()?.copy_from_slice(gradients);
            let range = 0..buffer.bytes();
            group.all_reduce_shared(buffer, range, DType::F32, Reduction::Average, "bucket")?;
            gradients.copy_from_slice(buffer.slice::<f32>()?);
        }
        Ok(())
    })?;
    let vote = timed(VOTES, || group.all_gather(&[0; Vote::LEN], DType::U8, "vote").map(drop))?;
    let mut statistics = 0.0;
    if let Some(most) = norms.iter().max() {
        let mut sums = vec![0_u8; 2 * most * size_of::<f64>()];
        let one = timed(VOTES, || group.all_reduce(&mut sums, DType::F64, Reduction::Sum, "statistics"))?;
        // On the way forward and on the way back.
        statistics = 2.0 * one * norms.len() as f64;
    }
    Ok(Collectives { exchange, vote, statistics })
}

/// The median time of a call, in seconds.
fn timed(
    count: usize,
    mut call: impl FnMut() -> Result<(), CollectiveError>,
) -> Result<f64, CollectiveError> {
    call()?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        call()?;
        times.push(began.elapsed());
    }
    Ok(median(&mut times))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}
