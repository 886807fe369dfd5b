//! `cargo xtask bench search`: partial trainings of the same candidates, ours and those of Archai's evaluator with
//! PyTorch, in turn.

use super::{json, median, number, release, say};
use crate::python::Environment;
use crate::tool::{root, tool};
use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, Args)]
pub(super) struct SearchArgs {
    /// How many times each side is measured, in turn; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many candidates each side trains in a round.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=192))]
    trials: u32,
    /// How many are trained at once, each by one thread.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
}

/// Images of a partial training: a tenth of a pass.
const SAMPLES: u32 = 6_000;
const BATCH: u32 = 128;

pub(super) fn run(args: &SearchArgs) -> anyhow::Result<()> {
    let installing = Environment::search_bench()?.begin()?;
    let phalanx = release()?;
    let bench = Bench { phalanx, python: installing.wait()?, work: root().join("target/bench-search") };
    let data = root().join("datasets/mnist");
    ensure!(data.is_dir(), "MNIST is not there; `cargo xtask data mnist` fetches it");
    std::fs::create_dir_all(&bench.work)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        let (mine, candidates) = bench.ours(args, &data, round)?;
        ours.push(mine);
        theirs.push(bench.theirs(args, &data, &candidates)?);
    }
    print(args, &ours, &theirs)
}

struct Bench {
    phalanx: PathBuf,
    python: PathBuf,
    work: PathBuf,
}

impl Bench {
    /// A search that trains random candidates partially, from its start to its end; and the candidates it tried.
    fn ours(&self, args: &SearchArgs, data: &Path, round: u32) -> anyhow::Result<(Value, PathBuf)> {
        let dir = self.work.join("search");
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let file = self.work.join("search.toml");
        std::fs::write(&file, search_file(args, data, round))?;
        let (file, dir_text) = (file.to_string_lossy().into_owned(), dir.to_string_lossy().into_owned());
        let workers = args.workers.to_string();
        let words = ["search", "run", &file, "--dir", &dir_text, "--local", &workers, "--output", "json"];
        let began = Instant::now();
        tool(&self.phalanx, &words).env("PHALANX_RUNTIME_DIR", self.work.join("domains")).capture()?;
        let seconds = began.elapsed().as_secs_f64();
        let rows = tool(&self.phalanx, &["search", "status", &dir_text, "--output", "json"]).capture()?;
        let rows: Vec<Value> = serde_json::from_str(rows.trim()).context("could not read the trials")?;
        let about: Value = serde_json::from_slice(&std::fs::read(dir.join("search.json"))?)?;
        let candidates: Vec<Value> =
            rows.iter().map(|row| candidate(&about, row)).collect::<anyhow::Result<_>>()?;
        let path = self.work.join("candidates.json");
        std::fs::write(&path, serde_json::to_vec(&candidates)?)?;
        let accuracies = rows.iter().filter_map(|row| row.pointer("/results/0/values/accuracy")?.as_f64());
        let accuracies: Vec<f64> = accuracies.collect();
        ensure!(
            accuracies.len() == args.trials as usize,
            "{} of {} trials have a result",
            accuracies.len(),
            args.trials
        );
        let mean = accuracies.iter().sum::<f64>() / accuracies.len() as f64;
        Ok((json!({ "seconds": seconds, "mean_accuracy": mean }), path))
    }

    fn theirs(&self, args: &SearchArgs, data: &Path, candidates: &Path) -> anyhow::Result<Value> {
        let script = root().join("xtask/bench/search_archai.py");
        let numbers = [args.workers, SAMPLES, BATCH].map(|number| number.to_string());
        let mut words = vec![script.into_os_string(), data.into(), candidates.into()];
        words.extend(numbers.into_iter().map(Into::into));
        json(&tool(&self.python, &words).capture()?)
    }
}

/// What a trial chose, by the names of the space.
fn candidate(about: &Value, row: &Value) -> anyhow::Result<Value> {
    let genes = about.pointer("/space/genes").and_then(Value::as_array).context("no space in search.json")?;
    let chosen = row.get("genes").and_then(Value::as_array).context("a trial has no genes")?;
    let pairs = genes.iter().zip(chosen).map(|(gene, index)| {
        let index = index.as_u64().context("no number of a choice")?;
        let number = gene.pointer(&format!("/choices/{index}/number")).and_then(Value::as_f64);
        let name = gene.get("name").and_then(Value::as_str).context("a gene has no name")?;
        Ok((name.to_owned(), json!(number.context("a choice is no number")? as u64)))
    });
    Ok(Value::Object(pairs.collect::<anyhow::Result<_>>()?))
}

fn search_file(args: &SearchArgs, data: &Path, round: u32) -> String {
    let data = data.display();
    format!(
        r#"
[space]
nb_layers = {{ from = 1, to = 12 }}
kernel_size = [1, 3, 5, 7]
hidden_dim = [16, 32, 64, 128]

[model]
input = [1, 28, 28]
[[model.layer]]
repeat = "$nb_layers"
layer = [
  {{ type = "conv2d", out = "$hidden_dim", kernel = "$kernel_size", padding = "same" }},
  {{ type = "batch_norm", activation = "relu" }},
]
[[model.layer]]
type = "global_avg_pool"
[[model.layer]]
type = "linear"
out = 10

[data]
train = {{ file = "{data}/train-images-idx3-ubyte", labels_file = "{data}/train-labels-idx1-ubyte" }}
valid = {{ file = "{data}/t10k-images-idx3-ubyte", labels_file = "{data}/t10k-labels-idx1-ubyte" }}
reshape = [1, 28, 28]
scale = 0.00392156862745098
mean = 0.1307
std = 0.3081

[train]
loss = "cross_entropy"
optimizer = {{ name = "adam", lr = 0.001 }}
batch = {BATCH}
epochs = 1

[search]
algorithm = "random"
trials = {trials}
seed = {round}
rungs = {{ first = "0.1 epochs", factor = 1000 }}
finish = "none"

[objective.accuracy]
goal = "max"
from = "valid.accuracy"
[objective.flops]
goal = "min"
from = "flops"
[constraint]
flops = {{ at_most = 3e7 }}
"#,
        trials = args.trials,
    )
}

fn print(args: &SearchArgs, ours: &[Value], theirs: &[Value]) -> anyhow::Result<()> {
    let per_minute = |seconds: f64| f64::from(args.trials) * 60.0 / seconds;
    let (mine, peer) = (median(ours, "seconds")?, median(theirs, "seconds")?);
    say(&format!("{} partial trainings of {SAMPLES} images each, {} at once", args.trials, args.workers));
    for (name, runs, seconds) in [("phalanx search run", ours, mine), ("Archai, Ray, PyTorch", theirs, peer)]
    {
        let each: Vec<String> = runs
            .iter()
            .map(|run| Ok(format!("{:.1}", number(run, "seconds")?)))
            .collect::<anyhow::Result<_>>()?;
        say(&format!(
            "{name:<22} {:>7.1} a minute   {} s   mean accuracy {:.4}",
            per_minute(seconds),
            each.join(" "),
            median(runs, "mean_accuracy")?
        ));
    }
    say(&format!("ratio {:.2}x", peer / mine));
    Ok(())
}
