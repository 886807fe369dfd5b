//! `cargo xtask bench train`: training steps, ours and PyTorch's in turn.
//!
//! Both sides build and warm up their model once and then take turns, so that whatever else the machine does meets
//! both. One side computes at a time.

use super::{json, median, number, release, say};
use crate::background::Served;
use crate::python::Environment;
use crate::tool::{root, tool};
use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct TrainArgs {
    /// A model that `phalanx bench train` knows, or gemm; the usual four and gemm when not given.
    #[arg(long)]
    model: Option<String>,
    /// Compute threads of each side; 1 and then 2 when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// How many times each side is measured, in turn; medians are compared.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Steps of a round; enough for about a second when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
}

/// The product of two matrices, which is measured in GFLOP/s.
const GEMM: &str = "gemm";
const MODELS: [&str; 5] = ["digits-cnn", "cifar-cnn", "mobilenet-v2", "gpt-small", GEMM];

/// Steps of a round. The threads of a side may still look out for work when the other side begins: what such a
/// round measures at its beginning must not count.
fn steps_of(model: &str) -> u32 {
    match model {
        "digits-cnn" => 1000,
        GEMM => 60,
        _ => 20,
    }
}

/// The programs of both sides.
struct Sides {
    phalanx: PathBuf,
    python: PathBuf,
}

/// What both sides answered, round by round.
struct Pair {
    model: String,
    threads: u32,
    ours: Vec<Value>,
    theirs: Vec<Value>,
}

pub(super) fn run(args: &TrainArgs) -> anyhow::Result<()> {
    let installing = Environment::torch()?.begin()?;
    let phalanx = release()?;
    let sides = Sides { phalanx, python: installing.wait()? };
    let models: Vec<&str> = args.model.as_deref().map_or(MODELS.to_vec(), |model| vec![model]);
    let threads = args.threads.map_or(vec![1, 2], |threads| vec![threads]);
    let mut pairs = Vec::new();
    for model in models {
        for threads in &threads {
            let pair = measure(&sides, model, *threads, args);
            pairs.push(pair.with_context(|| format!("{model} with {threads} threads"))?);
        }
    }
    print(&pairs)
}

fn measure(sides: &Sides, model: &str, threads: u32, args: &TrainArgs) -> anyhow::Result<Pair> {
    let (count, steps) = (threads.to_string(), args.steps.unwrap_or(steps_of(model)).to_string());
    let options = ["--model", model, "--threads", &count, "--steps", &steps];
    let script = root().join("xtask/bench/train.py").to_string_lossy().into_owned();
    let ours = |more: &[&str]| {
        tool(&sides.phalanx, &[&["bench", "train", "--output", "json"], &options[..], more].concat())
    };
    let theirs = |more: &[&str]| tool(&sides.python, &[&[script.as_str()], &options[..], more].concat());
    let mut pair = Pair { model: model.to_owned(), threads, ours: Vec::new(), theirs: Vec::new() };
    // The first answers do not count: until then a side prepares itself, which must not be in the other's time.
    let mut ours = ours(&["--serve"]).serve()?;
    turn(&mut ours)?;
    let mut theirs = theirs(&["--serve"]).serve()?;
    turn(&mut theirs)?;
    for _ in 0..args.rounds {
        let (a, b) = (turn(&mut ours)?, turn(&mut theirs)?);
        ensure!(a.get("batch") == b.get("batch"), "the sides take other batches: {a} {b}");
        pair.ours.push(a);
        pair.theirs.push(b);
    }
    Ok(pair)
}

fn turn(side: &mut Served) -> anyhow::Result<Value> {
    json(&side.ask("run")?)
}

/// Ratios say how many times less time and memory, or more work, than PyTorch.
fn print(pairs: &[Pair]) -> anyhow::Result<()> {
    let (products, models): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.model == GEMM);
    let titles = ["step, ms", "PyTorch", "ratio", "peak, MB", "PyTorch", "ratio"];
    if !models.is_empty() {
        row("model", "threads", titles.map(str::to_owned));
    }
    for pair in models {
        let time = (median(&pair.ours, "step_ms")?, median(&pair.theirs, "step_ms")?);
        let memory = (peak(&pair.ours)?, peak(&pair.theirs)?);
        row(
            &pair.model,
            &pair.threads.to_string(),
            [
                format!("{:.2}", time.0),
                format!("{:.2}", time.1),
                format!("{:.2}x", time.1 / time.0),
                format!("{:.0}", memory.0),
                format!("{:.0}", memory.1),
                format!("{:.2}x", memory.1 / memory.0),
            ],
        );
    }
    if !products.is_empty() {
        row("", "threads", ["GFLOP/s", "PyTorch", "ratio"].map(str::to_owned));
    }
    for pair in products {
        let (a, b) = (median(&pair.ours, "gflops")?, median(&pair.theirs, "gflops")?);
        let numbers = [format!("{a:.1}"), format!("{b:.1}"), format!("{:.2}x", a / b)];
        row(&pair.model, &pair.threads.to_string(), numbers);
    }
    let torch = pairs.iter().flat_map(|pair| &pair.theirs).find_map(|run| run.get("torch")?.as_str());
    say(&format!("PyTorch {}", torch.unwrap_or("of an unknown version")));
    Ok(())
}

fn row<const N: usize>(model: &str, threads: &str, numbers: [String; N]) {
    let numbers: String = numbers.iter().map(|number| format!("{number:>10}")).collect();
    say(&format!("{model:<14}{threads:>8}{numbers}"));
}

/// The most memory a side ever held, which it knows in the end.
fn peak(runs: &[Value]) -> anyhow::Result<f64> {
    number(runs.last().context("nothing was measured")?, "peak_rss_mb")
}
