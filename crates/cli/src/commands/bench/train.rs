//! `phalanx bench train`: training steps of models of the zoo on random samples, as the trainer does them.

use super::stats::{median, peak_bytes, percentile};
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use crate::own_program::own_program;
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_engine::{Adam, CompileOptions, Loss, Optimizer, OptimizerSpec};
use phalanx_graph::{Graph, zoo};
use phalanx_train::{Compute, Cut, StepInput, Stepper, StepperOptions, TrainError};
use phalanx_types::Seed;
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Steps before anything is measured: they make buffers and warm caches.
const WARM_UP: u64 = 3;
/// The side of the matrices whose product is measured under the name `gemm`.
const GEMM: usize = 1024;
const GEMM_NAME: &str = "gemm";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx bench train
  phalanx bench train --model cifar-cnn --threads 2 --steps 30 --output json")]
pub(crate) struct TrainArgs {
    /// One of digits-cnn, cifar-cnn, mobilenet-v2, resnet-18, gpt-small, mlp and gemm; all when not given.
    #[arg(long)]
    model: Option<String>,
    /// Compute threads; all cores when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Samples of a step; as usual for the model when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Steps that are measured.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Measure again for each line "run" on standard input, and print a line of JSON each time.
    #[arg(long, requires = "model")]
    serve: bool,
}

/// What one model is trained with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    model: &'static str,
    batch: usize,
    input: Option<&'static [usize]>,
    loss: Loss,
}

const ENTROPY: Loss = Loss::CrossEntropy { smoothing: 0.0 };

const CASES: [Case; 6] = [
    Case { model: "digits-cnn", batch: 64, input: None, loss: Loss::Mse },
    Case { model: "mlp", batch: 128, input: None, loss: ENTROPY },
    Case { model: "cifar-cnn", batch: 128, input: None, loss: ENTROPY },
    Case { model: "mobilenet-v2", batch: 16, input: Some(&[3, 112, 112]), loss: ENTROPY },
    Case { model: "resnet-18", batch: 16, input: Some(&[3, 112, 112]), loss: ENTROPY },
    Case { model: "gpt-small", batch: 8, input: None, loss: ENTROPY },
];

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    model: String,
    threads: usize,
    batch: usize,
    /// The median.
    step_ms: f64,
    p95_ms: f64,
    samples_per_s: f64,
    peak_rss_mb: f64,
    gflops: f64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Table(Vec<Measured>);

const HEADER: [&str; 8] =
    ["model", "threads", "batch", "step ms", "p95 ms", "samples/s", "peak MB", "GFLOP/s"];

impl Measured {
    fn row(&self) -> [String; 8] {
        [
            self.model.clone(),
            self.threads.to_string(),
            self.batch.to_string(),
            format!("{:.2}", self.step_ms),
            format!("{:.2}", self.p95_ms),
            format!("{:.0}", self.samples_per_s),
            format!("{:.0}", self.peak_rss_mb),
            format!("{:.1}", self.gflops),
        ]
    }
}

impl Render for Measured {
    fn table(&self) -> String {
        listing(HEADER, [self.row()])
    }

    fn quiet(&self) -> String {
        format!("{:.3}", self.step_ms)
    }
}

impl Render for Table {
    fn table(&self) -> String {
        listing(HEADER, self.0.iter().map(Measured::row))
    }

