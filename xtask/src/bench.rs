//! `cargo xtask bench`: our numbers and a peer's, measured one after the other on this machine.

mod allreduce;
mod jobs;
mod ledger;
mod parts;
mod python;
mod replicas;
mod rows;
mod search;
mod stages;
mod store;
mod train;

use crate::tool::{cargo, target};
use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Sums over processes of one machine against OpenMPI and Gloo.
    Allreduce(allreduce::AllreduceArgs),
    /// Work distribution against Ray, and starting commands against HyperQueue.
    Jobs {
        /// How many times each side is measured, in turn; medians are compared.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Recording and searching runs, against MLflow's client and TensorBoard's writer.
    Ledger(ledger::LedgerArgs),
    /// The Python package against Ray, Gloo, DDP and torch.
    Python(python::PythonArgs),
    /// Replicas against trainings that know nothing of each other.
    Replicas(replicas::ReplicasArgs),
    /// Partial trainings of a search against Archai's evaluator with PyTorch.
    Search(search::SearchArgs),
    /// Models that are cut over nodes.
    Stages(stages::StagesArgs),
    /// The tensor store against Redis, redis-py and SmartRedis.
    Store(store::StoreArgs),
    /// Training steps against PyTorch on the CPU.
    Train(train::TrainArgs),
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.what {
        What::Allreduce(args) => allreduce::run(args),
        What::Jobs { rounds } => jobs::run((*rounds).max(1)),
        What::Ledger(args) => ledger::run(args),
        What::Python(args) => python::run(args),
        What::Replicas(args) => replicas::run(args),
        What::Search(args) => search::run(args),
        What::Stages(args) => stages::run(args),
        What::Store(args) => store::run(args),
        What::Train(args) => train::run(args),
    }
}

/// Builds the binary as users have it.
fn release() -> anyhow::Result<PathBuf> {
    cargo(&["build", "--release", "--package", "phalanx-cli"]).run()?;
    Ok(target().join("release/phalanx"))
}

/// The last line of the output that is a JSON object.
fn json(output: &str) -> anyhow::Result<Value> {
    let line = output.lines().rev().find(|l| l.starts_with('{')).context("no result in the output")?;
    serde_json::from_str(line).context("could not read the result")
}

fn number(run: &Value, key: &str) -> anyhow::Result<f64> {
    run.get(key).and_then(Value::as_f64).with_context(|| format!("no {key} in a result"))
}

fn median(runs: &[Value], key: &str) -> anyhow::Result<f64> {
    let mut values = runs.iter().map(|run| number(run, key)).collect::<anyhow::Result<Vec<f64>>>()?;
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.get(values.len().saturating_sub(1) / 2..=values.len() / 2);
    let middle = middle.context("nothing was measured")?;
    Ok(middle.iter().sum::<f64>() / middle.len() as f64)
}

#[expect(clippy::print_stdout, reason = "the result of the chore")]
fn say(line: &str) {
    println!("{line}");
}

/// What else the machine does, as far as the system tells.
fn load() -> String {
    let read = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    read.split(' ').next().unwrap_or("unknown").to_owned()
}