    fn quiet(&self) -> String {
        self.0.iter().map(Measured::quiet).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: TrainArgs, output: Output) -> Result<(), Failure> {
    let Some(model) = &args.model else { return all(&args, output) };
    let mut measure = subject(model, &args)?;
    if !args.serve {
        return output.print(&measure()?);
    }
    for line in std::io::stdin().lock().lines() {
        match line.map_err(Failure::infrastructure)?.trim() {
            "run" => Output::Json.print(&measure()?)?,
            "" => {}
            other => {
                return Err(Failure::usage(anyhow!("expected \"run\" on standard input, not {other:?}")));
            }
        }
    }
    Ok(())
}

type Measure = Box<dyn FnMut() -> Result<Measured, Failure>>;

/// What is measured each time it is called, warmed up.
fn subject(model: &str, args: &TrainArgs) -> Result<Measure, Failure> {
    let steps = args.steps;
    if model == GEMM_NAME {
        let compute = Compute::cpu(args.threads.map(|n| n as usize));
        gemm(&compute, WARM_UP as usize);
        return Ok(Box::new(move || Ok(gemm(&compute, steps as usize))));
    }
    let case = case(model)?;
    let (threads, batch) = (args.threads.map(|n| n as usize), args.batch.map(|n| n as usize));
    let mut bench = Bench::new(case, threads, batch, case.input)?;
    bench.steps(WARM_UP)?;
    Ok(Box::new(move || bench.measure(steps)))
}

/// What a model is trained with.
pub(crate) fn case(model: &str) -> Result<Case, Failure> {
    CASES.into_iter().find(|case| case.model == model).ok_or_else(|| {
        let names: Vec<&str> = CASES.iter().map(|case| case.model).collect();
        Failure::usage(anyhow!("there is no benchmark of a model called {model:?}"))
            .hint(format!("there are {} and {GEMM_NAME}", names.join(", ")))
    })
}

/// Measures every model, each in a process of its own, so that each has its own peak of memory.
fn all(args: &TrainArgs, output: Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for model in CASES.iter().map(|case| case.model).chain([GEMM_NAME]) {
        let mut command = own_program().command();
        command.args(["bench", "train", "--output", "json", "--model", model]);
        command.args(["--steps", &args.steps.to_string()]);
        command.args(args.threads.iter().flat_map(|n| ["--threads".to_owned(), n.to_string()]));
        command.args(args.batch.iter().flat_map(|n| ["--batch".to_owned(), n.to_string()]));
        let ended = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let ended = ended.context("could not start a benchmark").map_err(Failure::infrastructure)?;
        if !ended.status.success() {
            return Err(Failure::infrastructure(anyhow!(
                "the benchmark of {model} failed ({})",
                ended.status
            )));
        }
        rows.push(serde_json::from_slice(&ended.stdout).map_err(Failure::infrastructure)?);
    }
    output.print(&Table(rows))
}

/// The product of two large matrices, as the engine computes a linear layer.
fn gemm(compute: &Compute, steps: usize) -> Measured {
    let times = phalanx_engine::time_gemm(&compute.threads, GEMM, steps);
    let measured = summed(times, compute.threads.count(), 1);
    let gflops = 2.0 * (GEMM as f64).powi(3) / measured.step_ms / 1e6;
    Measured { model: GEMM_NAME.to_owned(), gflops, ..measured }
}

/// A model with samples to train on.
#[derive(Debug)]
pub(crate) struct Bench {
    case: Case,
    stepper: Stepper,
    threads: usize,
    batch: usize,
    x: Vec<f32>,
    y: Vec<f32>,
    y_shape: Vec<usize>,
    step: u64,
    /// Of a sample, forward and backward.
    flops: f64,
}

impl Bench {
    /// With all cores, the usual batch and the usual input where nothing else is said.
    pub(crate) fn new(
        case: Case,
        threads: Option<usize>,
        batch: Option<usize>,
        input: Option<&[usize]>,
    ) -> Result<Self, Failure> {
        let compute = Compute::cpu(threads);
        let options = zoo::ZooOptions { input: input.map(<[usize]>::to_vec), classes: None };
        let graph = zoo::build(case.model, &options).map_err(Failure::usage)?;
        let batch = batch.unwrap_or(case.batch);
        let model = compute.engine.compile(&graph, &CompileOptions::default()).map_err(TrainError::from);
        let mut model = model.map_err(train_failure)?;
        model.load(&graph.initialise(Seed(42).derive("init"))).map_err(train_failure)?;
        let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
        let adam = OptimizerSpec::Adam(Adam::default());
        let options = StepperOptions {
            loss: case.loss.into(),
            clip_norm: None,
            clip_value: None,
            seed: Seed(42).derive("dropout"),
        };
        let threads = compute.threads.count();
        let stepper = Stepper::new(model, Optimizer::new(adam, &sizes), options, compute.threads);
        let (x, y, y_shape) = samples(&graph, case, batch);
        // A backward pass costs about twice a forward pass.
        let flops = graph.cost().flops as f64 * 3.0;
        Ok(Self { case, stepper, threads, batch, x, y, y_shape, step: 0, flops })
    }

    /// Elements of each parameter, in the order in which their gradients become final.
    pub(crate) fn parameter_sizes(&mut self) -> Vec<usize> {
        self.stepper.model().parameters().iter().map(|p| p.elements()).collect()
    }

    /// Does so many steps, and gives the time of each.
    pub(crate) fn steps(&mut self, count: u64) -> Result<Vec<Duration>, Failure> {
        let lr = Adam::default().lr;
        (0..count)
            .map(|_| {
                let (len, batch, step) = (self.batch, self.batch, self.step);
                let input = StepInput {
                    x: &self.x,
                    y: &self.y,
                    y_shape: &self.y_shape,
                    len,
                    whole: len,
                    first: 0,
                    cut: Cut::Size(batch),
                    step,
                };
                let started = Instant::now();
                self.stepper.step(&input, lr).map_err(train_failure)?;
                self.step += 1;
                Ok(started.elapsed())
            })
            .collect()
    }

    fn measure(&mut self, steps: u32) -> Result<Measured, Failure> {
        let times = self.steps(u64::from(steps))?;
        let measured = summed(times, self.threads, self.batch);
        let gflops = self.flops * self.batch as f64 / measured.step_ms / 1e6;
        Ok(Measured { model: self.case.model.to_owned(), gflops, ..measured })
    }
}

fn summed(mut times: Vec<Duration>, threads: usize, batch: usize) -> Measured {
    let mut in_ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let step_ms = median(&mut in_ms);
    Measured {
        model: String::new(),
        threads,
        batch,
        step_ms,
        p95_ms: percentile(&mut times, 0.95).as_secs_f64() * 1e3,
        samples_per_s: batch as f64 / step_ms * 1e3,
        peak_rss_mb: peak_bytes().map_or(0.0, |bytes| bytes as f64 / 1e6),
        gflops: 0.0,
    }
}

/// Samples and labels that are the same each time: numbers for images, tokens for texts; one-hot for `mse`.
fn samples(graph: &Graph, case: Case, batch: usize) -> (Vec<f32>, Vec<f32>, Vec<usize>) {
    let mut dice = Dice(42);
    let shape =
        |ids: &[phalanx_graph::ValueId]| ids.first().map(|v| graph.shape(*v).at(batch)).unwrap_or_default();
    let (input, output) = (shape(&graph.inputs), shape(&graph.outputs));
    let classes = output.last().copied().unwrap_or(1);
    let is_text = case.model.starts_with("gpt");
    let x = (0..input.iter().product())
        .map(|_| if is_text { dice.below(classes) } else { dice.unit() * 2.0 - 1.0 });
    let x = x.collect();
    let positions = output.iter().product::<usize>() / classes;
    let labels: Vec<f32> = (0..positions).map(|_| dice.below(classes)).collect();
    if case.loss != Loss::Mse {
        return (x, labels, output.get(1..output.len() - 1).unwrap_or_default().to_vec());
    }
    let mut one_hot = vec![0.0; positions * classes];
    for (row, label) in one_hot.chunks_exact_mut(classes).zip(labels) {
        row[label as usize] = 1.0;
    }
    (x, one_hot, output.get(1..).unwrap_or_default().to_vec())
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    fn below(&mut self, n: usize) -> f32 {
        (self.next() % n.max(1) as u64) as f32
    }
}
